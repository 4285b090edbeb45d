import asyncio
import json
import re
import sys
from typing import Any

from mcp import Client


async def answer(request: dict[str, Any]) -> str:
    async with Client(request["mcp_url"]) as client:
        serial_number = re.findall(r"SN\d+", request["message"])[0]
        found = await client.call_tool("check_warranty", {"serial_number": serial_number})
        status = found.structured_content["status"]
        mail = {"to": request["input"]["email"]["from"], "body": f"{serial_number} is {status}."}
        await client.call_tool("send_reply", mail)
        return f"answered: {status}"


print(asyncio.run(answer(json.load(sys.stdin))))
