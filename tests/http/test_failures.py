"""A request that fails below HTTP fails on replay as it did live, with each client library."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.agents.task import Task
from evalkit.models.cassettes.http.cassette_file import load_http_cassette
from evalkit.models.cassettes.http.failures import KINDS, find_failure
from evalkit.records.verdict import Verdict

Run = Callable[..., Verdict]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
BEGUN = b'{"choices": [{"index": 0, "mess'
CUT = HEAD + b"Content-Length: 500\r\n\r\n" + BEGUN
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + f"{len(BEGUN):x}\r\n".encode() + BEGUN + b"\r\n"
# path -> what the server writes, and what it does then
WAYS: dict[str, tuple[bytes, str]] = {
    "closes": (b"", "close"), "resets": (b"", "reset"), "hangs": (b"", "hang"),
    "cuts": (CUT, "close"), "cuts-chunks": (CHUNKED, "close"), "resets-within": (CUT, "reset"),
    "hangs-within": (CUT, "hang"), "resets-chunks": (CHUNKED, "reset"),
}  # fmt: skip


def _is_whole(request: bytes) -> bool:
    head, end, body = request.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end) and len(body) >= sum(int(line.partition(b":")[2]) for line in lengths)


class BadServer:
    """A server that answers each request as its path says, and closes."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._context = context
        self._hanging: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        self.count = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        if self._context is not None:
            try:
                connection = self._context.wrap_socket(connection, server_side=True)
            except OSError:
                return
        received = b""
        while not _is_whole(received):
            piece = connection.recv(65536)
            if not piece:  # the client has closed the connection
                connection.close()
                return
            received += piece
        head = received.partition(b"\r\n\r\n")[0]
        self.count += 1
        content, ending = WAYS[head.split(b" ")[1].split(b"/")[1].decode()]
        connection.sendall(content)
        if ending == "hang":
            self._hanging.append(connection)
            return
        if ending == "reset":
            threading.Event().wait(0.05)  # what was sent is read before
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    def close(self) -> None:
        self._listener.close()
        for connection in self._hanging:
            connection.close()


@pytest.fixture(scope="module")
def bad() -> Iterator[BadServer]:
    server = BadServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def untrusted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose certificate nobody trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("certificate")
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    subprocess.run(["openssl", *made.split(), "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True,
                   capture_output=True)  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    server = BadServer(context)
    yield f"https://127.0.0.1:{server.port}/closes"
    server.close()


@pytest.fixture(scope="module")
def urls(bad: BadServer, untrusted: str) -> list[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed_port = server.getsockname()[1]
    places = [f"http://127.0.0.1:{bad.port}/{way}" for way in WAYS if way != "cuts-cleanly"]
    refusing = f"http://127.0.0.1:{closed_port}"
    no_tls = f"https://127.0.0.1:{bad.port}/hangs"
    return [*places, refusing, no_tls, untrusted, "http://no-such-host.invalid"]


def describe(error: BaseException) -> tuple[str, ...]:
    """The error and what it came from: what an agent can go by."""
    told = []
    inner: BaseException | None = error
    while inner is not None:
        told.append(f"{type(inner).__module__}.{type(inner).__qualname__}: {inner}")
        inner = inner.__cause__
    return tuple(told)


ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def choose_limit(url: str) -> float:
    return 0.3 if "hangs" in url else 10.0


def by_httpx(url: str) -> None:
    import httpx

    with httpx.Client(timeout=choose_limit(url)) as client:
        client.post(f"{url}/v1/chat/completions", json=ASKED).json()


async def by_async(library: Any, url: str) -> None:
    async with library.AsyncClient(timeout=0.3) as client:
        (await client.post(f"{url}/v1/chat/completions", json=ASKED)).json()


async def by_async_httpx(url: str) -> None:
    import httpx

    await by_async(httpx, url)


async def by_async_httpx2(url: str) -> None:
    import httpx2

    await by_async(httpx2, url)


def by_requests(url: str) -> None:
    import requests

    requests.post(f"{url}/v1/chat/completions", json=ASKED, timeout=0.3).json()


def by_urllib3(url: str) -> None:
    import urllib3

    with urllib3.PoolManager(retries=urllib3.Retry(1, backoff_factor=0)) as pool:
        pool.request("POST", f"{url}/v1/chat/completions", json=ASKED, timeout=0.3).json()


def by_urllib(url: str) -> None:
    from urllib.request import Request, urlopen

    body = json.dumps(ASKED).encode()
    with urlopen(Request(f"{url}/v1/chat/completions", body), timeout=choose_limit(url)) as response:
        response.read()


def by_http_client(url: str) -> None:
    from http.client import HTTPConnection, HTTPSConnection

    kind = HTTPSConnection if url.startswith("https") else HTTPConnection
    place, _, path = url.partition("://")[2].partition("/")
    with closing(kind(place, timeout=0.3)) as connection:
        connection.request("POST", f"/{path}/v1/chat/completions", json.dumps(ASKED).encode())
        with connection.getresponse() as response:
            while response.read(7):
                pass


async def by_aiohttp(url: str) -> None:
    import aiohttp

    limits = aiohttp.ClientTimeout(sock_connect=0.3, sock_read=0.3)
    async with (
        aiohttp.ClientSession(timeout=limits) as session,
        session.post(f"{url}/v1/chat/completions", json=ASKED) as response,
    ):
        await response.read()


def by_openai(url: str) -> None:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=0.3) as client:
        client.chat.completions.create(**ASKED)  # type: ignore[call-overload]


def by_anthropic(url: str) -> None:
    import anthropic

    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=0.3) as client:
        client.messages.create(max_tokens=9, **ASKED)  # type: ignore[call-overload]


