import json
import re
import sys
from typing import Any
from urllib.request import urlopen

request = json.load(sys.stdin)


def call(name: str, **arguments: str) -> Any:
    with urlopen(f"{request['functions_url']}/call/{name}", json.dumps(arguments).encode()) as answer:
        return json.load(answer)["result"]


serial_number = re.findall(r"SN\d+", request["message"])[0]
status = call("check_warranty", serial_number=serial_number)["status"]
call("send_email", to=request["input"]["email"]["from"], body=f"{serial_number} is {status}.")
print(f"answered: {status}")
