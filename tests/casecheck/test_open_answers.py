"""Smoke guesses nothing: a case that some run passes has no finding, whatever its mocks make of open arguments."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

import evalkit
from evalkit.hosts.casecheck.smoke import SmokeResult, run_smoke_check
from evalkit.records.case import Case
from tests.attack.forms import choose

ECHO: dict[str, Any] = {"f": {"echo": "{{ arguments.name }}"}}
RULES: dict[str, Any] = {"f": {"$match": [{"when": {"name": "Anna"}, "$return": {"ok": 1}}]}}
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
F: dict[str, Any] = {
    "f": {
        "description": "Find somebody",
        "parameters": {"type": "object", "properties": {"name": TEXT, "n": NUMBER}, "required": ["name"]},
    },
    "g": {"description": "Greet", "parameters": {"type": "object", "properties": {"id": TEXT}, "required": ["id"]}},
}
ANNA = [("f", {"name": "Anna"})]
OPEN_ARGUMENTS = "expected_output.expected_function_calls[0]: its mock refers to arguments that the case leaves open"
OPEN_ORDER = "its mock refers to calls whose order or number the case leaves open"


def make_case(mocks: dict[str, Any], calls: list[Any], functions: Any = None, **expected: Any) -> Case:
    return evalkit.case_from_dict(
        {
            "input": {"message": "hi", "mock_function_responses": mocks},
            "expected_output": {"expected_function_calls": calls, **expected},
            **({} if functions is None else {"functions": functions}),
        }
    )


def run(case: Case, calls: list[tuple[str, dict[str, Any]]], response: str = "") -> str:
    """The status of a run in which the agent makes these calls."""

    def agent(task: evalkit.Task) -> str:
        for name, arguments in calls:
            task.call(name, **arguments)
        return response

    return evalkit.run_case(case, agent).status


@pytest.mark.parametrize(
    ("mocks", "expected", "functions", "sent"),
    [
        (ECHO, {"result_contains": {"echo": "Anna"}}, F, {"name": "Anna"}),
        (ECHO, {"result_contains": {"echo": "Anna"}}, None, {"name": "Anna"}),
        (ECHO, {"arguments_contain": {"n": 1}, "result_contains": {"echo": "Anna"}}, None, {"name": "Anna", "n": 1}),
        (ECHO, {"arguments": {"name": {"$any": True}}, "result_contains": {"echo": "Anna"}}, None, {"name": "Anna"}),
        (ECHO, {"arguments": {"name": {"$regex": "A.*"}}, "result_contains": {"echo": "Anna"}}, None, {"name": "Anna"}),
        (ECHO, {"arguments_contain": {"name": "Berg"}, "result_contains": {"echo": "A. Berg"}}, F, {"name": "A. Berg"}),
        (ECHO, {"name_contains": "Berg", "result_contains": {"echo": "A. Berg"}}, None, {"name": "A. Berg"}),
        ({"f": {"$delay_ms": 5, "$return": ECHO["f"]}}, {"result_contains": {"echo": "A"}}, F, {"name": "A"}),
        ({"f": {"$sequence": [ECHO["f"]]}}, {"result_contains": {"echo": "A"}}, F, {"name": "A"}),
        ({"f": {"e": "{{arguments.n}}"}}, {"arguments_contain": {"name": "A"}}, F, {"name": "A", "n": 2}),
        ({"f": {"e": "{{ arguments.o.k }}"}}, {"arguments_contain": {"o": {"a": 1}}}, None, {"o": {"a": 1, "k": 2}}),
        (RULES, {}, F, {"name": "Anna"}),
        (RULES, {"arguments_contain": {"n": 1}}, F, {"name": "Anna", "n": 1}),
        (RULES, {"arguments_contain": {"name": {"$search": "nn"}}}, F, {"name": "Anna"}),
        ({"f": {**RULES["f"], "$default": {"ok": 2}}}, {"result_contains": {"ok": 1}}, F, {"name": "Anna"}),
        ({"f": {**RULES["f"], "$default": {"$error": "timeout"}}}, {}, F, {"name": "Anna"}),
    ],
)
def test_an_answer_to_arguments_that_the_case_leaves_open_is_no_finding(
    mocks: dict[str, Any], expected: dict[str, Any], functions: Any, sent: dict[str, Any]
) -> None:
    case = make_case(mocks, [{"function_name": "f", **expected}], functions)
    assert run(case, [("f", sent)]) == "passed"
    result = run_smoke_check(case)
    assert result.findings == ()
    assert set(result.not_checked) == {OPEN_ARGUMENTS}


def test_what_follows_an_open_answer_is_no_finding_either() -> None:
    """Values from it, texts that it may bring in, and arguments that it may ground."""
    greeting = {"function_name": "g", "arguments": {"id": "Anna"}}
    calls = [*ANNA, ("g", {"id": "Anna"})]
    grounded = make_case({**ECHO, "g": {}}, ["f", greeting], F, grounded=["id"])
    assert run(grounded, calls) == "passed"
    assert run_smoke_check(grounded).findings == ()
    quoting = make_case(ECHO, ["f"], F, response_contains="{{ calls.f.result.echo }}", response_excludes="x")
    assert run(quoting, ANNA, "Hello Anna") == "passed"
    assert run_smoke_check(quoting).findings == ()
    handed_on = {"function_name": "g", "arguments": {"id": "{{ calls.f.result.echo }}"}}
    limited = {
        **F,
        "g": {"description": "Greet", "parameters": {"type": "object", "properties": {"id": {"enum": ["Anna"]}}}},
    }
    chain = make_case(
        {**ECHO, "g": {"id": "{{ arguments.id }}"}}, ["f", {**handed_on, "result_contains": {"id": "Anna"}}], limited
    )
    assert run(chain, calls) == "passed"
    assert run_smoke_check(chain).findings == ()


@pytest.mark.parametrize(
    ("mocks", "listed", "more", "calls"),
    [
        ({"f": {"e": "{{ calls.z.result.e }}"}, "z": {"e": 1}}, ["f", "z"], {"call_order": "any"}, ["z", "f"]),
        ({"f": {"e": "{{ calls.z.result.e }}"}, "z": {"e": 1}}, ["f"], {"extra_calls": "allow"}, ["z", "f"]),
        ({"f": {"e": "{{ calls.z.result.e }}"}, "z": {"e": 1}}, [{"any_order": ["f", "z"]}], {}, ["z", "f"]),
        (
            {"f": {"e": "{{ calls.z[2].result.e }}"}, "z": {"e": 1}},
            [{"function_name": "z", "times": {"min": 1, "max": 3}}, "f"],
            {},
            ["z", "z", "f"],
        ),
    ],
)
def test_a_mock_that_refers_to_calls_in_an_open_order_is_no_finding(
    mocks: dict[str, Any], listed: list[Any], more: dict[str, Any], calls: list[str]
) -> None:
    case = make_case(mocks, listed, **more)
    assert run(case, [(name, {}) for name in calls]) == "passed"
    result = run_smoke_check(case)
    assert result.findings == ()
    assert any(note.endswith(OPEN_ORDER) for note in result.not_checked)


@pytest.mark.parametrize(
    ("mocks", "expected", "code"),
    [
        ({"f": {"echo": "{{ arguments.n }}"}}, {"arguments": {"name": "Anna"}}, "mock_error"),
        (ECHO, {"arguments": {"name": "Anna"}, "result_contains": {"echo": "Berta"}}, "result_mismatch"),
        ({"f": {"echo": "x"}}, {"result_contains": {"echo": "Berta"}}, "result_mismatch"),
        (RULES, {"arguments": {"name": "Berta"}}, "unmocked_call"),
        (RULES, {"arguments": {"name": "Anna"}, "result_contains": {"ok": 2}}, "result_mismatch"),
        (
            {"f": {"echo": "{{ arguments.n }}"}},
            {"arguments_contain": {"n": 3}, "result_contains": {"echo": 4}},
            "result_mismatch",
        ),
        (
            {"f": {**RULES["f"], "$default": {"e": "{{ arguments.x }}"}}},
            {"arguments": {"name": "Anna"}, "result_contains": {"ok": 2}},
            "result_mismatch",
        ),
    ],
)  # fmt: skip
def test_an_answer_to_arguments_that_the_case_fixes_is_a_finding(
    mocks: dict[str, Any], expected: dict[str, Any], code: str
) -> None:
    result = run_smoke_check(make_case(mocks, [{"function_name": "f", **expected}]))
    assert [finding.code for finding in result.findings] == [code]


VALUES: list[Any] = ["Anna", "Anna Berg", "x", 1, 2, True, {"k": 1}, ["Anna"]]
ACCEPTED: list[Any] = ["Ann", {"$any": True}, {"$one_of": ["x", "Anna"]}, {"$eq": 1}, {"$type": "string"}, {"$gt": 0}]


def pick_mock(pick: random.Random, other: str) -> Any:
    value = pick.choice(["{{ arguments.name }}", "{{arguments.n}}", f"{{{{ calls.{other}.result.e }}}}", *VALUES])
    plain = {"e": value}
    when = {pick.choice(["name", "n"]): pick.choice(VALUES)}
    return pick.choice(
        [
            plain,
            {"$match": [{"when": when, "$return": plain}], "$default": {"e": pick.choice(VALUES)}},
            {"$match": [{"when": when, "$return": plain}]},
            {"$sequence": [plain, {"e": pick.choice(VALUES)}]},
            {"$error": {"type": "t", "message": "{{ arguments.name }}"}},
        ]
    )


def pick_expected(pick: random.Random, name: str) -> dict[str, Any]:
    keys: dict[str, Any] = {"function_name": name}
    stated = {key: pick.choice(VALUES + ACCEPTED) for key in pick.choice([[], ["name"], ["n"], ["name", "n"]])}
    if stated:
        keys[pick.choice(["arguments", "arguments_contain"])] = stated
    if pick.random() < 0.5:
        keys["result_contains"] = {"e": pick.choice(VALUES)}
    keys |= pick.choice([{}, {}, {"outcome": "any"}, {"times": {"min": 1, "max": 2}}])
    return keys


def pick_calls(pick: random.Random) -> list[tuple[str, dict[str, Any]]]:
    return [
        (pick.choice("fg"), {key: pick.choice(VALUES) for key in pick.choice([["name"], ["n"], ["name", "n"], []])})
        for _ in range(pick.choice([1, 2, 2, 3]))
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_case_that_any_run_passes_has_no_finding(seed: int) -> None:
    """Random cases, each with runs of random calls: smoke may keep silent; it accuses none that a run passes."""
    pick = random.Random(seed)
    for _ in range(12):
        mocks = {"f": pick_mock(pick, "g"), "g": pick_mock(pick, "f")}
        listed = [pick_expected(pick, pick.choice("fg")) for _ in range(pick.choice([1, 2]))]
        more = pick.choice([{}, {"call_order": "any"}, {"extra_calls": "allow"}])
        try:
            case = make_case(mocks, listed, **more)
        except evalkit.SpecError:
            continue
        result = run_smoke_check(case)
        if result.findings:
            asyncio.run(refute(case, pick, result))


async def refute(case: Case, pick: random.Random, result: SmokeResult) -> None:
    for _ in range(choose(30, 60)):
        calls = pick_calls(pick)

        async def agent(task: evalkit.Task, calls: list[tuple[str, dict[str, Any]]] = calls) -> str:
            for name, arguments in calls:
                try:
                    await task.acall(name, **arguments)
                except evalkit.FunctionError:
                    continue
            return ""

        assert (await evalkit.arun_case(case, agent)).status != "passed", (case.merged, calls, result.findings)
