"""Agents in another process: a command, which is started once per answer, and a service behind a URL.

The request is one JSON object, on stdin or as the body of a POST; the reply, on stdout or the response, is one JSON
object with `text`, or plain text (docs/ways-in.md). An agent's mistakes show in its calls and its answer. One that
breaks the protocol (it exits with another status than 0, answers with an HTTP error, prints half a JSON, or far too
much) could not be measured, unless a function of the case had failed before: breaking down over that is the agent's own
fault.

The child process of a command leads a session and process group of its own, and is ended together with all that it has
started. On Linux, descendants that left the group are found by a mark in their environment.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from evalkit.agents.child_guard import start_as
from evalkit.agents.contract import COMPLETED, AgentUnderTest, Reply
from evalkit.agents.recorded import record_exported_run
from evalkit.agents.remote.channel import RejectedMessageError
from evalkit.agents.remote.http_client import ServiceResponse, UnreachableError, get_peer, send_request
from evalkit.agents.remote.model_services import build_model_environment
from evalkit.agents.remote.reaper import TERM_S, Reaper, find_survivors, send_signal
from evalkit.agents.remote.server import FunctionUrls
from evalkit.agents.remote.spans import PATH as SPANS_PATH
from evalkit.agents.remote.spans import RequestTrace, SpanReceiver, build_span_environment
from evalkit.agents.task import Task
from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import IncompleteTraceError, RemoteAgentError, UnknownAgentError
from evalkit.fields.reader import describe_unknown_key
from evalkit.jsonvalue import JsonObject
from evalkit.models.cassettes.http.unobserved import OWN_PEERS
from evalkit.records.case import Case
from evalkit.records.transcript import USAGE_KEYS, Usage
from evalkit.records.unobserved import PROGRAM, SERVICE
from evalkit.text.format import cut_between_words, shorten
from evalkit.text.redact import build_redactor

PROTOCOL = 1
_KINDS: Mapping[str, tuple[type, str]] = {
    "text": (str, "a text"),
    "stop_reason": (str, "a text"),
    "instruction_used": (str, "a text"),
    "usage": (dict, "an object"),
    "data": (dict, "an object"),
    "state": (dict, "an object"),
}
REPLY_KEYS = tuple(_KINDS)
REPLY_FORM = 'a reply is one JSON object such as {"text": "..."}, or plain text'


def build_request(task: Task, served: FunctionUrls, *, is_traced: bool = False) -> bytes:
    """Build the request, as JSON in UTF-8. `is_traced`: the agent is to export its spans."""
    settings = task.settings
    request = {
        "protocol": PROTOCOL,
        "case_id": task.case_id,
        "run": task.run_index,
        "input": task.input,
        "message": task.message,
        "messages": [
            {
                "role": message.get("role"),
                "text": message["turn"].text if message.get("role") == "model" else message.get("text", ""),
            }
            for message in task.messages
        ],
        "state": task.state,
        "model": task.model,
        "settings": {
            "temperature": settings.temperature,
            "seed": settings.seed,
            "deadline_s": settings.deadline_s,
            "max_iterations": settings.max_iterations,
        },
        **({"variant": dict(task.variant)} if task.variant else {}),
        **({"parts": [part.describe() | {"path": part.path} for part in task.parts]} if task.parts else {}),
        "functions": task.describe_functions(),
        "functions_url": served.functions_url,
        "mcp_url": served.mcp_url,
        **({"otlp_endpoint": f"{served.functions_url}/{SPANS_PATH}"} if is_traced else {}),
        "mcp_command": served.mcp_command,
    }
    return json.dumps(request, ensure_ascii=True, default=str).encode("ascii")


def read_reply(content: bytes, label: str, task: Task) -> Reply:
    """Read the reply in `content`. Raises RemoteAgentError, code ``invalid_reply``, whose text begins with `label`, if
    it is none.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _make_invalid_reply_error(
            label, f"answered with something that is not UTF-8 (byte {error.start}); {REPLY_FORM}"
        ) from None
    stripped = text.strip()
    if not stripped.startswith("{"):
        _refuse_reply_after_logs(stripped, label)
        return Reply(text.rstrip("\r\n"))
    try:
        data = json.loads(stripped)
    except (ValueError, RecursionError) as error:
        raise _make_invalid_reply_error(
            label, f"answered with something that begins like JSON and is none: {error}; {REPLY_FORM}"
        ) from None
    problems = _find_problems(data)
    if problems:
        raise _make_invalid_reply_error(label, f"answered with a JSON object that is no reply: {'; '.join(problems)}")
    if data.get("state") is not None:
        task.state.clear()
        task.state.update(data["state"])
    return Reply(
        data.get("text") or "",
        stop_reason=data.get("stop_reason") or COMPLETED,
        instruction_used=data.get("instruction_used"),
        usage=Usage(**data["usage"]) if data.get("usage") else None,
        data=data.get("data"),
    )


