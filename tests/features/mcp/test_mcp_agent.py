"""MCP servers as the subject: their tools are called by the case or by a model, and their answers checked."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import evalkit
from evalkit.agents.remote.reaper import NO_GROUP, find_survivors
from evalkit.cli import commands
from evalkit.errors import RemoteAgentError, SpecError, UsageError
from evalkit.features.mcp import agent as mcp_agent
from evalkit.features.mcp import spec as server_spec
from evalkit.features.mcp.connection import MOST_PAGES, ServerConnection
from evalkit.features.mcp.pool import POOL, close_servers
from evalkit.features.mcp.servers import MCP_SERVERS
from evalkit.features.mcp.spec import RESULTS, ServerSpec
from evalkit.features.sweeps.feature import FaultSweep
from evalkit.project import Project
from evalkit.records.case import Permissions
from evalkit.records.settings import Settings
from evalkit.records.transcript import ModelCall, ModelTurn
from evalkit.records.verdict import Verdict
from evalkit.runner.changed_runs import arun_with_changes

mcp = pytest.importorskip("mcp", reason="the mcp extra is not installed")
types = mcp.types

NUMBER = {"type": "object", "properties": {"sum": {"type": "number"}}, "required": ["sum"]}
PAIR = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
PNG = b"\x89PNG..."


def text(words: str, **more: Any) -> Any:
    return types.CallToolResult(content=[types.TextContent(text=words)], **more)


async def answer(context: object, parameters: Any) -> Any:
    name, arguments = parameters.name, parameters.arguments or {}
    match name:
        case "add":
            total = arguments["a"] + arguments["b"]
            return text(f"{total}", structured_content={"sum": total})
        case "add_wrongly":
            return text("two", structured_content={"sum": "two"})
        case "add_silently":
            return text("2")
        case "say":
            return types.CallToolResult(content=[types.TextContent(text=word) for word in ("good", "morning")])
        case "draw":
            return types.CallToolResult(
                content=[types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png")]
            )
        case "repeat":
            return text(arguments["text"])
        case "fail":
            return text("the disk is full", is_error=True)
        case "ask":
            wanted = types.ElicitRequest(
                params=types.ElicitRequestFormParams(
                    message="Who?", requested_schema={"type": "object", "properties": {}}
                )
            )
            return types.InputRequiredResult(input_requests={"who": wanted})
        case "sleep":
            await asyncio.sleep(20)
    raise mcp.MCPError(types.INVALID_PARAMS, f"no tool {name}", {"asked": name})


def make_server() -> Any:
    tools: dict[str, tuple[Any, Any]] = dict.fromkeys(["add", "add_wrongly", "add_silently"], (PAIR, NUMBER))
    tools |= {name: ({"type": "object"}, None) for name in ("say", "draw", "repeat", "fail", "ask", "sleep")}

    async def list_tools(context: object, parameters: object) -> Any:
        return types.ListToolsResult(
            tools=[types.Tool(name=n, input_schema=asked, output_schema=told) for n, (asked, told) in tools.items()]
        )

    return mcp.server.Server("sums", on_list_tools=list_tools, on_call_tool=answer, **build_documents())


def build_documents() -> dict[str, Any]:
    """Resources and prompts, which are listed on two pages."""

    async def list_resources(context: object, parameters: Any) -> Any:
        if parameters is None or parameters.cursor is None:
            return types.ListResourcesResult(resources=[types.Resource(uri="x://a", name="a")], next_cursor="2")
        return types.ListResourcesResult(resources=[types.Resource(uri="x://b", name="b", mime_type="image/png")])

    async def read_resource(context: object, parameters: Any) -> Any:
        if parameters.uri == "x://b":
            blob = base64.b64encode(PNG).decode()
            return types.ReadResourceResult(contents=[types.BlobResourceContents(uri=parameters.uri, blob=blob)])
        if parameters.uri != "x://a":
            raise mcp.MCPError(-32002, f"no resource {parameters.uri}")
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=parameters.uri, text="sums")])

    async def list_prompts(context: object, parameters: object) -> Any:
        return types.ListPromptsResult(prompts=[types.Prompt(name="greet", description="Greets.")])

    async def get_prompt(context: object, parameters: Any) -> Any:
        words = types.TextContent(text=f"Greet {parameters.arguments['name']}.")
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=words)])

    return {
        "on_list_resources": list_resources,
        "on_read_resource": read_resource,
        "on_list_prompts": list_prompts,
        "on_get_prompt": get_prompt,
    }


def test_a_case_calls_methods_of_the_protocol_for_resources_and_prompts() -> None:
    methods = ["resources/list", "resources/read", "resources/read", "prompts/list", "prompts/get"]
    given: list[dict[str, Any]] = [
        {},
        {"uri": "x://a"},
        {"uri": "x://b"},
        {},
        {"name": "greet", "arguments": {"name": "Ada"}},
    ]
    calls = [call(name, **arguments) for name, arguments in zip(methods, given, strict=True)]
    verdict = run(*calls, expected_function_calls=methods)
    assert describe(verdict) == []
    assert [made.result for made in verdict.transcript.calls] == [
        {"x://a": {"name": "a"}, "x://b": {"name": "b", "mimeType": "image/png"}},
        {"contents": [{"uri": "x://a", "text": "sums"}]},
        {"contents": [{"uri": "x://b", "size": len(PNG), "sha256": sha256(PNG).hexdigest()}]},
        {"greet": {"description": "Greets."}},
        {"messages": [{"role": "user", "content": {"type": "text", "text": "Greet Ada."}}]},
    ]


def test_a_method_that_fails_or_is_called_wrongly_is_an_error_of_the_call() -> None:
    calls = [call("resources/read", uri="x://z"), call("resources/read"), "resources/templates/list"]
    failing = [expect(name, outcome="error") for name in ("resources/read",) * 2 + ("resources/templates/list",)]
    verdict = run(*calls, expected_function_calls=failing)
    assert describe(verdict) == []
    assert [made.result["error"]["message"] for made in verdict.transcript.calls] == [
        "MCP server 'sums' answered with the protocol error -32002: no resource x://z",
        "resources/read: uri: Field required",
        "MCP server 'sums' answered with the protocol error -32601: Method not found",
    ]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    evalkit.mcp_server("sums", timeout=0.5)(make_server)
    yield
    MCP_SERVERS.remove("sums")
    close_servers()
    assert not POOL.has_servers


def run(*calls: Any, settings: Settings | None = None, server: Any = "sums", **expected: Any) -> Verdict:
    case = {"agent": {"mcp": server}, "input": {"calls": list(calls)}, "expected_output": expected}
    return evalkit.run_case(evalkit.case_from_dict(case), settings=settings)


def call(function: str, **arguments: Any) -> dict[str, Any]:
    return {"function_name": function, "arguments": arguments}


def expect(function: str, **keys: Any) -> dict[str, Any]:
    return {"function_name": function, **keys}


def describe(verdict: Verdict) -> list[tuple[str, str]]:
    return [(reason.code, reason.message) for reason in verdict.reasons]


@pytest.mark.parametrize(
    ("called", "result"),
    [
        (call("add", a=1, b=2), {"sum": 3}),
        ("say", "good\nmorning"),
        (
            "draw",
            {
                "content": [
                    {"type": "image", "mimeType": "image/png", "size": len(PNG), "sha256": sha256(PNG).hexdigest()}
                ]
            },
        ),
    ],
    ids=["structured", "texts", "image"],
)
def test_a_result_is_the_structured_content_else_texts_else_blocks(called: Any, result: Any) -> None:
    name = called if isinstance(called, str) else called["function_name"]
    verdict = run(called, expected_function_calls=[expect(name, answered_by="server")])
    assert describe(verdict) == []
    made = verdict.transcript.calls[0]
    assert (made.result, made.answered_by, made.outcome) == (result, "server", "ok")
    assert made.duration_ms > 0


def test_the_whole_result_may_be_asked_for() -> None:
    evalkit.mcp_server("sums", results="whole")(make_server)
    calls = run(call("add", a=1, b=2), "fail", expected_function_calls=["add", expect("fail", outcome="error")])
    assert [made.result for made in calls.transcript.calls] == [
        {"content": [{"type": "text", "text": "3"}], "structuredContent": {"sum": 3}, "isError": False},
        {
            "error": {
                "type": "tool_error",
                "message": "the disk is full",
                "content": [{"type": "text", "text": "the disk is full"}],
            }
        },
    ]


@pytest.mark.parametrize(
    ("words", "result"),
    [('{"a": [1]}', {"a": [1]}), ("[1]", [1]), ("42", "42"), ('{"a": 1, "a": 2}', '{"a": 1, "a": 2}'), ("no", "no")],
)
def test_texts_that_are_json_may_be_asked_for_as_what_they_say(words: str, result: object) -> None:
    evalkit.mcp_server("sums", results="json")(make_server)
    verdict = run(call("repeat", text=words), expected_function_calls=["repeat"])
    assert describe(verdict) == []
    assert verdict.transcript.calls[0].result == result


def test_a_tool_that_the_server_has_not_is_pointed_out() -> None:
    failing = [expect(name, outcome="error") for name in ("dra", "zzz")]
    verdict = run("dra", "zzz", "prompts/list", expected_function_calls=[*failing, "prompts/list"])
    assert describe(verdict) == []
    first, second = verdict.transcript.warnings
    assert first == "MCP server 'sums' has no tool 'dra'; did you mean 'draw'?"
    assert second.startswith("MCP server 'sums' has no tool 'zzz'; it has add, ")


def test_tools_that_fail_take_long_or_are_none_are_errors_that_a_case_may_expect() -> None:
    verdict = run(
        *("fail", "sleep", call("nothing")),
        expected_function_calls=[
            expect("fail", outcome="error", result_contains={"error": {"type": "tool_error"}}),
            expect("sleep", outcome="error", result_contains={"error": {"type": "timeout"}}),
            expect(
                "nothing", outcome="error", result_contains={"error": {"code": -32602, "data": {"asked": "nothing"}}}
            ),
        ],
        response_contains="no tool nothing",
    )
    assert describe(verdict) == []
    assert [made.result["error"]["message"] for made in verdict.transcript.calls] == [
        "the disk is full",
        "sleep had not answered after 0.5 s, its limit (agent.mcp.timeout)",
        "MCP server 'sums' answered with the protocol error -32602: no tool nothing",
    ]


def test_a_list_of_tools_without_an_end_is_no_list() -> None:
    class Endless:
        async def list_tools(self, cursor: str = "") -> Any:
            return types.ListToolsResult(tools=[], next_cursor=f"{cursor}x")

    connection = ServerConnection(ServerSpec(name="sums"), Path(), None, "")
    with pytest.raises(RemoteAgentError, match=f"^MCP server 'sums' lists its tools on more than {MOST_PAGES} pages$"):
        asyncio.run(connection._list_tools(Endless()))  # type: ignore[arg-type]


def test_it_is_said_which_side_breaks_a_schema() -> None:
    verdict = run(
        *(call("add", a="1", b=2), call("add_wrongly", a=1, b=1), call("add_silently", a=1, b=1)),
        expected_function_calls=[expect("add", outcome="any"), "add_wrongly", expect("add_silently", outcome="error")],
    )
    assert verdict.status == "failed"
    assert describe(verdict) == [
        (
            "invalid_result",
            "call 2, add_wrongly: MCP server 'sums' breaks the outputSchema that it declares for add_wrongly: "
            'structuredContent.sum: "two" is not of type number',
        ),
        (
            "invalid_result",
            "call 3, add_silently: MCP server 'sums' breaks the outputSchema that it declares for add_silently: "
            "its answer has no structuredContent",
        ),
        ("invalid_arguments", 'call 1, add: arguments.a: "1" is not of type integer (schema: properties.a.type)'),
    ]


def test_a_call_may_use_what_an_earlier_one_returned() -> None:
    more = call("add", a="{{ calls.add.result.sum }}", b=10)
    verdict = run(
        call("add", a=1, b=2), more, expected_function_calls=["add", expect("add", result_contains={"sum": 13})]
    )
    assert describe(verdict) == []
    broken = run("fail", call("add", a="{{ calls.fail.result.sum }}", b=1), expected_function_calls=["add"])
    assert broken.status == "failed"
    assert describe(broken)[0] == (
        "unresolved_reference",
        "input.calls[1], add, could not be made: template {{ calls.fail.result.sum }} leads nowhere: "
        "fail has not succeeded yet",
    )


def test_the_list_of_tools_is_checked_like_a_result() -> None:
    asked = {"add": {"inputSchema": {"required": ["a", "b"]}}, "divide": {"$absent": True}, "say": {"description": "x"}}
    verdict = run("tools/list", expected_function_calls=[expect("tools/list", result_contains=asked)])
    assert describe(verdict) == [
        ("result_mismatch", 'call 1, tools/list: result.say.description: missing, expected "x"')
    ]


def test_no_sweep_tries_calls_that_the_case_itself_makes() -> None:
    case = evalkit.case_from_dict(
        {
            "agent": {"mcp": "sums"},
            "input": {"calls": ["say"]},
            "expected_output": {"expected_function_calls": ["say"]},
        }
    )
    verdict = asyncio.run(arun_with_changes(case, parts={"faults": FaultSweep()}))
    assert (verdict.status, verdict.changed_runs) == ("passed", ())


def test_a_model_uses_the_tools_and_mocks_replace_single_ones() -> None:
    calls = (ModelCall(name="add", arguments={"a": 1, "b": 2}), ModelCall(name="fail"))
    script = evalkit.ScriptedProvider([ModelTurn(calls=calls), ModelTurn(text="It is 3.")])
    case = evalkit.case_from_dict(
        {
            "agent": {"mcp": "sums"},
            "input": {"message": "1 + 2?", "mock_function_responses": {"fail": "mended"}},
            "expected_output": {
                "expected_function_calls": [
                    {"function_name": "add", "answered_by": "server", "channel": "native"},
                    {"function_name": "fail", "answered_by": "mock", "result_contains": "mended"},
                ],
                "response_contains": "3",
            },
        }
    )
    verdict = evalkit.run_case(case, settings=Settings(extra={"provider": lambda case_id, run: script}))
    assert describe(verdict) == []
    assert [function.name for function in script.requests[0].functions][:2] == ["add", "add_wrongly"]
    assert [value for _, value in script.requests[1].messages[-1]["results"]] == [{"sum": 3}, "mended"]


def test_what_an_object_of_this_process_asks_belongs_to_the_case() -> None:
    async def connect(context: object, parameters: Any) -> Any:
        await asyncio.to_thread(socket.create_connection, ("93.184.216.34", 80), 1)

    async def list_tools(context: object, parameters: object) -> Any:
        return types.ListToolsResult(tools=[types.Tool(name="connect", input_schema={"type": "object"})])

    MCP_SERVERS.remove("sums")
    evalkit.mcp_server("sums")(lambda: mcp.server.Server("web", on_list_tools=list_tools, on_call_tool=connect))
    for _ in range(2):
        verdict = run("connect", expected_function_calls=["connect"])
        assert (verdict.status, verdict.reasons[0].code) == ("error", "missing_cassette")
        assert "the agent's own client connects to 93.184.216.34:80" in verdict.reasons[0].message


def test_cases_share_a_server_unless_each_is_to_have_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def build() -> Any:
        made.append(make_server())
        return made[-1]

    for scope, started in (("worker", 1), ("case", 2)):
        made.clear()
        MCP_SERVERS.remove("sums")
        evalkit.mcp_server("sums", scope=scope)(build)
        for _ in range(2):
            assert run("say", expected_function_calls=["say"]).passed
        assert len(made) == started


# -- programs

PROGRAM = """
import json, os, sys
def reply(request, result):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
TOOLS = [{"name": "work", "inputSchema": {"type": "object"}}, {"name": "die", "inputSchema": {"type": "object"}}]
for line in sys.stdin:
    request = json.loads(line)
    match request["method"]:
        case "initialize":
            info = {"name": "small", "version": "1"}
            version = request["params"]["protocolVersion"]
            reply(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
        case "tools/list":
            reply(request, {"tools": TOOLS})
        case "tools/call" if request["params"]["name"] == "die":
            print("out of paper", file=sys.stderr, flush=True)
            os._exit(3)
        case "tools/call":
            print("working ...", flush=True)
            reply(request, {"content": [{"type": "text", "text": os.environ.get("EVALKIT_OFFLINE", "unguarded")}]})
        case method if "id" in request:
            error = {"code": -32601, "message": "Method not found"}
            print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "small.py").write_text(PROGRAM)
    return {"command": [sys.executable, str(tmp_path / "small.py")]}