def by_genai(url: str) -> None:
    from google import genai

    with genai.Client(api_key="k", http_options={"base_url": url, "timeout": 300}) as client:
        client.models.generate_content(model="m", contents="hi")


def by_boto3(url: str) -> None:
    import boto3
    from botocore.config import Config

    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "k", "region_name": "eu-west-1"}
    config = Config(read_timeout=0.3, connect_timeout=0.3, retries={"total_max_attempts": 1})
    client: Any = boto3.client("bedrock-runtime", endpoint_url=url, config=config, **keys)
    try:
        client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])
    finally:
        client.close()


CLIENTS: dict[str, Callable[[str], Any]] = {
    "httpx": by_httpx, "async_httpx": by_async_httpx, "async_httpx2": by_async_httpx2, "requests": by_requests,
    "urllib3": by_urllib3, "urllib": by_urllib, "http": by_http_client, "aiohttp": by_aiohttp, "openai": by_openai,
    "anthropic": by_anthropic, "google.genai": by_genai, "boto3": by_boto3,
}  # fmt: skip


@pytest.mark.parametrize("client", CLIENTS)
def test_replay_raises_what_live_raised(
    client: str, urls: list[str], bad: BadServer, run: Run, make_case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "*")
    pytest.importorskip(client.removeprefix("async_"))
    use, told = CLIENTS[client], []

    async def ask(url: str) -> None:
        await use(url)

    def agent(task: Task) -> str:
        errors = {}
        for url in urls:
            try:
                if client.startswith(("async", "aio")):
                    asyncio.run(ask(url))
                else:
                    use(url)
            except Exception as error:
                errors[url] = describe(error)
        told.append(errors)
        return "re: hi"

    case = replace(make_case(), expected_output={"response_contains": "re: hi", "model_failure": True})
    recorded = run(agent, case, record="all")
    assert (recorded.status, recorded.warnings) == ("passed", ()), recorded.reasons
    count = bad.count
    replayed = run(agent, case)
    assert replayed.status == "passed", replayed.reasons

    live, again = told
    assert len(live) >= len(urls) - 1  # http.client does not notice every cut
    assert [(url, live.get(url), again.get(url)) for url in urls if live.get(url) != again.get(url)] == []
    assert bad.count == count
    assert recorded.transcript.failed_requests == replayed.transcript.failed_requests


def test_a_recording_holds_codes(bad: BadServer, urls: list[str], run: Run, make_case: Any, cassette: Path) -> None:
    def agent(task: Task) -> str:
        for url in urls:
            with suppress(OSError, HTTPException):
                by_urllib(url)
        return "re: hi"

    case = replace(make_case(), expected_output={"response_contains": "re: hi", "model_failure": True})
    run(agent, case, record="all")
    exchanges = load_http_cassette(cassette, "").exchanges
    failures = [exchange.get("failure") or exchange["response"]["broken"] for exchange in exchanges]
    untrusted = failures[-2].pop("detail")
    assert failures[:-1] == [
        {"kind": "closed", "when": "response"},
        {"kind": "os_error", "when": "response", "code": "ECONNRESET"},
        {"kind": "timeout", "when": "response"},
        {"kind": "closed"},
        {"kind": "closed"},
        {"kind": "os_error", "code": "ECONNRESET"},
        {"kind": "timeout"},
        {"kind": "os_error", "code": "ECONNRESET"},
        {"kind": "os_error", "when": "connect", "code": "ECONNREFUSED"},
        {"kind": "timeout", "when": "handshake", "detail": failures[9]["detail"]},
        {"kind": "tls", "when": "handshake", "code": "CERTIFICATE_VERIFY_FAILED"},
    ]
    assert "certificate verify failed" in untrusted
    assert (failures[-1]["kind"], failures[-1]["when"]) == ("name_lookup", "connect")


