"""The model's side for programs that an agent of this process starts: a server on a thread of its own.

The agent may block its event loop while it waits for such a program, so nothing there could answer it. Each program has
a URL of its own, by which it is known whether it came. Offline the server is the proxy of those in other languages.
"""

from __future__ import annotations

import asyncio
import contextvars
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from evalkit.agents.remote.http_server import HttpServer, Message, Receive, Send, send_json
from evalkit.agents.remote.model_relay import ModelRelay
from evalkit.agents.remote.model_services import build_model_environment
from evalkit.agents.remote.server import HTTP2, FunctionsApp, refuse_http2
from evalkit.locks import create_lock

if TYPE_CHECKING:
    from evalkit.agents.task import Task

START_S = 10.0
PROXY = "EVALKIT_PROXY"  # by which the guard of a child in Python knows it, and does without


class ChildRelay:
    """The server of one run. It starts with the first program that needs it. `refuse` gets the ``host:port`` that a
    program has asked its proxy for."""

    def __init__(self, task: Task, refuse: Callable[[str], None]) -> None:
        self._task = task
        self._refuse = refuse
        self._apps: dict[str, FunctionsApp] = {}
        self._server = HttpServer(self._route)

    def serve(self, environment: Mapping[str, str]) -> tuple[dict[str, str | None], FunctionsApp | None]:
        """Return the variables that lead the model clients of a program here, and what tells whether it came; none
        where nothing is to be seen. `environment` is the program's own."""
        if not build_model_environment(self._task, "", environment, {}):
            return {}, None
        token = secrets.token_urlsafe(18)
        app = self._apps[token] = FunctionsApp(self._task, token, ModelRelay(self._task, dict(environment)))
        variables = build_model_environment(self._task, f"{self._start()}/{token}", environment, {})
        return variables | _build_exceptions(environment), app

    def build_proxy_environment(self, environment: Mapping[str, str], hosts: Iterable[str] = ()) -> dict[str, str]:
        """Return the variables that keep a program in another language off the internet: its proxy for TLS is this
        server, which refuses. Hosts of this machine are no matter of it, nor `hosts`, patterns of those that may be
        reached."""
        proxy = self._start()
        names = ("https_proxy", "HTTPS_PROXY", PROXY)
        exceptions = _build_exceptions(environment, hosts)
        return {**dict.fromkeys(names, proxy), "NODE_USE_ENV_PROXY": "1", **exceptions}

    def close(self) -> None:
        """Stop answering."""
        if self._server.port:
            asyncio.run_coroutine_threadsafe(self._server.__aexit__(None, None, None), _get_loop())

    def _start(self) -> str:
        if not self._server.port:
            asyncio.run_coroutine_threadsafe(self._server.__aenter__(), _get_loop()).result(START_S)
        return f"http://127.0.0.1:{self._server.port}"

    async def _route(self, scope: Message, receive: Receive, send: Send) -> None:
        app = self._apps.get(scope["path"].split("/", 2)[1]) if scope["path"].startswith("/") else None
        if app is not None:
            await app(scope, receive, send)
            return
        if scope["method"] == HTTP2:
            refuse_http2(self._task)
        if scope["method"] == "CONNECT":
            self._refuse(scope["path"])
        message = {"type": "offline", "message": "there is nothing here: the case of this program runs offline"}
        await send_json(send, 403, {"error": message})


def _build_exceptions(environment: Mapping[str, str], hosts: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables by which no proxy is used for this machine and `hosts`."""
    names = ("no_proxy", "NO_PROXY")
    others = [host.removeprefix("*") or "*" for host in hosts]  # ``.example.com`` is what they know of wildcards
    if "*" in others:
        return dict.fromkeys(names, "*")
    return {name: ",".join(filter(None, (environment.get(name), "127.0.0.1,localhost", *others))) for name in names}


_lock = create_lock()
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