HANG = """\
        case "tools/call" if request["params"]["name"] == "hang":
            import time
            time.sleep(600)
"""


@pytest.fixture
def hanging(tmp_path: Path) -> dict[str, Any]:
    """A program that does one thing after the other, and hangs in a tool."""
    tools = '[{"name": "hang", "inputSchema": {"type": "object"}}, {"name": "work"'
    program = PROGRAM.replace('        case "tools/call" if', f'{HANG}        case "tools/call" if', 1)
    (tmp_path / "hanging.py").write_text(program.replace('[{"name": "work"', tools, 1))
    return {"command": [sys.executable, "hanging.py"], "cwd": str(tmp_path), "timeout": 0.5}


def make_case(server: dict[str, Any], *calls: str, **keys: Any) -> evalkit.Case:
    expected = {"expected_function_calls": [expect(name, outcome="any") for name in calls]}
    return evalkit.case_from_dict(
        {"agent": {"mcp": server}, "input": {"calls": list(calls)}, "expected_output": expected, **keys}
    )


def outcomes(verdict: Verdict) -> list[str]:
    return [made.outcome for made in verdict.transcript.calls]


def test_a_case_after_a_call_that_hangs_has_a_server_that_answers(hanging: dict[str, Any]) -> None:
    """Also where the call ended with the deadline, and for a later call of the same case nothing is hidden."""
    assert outcomes(evalkit.run_case(make_case(hanging, "hang"))) == ["error"]
    assert outcomes(evalkit.run_case(make_case(hanging, "work", "hang", "work"))) == ["ok", "error", "error"]
    without_limit = {**hanging, "timeout": None}
    late = evalkit.run_case(make_case(without_limit, "hang", settings={"deadline_s": 0.5}))
    assert late.reasons[0].code == "deadline"
    assert outcomes(evalkit.run_case(make_case(without_limit, "work"))) == ["ok"]