@pytest.mark.parametrize("way", ["closes", "cuts", "refuses"])
def test_the_agents_own_retry_runs_again(
    way: str, bad: BadServer, clients: dict[str, Callable[[Task], Any]], run: Run, cassette: Path
) -> None:
    """A program of the agent's that asks again after a failure is replayed, and its failures are on record."""
    import httpx

    with socket.create_server(("127.0.0.1", 0)) as server:
        closed_port = server.getsockname()[1]
    url = f"http://127.0.0.1:{closed_port}" if way == "refuses" else f"http://127.0.0.1:{bad.port}/{way}"

    def agent(task: Task) -> Any:
        with suppress(httpx.TransportError):
            by_httpx(url)
        return clients["httpx"](task)

    ways = [run(agent, record="all"), run(agent), run(agent)]
    assert {verdict.status for verdict in ways} == {"passed"}
    assert len({verdict.transcript.failed_requests for verdict in ways}) == 1
    assert len(ways[0].transcript.failed_requests) == 1


@pytest.mark.parametrize("way", ["closes", "cuts", "hangs", "refuses"])
@pytest.mark.parametrize("demand", [{}, {"model_failure": True}])
def test_the_verdict_is_the_same_live_recorded_and_replayed(
    way: str, demand: dict[str, bool], bad: BadServer, tmp_path: Path, run: Run, make_case: Any
) -> None:
    url = "http://127.0.0.1:9" if way == "refuses" else f"http://127.0.0.1:{bad.port}/{way}"

    def agent(task: Task) -> str:
        import httpx

        with suppress(httpx.TransportError):
            by_httpx(url)
        return "re: hi"

    case = replace(make_case(), expected_output={"response_contains": "re: hi", **demand})
    live, recorded = run(agent, case, model="openai:m"), run(agent, case, record="all")
    reasons = [(verdict.status, verdict.reasons) for verdict in (live, recorded)]
    if demand:  # else it could not be measured, and is not recorded
        reasons.append((lambda verdict: (verdict.status, verdict.reasons))(run(agent, case)))
    assert reasons == [reasons[0]] * len(reasons)
    assert reasons[0][0] == ("passed" if demand else "error")


@pytest.mark.parametrize("client", ["httpx", "aiohttp", "aiohttp_total"])
@pytest.mark.parametrize("way", ["hangs", "hangs-within"])
def test_a_request_that_the_agent_cancels_waits_for_it_on_replay(
    client: str, way: str, bad: BadServer, run: Run, make_case: Any
) -> None:
    pytest.importorskip(client.partition("_")[0])
    url, told = f"http://127.0.0.1:{bad.port}/{way}/v1/chat/completions", []

    async def ask_by_httpx() -> None:
        import httpx

        async with httpx.AsyncClient(timeout=10, verify=False) as session:
            await session.post(url, json=ASKED)

    async def ask_by_aiohttp() -> None:
        import aiohttp

        limits = aiohttp.ClientTimeout(total=0.3 if client == "aiohttp_total" else 10)
        async with aiohttp.ClientSession(timeout=limits) as session, session.post(url, json=ASKED) as response:
            await response.read()

    async def agent(task: Task) -> str:
        try:
            await asyncio.wait_for(
                ask_by_httpx() if client == "httpx" else ask_by_aiohttp(), 5 if "total" in client else 0.4
            )
        except TimeoutError as error:
            told.append(describe(error))
        return "re: hi"

    case = replace(make_case(), expected_output={"response_contains": "re: hi", "model_failure": True})
    ways = [run(agent, case, record="all"), run(agent, case)]
    assert [(verdict.status, verdict.warnings) for verdict in ways] == [("passed", ())] * 2
    assert len(told) == 2
    assert told[0] == told[1]


def test_a_request_that_lost_a_race_is_no_failure_on_replay_either(
    bad: BadServer, clients: dict[str, Callable[[Task], Any]], run: Run
) -> None:
    """The agent asks two services, and cancels the slower one: nothing says that it hung."""
    import httpx

    async def ask_the_slow_one() -> None:
        async with httpx.AsyncClient(timeout=10, verify=False) as session:
            await session.post(f"http://127.0.0.1:{bad.port}/hangs/v1/chat/completions", json=ASKED)

    async def agent(task: Task) -> Any:
        answer = await clients["async_httpx"](task)
        slow = asyncio.create_task(ask_the_slow_one())
        await asyncio.sleep(0.1)
        slow.cancel()
        with suppress(asyncio.CancelledError):
            await slow
        return answer

    ways = [run(agent, record="all"), run(agent)]
    assert [(verdict.status, verdict.warnings) for verdict in ways] == [("passed", ())] * 2
    assert [verdict.transcript.failed_requests for verdict in ways] == [(), ()]


