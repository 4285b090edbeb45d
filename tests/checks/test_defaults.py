"""Arguments with defaults: a call that sends the default and one that does not are the same call."""

from __future__ import annotations

from typing import Any

import pytest

import evalkit
from evalkit.errors import SpecError
from evalkit.records.case import Declaration
from evalkit.spec.load import case_from_dict

FUNCTIONS = [
    {
        "name": "send",
        "parameters": {
            "type": "object",
            "properties": {
                "to": {"type": "string"},
                "lang": {"default": "en"},
                "cc": {"default": None},
            },
        },
    }
]


def judged(expected: dict[str, Any], actual: dict[str, Any], **keys: Any) -> evalkit.Verdict:
    return evalkit.judge(
        {"expected_function_calls": [{"function_name": "send", **expected}], **keys},
        [{"name": "send", "arguments": actual}],
        functions=FUNCTIONS,
    )


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"arguments": {"to": "a"}}, {"to": "a"}),
        ({"arguments": {"to": "a"}}, {"to": "a", "lang": "en"}),
        ({"arguments": {"to": "a"}}, {"to": "a", "lang": "en", "cc": None}),
        ({"arguments": {}}, {"lang": "en"}),
        ({"arguments": None}, {}),
        ({"arguments": {"to": "a", "lang": "de"}}, {"to": "a", "lang": "de"}),
        ({"arguments": {"to": "a", "lang": {"$default": "de"}}}, {"to": "a"}),
        ({"arguments_contain": {"to": "a"}}, {"to": "a", "lang": "de"}),
    ],
)
def test_the_same_call(expected: dict[str, Any], actual: dict[str, Any]) -> None:
    assert judged(expected, actual).status == "passed"


@pytest.mark.parametrize(
    ("expected", "actual", "code", "message"),
    [
        (
            {"arguments": {"to": "a"}},
            {"to": "a", "lang": "de"},
            "wrong_argument",
            'arguments.lang: expected "en", the default, or nothing, got "de"',
        ),
        (
            {"arguments": {"to": "a", "lang": "en"}},
            {"to": "a"},
            "missing_argument",
            'arguments.lang: missing, expected "en"',
        ),
        (
            {"arguments": {"to": "a", "lang": "de"}},
            {"to": "a", "lang": "en"},
            "wrong_argument",
            'arguments.lang: expected "de", got "en"',
        ),
        (
            {"arguments": {"to": "a"}, "arguments_absent": ["lang"]},
            {"to": "a", "lang": "en"},
            "unexpected_argument",
            'arguments.lang: must not be sent, got "en"',
        ),
        ({"arguments": {"to": "a"}}, {"to": "a", "bcc": "b"}, "unexpected_argument", "arguments.bcc: not expected"),
    ],
)
def test_a_difference(expected: dict[str, Any], actual: dict[str, Any], code: str, message: str) -> None:
    verdict = judged(expected, actual, valid_arguments=False)
    assert verdict.status == "failed"
    assert message in verdict.reasons[0].message
    assert verdict.reasons[0].code == code


def case(**keys: Any) -> evalkit.Case:
    return case_from_dict(
        {
            "agent": "a",
            "input": {"message": "x", "mock_function_responses": {"send": 1}},
            "expected_output": {"expected_function_calls": [{"function_name": "send", "arguments": {"to": "a"}}]},
            **keys,
        }
    )


@pytest.mark.parametrize(("lang", "status"), [("en", "passed"), ("de", "failed")])
def test_defaults_of_functions_that_are_declared_elsewhere_stand_in_the_case(lang: str, status: str) -> None:
    def agent(task: evalkit.Task) -> None:
        task.call("send", to="a", lang=lang)

    assert evalkit.run_case(case(defaults={"send": {"lang": "en"}}), agent).status == status
    assert evalkit.run_case(case(), agent).status == "failed"


@pytest.mark.parametrize(("lang", "status"), [("en", "passed"), ("de", "failed")])
def test_defaults_that_the_agent_declares_in_the_run_count(lang: str, status: str) -> None:
    """As those of an instruction file do, which are known when the agent is."""

    def agent(task: evalkit.Task) -> None:
        task.declare([Declaration.from_data(FUNCTIONS[0])])
        task.call("send", to="a", lang=lang)

    verdict = evalkit.run_case(case(), agent)
    assert verdict.status == status
    assert lang == "en" or "the default, or nothing" in verdict.reasons[0].message


def test_a_default_of_the_case_replaces_the_declared_one() -> None:
    def agent(task: evalkit.Task) -> None:
        task.call("send", to="a", lang="pl")

    functions = {function["name"]: {"parameters": function["parameters"]} for function in FUNCTIONS}
    assert evalkit.run_case(case(functions=functions, defaults={"send": {"lang": "pl"}}), agent).status == "passed"


@pytest.mark.parametrize(
    ("defaults", "message"),
    [
        ({"sent": {"lang": "en"}}, "defaults.sent: no function 'sent' is declared; did you mean 'send'?"),
        ({"send": {"language": "en"}}, "function 'send' has no argument 'language'; did you mean 'lang'?"),
        ({"send": "en"}, 'defaults.send must be a mapping of arguments to their default values, got "en"'),
        ([], "defaults must be a mapping of functions, got an empty list"),
    ],
)
def test_defaults_that_are_wrong(defaults: Any, message: str) -> None:
    functions = {function["name"]: {"parameters": function["parameters"]} for function in FUNCTIONS}
    with pytest.raises(SpecError) as caught:
        case(functions=functions, defaults=defaults)
    assert message in str(caught.value)
