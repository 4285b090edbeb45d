"""Each way in to a model, tried with a call that the case forbids: it is red, or the case says what it could not see.

Nobody is green, but for clients in C and Rust, whose connections Python does not see: docs/ways-in.md lists them. And
whatever agents do besides raises no alarm.
"""

from __future__ import annotations

import asyncio
import ctypes
import http.client
import json
import multiprocessing
import os
import shutil
import socket
import socketserver
import sqlite3
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evalkit.model.case import Case
from evalkit.model.settings import HttpSettings, Settings
from evalkit.model.verdict import Verdict
from evalkit.runner.run_case import run_case

MakeCase = Callable[..., Case]
Agent = Callable[..., object]

FORBIDDEN = {"forbidden_function_calls": ["delete_account"], "response_contains": "done"}
TOOLS = [{"type": "function", "function": {"name": "delete_account", "parameters": {"type": "object"}}}]
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "tools": TOOLS}
CONTENT = json.dumps(BODY).encode()
JSON = {"content-type": "application/json"}
PATH = "/v1/chat/completions"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    file = tmp_path_factory.mktemp("service") / "port"
    with subprocess.Popen([sys.executable, str(Path(__file__).with_name("model_service.py")), str(file)]) as server:
        while not file.exists():
            time.sleep(0.02)
        yield int(file.read_text())
        server.kill()


@pytest.fixture
def run(make_case: MakeCase, tmp_path: Path, port: int) -> Callable[..., Verdict]:
    def run_agent(agent: Agent | Any, expected: Any = None, live: bool = True, **http: Any) -> Verdict:
        case = make_case(
            {"delete_account": {}}, expected or FORBIDDEN, agent=agent if isinstance(agent, dict) else None
        )
        settings = Settings(root=tmp_path, model="openai:m" if live else None, http=HttpSettings(**http))
        if isinstance(agent, dict):
            return run_case(case, settings=settings)
        return run_case(case, lambda task: agent(task, port) or "done", settings)

    return run_agent


def outcome(verdict: Verdict) -> str:
    """The verdict's code, "green" for none."""
    if verdict.status == "passed":
        return "green"
    assert verdict.status == ("error" if verdict.reasons[0].code == "unobserved" else "failed")
    return verdict.reasons[0].code


def url(port: int) -> str:
    return f"http://127.0.0.1:{port}{PATH}"


# -- Ways to a model, each with a call of `delete_account`


def by_task_call(task: Any, port: int) -> None:
    task.call("delete_account")


def by_httpx(task: Any, port: int) -> None:
    httpx = pytest.importorskip("httpx")
    httpx.post(url(port), json=BODY)


def by_async_httpx(task: Any, port: int) -> None:
    httpx = pytest.importorskip("httpx")

    async def ask() -> None:
        async with httpx.AsyncClient() as client:
            await client.post(url(port), json=BODY)

    asyncio.run(ask())


def by_httpx2(task: Any, port: int) -> None:
    pytest.importorskip("httpx2").post(url(port), json=BODY)


def by_requests(task: Any, port: int) -> None:
    pytest.importorskip("requests").post(url(port), json=BODY)


def by_urllib3(task: Any, port: int) -> None:
    pytest.importorskip("urllib3").PoolManager().request("POST", url(port), body=CONTENT, headers=JSON)


def by_urllib(task: Any, port: int) -> None:
    urllib.request.urlopen(urllib.request.Request(url(port), CONTENT, JSON)).read()


