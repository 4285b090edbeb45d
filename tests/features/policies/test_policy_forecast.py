"""What is certain of a case before it runs: a breach that is foretold happens, whatever is left open."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.errors import Location
from evalkit.features.policies.forecast import find_certain_breach
from evalkit.features.policies.judging import PolicyRun
from evalkit.features.policies.policy import SuitePolicy, read_policies
from evalkit.records.transcript import FunctionCall, Transcript

INPUT = {"message": "Please do it."}


def read(rule: dict[str, Any]) -> SuitePolicy:
    (policy,), problems = read_policies({"p": rule}, {"p": Location("policies.yaml", 1, 1)})
    assert problems == []
    return policy


@pytest.mark.parametrize(
    ("rule", "calls", "place"),
    [
        ({"never": "a", "before": "b"}, ["c", "a", "b"], 1),
        ({"never": "a", "before": "b"}, ["b", "a"], None),
        ({"never": "a", "before": {"function_name": "b", "result_contains": 1}}, ["b", "a"], None),
        ({"never": {"function_name": "a", "result_contains": 1}}, ["a"], None),
        ({"never": {"function_name": "a", "arguments": {"x": 1}}}, ["a"], None),
        ({"never": {"function_name": "a", "arguments": {"x": 1}}}, [{"function_name": "a", "arguments": {"x": 1}}], 0),
        (
            {"never": {"function_name": "a", "arguments": {"x": 1}}},
            [{"function_name": "a", "arguments": {"x": 2}}],
            None,
        ),
        ({"at_most": 1, "calls": "a", "for_each": "x"}, ["a", "a"], None),
        ({"at_most": 1, "calls": "a"}, ["a", "a"], 1),
        ({"must": "b", "after": "a"}, ["b", "a"], 1),
        ({"must": "b", "after": "a"}, [{"function_name": "a", "outcome": "error"}], None),
        ({"must": "b"}, ["a"], 0),
        ({"never": "a", "before": {"user": "do it"}}, ["a"], None),
        ({"never": "a", "before": {"user": "yes"}}, ["a"], 0),
        ({"never": "a", "after": {"user": "do it"}}, ["a"], 0),
        ({"never": "a"}, [{"function_name": "a", "optional": True}], None),
        ({"never": "a"}, [{"any_order": ["a"]}], None),
    ],
)
def test_what_is_certain(rule: dict[str, Any], calls: list[Any], place: int | None) -> None:
    assert find_certain_breach(read(rule), {"expected_function_calls": calls}, INPUT) == place


@pytest.mark.parametrize("loose", [{"call_order": "any"}, {"extra_calls": "allow"}, {"min_score": 0.5}])
def test_nothing_is_certain_where_other_calls_may_be_made(loose: dict[str, Any]) -> None:
    assert find_certain_breach(read({"never": "a"}), {"expected_function_calls": ["a"], **loose}, INPUT) is None


NAMES = st.sampled_from("abc")
RULES = st.one_of(
    st.fixed_dictionaries({"never": NAMES}, optional={"before": NAMES, "after": NAMES}),
    st.fixed_dictionaries(
        {"at_most": st.integers(0, 2), "calls": NAMES}, optional={"after": NAMES, "for_each": st.just("x")}
    ),
    st.fixed_dictionaries({"must": NAMES, "after": NAMES}, optional={"until": NAMES}),
)


@given(rule=RULES, calls=st.lists(st.tuples(NAMES, st.integers(0, 1), st.booleans()), max_size=6))
def test_a_foretold_breach_happens(rule: dict[str, Any], calls: list[tuple[str, int, bool]]) -> None:
    """Arguments that are left open are made as they come; the breach is there all the same."""
    expected = [
        {"function_name": name, **({"arguments": {"x": value}} if is_stated else {})}
        for name, value, is_stated in calls
    ]
    place = find_certain_breach(read(rule), {"expected_function_calls": expected}, INPUT)
    made = tuple(
        FunctionCall(name=name, arguments={"x": value}, index=index) for index, (name, value, _) in enumerate(calls)
    )
    _, _, reasons = PolicyRun(Transcript(calls=made), INPUT).judge(read(rule))
    if place is not None:
        assert reasons
    elif all(is_stated for _, _, is_stated in calls) and calls:
        assert not reasons
