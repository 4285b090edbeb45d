"""An OpenAI-shaped model behind a limit: `POST .../chat/completions` asks for two function calls, then answers.

It allows `--rate` requests a second (a bucket of `--burst`), or `--per-minute` requests in each minute of its clock,
and answers 429 beyond, or `--outage-status` for `--outage` seconds, from second 2 after its first request on.
`GET /counts` gives what it has counted since `GET /begin`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from typing import Any

CALLS = [("look_up", {"id": "A1"}), ("look_up", {"id": "A2"})]


class Service:
    """One limit for all who ask."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.begin()

    def begin(self) -> None:
        """Begin anew: a full bucket, nothing counted."""
        self._level, self._since, self._minutes = self.options.burst, time.monotonic(), dict[int, int]()
        self.began: float | None = None  # at the first request
        self.answered = 0.0  # at the last answer
        self.accepted, self.refused_at = 0, list[float]()

    def refuse(self) -> tuple[int, float | None] | None:
        """Return the status of a refusal and the seconds after which to ask again; None: the request is accepted."""
        now = time.monotonic()
        self.began = self.began or now
        options, seconds = self.options, now - self.began
        if 2 <= seconds < 2 + options.outage:
            return options.outage_status, options.retry_after
        if options.per_minute:
            minute = int(seconds // 60)
            self._minutes[minute] = self._minutes.get(minute, 0) + 1
            return (429, 60 - seconds % 60) if self._minutes[minute] > options.per_minute else None
        self._level = min(self._level + (now - self._since) * options.rate, options.burst)
        self._since = now
        if self._level < 1:
            return 429, options.retry_after
        self._level -= 1
        return None

    def count(self) -> dict[str, Any]:
        """Return what was counted: refusals, those after the first three seconds, and the most in one second."""
        late = [moment - (self.began or 0) for moment in self.refused_at if moment - (self.began or 0) > 3]
        seconds = [int(moment) for moment in late]
        busiest = max(map(seconds.count, seconds), default=0)
        span_s = self.answered - (self.began or 0)
        counts = {"accepted": self.accepted, "refused": len(self.refused_at), "late": len(late), "busiest": busiest}
        return {**counts, "seconds": span_s}

    async def answer(self, body: bytes) -> tuple[int, dict[str, Any], float | None]:
        """Return status, reply and Retry-After."""
        refusal = self.refuse()
        if refusal is not None:
            self.refused_at.append(time.monotonic())
            status, after_s = refusal
            said = after_s if self.options.retry_after is not None else None
            return status, {"error": {"message": "Rate limit reached", "type": "rate_limit_exceeded"}}, said
        self.accepted += 1
        await asyncio.sleep(self.options.latency)
        self.answered = time.monotonic()
        asked = json.loads(body)
        turn = sum(message["role"] == "tool" for message in asked["messages"])
        functions = [tool["function"]["name"] for tool in asked.get("tools", ())]
        if "look_up" not in functions:  # a grader, or a prompt of one turn
            turn = len(CALLS)
        message: dict[str, Any] = {"role": "assistant", "content": None if turn < len(CALLS) else "Both are there."}
        if turn < len(CALLS):
            name, arguments = CALLS[turn]
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [{"id": f"call_{turn}", "type": "function", "function": function}]
        if "grade" in functions:
            message["content"] = json.dumps({"grades": [{"criterion": 1, "reason": "It does.", "pass": True}]})
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if turn < len(CALLS) else "stop"}
        usage = {"prompt_tokens": 300, "completion_tokens": 50, "total_tokens": 350}
        head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        return 200, {**head, "choices": [choice], "usage": usage}, None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                headers = {line.partition(":")[0].lower(): line.partition(":")[2] for line in head.split("\r\n")[1:]}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                path = head.split(" ")[1]
                if path in ("/counts", "/begin"):
                    status, reply, after_s = 200, self.count(), None
                    if path == "/begin":
                        self.begin()
                else:
                    status, reply, after_s = await self.answer(body)
                data = json.dumps(reply).encode()
                more = "" if after_s is None else f"Retry-After: {after_s:g}\r\n"
                first = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
                writer.write(f"{first}{more}Content-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--burst", type=float, default=20.0)
    parser.add_argument("--latency", type=float, default=0.2, help="seconds")
    parser.add_argument("--retry-after", type=float, help="seconds that refusals say (default: they say none)")
    parser.add_argument("--per-minute", type=int, default=0)
    parser.add_argument("--outage", type=float, default=0.0, help="seconds")
    parser.add_argument("--outage-status", type=int, default=429)
    service = Service(parser.parse_args())
    server = await asyncio.start_server(service.serve, "127.0.0.1", service.options.port)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