def _refuse_reply_after_logs(text: str, label: str) -> None:
    """Refuse a JSON reply below other lines: read as plain text, its stop reason would be lost without notice."""
    lines = text.splitlines()
    if not lines or not lines[-1].startswith("{"):
        return
    try:
        is_reply = "text" in json.loads(lines[-1])
    except (ValueError, RecursionError):
        return
    if is_reply:
        before = "a line" if len(lines) == 2 else f"{len(lines) - 1} lines"
        raise _make_invalid_reply_error(
            label, f"wrote {before} above its JSON reply; logs belong on stderr, stdout holds the reply alone"
        )


def _find_problems(data: JsonObject) -> list[str]:
    problems = [describe_unknown_key(key, known_keys=REPLY_KEYS) for key in data if key not in REPLY_KEYS]
    if "text" not in data and not problems:
        problems.append("it has no 'text'")
    for key, (kind, description) in _KINDS.items():
        if data.get(key) is not None and not isinstance(data[key], kind):
            problems += [f"'{key}' is {description}, got {_format_value(data[key])}"]
    usage = data.get("usage")
    for key, value in usage.items() if isinstance(usage, dict) else ():
        if key not in USAGE_KEYS:
            problems.append(describe_unknown_key(key, "usage", USAGE_KEYS))
        elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
            problems.append(f"'usage.{key}' is a number of tokens, got {_format_value(value)}")
    return problems


