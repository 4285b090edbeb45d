"""The agent that is an MCP server: the case calls its tools (`input.calls`), or a model does, in evalkit's own loop.

Calls really go to the server, unless the case mocks the function; each is recorded, with `answered_by: server`. Methods
of the protocol (lists, resources and prompts) are called as if they were tools.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from msgspec import Struct

from evalkit.agents.child_guard import choose_report_path
from evalkit.agents.contract import AgentUnderTest, Opening, Reply
from evalkit.agents.instruction import Instruction
from evalkit.agents.loop import run_loop
from evalkit.agents.offline import find_offline_hosts, record_refused
from evalkit.agents.registry import load_agent_instruction, locate_case_folder, prepare_folder
from evalkit.agents.task import Task
from evalkit.errors import FunctionError, RemoteAgentError, UnknownAgentError, did_you_mean
from evalkit.features.mcp.connection import (
    MOST_PAGES,
    NOT_GIVEN,
    REQUESTS,
    ServerConnection,
    ServerRetiredError,
    current_user,
)
from evalkit.features.mcp.pool import HOST, POOL
from evalkit.features.mcp.results import describe_content
from evalkit.features.mcp.servers import MCP_SERVERS
from evalkit.features.mcp.spec import CASE, LIST_TOOLS, METHODS, READ_RESOURCE, ServerSpec, check_extra, parse_server
from evalkit.hooks import AgentRequest
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.case import Declaration, Permissions
from evalkit.records.template import TemplateError
from evalkit.text.format import shorten

if TYPE_CHECKING:
    from pydantic import BaseModel


Connect = Callable[[], Awaitable[ServerConnection]]


def build_mcp_agent(request: AgentRequest) -> AgentUnderTest:
    """Build the agent that ``{mcp: NAME or {command, url, ...}, instruction?}`` describes."""
    form, case, root = request.form, request.case, request.root
    if isinstance(form["mcp"], str):
        prepare_folder(locate_case_folder(case, root), root)
    server = find_server(form["mcp"], case.permissions)
    instruction = None if form.get("instruction") is None else load_agent_instruction(form["instruction"], request)
    agent = McpAgent(server, root, instruction)
    if server.scope != CASE:
        return AgentUnderTest(server.name, agent, is_async=True)
    return AgentUnderTest(server.name, agent, is_async=True, opening=Opening(agent.open, is_async=True))


def find_server(described: str | JsonObject, permissions: Permissions | None) -> ServerSpec:
    """Find the server that a case names or describes. Raises UnknownAgentError."""
    if isinstance(described, Mapping):
        command = described.get("command")
        words = command if isinstance(command, str) else " ".join(command or ())
        name = str(described.get("url") or words)
        return parse_server(shorten(name, 80), described)
    tables = dict(() if permissions is None else permissions.tables)
    configured = json.loads(tables.get("mcp_servers", "{}"))
    if (registration := MCP_SERVERS.find(described)) is not None:
        return ServerSpec(name=described, factory=registration.item, **registration.options)
    if described in configured:
        return parse_server(described, configured[described])
    names = [*configured, *MCP_SERVERS]
    listed = f"; there are {', '.join(names)}" if names else ""
    advice = f"describe it in [tool.evalkit.mcp_servers.{described}], or register it with @evalkit.mcp_server"
    hint = did_you_mean(described, names) or MCP_SERVERS.explain_elsewhere(described) or f"; {advice}"
    raise UnknownAgentError(f"there is no MCP server '{described}'{listed}{hint}")


async def fetch_tools(server: ServerSpec, root: Path) -> dict[str, JsonDict]:
    """Start the server, and return its tools by name. Raises RemoteAgentError."""
    check_extra()
    connection = ServerConnection(server, root, None, choose_report_path())

    async def fetch() -> dict[str, JsonDict]:
        try:
            await connection.open()
            return await connection.list_tools()
        finally:
            await connection.close()

    return await HOST.run(fetch())


class McpAgent(Struct, frozen=True, eq=False):
    """``await agent(task)`` uses the server that the cases of this process share."""

    server: ServerSpec
    root: Path
    instruction: Instruction | None

    async def __call__(self, task: Task) -> Reply:
        hosts = find_offline_hosts(task)

        def make() -> ServerConnection:
            return self.make_connection(hosts)

        key = f"{self.server.key}{self.root}{hosts}"
        is_service = bool(self.server.url)

        def connect() -> Awaitable[ServerConnection]:
            return start_server(task, lambda: HOST.run(POOL.get(make, key, is_service=is_service)))

        return await self.answer(task, await connect(), connect)

    @asynccontextmanager
    async def open(self, task: Task) -> AsyncIterator[Callable[[Task], object]]:
        """Give the case a server of its own, which is started by its first use."""
        connection = self.make_connection(find_offline_hosts(task))
        is_started = False

        async def answer(task: Task) -> Reply:
            nonlocal is_started
            if not is_started:
                is_started = True
                await start_server(task, lambda: HOST.run(connection.open()))
            return await self.answer(task, connection)

        try:
            yield answer
        finally:
            await HOST.run(connection.close())

    def make_connection(self, offline_hosts: tuple[str, ...] | None) -> ServerConnection:
        check_extra()
        return ServerConnection(self.server, self.root, offline_hosts, choose_report_path())

    async def answer(self, task: Task, connection: ServerConnection, connect_again: Connect | None = None) -> Reply:
        """Offer the server's tools, and answer the user's turn with them."""
        session = McpSession(task, connection, connect_again)
        current_user.set(session)
        await session.refresh()  # another case that shares the server may have made it change its tools
        calls = read_calls(task.input)
        named = [] if calls is None else [name for name, _ in calls]
        declared = {declaration.name for declaration in connection.declarations}
        # What the server says of a tool that it has not is the server's: such calls are sent as well.
        others = (Declaration(name=name) for name in dict.fromkeys(named) if name not in declared)
        session.connect_tools()
        task.connect(others, session.call)
        if calls is not None:
            reply = await session.make_calls(calls)
        else:
            instruction = self.instruction or Instruction(name=self.server.name, body="")
            reply = await run_loop(task, instruction, list_functions=session.list_functions)
        session.finish()
        return reply


def read_calls(case_input: JsonObject) -> list[tuple[str, JsonDict]] | None:
    """Return the calls that the case itself makes: names and arguments; None where a model makes them."""
    calls = case_input.get("calls")
    if calls is None:
        return None
    listed: list[JsonDict] = [{"function_name": call} if isinstance(call, str) else call for call in calls]
    return [(call["function_name"], call.get("arguments") or {}) for call in listed]


async def start_server(task: Task, start: Callable[[], object]) -> ServerConnection:
    """Wait for a server to start. That time counts neither for the agent nor for its deadline."""
    started = monotonic()
    try:
        with task.waiting_time.measure():
            return await start()  # type: ignore[misc,no-any-return]
    finally:
        task.queueing_time.add(monotonic() - started)


class McpSession:
    """The use of a server by one answer of a case. `connect_again` connects to a new one, where the server hangs in the
    call of another case."""

    def __init__(self, task: Task, connection: ServerConnection, connect_again: Connect | None) -> None:
        self._task = task
        self._connection = connection
        self._connect_again = connect_again
        self._answers = 0
        self._crash: RemoteAgentError | None = None
        self._missing: set[str] = set()  # tools that were called, and that the server has not

    def connect_tools(self) -> None:
        """Add the tools of the server to the functions of the task."""
        self._task.connect(self._connection.declarations, self.call)

    def list_functions(self) -> tuple[Declaration, ...]:
        """List what the model may call now: the case's own functions, and the tools that the server has."""
        removed = self._connection.removed_tools
        return tuple(function for function in self._task.functions.declarations if function.name not in removed)

    async def refresh(self) -> None:
        """Read the tools of a server that has changed them, as a tool that enables others does."""
        if await HOST.run(self._connection.refresh_tools()):
            self.connect_tools()

    async def call(self, name: str, arguments: JsonDict) -> object:
        """Return what the server answers. Raises FunctionError, also after a crash, which `finish` raises again."""
        started = monotonic()
        try:
            value = await self._call(name, arguments)
        except ServerRetiredError:
            self._task.queueing_time.add(monotonic() - started)
            if self._answers or self._connect_again is None:  # a new server does not know what this one was told
                self._crash = RemoteAgentError(
                    f"{self._connection.label} hangs in a call of another case, and this case had begun with it; "
                    "write 'scope: case', which gives each case a server",
                    code="agent_unreachable",
                )
                raise FunctionError(self._crash.code, str(self._crash)) from None
            self._connection = await self._connect_again()
            return await self.call(name, arguments)
        self._answers += 1
        return value

    async def _call(self, name: str, arguments: JsonDict) -> object:
        connection = self._connection
        names = {declaration.name for declaration in connection.declarations}
        is_method = name in METHODS and name not in names
        if name not in names and not is_method and name not in self._missing:
            self._missing.add(name)
            listed = did_you_mean(name, names) or f"; it has {', '.join(sorted(names)) or 'none'}"
            self._task.warnings.append(f"{connection.label} has no tool '{name}'{listed}")
        try:
            answering = call_method(connection, name, arguments) if is_method else connection.call(name, arguments)
            try:
                return await HOST.run(answering)
            finally:
                await self.refresh()
        except RemoteAgentError as error:
            self._crash = self._crash or error
            raise FunctionError(error.code, str(error)) from None

    async def make_calls(self, calls: list[tuple[str, JsonDict]]) -> Reply:
        """Make the calls of the case, one after the other. The reply is what the last one returned."""
        text = ""
        for index, (name, templates) in enumerate(calls):
            try:
                arguments = self._task.fill_templates(templates)
            except TemplateError as error:
                message = f"input.calls[{index}], {name}, could not be made: {error}"
                raise RemoteAgentError(message, code="unresolved_reference", is_agent_fault=True) from None
            try:
                value = await self._task.acall(name, **arguments)
                text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            except FunctionError as error:  # on record; the case says what it expects
                text = error.message
            if self._crash is not None:
                break
        return Reply(text)

    def finish(self) -> None:
        """Record what the server did beside its answers. Raises RemoteAgentError if it has crashed."""
        connection, task = self._connection, self._task
        record_refused(task, connection.report, connection.label)
        if connection.stray_lines:
            first, *others = connection.stray_lines
            lines = f"{len(others) + 1} lines to stdout that are" if others else "a line to stdout that is"
            which = "messages, the first" if others else "message"
            task.warnings.append(f"{connection.label} wrote {lines} no {which}: {first!r}; logs belong on stderr")
            connection.stray_lines.clear()
        for method in connection.requests:
            task.warnings.append(f"{connection.label} asked for {REQUESTS[method]}, and got an error; {NOT_GIVEN}")
        connection.requests.clear()
        if self._crash is not None:
            raise self._crash


