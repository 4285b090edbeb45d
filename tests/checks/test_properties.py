"""What must hold for every list of calls, found by trying many."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Judgement
from evalkit.records.transcript import FunctionCall, Transcript

CALLS = "expected_function_calls"
QUICK = settings(max_examples=100, deadline=None)

names = st.sampled_from(["a", "b", "c"])
values = st.sampled_from([1, 2, "x", "y z", True, None, [1, "x"], {"k": "x"}])
arguments = st.dictionaries(st.sampled_from(["p", "q"]), values, max_size=2)
actual = st.lists(st.tuples(names, arguments), max_size=6)
plain = st.builds(lambda name, given: {"function_name": name, "arguments": given}, names, arguments)
contained = st.builds(
    lambda name, given: {"function_name": name, **({"arguments_contain": given} if given else {})}, names, arguments
)
leaf = st.one_of(
    plain,
    contained,
    names,
    st.builds(
        lambda call, times: {**call, "times": times}, plain, st.sampled_from([2, {"min": 1, "max": 2}, {"min": 2}])
    ),
    st.builds(lambda call: {**call, "optional": True}, contained),
)
group = st.one_of(
    st.builds(lambda items: {"any_order": items}, st.lists(leaf, min_size=1, max_size=3)),
    st.builds(lambda items: {"in_order": items}, st.lists(leaf, min_size=1, max_size=3)),
    st.builds(
        lambda first, others: {"one_of": [first, *others]},
        leaf,
        st.lists(st.one_of(leaf, st.lists(leaf, max_size=2)), max_size=1),
    ),
)
listed = st.lists(st.one_of(leaf, leaf, group), max_size=4)
orders = st.sampled_from(["strict", "any"])
extras = st.sampled_from(["forbid", "allow"])


def transcript(made: list[tuple[str, dict[str, Any]]]) -> Transcript:
    return Transcript(calls=tuple(FunctionCall(name=n, arguments=a, index=i) for i, (n, a) in enumerate(made)))


def judge(items: list[Any], made: list[Any], order: str = "strict", extra: str = "forbid", **keys: Any) -> Judgement:
    expectation, problems = compile_expectation({CALLS: items, "call_order": order, "extra_calls": extra, **keys})
    assert problems == []
    return expectation.judge(transcript(made))


@QUICK
@given(listed, actual, orders, extras)
def test_the_explanation_agrees_with_the_verdict(items: Any, made: Any, order: str, extra: str) -> None:
    """A failure has reasons, a pass has none; each call is told once, in order; scores say 1 where all is met."""
    judgement = judge(items, made, order, extra)
    assert (judgement.status == "passed") is (not judgement.reasons)
    told = [line.call.index for line in judgement.calls if line.call]
    assert told == list(range(len(made)))
    failed = [line for line in judgement.calls if line.status == "failed"]
    assert bool(failed) is (judgement.status == "failed")
    missing = sum(reason.code == "missing_call" for reason in judgement.reasons)
    assert missing == sum(line.call is None for line in judgement.calls)
    score = judgement.score
    assert score is not None
    assert min(score.precision, score.recall, score.f1, score.argument_accuracy) >= 0
    assert max(score.precision, score.recall, score.f1, score.argument_accuracy) <= 1
    if judgement.status == "passed":
        assert score.f1 == score.argument_accuracy == 1
    ranked = [reason.code for reason in judgement.reasons]
    assert ranked == [reason.code for reason in judge(items, made, order, extra).reasons]


@QUICK
@given(listed, actual, orders, extras)
def test_each_expectation_is_told_of_no_more_calls_than_it_has_places(
    items: Any, made: Any, order: str, extra: str
) -> None:
    """One call meets at most one expectation, and the other way round."""
    judgement = judge(items, made, order, extra)
    used: dict[str, int] = {}
    for line in judgement.calls:
        if line.call is not None and line.expectation:
            used[line.expectation] = used.get(line.expectation, 0) + 1
    for item in items:
        if isinstance(item, dict) and "times" not in item and "function_name" in item:
            place = f"expected_output.{CALLS}[{items.index(item)}]"
            assert used.get(place, 0) <= (1 if extra == "forbid" or not item.get("optional") else len(made))


@QUICK
@given(st.lists(leaf, max_size=4), actual, extras, st.randoms(use_true_random=False))
def test_the_order_of_calls_never_changes_a_verdict_in_any_order(
    items: Any, made: Any, extra: str, random: Any
) -> None:
    shuffled = list(made)
    random.shuffle(shuffled)
    assert judge(items, made, "any", extra).status == judge(items, shuffled, "any", extra).status


@QUICK
@given(listed, actual, orders)
def test_a_call_that_is_not_listed_fails_wherever_extra_calls_are_forbidden(items: Any, made: Any, order: str) -> None:
    for place in range(len(made) + 1):
        judgement = judge(items, [*made[:place], ("unlisted", {}), *made[place:]], order)
        assert judgement.status == "failed"
        assert any(reason.code == "unexpected_call" and reason.call == place for reason in judgement.reasons)


@QUICK
@given(listed.filter(bool), actual, orders)
def test_an_extra_call_of_another_function_never_matters_where_extra_calls_are_allowed(
    items: Any, made: Any, order: str
) -> None:
    before = judge(items, made, order, "allow").status
    assert judge(items, [("unlisted", {}), *made, ("unlisted", {})], order, "allow").status == before


@QUICK
@given(st.lists(plain, max_size=3), actual, orders, extras)
def test_exact_is_stricter_than_contained(items: Any, made: Any, order: str, extra: str) -> None:
    partial = [
        {
            "function_name": item["function_name"],
            **({"arguments_contain": item["arguments"]} if item["arguments"] else {}),
        }
        for item in items
    ]
    if judge(items, made, order, extra).status == "passed":
        assert judge(partial, made, order, extra).status == "passed"


@QUICK
@given(listed, actual, extras)
def test_strict_is_stricter_than_any_order(items: Any, made: Any, extra: str) -> None:
    if judge(items, made, "strict", extra).status == "passed":
        assert judge(items, made, "any", extra).status == "passed"


@QUICK
@given(listed.filter(bool), actual, orders)
def test_forbidding_extra_calls_is_stricter_than_allowing_them(items: Any, made: Any, order: str) -> None:
    if judge(items, made, order, "forbid").status == "passed":
        assert judge(items, made, order, "allow").status == "passed"


@QUICK
@given(listed, actual, orders, st.tuples(names, arguments), st.integers(0, 6))
def test_a_verdict_never_flips_when_a_matching_extra_call_is_consumed_by_optional(
    items: Any, made: Any, order: str, call: Any, place: int
) -> None:
    """A call and an optional expectation of just that call, added at the end of both: nothing changes."""
    optional = {"function_name": "once_more", "arguments": call[1], "optional": True}
    before = judge(items, made, order).status
    assert judge([*items, optional], [*made, ("once_more", call[1])], order).status == before
    assert judge([*items, optional], made, order).status == before


@QUICK
@given(actual, orders, extras)
def test_what_happened_is_what_is_expected(made: Any, order: str, extra: str) -> None:
    """An expectation written down from a run passes that run."""
    items = [
        {"function_name": name, "arguments": {k: {"$literal": v} for k, v in given.items()}} for name, given in made
    ]
    assert judge(items, made, order, extra).status == ("passed")


@QUICK
@given(listed, actual, orders, extras)
def test_forbidding_a_function_fails_just_the_runs_that_call_it(items: Any, made: Any, order: str, extra: str) -> None:
    made = [*made, ("z", {})]
    items = [*items, {"function_name": "z", "optional": True}]
    with_it, _ = compile_expectation({CALLS: items, "call_order": order, "extra_calls": extra})
    forbidden, problems = compile_expectation({"forbidden_function_calls": ["z"]})
    assert problems == []
    assert with_it.judge(transcript(made)).status in ("passed", "failed")
    assert forbidden.judge(transcript(made)).reasons[0].code == "forbidden_call"
    assert forbidden.judge(transcript(made[:-1])).status == "passed"


@QUICK
@given(listed, actual, orders, extras, st.floats(0, 1))
def test_min_score_decides_by_the_score_alone(items: Any, made: Any, order: str, extra: str, least: float) -> None:
    judgement = judge(items, made, order, extra, min_score=least)
    score = judge(items, made, order, extra).score
    assert judgement.score == score
    assert score is not None
    met = judge(items, made, order, extra).status == "passed" or score.f1 >= least
    assert judgement.status == ("passed" if met else "failed")