def _format_value(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return cut_between_words(text)


def _make_invalid_reply_error(label: str, problem: str) -> RemoteAgentError:
    return RemoteAgentError(f"{label} {problem}", code="invalid_reply")


def mark_own_fault(error: RemoteAgentError, task: Task) -> RemoteAgentError:
    """`error`, as the agent's own fault if a function had failed or was refused before."""
    failed = next((call for call in task.calls if call.outcome == "error"), None)
    if failed is None:
        return error
    message = f"{error}\nbefore, call {failed.index + 1}, {failed.name}, had failed: an agent must cope with that"
    return RemoteAgentError(message, code=error.code, is_agent_fault=True)


# -- A command

OWN_PYTHON = "python"  # as a command it means the interpreter that runs evalkit
_LOCAL_HOSTS = "127.0.0.1,localhost"
LONGEST_STDERR = 2_000  # characters of stderr in a message


def build_command_agent(spec: JsonObject, root: Path, case: Case | None = None) -> AgentUnderTest:
    """Build the agent that ``{command, cwd?, env?, timeout?, spans?}`` describes. `cwd` is relative to `root`, its
    default. With `spans`, the agent of `case` is judged by the spans that it exports.
    """
    command = spec["command"]
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    name = shlex.join(words)
    traced_case = case if spec.get("spans") else None
    run = CommandAgent(shorten(name, 80), words, root, spec.get("cwd") or "", dict(spec.get("env") or {}), traced_case)
    return AgentUnderTest(run.name, run, is_async=True, timeout_s=spec.get("timeout"), grace_s=TERM_S + KILL_S + 0.2)


class CommandAgent(Struct, frozen=True, eq=False):
    """``await agent(task)`` runs the command once."""

    name: str
    words: tuple[str, ...]
    root: Path
    cwd: str
    env: Mapping[str, str | None]
    traced_case: Case | None = None  # the case, if it is judged by the spans that the agent exports

    @property
    def label(self) -> str:
        return f"agent '{self.name}'"

    async def __call__(self, task: Task) -> Reply:
        spans = None if self.traced_case is None else SpanReceiver()
        async with task.serve(model_urls={**os.environ, **self.env}, spans=spans) as served:
            child = await self._start(task, served)
            try:
                await child.send_and_wait(build_request(task, served))
            except asyncio.CancelledError:
                if await child.end():
                    problem = f"was still running when its time was up, ignored SIGTERM for {TERM_S:g} s and was killed"
                    task.record_fault(self._make_error("deadline", problem, child))
                raise
            finally:
                await child.end()
        if child.stderr:
            task.log.info("%s, stderr:\n%s", self.label, child.stderr)
        try:
            reply = self._read_reply(child, task)
        except RemoteAgentError as error:
            raise mark_own_fault(error, task) from None
        if spans is not None and self.traced_case is not None:
            if spans.problems:
                raise IncompleteTraceError(f"{self.label} exported spans that can't be read: {spans.problems[0]}")
            reply = record_exported_run(task, self.traced_case, spans.exports, reply)
        if not reply.text and not task.calls:
            task.warnings.append(f"{self.label} printed no answer and called nothing{format_stderr(child)}")
        return reply

    async def _start(self, task: Task, served: FunctionUrls) -> ChildProcess:
        folder = self.root / self.cwd
        if not folder.is_dir():
            raise UnknownAgentError(f"{self.label}: its 'cwd' is no folder: {self.cwd or self.root.as_posix()}")
        first, *rest = self.words
        if build_redactor(()).redact_data(list(self.words)) != list(self.words):
            task.warnings.append(
                f"{self.label}: an argument of its command looks like a secret, and any user of the machine can read "
                "the arguments of a process; hand it over in 'env'"
            )
        try:
            with start_as(PROGRAM if self.traced_case is None else None):
                return await start_process(
                    [find_executable(first), *rest],
                    ChildProcess,
                    cwd=folder,
                    env=build_environment(task, served, self.env, is_traced=self.traced_case is not None),
                    limit=get_bounds().agent_reply_bytes,
                    mark=served.functions_url,
                )
        except FileNotFoundError:
            hint = "there is no such file" if os.path.dirname(first) else "no folder of the PATH has it"
            raise UnknownAgentError(f"{self.label}: command not found: '{first}' ({hint})") from None
        except OSError as error:
            raise UnknownAgentError(f"{self.label}: '{first}' can't be executed: {error.strerror}") from None

    def _read_reply(self, child: ChildProcess, task: Task) -> Reply:
        if child.is_flooded:
            limit, more = get_bounds().agent_reply_bytes, explain_bound("agent_reply_bytes")
            problem = f"printed more than {limit:,} bytes to stdout and was ended; logs belong on stderr{more}"
            raise self._make_error("output_limit", problem, child)
        if status := child.returncode:
            raise self._make_error("crashed", f"{describe_exit(status)} instead of exiting with status 0", child)
        try:
            return read_reply(bytes(child.stdout), self.label, task)
        except RemoteAgentError as error:
            raise RemoteAgentError(f"{error}{format_stderr(child)}", code=error.code) from None

    def _make_error(self, code: str, problem: str, child: ChildProcess) -> RemoteAgentError:
        return RemoteAgentError(f"{self.label} {problem}{format_stderr(child)}", code=code)


def build_environment(
    task: Task, served: FunctionUrls, case_env: Mapping[str, str | None], *, is_traced: bool = False
) -> dict[str, str]:
    """This process's environment, the case's `env` over it (None removes), and where functions and models are.

    They are on this machine, whatever proxy is set.
    """
    task_env = {
        "EVALKIT_FUNCTIONS_URL": served.functions_url,
        "EVALKIT_MCP_URL": served.mcp_url,
        "EVALKIT_MCP_COMMAND": shlex.join(served.mcp_command) if served.mcp_command else None,
        "EVALKIT_MODEL": task.model,
        "EVALKIT_CASE_ID": task.case_id,
        "EVALKIT_VARIANT": json.dumps(dict(task.variant)) if task.variant else None,
    }
    inherited: Mapping[str, str | None] = os.environ  # as any child's; nothing is decided by it
    model_env = build_model_environment(task, served.functions_url, inherited, case_env)
    merged = {**inherited, **case_env, **model_env, **task_env}
    if is_traced:
        merged |= build_span_environment(task.case_id, served.functions_url, merged)
    for name in ("no_proxy", "NO_PROXY"):
        merged[name] = ",".join(filter(None, (merged.get(name), _LOCAL_HOSTS)))
    return {name: value for name, value in merged.items() if value is not None}


def find_executable(word: str) -> str:
    """Return the program that the first word of a command means."""
    return sys.executable if word == OWN_PYTHON else word


def describe_exit(status: int) -> str:
    """Describe how a process ended, by its exit status; a negative one is a signal."""
    name = next((number.name for number in signal.Signals if number == -status), f"signal {-status}")
    return f"was ended by {name}" if status < 0 else f"exited with status {status}"


def format_stderr(child: ChildProcess) -> str:
    """Format the end of what a process wrote to stderr, to stand at the end of a message."""
    text = child.stderr
    if not text:
        return "; it wrote nothing to stderr"
    tail = text if len(text) <= LONGEST_STDERR else "…" + "".join(text[-LONGEST_STDERR:].split(None, 1)[1:])
    return "; its stderr ends:\n" + "\n".join(f"  {line}" for line in tail.splitlines())


KILL_S = 0.5  # how long to wait for what was killed
LINGER_S = 0.25  # how long stdout may stay open, in the hands of a grandchild, when the child has ended
STDERR_KEPT = 64_000  # bytes of the end of stderr

_reaper = Reaper()


class ChildProcess(asyncio.SubprocessProtocol):
    """``child = await start(...)``, ``await child.finished(stdin)``, and always ``await child.end()``."""

    def __init__(self, limit: int, mark: bytes) -> None:
        self.stdout = bytearray()
        self.is_flooded = False
        self._limit = limit
        self._mark = mark
        self._stderr = bytearray()
        self._is_closed = False  # stdout is at its end
        self._loop = asyncio.get_running_loop()
        self._completion: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None
        self._group = 0

    @property
    def returncode(self) -> int | None:
        """The exit status; negative: the signal that ended it; None: it is still running."""
        return None if self._transport is None else self._transport.get_returncode()

    @property
    def stderr(self) -> str:
        """The end of what it wrote to stderr."""
        return bytes(self._stderr[-STDERR_KEPT:]).decode("utf-8", "backslashreplace").strip()

    # What asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport
        self._group = transport.get_pid()
        _reaper.join(self._mark, self._group)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._stderr += data
            if len(self._stderr) > 2 * STDERR_KEPT:
                del self._stderr[:-STDERR_KEPT]
        elif not self.is_flooded:
            self.stdout += data
            if len(self.stdout) > self._limit:
                self.is_flooded = True
                self._finish()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            self._is_closed = True
            if self.returncode is not None:
                self._finish()

    def process_exited(self) -> None:
        if self._is_closed:
            self._finish()
        else:
            self._loop.call_later(LINGER_S, self._finish)

    def _finish(self) -> None:
        if not self._completion.done():
            self._completion.set_result(None)

    # What is asked of it

    async def send_and_wait(self, stdin: bytes) -> None:
        """Hand it `stdin`, and wait until it has ended, or printed more than its limit."""
        assert self._transport is not None
        pipe = self._transport.get_pipe_transport(0)
        assert isinstance(pipe, asyncio.WriteTransport)
        pipe.write(stdin)  # one that does not read it is free to
        pipe.close()
        await self._completion

    async def end(self) -> bool:
        """End it and all that it has started. True if SIGTERM was not enough for the process itself."""
        try:
            if not self._find_survivors():
                return False
            self._send_signal(signal.SIGTERM)
            await self._wait_until_gone(TERM_S)
            is_stubborn = self.returncode is None
            if self._find_survivors():
                self._send_signal(signal.SIGKILL)
                await self._wait_until_gone(KILL_S)
            return is_stubborn
        except BaseException:  # we are being stopped ourselves
            self._send_signal(signal.SIGKILL)
            raise
        finally:
            _reaper.forget(self._mark)
            if self._transport is not None:
                self._transport.close()

    async def _wait_until_gone(self, seconds: float) -> None:
        """Wait until nothing is left, for a limited time."""
        until, pause = self._loop.time() + seconds, 0.005
        while self._find_survivors() and self._loop.time() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _find_survivors(self) -> list[int]:
        if self.returncode is None:
            return [self._group]
        return find_survivors(self._group, self._mark)

    def _send_signal(self, number: signal.Signals) -> None:
        if not hasattr(os, "killpg"):
            assert self._transport is not None
            with suppress(ProcessLookupError):
                self._transport.kill()
            return
        send_signal(self._group, self._mark, number)


P = TypeVar("P", bound=ChildProcess)


async def start_process(
    words: Sequence[str], protocol: type[P], *, cwd: Path, env: Mapping[str, str], limit: int, mark: str
) -> P:
    """Start the command. `mark` is a text in `env` that nothing else on this machine has. Raises OSError."""
    with start_as(None):
        _reaper.watch(mark.encode())  # however this interpreter ends from now on, it leaves nothing behind
    try:
        _, child = await asyncio.get_running_loop().subprocess_exec(
            lambda: protocol(limit, mark.encode()), *words, cwd=cwd, env=dict(env), start_new_session=True
        )
    except OSError:  # nothing was started
        _reaper.forget(mark.encode())
        raise
    return child


# -- A service behind a URL

_SHOWN = 500  # characters of a body in a message


SPANS_S = 10.0  # for a service to export its spans once it has answered; exporters do so every 5 s by default


def build_url_agent(spec: JsonObject, case: Case | None = None) -> AgentUnderTest:
    """Build the agent that ``{url, headers?, timeout?, spans?}`` describes. With `spans`, the agent of `case` is judged
    by the spans that it exports.
    """
    headers = {key.lower(): value for key, value in (spec.get("headers") or {}).items() if value is not None}
    run = UrlAgent(spec["url"], headers, case if spec.get("spans") else None)
    OWN_PEERS.add(":".join(map(str, get_peer(run.url))))
    return AgentUnderTest(run.url, run, is_async=True, timeout_s=spec.get("timeout"))


class UrlAgent(Struct, frozen=True, eq=False):
    """``await agent(task)`` asks the service once."""

    url: str
    headers: Mapping[str, str]
    traced_case: Case | None = None  # the case, if it is judged by the spans that the agent exports

    @property
    def label(self) -> str:
        return f"agent '{self.url}'"

    async def __call__(self, task: Task) -> Reply:
        trace = RequestTrace()
        spans = None if self.traced_case is None else SpanReceiver()
        async with task.serve(model_urls=os.environ, spans=spans) as served:
            headers = {"content-type": "application/json", "accept": "application/json, text/plain", **self.headers}
            headers |= {} if spans is None else {"traceparent": trace.header}
            request = build_request(task, served, is_traced=spans is not None)
            limit, more = get_bounds().agent_reply_bytes, explain_bound("agent_reply_bytes")
            try:
                answer = await send_request("POST", self.url, headers, request, limit=limit)
            except UnreachableError as error:
                hint = "; a service is started before pytest, by you" if error.is_refused else ""
                raise self._make_error("agent_unreachable", f"can't be asked: {error}{hint}") from None
            except RejectedMessageError:
                raise self._make_error("output_limit", f"answered with more than {limit:,} bytes{more}") from None
            if spans is not None and 200 <= answer.status < 300:
                await self._wait_for_spans(task, spans, trace)
        if spans is None:
            task.note_unobserved(SERVICE, self.url)
        try:
            reply = self._read_reply(answer, task)
        except RemoteAgentError as error:
            raise mark_own_fault(error, task) from None
        if spans is not None and self.traced_case is not None:
            reply = record_exported_run(task, self.traced_case, trace.select(spans.exports), reply)
        return reply

    async def _wait_for_spans(self, task: Task, spans: SpanReceiver, trace: RequestTrace) -> None:
        """Wait until all spans of the request are there. Raise IncompleteTraceError if they don't come."""
        until = time.monotonic() + SPANS_S
        with task.waiting_time.measure():
            while not spans.problems and not trace.is_complete(spans.exports):
                if time.monotonic() > until:
                    count = len(spans.exports)
                    came = f"{count} export{'s' * (count != 1)} came, but " if count else ""
                    raise IncompleteTraceError(
                        f"{self.label}: {came}no span that continues its request (header traceparent) was exported to "
                        f"its otlp_endpoint within {SPANS_S:g} s; see docs/judge-traces.md"
                    )
                await asyncio.sleep(0.05)
        if spans.problems:
            raise IncompleteTraceError(f"{self.label} exported spans that can't be read: {spans.problems[0]}")

    def _read_reply(self, answer: ServiceResponse, task: Task) -> Reply:
        if not 200 <= answer.status < 300:
            location = answer.headers.get("location")
            text = answer.body.decode("utf-8", "backslashreplace").strip()
            excerpt = cut_between_words(text, _SHOWN)
            said = f"said:\n  {excerpt}" if excerpt else "said: nothing"
            problem = f"redirects to {location}; write that as its 'url'" if location else said
            raise self._make_error("agent_unreachable", f"answered with HTTP status {answer.status} and {problem}")
        return read_reply(answer.body, self.label, task)

    def _make_error(self, code: str, problem: str) -> RemoteAgentError:
        return RemoteAgentError(f"{self.label} {problem}", code=code)