def test_a_case_that_waits_behind_a_call_that_hangs_is_answered_by_another_server(hanging: dict[str, Any]) -> None:
    """Unless it has begun: what it told the server is lost with it, and the case could not be measured."""
    file = Path(hanging["cwd"]) / "hanging.py"
    text = file.read_text().replace('print("working ...", flush=True)', "time.sleep(0.2)")
    file.write_text(text.replace("import json", "import time, json", 1))

    async def run_together() -> tuple[Verdict, ...]:
        async def run_later(case: evalkit.Case, delay_s: float) -> Verdict:
            await asyncio.sleep(delay_s)
            return await evalkit.arun_case(case)

        await evalkit.arun_case(make_case(hanging, "work"))
        return await asyncio.gather(
            run_later(make_case(hanging, "hang"), 0.1),
            run_later(make_case(hanging, "work"), 0.2),
            run_later(make_case(hanging, "work", "work"), 0.0),
        )

    hung, behind, begun = asyncio.run(run_together())
    assert outcomes(hung) == ["error"]
    assert outcomes(behind) == ["ok"]
    assert (begun.status, begun.reasons[0].code) == ("error", "agent_unreachable")
    assert "hangs in a call of another case, and this case had begun with it" in begun.reasons[0].message


def test_a_server_that_still_answers_others_is_kept() -> None:
    made: list[int] = []

    def make() -> Any:
        made.append(1)
        return make_server()

    MCP_SERVERS.remove("sums")
    evalkit.mcp_server("sums", timeout=0.2)(make)
    for name in ("sleep", "say", "sleep"):
        run(name, expected_function_calls=[expect(name, outcome="any")])
    assert len(made) == 1


