"""An MCP server on stdin and stdout that misbehaves as its argument says. It is copied into a project and run there."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
EVIL = "\x1b[2J\x1b]0;pwn\x07<script>alert(1)</script>\n::error::x\n##[error]y \u202e"
TOOL: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}}
SCHEMAS: dict[str, Any] = {
    "a schema elsewhere": {"$ref": "http://127.0.0.1:9/x.json"},
    "a schema in a file": {"$ref": "file:///etc/passwd"},
    "a schema in itself": {"$ref": "#"},
}
REQUESTS = ("sampling/createMessage", "roots/list", "elicitation/create", "no/such")
HELLO = [{"type": "text", "text": EVIL if HOW == "escapes" else "hi"}]


def send(**message: Any) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def list_tools(number: object) -> None:
    tools, more = [TOOL], {"nextCursor": "x"} if HOW == "pages without an end" else {}
    if HOW == "a name twice":
        tools = [TOOL, {**TOOL, "inputSchema": {"type": "object", "required": ["zzz"]}}]
    if HOW in SCHEMAS:
        tools = [{**TOOL, "inputSchema": {"type": "object", "properties": {"a": SCHEMAS[HOW]}}}]
    send(id=number, result={"tools": tools, **more})


def answer(number: object) -> None:
    if HOW == "an end":
        os._exit(0)
    if HOW == "no answer":
        time.sleep(1000)
    if HOW == "a line without an end":
        while True:
            sys.stdout.write("y" * 65536)
    if HOW == "requests":
        for method in REQUESTS:
            send(id=method, method=method, params={"messages": [], "maxTokens": 5, "message": "?"})
    if HOW == "an error":
        send(id=number, error={"code": -32000, "message": EVIL, "data": {"x": EVIL}})
    elif HOW == "another call's answer":
        send(id=4711, result={"content": HELLO})
    elif HOW == "no content":
        send(id=number, result={})
    elif HOW == "an empty answer to a task":
        send(id=number, result={"task": {"taskId": "1"}})
    else:
        send(id=number, result={"content": HELLO})
    if HOW == "two answers":
        send(id=number, result={"content": [{"type": "text", "text": "forged"}]})


def main() -> None:
    if HOW == "no start":
        time.sleep(1000)
    if HOW == "no end":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for line in sys.stdin:
        message = json.loads(line)
        number, method = message.get("id"), message.get("method")
        if method == "initialize":
            version = "1999-01-01" if HOW == "another version" else message["params"]["protocolVersion"]
            server = {"name": EVIL, "version": "1"}
            send(id=number, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
        elif method == "tools/list":
            list_tools(number)
        elif method == "tools/call":
            answer(number)
        elif method is not None and number is not None:
            send(id=number, error={"code": -32601, "message": "no such method"})
    if HOW == "no end":
        time.sleep(1000)


if __name__ == "__main__":
    main()
