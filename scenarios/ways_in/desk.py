import json
import re
import sys
from typing import Any
from urllib.request import urlopen


def answer(request: dict[str, Any]) -> str:
    def call(name: str, **arguments: str) -> Any:
        with urlopen(f"{request['functions_url']}/call/{name}", json.dumps(arguments).encode()) as response:
            return json.load(response)["result"]

    serial_number = re.findall(r"SN\d+", request["message"])[0]
    status = call("check_warranty", serial_number=serial_number)["status"]
    call("send_reply", to=request["input"]["email"]["from"], body=f"{serial_number} is {status}.")
    return f"answered: {status}"


if __name__ == "__main__":
    print(answer(json.load(sys.stdin)))
