"""The mock MCP server, asked by the official client over both transports, and by hand."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

import pytest

import evalkit
from evalkit.agents.remote.server import FunctionUrls
from evalkit.agents.task import Task
from evalkit.records.case import Case
from evalkit.records.transcript import ModelCall, ModelTurn
from evalkit.records.verdict import Verdict
from evalkit.runner.run_case import arun_case, run_case

mcp = pytest.importorskip("mcp", reason="the mcp extra is not installed")

MakeCase = Callable[..., Case]

PARAMETERS = {
    "type": "object",
    "properties": {"serial_number": {"type": "string"}},
    "required": ["serial_number"],
}
FUNCTIONS = {"check_warranty": {"description": "Looks a serial number up.", "parameters": PARAMETERS}}
MOCKS = {
    "check_warranty": {
        "$match": [{"when": {"serial_number": "SN12345"}, "$return": {"status": "valid"}}],
        "$default": {"$error": {"type": "not_found", "message": "no such serial number"}},
    },
    "note": "noted",
}
EXPECTED = {"expected_function_calls": [{"function_name": "check_warranty", "arguments": {"serial_number": "SN12345"}}]}


def over_http(served: FunctionUrls) -> Any:
    return served.mcp_url


def over_stdio(served: FunctionUrls) -> Any:
    assert served.mcp_command is not None
    return mcp.StdioServerParameters(command=served.mcp_command[0], args=list(served.mcp_command[1:]))


def asking(
    transport: Callable[[FunctionUrls], Any], *asked: tuple[str, Any], mode: str = "auto", seen: list[Any]
) -> Any:
    """An agent that lists the tools and makes the calls `asked`; what it gets is appended to `seen`."""

    async def agent(task: Task) -> str:
        async with task.serve() as served, mcp.Client(transport(served), mode=mode) as client:
            seen.append((await client.list_tools()).tools)
            for name, arguments in asked:
                seen.append(await client.call_tool(name, arguments))
        return "done"

    return agent


def texts(result: Any) -> list[str]:
    return [content.text for content in result.content]


@pytest.mark.parametrize(
    ("transport", "mode"),
    [(over_http, "auto"), (over_http, "legacy"), (over_stdio, "auto")],
    ids=["streamable HTTP", "streamable HTTP, before 2026", "stdio"],
)
def test_the_official_client_finds_calls_and_is_judged(make_case: MakeCase, transport: Any, mode: str) -> None:
    seen: list[Any] = []
    agent = asking(transport, ("check_warranty", {"serial_number": "SN12345"}), mode=mode, seen=seen)

    verdict = run_case(make_case(MOCKS, EXPECTED, functions=FUNCTIONS), agent)

    assert (verdict.status, verdict.reasons) == ("passed", ())
    tools, found = seen
    assert [(tool.name, tool.description, tool.input_schema) for tool in tools] == [
        ("check_warranty", "Looks a serial number up.", PARAMETERS),
        ("note", "", {"type": "object"}),
    ]
    assert (found.is_error, texts(found), found.structured_content) == (
        False,
        ['{"status": "valid"}'],
        {"status": "valid"},
    )


@pytest.mark.parametrize("transport", [over_http, over_stdio])
def test_a_call_that_the_model_asked_for_has_its_turn_channel_and_id(make_case: MakeCase, transport: Any) -> None:
    call = asking(transport, ("check_warranty", {"serial_number": "SN12345"}), seen=[])

    async def agent(task: Task) -> str:
        asked = ModelCall(name="check_warranty", arguments={"serial_number": "SN12345"}, call_id="c7")
        task.record_turn(ModelTurn(calls=(asked,)))
        return str(await call(task))

    verdict = run_case(make_case(MOCKS, EXPECTED, functions=FUNCTIONS), agent)

    assert verdict.passed, verdict.reasons
    assert [(call.turn, call.channel, call.call_id) for call in verdict.transcript.calls] == [(0, "native", "c7")]


@pytest.mark.parametrize("transport", [over_http, over_stdio])
def test_a_wrong_call_fails(make_case: MakeCase, transport: Any) -> None:
    seen: list[Any] = []
    agent = asking(transport, ("check_warranty", {"serial_number": "SN5"}), seen=seen)

    verdict = run_case(make_case(MOCKS, EXPECTED, functions=FUNCTIONS), agent)

    assert verdict.status == "failed"
    assert 'check_warranty: arguments.serial_number: expected "SN12345", got "SN5"' in verdict.reasons[0].message
    assert (seen[1].is_error, texts(seen[1])) == (
        True,
        ['{"error": {"type": "not_found", "message": "no such serial number"}}'],
    )


@pytest.mark.parametrize("transport", [over_http, over_stdio])
def test_bad_arguments_and_unknown_tools_are_recorded_and_judged(make_case: MakeCase, transport: Any) -> None:
    seen: list[Any] = []
    agent = asking(transport, ("check_warranty", {"serial": 5}), ("chek_warranty", {}), ("note", None), seen=seen)

    verdict = run_case(make_case(MOCKS, {"max_function_calls": 3}, functions=FUNCTIONS), agent)

    assert verdict.status == "failed"
    assert {reason.code for reason in verdict.reasons} == {"invalid_arguments", "unknown_function"}
    assert [(call.name, call.arguments, call.outcome) for call in verdict.transcript.calls] == [
        ("check_warranty", {"serial": 5}, "error"),
        ("chek_warranty", {}, "error"),
        ("note", {}, "ok"),
    ]
    assert "did you mean 'check_warranty'?" in texts(seen[2])[0]
    assert (texts(seen[3]), seen[3].structured_content) == (["noted"], None)


def test_cases_that_run_at_once_have_servers_of_their_own(make_case: MakeCase) -> None:
    async def one(number: int) -> Verdict:
        mocks = {"note": {"of": number}}
        seen: list[Any] = []
        verdict = await arun_case(
            make_case(mocks, {"expected_function_calls": ["note"]}), asking(over_http, ("note", {}), seen=seen)
        )
        assert seen[1].structured_content == {"of": number}
        return verdict

    async def all_at_once() -> list[Verdict]:
        return await asyncio.gather(*(one(number) for number in range(8)))

    assert {verdict.status for verdict in asyncio.run(all_at_once())} == {"passed"}


def test_any_client_can_speak_plain_json_rpc(make_case: MakeCase) -> None:
    def post(url: str, method: str, **params: Any) -> Any:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        accept = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        with urlopen(Request(url, json.dumps(message).encode(), accept)) as response:
            return json.load(response)["result"]

    async def agent(task: Task) -> str:
        async with task.serve() as served:
            url = str(served.mcp_url)
            client = {"name": "by hand", "version": "1"}
            started = await asyncio.to_thread(
                post, url, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=client
            )
            assert started["serverInfo"]["name"] == "evalkit"
            arguments = {"serial_number": "SN12345"}
            found = await asyncio.to_thread(post, url, "tools/call", name="check_warranty", arguments=arguments)
            return str(found["content"][0]["text"])

    verdict = run_case(make_case(MOCKS, EXPECTED, functions=FUNCTIONS), agent)

    assert (verdict.status, verdict.reasons) == ("passed", ())
    assert verdict.transcript.response == '{"status": "valid"}'


def test_the_stdio_server_says_how_it_is_started() -> None:
    command = [sys.executable, "-m", "evalkit.features.mcp.mock_server"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)

    assert (ended.returncode, ended.stderr) == (
        1,
        "usage: python -m evalkit.features.mcp.mock_server FUNCTIONS_URL, or a file that holds it\n",
    )


def test_without_the_extra_there_is_no_mcp_server_and_the_url_says_why(
    make_case: MakeCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalkit.features.mcp.endpoint.has_mcp", lambda: False)

    def ask(url: str) -> str:
        from urllib.error import HTTPError

        with pytest.raises(HTTPError) as caught:
            urlopen(Request(url, b"{}"))
        with caught.value as answer:
            return f"{answer.code} {json.load(answer)['error']['message']}"

    async def agent(task: Task) -> str:
        async with task.serve() as served:
            assert (served.mcp_url, served.mcp_command) == (None, None)
            return await asyncio.to_thread(ask, f"{served.functions_url}/mcp")

    verdict = run_case(make_case(MOCKS, {"max_function_calls": 0}), agent)

    assert verdict.transcript.response == (
        "501 the mock MCP server needs the package 'mcp': pip install 'pytest-evalkit[mcp]'"
    )


def test_a_call_from_inside_the_process_has_the_turn_of_the_model_that_asked_for_it(make_case: MakeCase) -> None:
    asked = {"calls": [{"name": "check_warranty", "arguments": {"serial_number": "SN12345"}, "id": "c1"}]}
    script = evalkit.ScriptedProvider([asked])

    async def agent(task: Task) -> str:
        await task.turn(evalkit.ModelRequest())
        async with task.serve() as served, mcp.Client(over_http(served)) as client:
            await client.call_tool("check_warranty", {"serial_number": "SN12345"})
        return "done"

    settings = evalkit.Settings(extra={"provider": lambda case_id, run: script})
    (call,) = run_case(make_case(MOCKS, EXPECTED, functions=FUNCTIONS), agent, settings).transcript.calls

    assert (call.turn, call.channel, call.call_id) == (0, "native", "c1")