_KEYS = {"resources/list": "uri", "resources/templates/list": "uriTemplate", "prompts/list": "name"}


async def call_method(connection: ServerConnection, name: str, arguments: JsonDict) -> object:
    """Return what the server answers to the method `name` of `METHODS`. Raises as `ServerConnection.call` does."""
    from pydantic import ValidationError  # comes with `mcp`

    if name == LIST_TOOLS:
        return await connection.list_tools()
    try:
        if name.endswith("/list"):
            return await _list_all(connection, name)
        return await _read_one(connection, name, arguments)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise FunctionError("invalid_arguments", f"{name}: {place}: {problem['msg']}") from None


async def _list_all(connection: ServerConnection, name: str) -> dict[str, JsonDict]:
    """Return what the server says of each thing, by its URI or name."""
    listed: dict[str, JsonDict] = {}
    cursor = None
    for _ in range(MOST_PAGES):
        models, cursor = await _read_page(connection, name, cursor)
        for item in map(_dump, models):
            listed[str(item.pop(_KEYS[name]))] = item
        if cursor is None:
            return listed
    raise FunctionError("protocol_error", f"{connection.label} answers {name} with more than {MOST_PAGES} pages")


async def _read_page(
    connection: ServerConnection, name: str, cursor: str | None
) -> tuple[Sequence[BaseModel], str | None]:
    """Return a page of a list, and the cursor of the next one."""
    from mcp import types

    params = types.PaginatedRequestParams(cursor=cursor)
    match name:
        case "resources/list":
            resources = await connection.send(
                name, types.ListResourcesRequest(params=params), types.ListResourcesResult
            )
            return resources.resources, resources.next_cursor
        case "prompts/list":
            prompts = await connection.send(name, types.ListPromptsRequest(params=params), types.ListPromptsResult)
            return prompts.prompts, prompts.next_cursor
    asking = types.ListResourceTemplatesRequest(params=params)
    templates = await connection.send(name, asking, types.ListResourceTemplatesResult)
    return templates.resource_templates, templates.next_cursor


async def _read_one(connection: ServerConnection, name: str, arguments: JsonDict) -> JsonDict:
    """Return the contents of a resource, or the messages of a prompt."""
    from mcp import types

    if name == READ_RESOURCE:
        reading = types.ReadResourceRequest(params=types.ReadResourceRequestParams.model_validate(arguments))
        resource = await connection.send(name, reading, types.ReadResourceResult)
        return {"contents": [describe_content(_dump(content)) for content in resource.contents]}
    getting = types.GetPromptRequest(params=types.GetPromptRequestParams.model_validate(arguments))
    prompt = await connection.send(name, getting, types.GetPromptResult)
    messages = [{"role": each.role, "content": describe_content(_dump(each.content))} for each in prompt.messages]
    return {"messages": messages} | ({"description": prompt.description} if prompt.description else {})


def _dump(model: BaseModel) -> JsonDict:
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)