def test_cases_that_want_other_results_of_a_server_have_another_one(program: dict[str, Any]) -> None:
    """A shared one would answer the second case as the first one has asked."""
    plain, whole = (
        run("work", server=server, expected_function_calls=["work"]).transcript.calls[0].result
        for server in (program, {**program, "results": "whole"})
    )
    assert whole == {"content": [{"type": "text", "text": plain}], "structuredContent": None, "isError": False}


def test_a_program_is_guarded_like_any_other_and_what_it_prints_is_reported(program: dict[str, Any]) -> None:
    verdict = run("work", server=program, expected_function_calls=["work"])
    assert describe(verdict) == []
    assert verdict.transcript.calls[0].result == ""  # no host is let through
    assert len(verdict.transcript.warnings) == 1
    assert verdict.transcript.warnings[0].endswith(
        "wrote a line to stdout that is no message: 'working ...'; logs belong on stderr"
    )


ODD = """\
        case "tools/call" if request["params"]["name"] == "open_stock":
            TOOLS[:] = [{"name": "count", "description": "Counts.", "inputSchema": {"type": "object"}}]
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}), flush=True)
            reply(request, {"content": []})
        case "tools/call" if request["params"]["name"] == "nan":
            reply(request, {"content": [], "structuredContent": {"sum": [0, float("nan")]}})
        case "tools/call" if request["params"]["name"] == "infinite":
            reply(request, {"content": [], "structuredContent": {"sum": float("inf")}, "isError": True})
        case "tools/call" if request["params"]["name"] == "hologram":
            reply(request, {"content": [{"type": "hologram"}]})
        case "tools/call" if request["params"]["name"] == "blind":
            reply(request, {"content": [{"type": "text", "text": "a"}, {"type": "image", "data": 5}]})
        case "tools/call" if request["params"]["name"] == "last":
            reply(request, {"content": []})
            os._exit(4)
"""


