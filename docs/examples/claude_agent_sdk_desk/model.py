"""Stands for Claude Code and its model, so that the example runs without a key: it says what the program would say."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

from claude_agent_sdk import Transport

_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "desk", "version": "1"}}


class Scripted(Transport):
    def __init__(self) -> None:
        self._told: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._answers: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._numbers = count()
        self._work: asyncio.Task[None] | None = None

    async def connect(self) -> None: ...

    async def end_input(self) -> None: ...

    async def close(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._told.get()) is not None:
            yield message

    async def write(self, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "control_request":
            answer = {"subtype": "success", "request_id": message["request_id"]}
            self._told.put_nowait(
                {"type": "control_response", "response": {**answer, "response": {"hook_on_failure_supported": True}}}
            )
        elif message["type"] == "control_response":
            self._answers[message["response"]["request_id"]].set_result(message["response"]["response"])
        else:
            self._work = asyncio.create_task(self._answer(message["message"]["content"]))

    async def _answer(self, mail: str) -> None:
        await self._ask_server("initialize", _HELLO)
        await self._ask_server("tools/list", {})
        serial_number, customer = re.findall(r"SN\d+", mail)[0], re.findall(r"\S+@\S+", mail)[0]
        status = json.loads(await self._call("check_warranty", {"serial_number": serial_number}))["status"]
        await self._call("send_reply", {"to": customer, "body": f"{serial_number} is {status}."})
        text = f"answered: {status}"
        self._say({"type": "text", "text": text})
        result = {"type": "result", "subtype": "success", "is_error": False, "result": text, "session_id": "s"}
        self._told.put_nowait({**result, "num_turns": 3, "duration_ms": 1, "duration_api_ms": 1})
        self._told.put_nowait(None)

    def _say(self, block: dict[str, Any]) -> None:
        reply = {"id": f"msg_{next(self._numbers)}", "role": "assistant", "model": "scripted", "content": [block]}
        self._told.put_nowait({"type": "assistant", "message": reply})

    async def _call(self, name: str, arguments: dict[str, str]) -> str:
        call_id = f"toolu_{next(self._numbers)}"
        self._say({"type": "tool_use", "id": call_id, "name": f"mcp__shop__{name}", "input": arguments})
        asked = {"tool_name": f"mcp__shop__{name}", "tool_input": arguments, "tool_use_id": call_id}
        await self._ask({"subtype": "hook_callback", "callback_id": "hook_0", "input": asked})
        meta = {"claudecode/toolUseId": call_id}
        answer = await self._ask_server("tools/call", {"name": name, "arguments": arguments, "_meta": meta})
        return str(answer["mcp_response"]["result"]["content"][0]["text"])

    async def _ask_server(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": parameters}
        return await self._ask({"subtype": "mcp_message", "server_name": "shop", "message": message})

    async def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        key = f"r{next(self._numbers)}"
        self._answers[key] = asyncio.get_running_loop().create_future()
        self._told.put_nowait({"type": "control_request", "request_id": key, "request": request})
        return await self._answers[key]
