"""A connection to an MCP server: a program on stdin and stdout, a service behind a URL, or an object of this process.

It is the official `mcp` package's client (extra `mcp`). All connections live on one event loop in a thread of their
own (`pool.HOST`), since cases run on many loops, and each in one task, since a client is left in the task that entered
it. That task belongs to no case, and so does what an object of this process does.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import Context, ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evalkit.agents.child_guard import build_child_environment, start_as
from evalkit.agents.remote.child_process import (
    KILL_S,
    describe_exit,
    find_executable,
    format_stderr,
    start_process,
)
from evalkit.agents.remote.http_client import get_peer
from evalkit.agents.remote.reaper import TERM_S
from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import FunctionError, RemoteAgentError, format_path
from evalkit.features.mcp.process import CLOSE_S, ServerProcess
from evalkit.features.mcp.results import explain_invalid_answer, read_result
from evalkit.features.mcp.spec import CASE, WHOLE, ServerSpec
from evalkit.fields.schema import compile_schema
from evalkit.functions.call_log import BrokenContractError
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.models.cassettes.http.interception import bypass_here
from evalkit.models.cassettes.http.unobserved import OWN_PEERS
from evalkit.records.case import Declaration
from evalkit.text.format import cut_between_words, format_value

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp.client._transport import TransportStreams
    from mcp.types import CallToolResult, ClientRequest, InputRequiredResult, Tool
    from pydantic import BaseModel, TypeAdapter

    R = TypeVar("R", bound=BaseModel)

T = TypeVar("T")

PING_S = 1.0  # in which a server answers to a ping, after a call that had no answer
START_S = 30.0  # in which a server must have answered to `initialize` and `tools/list`
EXIT_S = 10.0  # in which the end of a program that did not start is known, also on a busy machine
END_S = TERM_S + KILL_S + 0.5  # in which it is ended otherwise
MOST_PAGES = 100  # of tools/list
MOST_STRAY_LINES = 1000
# What servers ask of clients, in words. Nothing of it is given, and the server is told so.
REQUESTS = {
    "elicitation/create": "an answer of the user (elicitation)",
    "sampling/createMessage": "a reply of a model (sampling)",
    "roots/list": "the folders of the client (roots)",
}
CLOSED = "Connection closed"  # what the client itself says of a connection that has ended
_MARK = "EVALKIT_MCP_SERVER"  # the variable by which a server's processes are found
_SHOWN = 200  # characters of a line in a message
NOT_GIVEN = "evalkit gives servers nothing but calls"


current_user: ContextVar[object] = ContextVar("evalkit_mcp_user", default=None)  # the answer of a case that calls


class ServerRetiredError(Exception):
    """The server hangs in the call of another case, so that nothing can be said of this one's."""