@pytest.fixture
def odd(tmp_path: Path) -> dict[str, Any]:
    """A program whose answers are odd, for one case alone."""
    tools = '[{"name": "open_stock", "inputSchema": {"type": "object"}}, {"name": "work"'
    program = PROGRAM.replace('        case "tools/call" if', f'{ODD}        case "tools/call" if', 1)
    (tmp_path / "odd.py").write_text(program.replace('[{"name": "work"', tools, 1))
    return {"command": [sys.executable, "odd.py"], "cwd": str(tmp_path), "scope": "case"}


def test_answers_that_are_no_json_or_no_result_fail_the_case_in_one_line(odd: dict[str, Any]) -> None:
    """Whatever the case expects of them: a schema takes NaN for a number."""
    names = ["nan", "infinite", "hologram", "blind"]
    verdict = run(*names, server=odd, expected_function_calls=[expect(name, outcome="any") for name in names])
    who = f"MCP server '{sys.executable} odd.py'"
    assert verdict.status == "failed"
    assert describe(verdict) == [
        ("invalid_result", f"call 1, nan: {who} answered nan with structuredContent.sum[1]: nan, which is not JSON"),
        (
            "invalid_result",
            f"call 2, infinite: {who} answered infinite with structuredContent.sum: inf, which is not JSON",
        ),
        (
            "invalid_result",
            f"call 3, hologram: {who} answered with something that is no result of hologram: content[0]: there is no "
            'block of the type "hologram"',
        ),
        (
            "invalid_result",
            f"call 4, blind: {who} answered with something that is no result of blind: content[1].data: Input should "
            "be a valid string; content[1].mimeType: Field required",
        ),
    ]


def test_a_server_of_the_case_alone_that_ends_between_calls_fails_it(odd: dict[str, Any]) -> None:
    """Nobody else can have ended it; of a shared one that is not known."""
    verdict = run("last", "work", server=odd, expected_function_calls=["last"], extra_calls="allow")
    assert (verdict.status, verdict.reasons[0].code) == ("failed", "crashed")
    assert "exited with status 4" in verdict.reasons[0].message


def test_a_case_that_calls_tools_sees_them_change(odd: dict[str, Any]) -> None:
    calls = ["open_stock", "tools/list", "count", "work", "work"]
    verdict = run(*calls, server=odd, expected_function_calls=calls)
    assert describe(verdict) == []
    assert verdict.transcript.calls[1].result == {
        "count": {"description": "Counts.", "inputSchema": {"type": "object"}}
    }
    missing = [warning for warning in verdict.transcript.warnings if "has no tool" in warning]
    assert missing == [f"MCP server '{sys.executable} odd.py' has no tool 'work'; it has count"]


