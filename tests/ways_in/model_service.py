"""A model's service in a process of its own: `model_service.py PORT_FILE` answers every first request by a call of
`delete_account`, and one that holds an answer to it by a text. Chat completions;
`/desk` asks the model itself; any other path gets a line of text."""

from __future__ import annotations

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None: ...

    def do_GET(self) -> None:
        if self.path.endswith("/results"):  # of a batch
            call = {"type": "tool_use", "id": "t1", "name": "delete_account", "input": {}}
            message = {"type": "message", "role": "assistant", "content": [call], "stop_reason": "tool_use"}
            line = {"custom_id": "a", "result": {"type": "succeeded", "message": message}}
            self.reply("application/x-jsonl", json.dumps(line).encode() + b"\n")
            return
        self.reply("text/plain", b"ok")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/converse"):
            content = [{"toolUse": {"toolUseId": "t1", "name": "delete_account", "input": {}}}]
            data: dict[str, Any] = {"output": {"message": {"role": "assistant", "content": content}}}
            data |= {"stopReason": "tool_use", "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}}
            self.reply("application/json", json.dumps(data).encode())
            return
        if not self.path.endswith(("/chat/completions", "/desk")):
            self.reply("application/json", b'{"status": "valid"}')
            return
        is_answered = any(message["role"] == "tool" for message in json.loads(body).get("messages", ()))
        call = {"id": "c1", "type": "function", "function": {"name": "delete_account", "arguments": "{}"}}
        message = (
            {"role": "assistant", "content": "done"} if is_answered else {"role": "assistant", "tool_calls": [call]}
        )
        choice = {"index": 0, "finish_reason": "stop" if is_answered else "tool_calls", "message": message}
        data = {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
        self.reply("application/json", json.dumps(data).encode())

    def reply(self, kind: str, content: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with open(f"{sys.argv[1]}.new", "w") as file:
        file.write(str(server.server_port))
    os.rename(f"{sys.argv[1]}.new", sys.argv[1])
    server.serve_forever()
