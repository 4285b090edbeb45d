"""Calls that a model's service has carried out, as each framework tells of them where no wire does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import Any

import pytest


def tell_pydantic_ai() -> Iterable[Any]:
    from pydantic_ai import messages

    from evalkit.adapters.pydantic_ai.hooks import list_hosted

    call_part = getattr(messages, "NativeToolCallPart", None) or messages.BuiltinToolCallPart
    return_part = getattr(messages, "NativeToolReturnPart", None) or messages.BuiltinToolReturnPart
    parts = [call_part("web_search", {"query": "drill"}, "s1"), return_part("web_search", ["a hit"], "s1")]
    return list_hosted(messages.ModelResponse(parts=[*parts, messages.TextPart("done")]))


def tell_openai_agents() -> Iterable[Any]:
    from agents import ModelResponse, Usage

    from evalkit.adapters.openai_agents.hooks import read_response

    action = {"type": "search", "query": "drill"}
    item: Any = {"type": "web_search_call", "id": "s1", "status": "completed", "action": action, "results": ["a hit"]}
    return read_response(ModelResponse(output=[item], usage=Usage(), response_id=None)).list_hosted()


def tell_langchain() -> Iterable[Any]:
    from langchain_core.messages import AIMessage

    from evalkit.adapters.langchain.hooks import list_hosted

    call = {"type": "server_tool_call", "id": "s1", "name": "web_search", "args": {"query": "drill"}}
    result = {"type": "server_tool_result", "tool_call_id": "s1", "status": "success", "output": ["a hit"]}
    return list_hosted(AIMessage(content_blocks=[call, result]))


def tell_google_adk() -> Iterable[Any]:
    from google.adk.models.llm_response import LlmResponse
    from google.genai import types

    from evalkit.adapters.google_adk.hooks import read_response

    code = types.ExecutableCode(code="print(1)", language=types.Language.PYTHON)
    result = types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="1")
    parts = [types.Part(executable_code=code), types.Part(code_execution_result=result)]
    return read_response(LlmResponse(content=types.Content(role="model", parts=parts))).list_hosted()


@pytest.mark.parametrize(
    ("framework", "tell", "name"),
    [
        ("pydantic_ai", tell_pydantic_ai, "web_search"),
        ("agents", tell_openai_agents, "web_search"),
        ("langchain_core", tell_langchain, "web_search"),
        ("google.adk", tell_google_adk, "code_execution"),
    ],
)
def test_a_framework_tells_of_what_the_service_has_carried_out(
    framework: str, tell: Callable[[], Iterable[Any]], name: str
) -> None:
    if find_spec(framework.partition(".")[0]) is None or find_spec(framework) is None:
        pytest.skip(f"no {framework}")
    ((call, answer),) = tell()
    assert (call.name, call.carrier) == (name, "service")
    assert answer is not None
    assert answer.value