def test_a_model_is_offered_the_tools_that_the_server_has_by_then(odd: dict[str, Any]) -> None:
    turns = [ModelTurn(calls=(ModelCall(name=name),)) for name in ("open_stock", "count", "work")]
    script = evalkit.ScriptedProvider([*turns, ModelTurn(text="Done.")])
    case = evalkit.case_from_dict(
        {
            "agent": {"mcp": odd},
            "input": {"message": "Count it."},
            "expected_output": {"expected_function_calls": ["open_stock", "count"], "extra_calls": "allow"},
        }
    )
    verdict = evalkit.run_case(case, settings=Settings(extra={"provider": lambda case_id, run: script}))
    offered = [[function.name for function in request.functions] for request in script.requests]
    assert offered == [["open_stock", "work", "die"], ["count"], ["count"], ["count"]]
    assert describe(verdict) == [("unknown_function", "call 3, work: there is no function 'work'; there are count")]


def test_a_shared_server_that_has_changed_its_tools_offers_the_new_ones_to_the_next_case(odd: dict[str, Any]) -> None:
    shared = {**odd, "scope": "worker"}
    assert run("open_stock", server=shared, expected_function_calls=["open_stock"]).passed
    second = run("count", server=shared, expected_function_calls=["count"])
    assert second.passed
    assert not [warning for warning in second.transcript.warnings if "has no tool" in warning]


def test_a_whole_result_is_held_against_the_output_schema_too() -> None:
    evalkit.mcp_server("sums", results="whole")(make_server)
    verdict = run(call("add_silently", a=1, b=1), expected_function_calls=[expect("add_silently", outcome="any")])
    assert describe(verdict) == [
        (
            "invalid_result",
            "call 1, add_silently: MCP server 'sums' breaks the outputSchema that it declares for add_silently: "
            "its answer has no structuredContent",
        )
    ]


def test_what_a_server_asks_of_its_client_is_not_given_and_said() -> None:
    """By the newer protocol in place of the result, by the older one by a request of its own."""
    verdict = run("ask", expected_function_calls=[expect("ask", outcome="error")])
    assert describe(verdict) == []
    assert verdict.transcript.calls[0].result["error"] == {
        "type": "input_required",
        "message": "MCP server 'sums' wants an answer of the user (elicitation) before it answers ask; evalkit gives "
        "servers nothing but calls",
    }


def test_a_request_of_a_program_to_its_client_is_a_warning(tmp_path: Path) -> None:
    asking = """\
        case "tools/call":
            wanted = {"messages": [], "maxTokens": 5}
            asked = {"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": wanted}
            print(json.dumps(asked), flush=True)
            error = json.loads(sys.stdin.readline())["error"]["message"]
            reply(request, {"content": [{"type": "text", "text": error}]})
"""
    program = PROGRAM.replace('        case "tools/call":\n', asking + '        case "never":\n')
    (tmp_path / "small.py").write_text(program)
    verdict = run("work", server={"command": [sys.executable, "small.py"], "cwd": str(tmp_path)}, max_function_calls=1)
    assert verdict.transcript.calls[0].result == "Sampling not supported"
    assert verdict.transcript.warnings == (
        f"MCP server '{sys.executable} small.py' asked for a reply of a model (sampling), and got an error; "
        "evalkit gives servers nothing but calls",
    )


def test_a_server_that_crashes_fails_the_case_and_is_started_again_for_the_next(program: dict[str, Any]) -> None:
    verdict = run("work", "die", "work", server=program, extra_calls="allow", expected_function_calls=["work"])
    assert verdict.status == "failed"
    assert [made.name for made in verdict.transcript.calls] == ["work", "die"]
    assert verdict.reasons[0].code == "crashed"
    assert verdict.reasons[0].message.endswith(
        'exited with status 3 while it answered die; on stdout stood "working ..."; its stderr ends:\n  out of paper'
    )
    assert run("work", server=program, expected_function_calls=["work"]).passed


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            [sys.executable, "-c", "import sys; sys.exit('no configuration')"],
            "crashed",
            "exited with status 1 before it had",
        ),
        (
            [sys.executable, "-c", "import os, sys, time; os.close(1); time.sleep(1.5); sys.exit('no configuration')"],
            "crashed",
            "exited with status 1 before it had",
        ),
        (
            ["sh", "-c", "exec >&-; sleep 1; echo no configuration >&2; exit 1"],
            "crashed",
            "exited with status 1 before it had",
        ),
        (["no-such-program"], "unknown_agent", "can't be started: command not found: 'no-such-program'"),
    ],
    ids=["exits", "exits a while after its output ended", "has no output before it is asked", "missing"],
)
def test_a_server_that_does_not_start_could_not_be_measured(words: list[str], code: str, message: str) -> None:
    verdict = run("work", server={"command": words}, expected_function_calls=["work"])
    assert (verdict.status, verdict.reasons[0].code) == ("error", code)
    assert message in verdict.reasons[0].message
    assert code != "crashed" or verdict.reasons[0].message.endswith("its stderr ends:\n  no configuration")


def test_a_program_that_does_not_start_is_not_tried_again_by_each_case(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "open('starts', 'a').write('.'); raise SystemExit(1)"]
    for _ in range(3):
        verdict = run("work", server={"command": words, "cwd": str(tmp_path)}, expected_function_calls=["work"])
        assert (verdict.status, verdict.reasons[0].code) == ("error", "crashed")
    assert (tmp_path / "starts").read_text() == "."


