"""The model's side for programs that an agent of this process starts: a server on a thread of its own.

The agent may block its event loop while it waits for such a program, so nothing there could answer it. Each program has
a URL of its own, by which it is known whether it came.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from evalkit.agents.remote.model_relay import ModelRelay, build_model_environment
from evalkit.agents.remote.server import FunctionsApp, HttpServer, Message, Receive, Send

if TYPE_CHECKING:
    from evalkit.agents.task import Task

START_S = 10.0


class ChildRelay:
    """The server of one run. It starts with the first program that needs it."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._apps: dict[str, FunctionsApp] = {}
        self._server = HttpServer(self._route)

    def serve(self, environment: Mapping[str, str]) -> tuple[dict[str, str], FunctionsApp | None]:
        """Return the variables that lead the model clients of a program here, and what tells whether it came; none
        where nothing is to be seen. `environment` is the program's own."""
        token = secrets.token_urlsafe(18)
        if not build_model_environment(self._task, "", environment, {}):
            return {}, None
        if not self._server.port:
            asyncio.run_coroutine_threadsafe(self._server.__aenter__(), _get_loop()).result(START_S)
        app = self._apps[token] = FunctionsApp(self._task, token, ModelRelay(self._task, dict(environment)))
        base = f"http://127.0.0.1:{self._server.port}/{token}"
        variables = build_model_environment(self._task, base, environment, {})
        for name in ("no_proxy", "NO_PROXY"):
            variables[name] = ",".join(filter(None, (environment.get(name), "127.0.0.1,localhost")))
        return variables, app

    def close(self) -> None:
        """Stop answering."""
        if self._server.port:
            asyncio.run_coroutine_threadsafe(self._server.__aexit__(None, None, None), _get_loop())

    async def _route(self, scope: Message, receive: Receive, send: Send) -> None:
        token = scope["path"].split("/", 2)[1]
        app = self._apps.get(token) or next(iter(self._apps.values()))  # which refuses a token that is not its own
        await app(scope, receive, send)


_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def _get_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of the thread, which is started with the first program."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_loop.run_forever, name="evalkit-relay", daemon=True)
            contextvars.Context().run(thread.start)  # it belongs to no case
        return _loop
