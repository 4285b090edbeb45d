"""The desk of the Claude Agent SDK, with a stand-in for the program that it talks with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import Any
from uuid import uuid4

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ResultMessage,
    Transport,
    create_sdk_mcp_server,
    query,
    tool,
)

import evalkit
from evalkit.adapters import claude_agent_sdk
from evalkit.adapters.claude_agent_sdk import answered_by
from evalkit.adapters.common import TaskRecorder
from tests.adapters.desk import Desk, never

SERVER = "shop"
_history: dict[str, int] = {}  # replies of each session so far


class ScriptedCli(Transport):
    """Talks as Claude Code does: it tells a reply block by block, and then carries its calls out one by one, if the
    hooks let it. `replies` as those of a desk; names of the desk's tools get the server's prefix. Tools of its own
    return `own_answer`."""

    own_answer = "it ran"

    def __init__(self, replies: tuple[Any, ...], options: ClaudeAgentOptions) -> None:
        self._replies = replies
        self._options = options
        self._session = options.resume or str(uuid4())
        self._sent: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._pending: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._hooks: dict[str, Any] = {}
        self._names: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self.ran: list[Any] = []  # what tools of its own were called with
        self.results: list[Any] = []  # what the model was told

    async def connect(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None: ...

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._sent.put_nowait(None)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._sent.get()) is not None:
            yield message

    async def write(self, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "control_request":
            self._hooks = message["request"].get("hooks") or {}
            response = {"commands": [], "hook_on_failure_supported": True}
            body = {"subtype": "success", "request_id": message["request_id"], "response": response}
            self._tell({"type": "control_response", "response": body})
        elif message["type"] == "control_response":
            self._pending[message["response"]["request_id"]].set_result(message["response"])
        else:
            self._tasks.append(asyncio.create_task(self._converse()))

    def _tell(self, message: dict[str, Any]) -> None:
        self._sent.put_nowait({"session_id": self._session, **message})

    async def _ask(self, **request: Any) -> dict[str, Any]:
        name = f"r{len(self._pending)}"
        self._pending[name] = asyncio.get_running_loop().create_future()
        self._tell({"type": "control_request", "request_id": name, "request": request})
        response = await self._pending[name]
        return response.get("response") or {"error": response.get("error")}

    async def _converse(self) -> None:
        listed = await self._ask_server("tools/list")
        names = [f"mcp__{SERVER}__{tool['name']}" for tool in listed["tools"]]
        self._names = ["Agent", "Bash", "Read", "ToolSearch", *names]
        self._tell({"type": "system", "subtype": "init", "tools": self._names})
        asked, text = _history.get(self._session, 0), ""
        limit = asked + (self._options.max_turns or 99)
        while True:
            reply = self._replies[min(asked, len(self._replies) - 1)]
            text = reply if isinstance(reply, str) else ""
            blocks = await self._tell_reply(reply, f"c{asked}")
            asked += 1
            for block in blocks:
                await self._carry_out(block)
            if not blocks or asked == limit:
                break
        _history[self._session] = asked
        result = {"type": "result", "duration_ms": 1, "duration_api_ms": 1, "num_turns": asked, "total_cost_usd": 0.25}
        if blocks:
            self._tell({**result, "subtype": "error_max_turns", "is_error": True, "errors": ["Reached maximum turns"]})
        else:
            self._tell({**result, "subtype": "success", "is_error": False, "result": text, "stop_reason": "end_turn"})
        self._sent.put_nowait(None)

    async def _tell_reply(self, reply: Any, key: str, parent: str | None = None) -> list[dict[str, Any]]:
        """Tell a reply, each block of it in a message of its own. Return its calls."""
        blocks: list[dict[str, Any]] = [{"type": "text", "text": reply}] if isinstance(reply, str) else []
        for index, (name, arguments) in enumerate(() if isinstance(reply, str) else reply):
            offered = name if name[0].isupper() else f"mcp__{SERVER}__{name}"
            blocks.append({"type": "tool_use", "id": f"{key}.{index}", "name": offered, "input": arguments})
        usage = {"input_tokens": 10, "output_tokens": 5}
        head = {"id": f"msg_{key}", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": None}
        for block in blocks:
            message = {**head, "usage": usage, "content": [block]}
            self._tell({"type": "assistant", "parent_tool_use_id": parent, "message": message})
        return [block for block in blocks if block["type"] == "tool_use"]

    async def _carry_out(self, block: dict[str, Any], agent: dict[str, Any] | None = None) -> None:
        given = {"tool_name": block["name"], "tool_input": block["input"], "tool_use_id": block["id"], **(agent or {})}
        is_known = block["name"] in self._names
        content: Any = f"<tool_use_error>Error: No such tool available: {block['name']}</tool_use_error>"
        is_error = True
        if is_known:
            decision = await self._call_hooks("PreToolUse", given)
            is_error = decision.get("permissionDecision") == "deny"
            if is_error:
                content = f"PreToolUse:{block['name']} hook error: {decision['permissionDecisionReason']}"
            elif block["name"].startswith("mcp__"):
                meta = {"claudecode/toolUseId": block["id"]}
                name = block["name"].removeprefix(f"mcp__{SERVER}__")
                result = await self._ask_server("tools/call", name=name, arguments=block["input"], _meta=meta)
                content, is_error = result["content"], result["isError"]
            elif block["name"] == "Agent":
                content = await self._run_agent(block)
            else:
                self.ran.append(decision.get("updatedInput", block["input"]))
                after = await self._call_hooks("PostToolUse", {**given, "tool_response": self.own_answer})
                content = after.get("updatedToolOutput", {}).get("stdout", self.own_answer)
        self.results.append(content)
        result = {"type": "tool_result", "tool_use_id": block["id"], "content": content, "is_error": is_error}
        parent = None if agent is None else agent["agent_id"]
        message = {"role": "user", "content": [result]}
        self._tell({"type": "user", "parent_tool_use_id": parent, "message": message})

    async def _run_agent(self, block: dict[str, Any]) -> str:
        """Run a sub-agent, which makes the calls of its prompt."""
        agent = {"agent_id": block["id"], "agent_type": block["input"]["subagent_type"]}
        calls = json.loads(block["input"]["prompt"])
        for inner in await self._tell_reply(calls, f"{block['id']}-a", block["id"]):
            await self._carry_out(inner, agent)
        await self._tell_reply("looked", f"{block['id']}-b", block["id"])
        return "looked"

    async def _call_hooks(self, event: str, given: dict[str, Any]) -> dict[str, Any]:
        decision: dict[str, Any] = {}
        for matcher in self._hooks.get(event, ()):
            for callback_id in matcher["hookCallbackIds"]:
                data = {"hook_event_name": event, "session_id": self._session, **given}
                answer = await self._ask(subtype="hook_callback", callback_id=callback_id, input=data)
                decision |= answer.get("hookSpecificOutput", {})
        return decision

    async def _ask_server(self, method: str, **params: Any) -> dict[str, Any]:
        if method == "tools/list":
            client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            start = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
            await self._ask(subtype="mcp_message", server_name=SERVER, message=start)
            ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await self._ask(subtype="mcp_message", server_name=SERVER, message=ready)
        message = {"jsonrpc": "2.0", "id": len(self._pending) + 1, "method": method, "params": params}
        answer = await self._ask(subtype="mcp_message", server_name=SERVER, message=message)
        result: dict[str, Any] = answer["mcp_response"]["result"]
        return result


class Agent:
    """The options of a desk, and what its model says."""

    def __init__(self, options: ClaudeAgentOptions, replies: tuple[Any, ...]) -> None:
        self.options = options
        self.replies = replies
        self.clis: list[ScriptedCli] = []  # that were started

    def open(self, options: ClaudeAgentOptions | None = None) -> ScriptedCli:
        self.clis.append(ScriptedCli(self.replies, options or self.options))
        return self.clis[-1]


@tool("check_warranty", "Looks a serial number up.", {"serial_number": str})
async def check_warranty(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(never(**arguments))}]}


@tool("send_reply", "Sends a mail.", {"to": str, "body": str})
async def send_reply(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": str(never(**arguments))}]}


def build(*replies: Any, **options: Any) -> Agent:
    server = create_sdk_mcp_server(SERVER, tools=[check_warranty, send_reply])
    return Agent(ClaudeAgentOptions(mcp_servers={SERVER: server}, **options), replies)


async def run_agent(task: evalkit.Task, agent: Agent, *, as_is: Collection[str] = ()) -> evalkit.Reply:
    """Run an agent. Options that the adapter adds reach no transport that is there before, so they are told to it."""
    session = TaskRecorder.get(task).get_history(agent.options)
    cli = agent.open(replace(agent.options, resume=session, max_turns=task.settings.max_iterations))
    return await claude_agent_sdk.run_agent(task, agent.options, as_is=as_is, transport=cli)


async def ask(agent: Agent, question: str) -> str:
    text = ""
    async for message in query(prompt=question, options=agent.options, transport=agent.open()):
        text = str(message.result) if isinstance(message, ResultMessage) else text
    return text


DESK = Desk(build=build, run_agent=run_agent, answered_by=answered_by, ask=ask, raises_errors=False)