def test_a_server_behind_a_url_is_asked_by_streamable_http(unused_port: int) -> None:
    program = (
        "from mcp.server.mcpserver import MCPServer\n"
        "server = MCPServer('web')\n"
        "@server.tool()\n"
        "def double(number: int) -> int:\n    return 2 * number\n"
        f"server.run(transport='streamable-http', port={unused_port})\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as process:
        try:
            url = {"url": f"http://127.0.0.1:{unused_port}/mcp", "headers": {"x-team": "shop"}}
            until = time.monotonic() + 20
            while (
                verdict := run(call("double", number=4), server=url, expected_function_calls=["double"])
            ).status == "error":
                assert time.monotonic() < until, describe(verdict)
                time.sleep(0.2)
            assert describe(verdict) == []
            assert verdict.transcript.calls[0].result == {"result": 8}
        finally:
            process.terminate()


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found by their environment, on Linux")
@pytest.mark.parametrize("number", [signal.SIGKILL, None], ids=["killed", "ended"])
def test_no_server_outlives_the_process_that_started_it(tmp_path: Path, number: signal.Signals | None) -> None:
    (tmp_path / "small.py").write_text(PROGRAM)
    mark = f"EVALKIT_TEST_MARK={os.urandom(8).hex()}"
    script = (
        "import evalkit, os, sys\n"
        "case = {'agent': {'mcp': {'command': [sys.executable, 'small.py']}}, 'input': {'calls': ['work']},"
        " 'expected_output': {'expected_function_calls': ['work']}}\n"
        "assert evalkit.run_case(evalkit.case_from_dict(case)).passed\n"
        f"os.kill(os.getpid(), {int(number)})\n"
        if number
        else "pass\n"
    )
    name, value = mark.split("=")
    environment = {**os.environ, name: value, "PYTHONPATH": os.getcwd()}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, check=number is None)
    until = time.monotonic() + 10
    while find_survivors(NO_GROUP, mark.encode()) and time.monotonic() < until:
        time.sleep(0.05)
    assert find_survivors(NO_GROUP, mark.encode()) == []


# -- what a case may name, and its documentation

FOREIGN = {"command": ["npx", "some-server"]}
LOAD = {"input": {"calls": ["say"]}, "expected_output": {"expected_function_calls": ["say"]}}


@pytest.mark.parametrize(
    ("server", "permissions", "message"),
    [
        ("sums", {"untrusted": True}, "--evalkit-untrusted refuses what runs code that a file names"),
        (FOREIGN, {}, "allow_commands"),
        ({"url": "https://mcp.example.com/mcp"}, {}, "mcp.example.com is another machine; if cases may ask it"),
        (
            {"command": ["python", "own.py"], "env": {"PYTHONPATH": "/tmp"}},
            {},
            "the variable PYTHONPATH gives it other code",
        ),
    ],
    ids=["untrusted", "command", "url", "variable"],
)
def test_a_case_starts_and_asks_only_what_the_project_allows(
    server: Any, permissions: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = tmp_path / "case_001.yaml"
    (tmp_path / "own.py").write_text("")
    settings = Settings(root=tmp_path, permissions=Permissions(folders=(str(tmp_path),), **permissions))
    file.write_text(json.dumps({"agent": {"mcp": server}, **LOAD}))
    with pytest.raises(SpecError, match=message):
        evalkit.load_case(file, settings=settings)


def test_servers_are_described_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(PROGRAM)
    table = f'[tool.evalkit.mcp_servers.small]\ncommand = ["{sys.executable}", "small.py"]\nscope = "case"\n'
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "work_001.yaml").write_text(
        "agent: {mcp: small}\ninput: {calls: [work]}\nexpected_output: {expected_function_calls: [work]}\n"
    )
    (tmp_path / "work_002.yaml").write_text(
        "agent: {mcp: smal}\ninput: {calls: [work]}\nexpected_output: {expected_function_calls: [work]}\n"
    )
    project = Project(tmp_path)
    assert describe(evalkit.run_case(project.load_case(tmp_path / "work_001.yaml"), settings=project.settings)) == []
    misspelt = evalkit.run_case(project.load_case(tmp_path / "work_002.yaml"), settings=project.settings)
    assert describe(misspelt) == [
        ("unknown_agent", "there is no MCP server 'smal'; there are small, sums; did you mean 'small'?")
    ]


def test_a_server_where_there_is_none_is_told_how_to_be_described() -> None:
    MCP_SERVERS.remove("sums")
    assert describe(run("work", server="stock", expected_function_calls=["work"])) == [
        (
            "unknown_agent",
            "there is no MCP server 'stock'; describe it in [tool.evalkit.mcp_servers.stock], "
            "or register it with @evalkit.mcp_server",
        )
    ]
    evalkit.mcp_server("sums")(make_server)