CLEAN_CUT = (
    b'data: {"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [{"index": 0, '
)
CLEAN_CUT += b'"delta": {"role": "assistant", "content": "re:"}, "finish_reason": null}]}\n\n'
WAYS["cuts-cleanly"] = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                        + f"{len(CLEAN_CUT):x}\r\n".encode() + CLEAN_CUT + b"\r\n0\r\n\r\n", "close")  # fmt: skip


@pytest.mark.parametrize("is_read", [True, False])
def test_a_stream_that_lacks_its_end_is_cut_on_replay_too(
    is_read: bool, bad: BadServer, run: Run, make_case: Any
) -> None:
    def agent(task: Task) -> str:
        import httpx

        with httpx.stream(
            "POST", f"http://127.0.0.1:{bad.port}/cuts-cleanly/v1/chat/completions", json=ASKED
        ) as response:
            for _line in response.iter_lines():
                if not is_read:
                    break
        return "re: hi"

    case = replace(make_case(), expected_output={"response_contains": "re: hi", "model_failure": True})
    ways = [run(agent, case, model="openai:m"), run(agent, case, record="all"), run(agent, case)]
    wanted = ("passed", ()) if is_read else ("failed", ("no_model_failure",))
    assert [(way.status, tuple(reason.code for reason in way.reasons)) for way in ways] == [wanted] * 3


def test_a_failure_can_be_written_by_hand(run: Run, cassette: Path, make_case: Any) -> None:
    cassette.parent.mkdir(parents=True)
    cassette.write_text(
        "match: turn\nexchanges:\n"
        "  - request: {method: POST, url: 'http://model.test/v1/chat/completions'}\n"
        "    failure: {kind: os_error, when: connect, code: ECONNREFUSED}\n"
        "  - request: {method: POST, url: 'http://model.test/v1/chat/completions'}\n"
        "    response: {status: 200, headers: {content-length: '900'}, text: '{', broken: {kind: closed}}\n"
    )
    told = []

    def agent(task: Task) -> str:
        import httpx

        for _ in range(2):
            try:
                by_httpx("http://model.test")
            except httpx.TransportError as error:
                told.append(type(error).__name__)
        return "re: hi"

    case = replace(make_case(), expected_output={"response_contains": "re: hi", "model_failure": True})
    assert run(agent, case).status == "passed"
    assert told == ["ConnectError", "RemoteProtocolError"]


def test_what_is_wrong_with_a_failure_is_told(run: Run, cassette: Path) -> None:
    cassette.parent.mkdir(parents=True)
    cassette.write_text(
        "exchanges:\n"
        "  - request: {url: 'http://model.test/'}\n"
        "    failure: {kind: refused, whem: connect}\n"
        "  - request: {url: 'http://model.test/'}\n"
        "    failure: {when: body}\n"
        "  - request: {url: 'http://model.test/'}\n"
        "    response: {status: 200, broken: {when: connect}}\n"
    )
    verdict = run(lambda task: by_httpx("http://model.test"))
    assert [line.partition(": ")[2] for line in verdict.reasons[0].message.splitlines()] == [
        "exchanges[0].failure.kind must be 'os_error', 'name_lookup', 'timeout', 'tls', 'closed' or 'cancelled', "
        'got "refused"',
        "unknown key 'whem' in exchanges[0].failure; did you mean 'when'?",
        f"exchanges[1].failure has no 'kind': {', '.join(KINDS)}",
        "exchanges[1].failure.when must be 'connect', 'handshake' or 'response', got \"body\"",
        f"exchanges[2].response.broken has no 'kind': {', '.join(KINDS)}, unfinished",
        "unknown key 'when' in exchanges[2].response.broken; known are: kind, code, detail",
    ]


def test_an_error_that_did_not_come_from_below_http_is_no_failure_of_it() -> None:
    assert find_failure(ValueError("x"), "response") is None


def test_an_error_in_whose_handling_another_came_is_no_cause_of_it() -> None:
    try:
        try:
            raise ssl.SSLCertVerificationError(1, "x")
        except ssl.SSLError:
            raise ConnectionRefusedError(111, "y")  # noqa: B904 - as an agent's own retry does
    except ConnectionRefusedError as error:
        failure = find_failure(error, "connect")
    assert failure is not None
    assert (failure.kind, failure.code) == ("os_error", "ECONNREFUSED")
