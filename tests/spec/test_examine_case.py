"""Reading a case for tools that look at broken files too, without running any code that it names."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.errors import SpecError
from evalkit.spec.load import examine_case

NAME = "scenarios/desk_001.yaml"
NAMES_CODE = """\
functions:
  check: {patch: "explosive:check"}
input:
  message: hello
  mock_function_responses:
    check: {$call: "explosive:answer"}
    send: {$error: {exception: "explosive:Failure"}}
expected_output: {response_contains: hello}
"""


def test_no_code_that_a_case_names_is_imported(project: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`patch`, `$call` and `exception` are judged by their form alone."""
    project.write({NAME: NAMES_CODE, "explosive.py": "print('boom')"})
    examined = examine_case(project.root / NAME, root=project.root)
    assert examined.problems == ()
    assert [function.patch for function in examined.functions] == ["explosive:check"]
    assert capsys.readouterr().out == ""


def test_the_form_of_a_target_is_still_judged(project: Any) -> None:
    """What can't name a Python object is wrong whether anything is imported or not."""
    text = NAMES_CODE.replace("explosive:answer", "no target").replace("explosive:Failure", "an error: 1")
    project.write({NAME: text})
    assert [str(problem) for problem in examine_case(project.root / NAME, root=project.root).problems] == [
        f"{NAME}:6:20: $call: 'no target' does not name a Python object; write it as 'mocks.warranty:create_ticket'",
        f"{NAME}:7:32: exception of $error: 'an error: 1' does not name a Python object; write it as "
        "'requests.exceptions:Timeout'",
    ]


def test_a_broken_case_still_gives_its_data_and_its_places(project: Any) -> None:
    """Problems come beside the data, which is merged with the suites'."""
    project.write(
        {
            "scenarios/suite.yaml": "agent: desk\n",
            NAME: "input: {message: hello}\nexpected_output: {expected_function_calls: [{function: check}]}\n",
        }
    )
    examined = examine_case(project.root / NAME, root=project.root)
    assert examined.id == NAME
    assert examined.data["agent"] == "desk"
    assert [str(problem) for problem in examined.problems] == [
        f"{NAME}:2:46: unknown key 'function' in expected_function_calls[0]; did you mean 'function_name'?"
    ]
    assert str(examined.source.locate(("agent",))) == "scenarios/suite.yaml:1:8"


def test_a_file_without_a_mapping_has_nothing_to_examine(project: Any) -> None:
    """There is no data to give."""
    project.write({NAME: "- 1\n"})
    with pytest.raises(SpecError, match="a case is a mapping"):
        examine_case(project.root / NAME, root=project.root)