def test_the_tools_of_a_server_are_printed_and_lint_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small.py").write_text(PROGRAM)
    table = f'[tool.evalkit.mcp_servers.small]\ncommand = ["{sys.executable}", "small.py"]\n'
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "scenarios").mkdir()
    case = "agent: {mcp: small}\ninput: {calls: [wrok]}\nexpected_output: {expected_function_calls: [wrok]}\n"
    (tmp_path / "scenarios" / "work_001.yaml").write_text(case)
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    by_name = runner.invoke(commands, ["mcp", "tools", "small", "-o", "scenarios/tools.json"])
    assert (by_name.exit_code, by_name.output) == (0, "")
    by_case = runner.invoke(commands, ["mcp", "tools", "scenarios/work_001.yaml"])
    assert json.loads(by_case.output) == json.loads((tmp_path / "scenarios" / "tools.json").read_text())
    assert [tool["name"] for tool in json.loads(by_case.output)["tools"]] == ["work", "die"]
    linted = runner.invoke(commands, ["lint"])
    assert "the case expects 'wrok', which is not declared; did you mean 'work'?" in linted.output
    unknown = runner.invoke(commands, ["mcp", "tools", "smal"])
    assert isinstance(unknown.exception, UsageError)
    assert "did you mean 'small'?" in str(unknown.exception)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('mcp_servers = "small"', "'small' is not a table of MCP servers"),
        ("mcp_servers = {small = 'x'}", "mcp_servers.small must be a table with command or url, got 'x'"),
        (
            "[tool.evalkit.mcp_servers.small]\ncwd = 'x'",
            "mcp_servers.small must have one of command and url, got {'cwd': 'x'}",
        ),
        (
            "[tool.evalkit.mcp_servers.small]\nurl = 'x'\nscop = 'run'",
            "unknown key 'scop' in mcp_servers.small; did you mean 'scope'?",
        ),
        (
            "[tool.evalkit.mcp_servers.small]\nurl = 'x'\nscope = 'run'",
            "mcp_servers.small.scope: 'run' is not one of worker, case",
        ),
    ],
)
def test_a_wrong_table_of_servers_is_a_usage_error(tmp_path: Path, table: str, problem: str) -> None:
    (tmp_path / "pyproject.toml").write_text(table if table.startswith("[") else f"[tool.evalkit]\n{table}\n")
    with pytest.raises(UsageError, match=re.escape(problem)):
        Project(tmp_path)


@pytest.mark.parametrize("results", RESULTS)
def test_each_form_of_results_may_stand_in_the_configuration_and_in_code(results: str, tmp_path: Path) -> None:
    table = f"[tool.evalkit.mcp_servers.small]\nurl = 'http://localhost/mcp'\nresults = '{results}'\n"
    (tmp_path / "pyproject.toml").write_text(table)
    ((_, data),) = Project(tmp_path).settings.permissions.tables
    assert json.loads(data)["small"]["results"] == results
    evalkit.mcp_server("sums", results=results)(make_server)


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        ({"agent": {"mcp": 3}}, "agent.mcp"),
        ({"agent": {"mcp": {"cwd": "x"}}}, "agent.mcp has one of 'command' and 'url'"),
        ({"agent": {"mcp": {"url": "http://localhost/mcp", "scop": "case"}}}, "did you mean 'scope'"),
        ({"agent": {"mcp": {"url": "http://localhost/mcp", "scope": "run"}}}, "'worker' or 'case'"),
        ({"agent": {"mcp": "x", "timeout": 3}}, "it stands under 'mcp'"),
        (
            {"agent": {"mcp": "x", "command": "y"}},
            "agent has one of 'command', 'url' and 'mcp', got 'command' and 'mcp'",
        ),
        ({"agent": "shop"}, "'calls' are made of an MCP server, and the agent is none"),
        ({"input": {"calls": []}}, "a list of calls"),
        ({"input": {"calls": [{"name": "x"}]}}, "did you mean 'function_name'"),
        ({"input": {"calls": [{"function_name": "x", "arguments": [1]}]}}, "a mapping of arguments"),
        ({"input": {"calls": [call("x", a="{{ calls.f. }}")]}}, r"\{\{ calls.f. \}\}"),
        ({"input": {"calls": ["x"], "message": "y"}}, "input has 'message' and 'calls'; it has exactly one"),
    ],
)
def test_what_is_wrong_in_a_case_is_said(case: Any, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        evalkit.case_from_dict({"agent": {"mcp": "sums"}, **LOAD, **case})


def test_without_the_extra_the_case_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_spec, "find_spec", lambda name: None)
    verdict = run("say", expected_function_calls=["say"])
    assert verdict.status == "error"
    assert describe(verdict) == [
        ("missing_extra", "an agent that is an MCP server needs the package 'mcp': pip install 'pytest-evalkit[mcp]'")
    ]


PAGE = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text("utf-8")


@pytest.mark.parametrize(("name", "content"), re.findall(r"<!-- file: (\S+) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL))
def test_the_page_shows_a_case_as_it_is(name: str, content: str) -> None:
    assert (Path(__file__).parents[3] / name).read_text("utf-8").partition("\n")[2] == content


def test_nothing_of_the_package_is_imported_before_a_server_is_used() -> None:
    code = "import sys, evalkit.features.mcp.agent; assert 'mcp' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert mcp_agent is not None
