"""An alias that only an instruction file declares: a case may say either name, and a call by either is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

import evalkit

DESK = """\
---
name: desk
trigger: always
version: 1
available_functions:
  - name: search_docs
    alias: [tool_search_docs]
    description: Search.
    parameters: {type: object, properties: {query: {type: string}}, required: [query]}
  - {name: close, description: Close.}
---
Search.
"""
CASE = """\
agent: desk.md
input:
  message: hello
  mock_function_responses: {MOCKED: {found: 5}, close: {ok: true}}
expected_output: EXPECTED
"""
TURNS = """\
turns:
  - calls: [{CALLED: {query: x}}]
  - calls: [{close: {}}]
  - text: done
"""
LISTED = "{expected_function_calls: [{function_name: tool_search_docs, arguments: {query: x}}, close]}"


@pytest.mark.parametrize("called", ["search_docs", "tool_search_docs"])
@pytest.mark.parametrize("mocked", ["search_docs", "tool_search_docs"])
@pytest.mark.parametrize(
    ("expected", "status"),
    [
        (LISTED, "passed"),
        (LISTED.replace("tool_", ""), "passed"),
        ("{expected_function_calls: [close, tool_search_docs]}", "failed"),
        ("{forbidden_function_calls: [tool_search_docs]}", "failed"),
        ("{forbidden_function_calls: [{function_name: tool_search_docs, arguments_contain: {query: y}}]}", "passed"),
        ("{final_function_call: tool_search_docs}", "failed"),
        ("{response_contains: 'done', max_function_calls: 2}", "passed"),
        ("{expected_function_calls: [search_docs, close], response_contains: '{{ calls.close.result.ok }}'}", "failed"),
    ],
)
def test_either_name_means_the_function(
    called: str, mocked: str, expected: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cassettes = tmp_path / "mocks" / "cassettes"
    cassettes.mkdir(parents=True)
    (tmp_path / "desk.md").write_text(DESK)
    (tmp_path / "desk_001.yaml").write_text(CASE.replace("MOCKED", mocked).replace("EXPECTED", expected))
    (cassettes / "desk_001.yaml").write_text(TURNS.replace("CALLED", called))
    verdict = evalkit.run_case(evalkit.load_case("desk_001.yaml"))
    assert (verdict.status, verdict.transcript.calls[0].name) == (status, "search_docs"), verdict.summary


def test_the_expectations_of_turns_know_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cassettes = tmp_path / "mocks" / "cassettes"
    cassettes.mkdir(parents=True)
    (tmp_path / "desk.md").write_text(DESK)
    (tmp_path / "desk_001.yaml").write_text(
        "agent: desk.md\ninput:\n"
        "  turns: [{user: a, expected_output: {expected_function_calls: [tool_search_docs, close]}}]\n"
        "  mock_function_responses: {search_docs: {n: 5}, close: {ok: true}}\n"
    )
    (cassettes / "desk_001.yaml").write_text(TURNS.replace("CALLED", "search_docs"))
    verdict = evalkit.run_case(evalkit.load_case("desk_001.yaml"))
    assert verdict.status == "passed", verdict.summary