class ServerConnection:
    """A server that is running. Its coroutines run on HOST's loop."""

    def __init__(self, spec: ServerSpec, root: Path, offline_hosts: tuple[str, ...] | None, report: str) -> None:
        self.spec = spec
        self.report = report  # the file in which its processes note what the offline guard has refused them
        self.declarations: tuple[Declaration, ...] = ()
        self.removed_tools: frozenset[str] = frozenset()  # names of tools that it had before
        self.stray_lines: list[str] = []  # on its stdout, and no messages: the first ones
        self.requests: dict[str, None] = {}  # what it has asked for, and not got
        self._root = root
        self._offline_hosts = offline_hosts
        self._client: Client | None = None
        self._process: ServerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._calls_under_way = 0
        self._output_schemas: dict[str, JsonObject] = {}
        self._has_changed_tools = False  # since they were read
        self._hanging_user: object = None  # whose call had no answer
        self._ping: asyncio.Task[bool] | None = None  # after such a call: whether the server answers others
        self._is_retired = False  # it does not

    @property
    def label(self) -> str:
        return f"MCP server '{self.spec.name}'"

    @property
    def is_open(self) -> bool:
        is_running = self._process is None or (self._process.returncode is None and not self._process.is_flooded)
        return is_running and not self._stop.is_set() and self._task is not None and not self._task.done()

    async def answers(self) -> bool:
        """Return whether the server may be used: also after a call that hangs, it answers others."""
        if self._ping is not None:
            await asyncio.shield(self._ping)
        return self.is_open

    def _begin_ping(self) -> None:
        if not self._is_retired and (self._ping is None or self._ping.done()):
            self._hanging_user = current_user.get()
            self._ping = asyncio.get_running_loop().create_task(self._check(), context=Context())

    async def _check(self) -> bool:
        """Ask the server for a sign of life, and retire it if there is none: it works at one call at a time, and hangs
        in one."""
        from mcp import MCPError
        from mcp.types import REQUEST_TIMEOUT, EmptyResult, PingRequest

        if self._client is None or not self.is_open:
            return False
        if self.spec.url:
            bypass_here()
        try:
            session = self._client.session
            await session.send_request(PingRequest(), EmptyResult, request_read_timeout_seconds=PING_S)
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:
                self._is_retired = True
                self._stop.set()
                return False
        except ValueError:  # an answer of another form is one
            pass
        return True

    async def open(self) -> None:
        """Start the server, or connect to it, and read its tools. Raises RemoteAgentError."""
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._hold(ready), context=Context())
        try:
            await asyncio.wait_for(asyncio.shield(ready), START_S)
        except TimeoutError:
            ready.cancel()  # nobody waits for it any more
            await self.close()
            problem = f"did not answer to 'initialize' and 'tools/list' within {START_S:g} s"
            raise self._make_error("agent_unreachable", problem) from None
        except asyncio.CancelledError:
            ready.cancel()
            await self.close()
            raise

    async def close(self) -> None:
        """Close the connection, and end the server if it was started here."""
        self._stop.set()
        if self._task is not None:
            done, _ = await asyncio.wait({self._task}, timeout=CLOSE_S + END_S)
            if not done:
                self._task.cancel()
                await asyncio.wait({self._task}, timeout=END_S)

    async def _hold(self, ready: asyncio.Future[None]) -> None:
        """Keep the client open until `close`: it is left in the task that entered it."""
        if self.spec.url:
            bypass_here()  # what evalkit asks a service is no request of an agent's
        try:
            async with AsyncExitStack() as stack:
                self._client = await self._enter_client(stack)
                await self._read_tools(self._client)
                ready.set_result(None)
                await self._stop.wait()
        except BaseException as error:
            if not ready.done():
                await self._wait_for_exit(EXIT_S)
                ready.set_exception(self._explain_failed_start(error))
        finally:
            if self._process is not None:
                await self._process.close()

    async def _enter_client(self, stack: AsyncExitStack) -> Client:
        from mcp import Client  # the extra

        if self.spec.factory is not None:
            server = self.spec.factory()
        elif self.spec.url:
            server = await stack.enter_async_context(self._connect_http())
        else:
            server = self._connect_process()
        return await stack.enter_async_context(Client(server, cache=None, message_handler=self._note_message))

    async def _note_message(self, message: object) -> None:
        from mcp.types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._has_changed_tools = True

    @asynccontextmanager
    async def _connect_http(self) -> AsyncIterator[Any]:
        import httpx2  # the client that `mcp` brings
        from mcp.client.streamable_http import streamable_http_client

        OWN_PEERS.add(":".join(map(str, get_peer(self.spec.url))))
        # A call may take long; its own limit and the case's deadline end it.
        timeout = httpx2.Timeout(START_S, read=None)
        async with httpx2.AsyncClient(headers=dict(self.spec.headers), timeout=timeout) as client:
            yield streamable_http_client(self.spec.url, http_client=client)

    @asynccontextmanager
    async def _connect_process(self) -> AsyncIterator[TransportStreams]:
        """Start the program, and carry lines of its stdin and stdout to and from the client."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp.types import JSONRPCRequest, jsonrpc_message_adapter

        process = await self._start_process()
        incoming, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](float("inf"))
        write_stream, outgoing = anyio.create_memory_object_stream[SessionMessage](0)

        def deliver(line: bytes) -> None:
            try:
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                if len(self.stray_lines) < MOST_STRAY_LINES:
                    text = line[: 4 * _SHOWN].decode("utf-8", "backslashreplace")
                    self.stray_lines.append(cut_between_words(text, _SHOWN))
                return
            if isinstance(message, JSONRPCRequest) and message.method in REQUESTS:
                self.requests[message.method] = None
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                incoming.send_nowait(SessionMessage(message))

        process.deliver, process.finish = deliver, incoming.close

        async def forward() -> None:
            async for item in outgoing:
                if process.has_ended_output:  # nothing would answer, and the client would wait
                    raise ConnectionError("the program has ended its output")
                process.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

        async with incoming, read_stream, write_stream, outgoing, anyio.create_task_group() as group:
            group.start_soon(forward)
            yield read_stream, write_stream
            group.cancel_scope.cancel()

    async def _start_process(self) -> ServerProcess:
        mark = f"{_MARK}={os.urandom(16).hex()}"
        variables = {name: value for name, value in {**os.environ, **self.spec.env}.items() if value is not None}
        guard = (
            {} if self._offline_hosts is None else build_child_environment(self._offline_hosts, self.report, variables)
        )
        folder = self._root / self.spec.cwd
        if not folder.is_dir():
            raise RemoteAgentError(f"{self.label}: its 'cwd' is no folder: {self.spec.cwd}", code="unknown_agent")
        with start_as(None):
            self._process = await start_process(
                [find_executable(self.spec.command[0]), *self.spec.command[1:]],
                ServerProcess,
                cwd=folder,
                env={**variables, **guard, _MARK: mark.partition("=")[2]},
                limit=get_bounds().agent_reply_bytes,
                mark=mark,
            )
        return self._process

    async def _wait_for_exit(self, seconds: float = CLOSE_S) -> None:
        """Wait a moment for the exit status of a program whose output has ended."""
        if self._process is not None:
            await self._process.wait_for_exit(seconds)

    def _explain_failed_start(self, error: BaseException) -> RemoteAgentError:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, RemoteAgentError):
            return error
        if isinstance(error, FileNotFoundError) and self.spec.command:
            return self._make_error("unknown_agent", f"can't be started: command not found: '{self.spec.command[0]}'")
        if self._process is not None and self._process.returncode is not None:
            return self._make_error("crashed", f"{describe_exit(self._process.returncode)} before it had listed tools")
        return self._make_error("agent_unreachable", f"can't be used: {type(error).__name__}: {error}")

    async def list_tools(self) -> dict[str, JsonDict]:
        """Return what the server tells of its tools, by name: ``{description, inputSchema, ...}`` each."""
        if self._client is None or not self.is_open:
            raise await self._make_early_end()
        listed = await self._list_tools(self._client)
        tools = (tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed)
        return {tool.pop("name"): tool for tool in tools}

    async def refresh_tools(self) -> bool:
        """Read the tools again if the server has said that they are others now. Return whether it had."""
        if not self._has_changed_tools or self._client is None or not self.is_open:
            return False
        self._has_changed_tools = False
        await self._read_tools(self._client)
        return True

    async def _read_tools(self, client: Client) -> None:
        tools = await self._list_tools(client)
        former_names = self.removed_tools.union(tool.name for tool in self.declarations)
        self.declarations = tuple(map(self._declare, tools))
        self.removed_tools = former_names.difference(tool.name for tool in tools)
        self._output_schemas = {tool.name: tool.output_schema for tool in tools if tool.output_schema is not None}

    async def _list_tools(self, client: Client) -> list[Tool]:
        page = await client.list_tools()
        tools = list(page.tools)
        for _ in range(MOST_PAGES):
            if page.next_cursor is None:
                break
            page = await client.list_tools(cursor=page.next_cursor)
            tools += page.tools
        else:
            raise self._make_error("invalid_tool", f"lists its tools on more than {MOST_PAGES} pages")
        name, count = next(iter(Counter(tool.name for tool in tools).most_common(1)), ("", 0))
        if count > 1:
            raise self._make_error("invalid_tool", f"lists {count} tools named {format_value(name)}")
        return tools

    def _declare(self, tool: Tool) -> Declaration:
        for key, schema in (("inputSchema", tool.input_schema), ("outputSchema", tool.output_schema)):
            for path, message in [] if schema is None else compile_schema(schema).find_problems():
                problem = f"declares a broken schema of its tool '{tool.name}': {format_path((key, *path))}: {message}"
                raise self._make_error("invalid_tool", problem)
        return Declaration(
            name=tool.name,
            description=tool.description or "",
            parameters=tool.input_schema,
            returns=None if self.spec.results == WHOLE else tool.output_schema,
        )

    async def call(self, name: str, arguments: JsonDict) -> object:
        """Return what the tool answers. Raises FunctionError where it fails, and RemoteAgentError for a crash."""
        from mcp.types import CallToolRequest, CallToolRequestParams, InputRequiredResult

        request = CallToolRequest(params=CallToolRequestParams(name=name, arguments=arguments))
        result = await self.send(name, request, _get_result_adapter())
        if isinstance(result, InputRequiredResult):
            requests = [REQUESTS.get(item.method, item.method) for item in (result.input_requests or {}).values()]
            requested_names = " and ".join(dict.fromkeys(requests)) or "another request"
            raise FunctionError(
                "input_required", f"{self.label} wants {requested_names} before it answers {name}; {NOT_GIVEN}"
            )
        return read_result(self.label, name, result, self.spec.results, self._output_schemas.get(name))

    async def send(self, name: str, request: ClientRequest, result_type: type[R] | TypeAdapter[R]) -> R:
        """Return the server's result of `request`, which messages call `name`. Raises as `call` does."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        if self._is_retired:
            raise self._explain_retired(name)
        if self._client is None or not self.is_open:
            raise await self._make_early_end()
        if self.spec.url:
            bypass_here()
        self._calls_under_way += 1
        try:
            return await self._client.session.send_request(
                request, result_type, request_read_timeout_seconds=self.spec.timeout_s
            )
        except asyncio.CancelledError:  # the deadline of the case
            self._begin_ping()
            raise
        except MCPError as error:
            if error.code == REQUEST_TIMEOUT:  # another call may hang, and this one have waited behind it
                await self.answers()
            if self._is_retired:
                raise self._explain_retired(name) from None
            # Servers use the number of the client's own error too.
            is_closed = error.code == CONNECTION_CLOSED and error.message == CLOSED
            if is_closed or not self.is_open:
                raise await self._make_crash(name) from None
            if error.code == REQUEST_TIMEOUT:
                self._begin_ping()
                limit = f"{self.spec.timeout_s:g} s, its limit (agent.mcp.timeout)"
                raise FunctionError("timeout", f"{name} had not answered after {limit}") from None
            raise self._build_protocol_error(error) from None
        except ValueError as error:  # pydantic's
            message = (
                f"{self.label} answered with something that is no result of {name}: {explain_invalid_answer(error)}"
            )
            raise BrokenContractError("invalid_result", message) from None
        finally:
            self._calls_under_way -= 1

    def _build_protocol_error(self, error: MCPError) -> FunctionError:
        detail = {"code": error.code} if error.data is None else {"code": error.code, "data": error.data}
        message = f"{self.label} answered with the protocol error {error.code}: {error.message}"
        return FunctionError("protocol_error", message, **detail)

    def _explain_retired(self, name: str) -> Exception:
        if self._hanging_user is not current_user.get():
            return ServerRetiredError()
        return FunctionError("timeout", f"{name} has no answer: {self.label} hangs in the call before")

    async def _make_early_end(self) -> RemoteAgentError:
        """Build the error of a server that had ended before a call: its own fault, if no other case has used it."""
        await self._wait_for_exit()
        code = None if self._process is None else self._process.returncode
        error = self._make_error("crashed", f"{'had ended' if code is None else describe_exit(code)} before this call")
        return RemoteAgentError(str(error), code="crashed", is_agent_fault=self.spec.scope == CASE)

    async def _make_crash(self, name: str) -> RemoteAgentError:
        """Build the error of a server that ended during a call: its own fault, if it is clear which call it was."""
        process, calls_under_way = self._process, self._calls_under_way
        self._stop.set()
        await self._wait_for_exit()
        ending = "closed the connection"
        if process is not None and process.is_flooded:
            limit, more = get_bounds().agent_reply_bytes, explain_bound("agent_reply_bytes")
            ending = f"wrote a line of more than {limit:,} bytes to stdout{more}"
        elif process is not None and process.returncode is not None:
            ending = describe_exit(process.returncode)
        if calls_under_way > 1:
            ending += f" while {calls_under_way} calls were under way (scope: case gives each case a server)"
        error = self._make_error("crashed", f"{ending} while it answered {name}")
        return RemoteAgentError(str(error), code="crashed", is_agent_fault=calls_under_way <= 1)

    def _make_error(self, code: str, problem: str) -> RemoteAgentError:
        stderr = "" if self._process is None else format_stderr(self._process)
        stray = f"; on stdout stood {format_value(self.stray_lines[0])}" if self.stray_lines else ""
        return RemoteAgentError(f"{self.label} {problem}{stray}{stderr}", code=code)


@cache
def _get_result_adapter() -> TypeAdapter[CallToolResult | InputRequiredResult]:
    """Return what reads the answer to a call: a result, or what the server wants first."""
    from mcp.types import CallToolResult, InputRequiredResult
    from pydantic import TypeAdapter  # comes with `mcp`

    return TypeAdapter(CallToolResult | InputRequiredResult)