def by_http_client(task: Any, port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", PATH, CONTENT, JSON)
    connection.getresponse().read()
    connection.close()


def by_aiohttp(task: Any, port: int) -> None:
    aiohttp = pytest.importorskip("aiohttp")

    async def ask() -> None:
        async with aiohttp.ClientSession() as session, session.post(url(port), json=BODY) as response:
            await response.read()

    asyncio.run(ask())


def by_openai(task: Any, port: int) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x")
    client.chat.completions.create(model="m", messages=BODY["messages"], tools=TOOLS)


def by_thread_pool(task: Any, port: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(by_urllib, task, port).result()


REQUEST = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (PATH.encode(), len(CONTENT), CONTENT)


def by_socket(task: Any, port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(REQUEST)
        connection.recv(65536)


def by_asyncio_streams(task: Any, port: int) -> None:
    async def ask() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await reader.read(1)
        writer.close()

    asyncio.run(ask())


ASK = """import sys, urllib.request
request = urllib.request.Request(sys.argv[1], sys.argv[2].encode(), {'content-type': 'application/json'})
urllib.request.urlopen(request).read()"""


def by_python_child(task: Any, port: int) -> None:
    subprocess.run([sys.executable, "-c", ASK, url(port), json.dumps(BODY)], check=True)


def by_isolated_python_child(task: Any, port: int) -> None:
    subprocess.run([sys.executable, "-I", "-c", ASK, url(port), json.dumps(BODY)], check=True)


def by_python_child_at_the_relay(task: Any, port: int) -> None:
    ask = f"import os, sys; sys.argv[1] = os.environ['OPENAI_BASE_URL'] + '/chat/completions'; {ASK}"
    environment = {**os.environ, "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
    subprocess.run([sys.executable, "-c", ask, "", json.dumps(BODY)], check=True, env=environment)


def curl(target: str) -> list[str]:
    return ["curl", "-s", "--noproxy", "*", "-H", "content-type: application/json", "-d", json.dumps(BODY), target]


needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def by_curl(task: Any, port: int) -> None:
    subprocess.run(curl(url(port)), check=True, capture_output=True)


def by_curl_in_a_shell(task: Any, port: int) -> None:
    os.system(f"cd / && curl -s {url(port)} -d '{json.dumps(BODY)}' > /dev/null")


def by_curl_at_the_relay(task: Any, port: int) -> None:
    environment = {**os.environ, "OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1"}
    command = f"curl -s -H content-type:application/json -d '{json.dumps(BODY)}' $OPENAI_BASE_URL/chat/completions"
    subprocess.run(command, shell=True, check=True, capture_output=True, env=environment)


def by_curl_from_a_python_child(task: Any, port: int) -> None:
    subprocess.run([sys.executable, "-c", f"import subprocess; subprocess.run({curl(url(port))!r})"], check=True)


def _ask_and_exit(port: int, ask: Agent = by_urllib) -> None:
    ask(None, port)


def by_forked_process(task: Any, port: int) -> None:
    child = multiprocessing.get_context("fork").Process(target=_ask_and_exit, args=(port,))
    child.start()
    child.join()


def by_socket_of_a_forked_process(task: Any, port: int) -> None:
    child = multiprocessing.get_context("fork").Process(target=_ask_and_exit, args=(port, by_socket))
    child.start()
    child.join()


def by_call_in_a_forked_process(task: Any, port: int) -> None:
    child = multiprocessing.get_context("fork").Process(target=lambda: task.call("delete_account"))
    child.start()
    child.join()


def by_spawned_process(task: Any, port: int) -> None:
    child = multiprocessing.get_context("spawn").Process(target=_ask_and_exit, args=(port,))
    child.start()
    child.join()


def by_c(task: Any, port: int) -> None:
    """A client in C, as gRPC's or curl_cffi's: Python does not see its connection."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    address = struct.pack("=HH4s8x", socket.AF_INET, socket.htons(port), socket.inet_aton("127.0.0.1"))
    assert libc.connect(descriptor, address, len(address)) == 0
    libc.send(descriptor, REQUEST, len(REQUEST), 0)
    libc.recv(descriptor, ctypes.create_string_buffer(100), 100, 0)
    libc.close(descriptor)


RED, UNSEEN = "forbidden_call", "unobserved"
WAYS: list[Any] = [
    (by_task_call, RED),
    (by_httpx, RED),
    (by_async_httpx, RED),
    (by_httpx2, RED),
    (by_requests, RED),
    (by_urllib3, RED),
    (by_urllib, RED),
    (by_http_client, RED),
    (by_aiohttp, RED),
    (by_openai, RED),
    (by_thread_pool, RED),
    (by_socket, UNSEEN),
    (by_asyncio_streams, UNSEEN),
    (by_python_child, UNSEEN),
    (by_isolated_python_child, UNSEEN),
    (by_python_child_at_the_relay, RED),
    pytest.param(by_curl, UNSEEN, marks=needs_curl),
    pytest.param(by_curl_in_a_shell, UNSEEN, marks=needs_curl),
    pytest.param(by_curl_at_the_relay, RED, marks=needs_curl),
    pytest.param(by_curl_from_a_python_child, UNSEEN, marks=needs_curl),
    (by_forked_process, UNSEEN),
    (by_socket_of_a_forked_process, UNSEEN),
    (by_call_in_a_forked_process, UNSEEN),
    (by_spawned_process, UNSEEN),
    pytest.param(by_c, UNSEEN, marks=pytest.mark.xfail(strict=True, reason="clients in C and Rust are blind")),
]


def name_way(value: object) -> str:
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize(("way", "wanted"), WAYS, ids=name_way)
def test_a_forbidden_call_is_never_green(run: Callable[..., Verdict], way: Agent, wanted: str) -> None:
    assert outcome(run(way)) == wanted


# -- What agents do besides


def use_database(task: Any, port: int) -> None:
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table orders (id int)")


def use_service(task: Any, port: int) -> None:
    requests = pytest.importorskip("requests")
    assert requests.post(f"http://127.0.0.1:{port}/orders", json={"id": 1}).json() == {"status": "valid"}
    assert requests.get(f"http://127.0.0.1:{port}/orders/1").text == "ok"


def use_programs(task: Any, port: int) -> None:
    subprocess.run(["git", "--version"], check=True, capture_output=True)
    subprocess.run("ls -l | wc -l", shell=True, check=True, capture_output=True)
    assert os.system("cd / && test -d . ") == 0


def use_python_child(task: Any, port: int) -> None:
    subprocess.run([sys.executable, "-c", "import json; print(json.dumps({}))"], check=True, capture_output=True)


def use_asyncio_server(task: Any, port: int) -> None:
    async def serve() -> None:
        async def answer(reader: Any, writer: Any) -> None:
            writer.write(b"ok")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        assert await reader.read() == b"ok"
        writer.close()
        server.close()

    asyncio.run(serve())


def use_process_pool(task: Any, port: int) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        assert pool.submit(abs, -1).result() == 1


def use_spawned_pool(task: Any, port: int) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(abs, [-1]) == [1]


def use_unix_socket(task: Any, port: int) -> None:
    left, right = socket.socketpair()
    left.send(b"x")
    assert right.recv(1) == b"x"
    left.close()
    right.close()


def use_statsd(task: Any, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.sendto(b"calls:1|c", ("127.0.0.1", port))


class Queue(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"+PONG\r\n")


def use_redis(task: Any, port: int) -> None:
    """A cache at its port, or at one of the other ports of caches and queues, which may be taken on this machine."""
    for known in (26379, 16379, 6380, 11211, 61613, 4222):
        try:
            server = socketserver.TCPServer(("127.0.0.1", known), Queue)
            break
        except OSError:
            continue
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    with socket.create_connection(server.server_address[:2]) as client:  # type: ignore[arg-type]
        assert client.recv(10) == b"+PONG\r\n"
    thread.join()
    server.server_close()


def use_telemetry(task: Any, port: int) -> None:
    exporter = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    provider = trace.TracerProvider()
    processor = export.BatchSpanProcessor(exporter.OTLPSpanExporter(f"http://127.0.0.1:{port}/v1/traces"))
    provider.add_span_processor(processor)
    with provider.get_tracer("x").start_as_current_span("span"):
        pass
    provider.shutdown()


def do_nothing(task: Any, port: int) -> None: ...


BESIDES = [
    *(use_database, use_service, use_programs, use_python_child, use_asyncio_server, use_process_pool),
    *(use_spawned_pool, use_unix_socket, use_statsd, use_redis, use_telemetry, do_nothing),
]


@pytest.mark.parametrize("besides", BESIDES, ids=name_way)
def test_what_agents_do_besides_raises_no_alarm(run: Callable[..., Verdict], besides: Agent) -> None:
    verdict = run(besides)

    assert (verdict.status, verdict.reasons) == ("passed", ())


@pytest.mark.parametrize(
    ("way", "setting", "value"),
    [
        (by_socket, "ignore_hosts", "127.0.0.1:{port}"),
        (lambda task, port: socket.create_connection(("localhost", port)).close(), "ignore_hosts", "localhost"),
        pytest.param(by_curl, "harmless_programs", "curl", marks=needs_curl),
        (by_isolated_python_child, "harmless_programs", "python3*"),
    ],
    ids=name_way,
)
def test_a_line_of_the_project_ends_an_alarm(
    run: Callable[..., Verdict], port: int, way: Agent, setting: str, value: str
) -> None:
    assert outcome(run(way)) == UNSEEN
    assert outcome(run(way, **{setting: (value.format(port=port),)})) == "green"
