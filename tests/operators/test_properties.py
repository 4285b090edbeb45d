"""Laws that hold for every expected and every actual value."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.jsonvalue import is_json_equal
from evalkit.operators.compile import OperatorProblems, compile_value

scalars: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, 0, 1, 2, 1.0, 2.5, "", "a", "A", "ab", "a b", "b a", "1"]
)
plain: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


def operators(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    number = st.sampled_from([0, 1, 2, 2.5])
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.builds(
            lambda name, value: {name: value}, st.sampled_from(["$eq", "$ne", "$not", "$each", "$literal"]), inner
        ),
        st.builds(lambda name, value: {name: value}, st.sampled_from(["$one_of", "$all_of", "$unordered"]), several),
        st.builds(lambda name, value: {name: value}, st.sampled_from(["$gt", "$ge", "$lt", "$le", "$len"]), number),
        st.builds(lambda value: {"$regex": value}, st.sampled_from(["a.*", "[ab]+", "1?"])),
        st.builds(lambda value: {"$type": value}, st.sampled_from(["string", "integer", "array", "null"])),
        st.builds(lambda value: {"$contains": value}, st.sampled_from(["a", 1, None, "1"])),
        st.just({"$any": True}),
        st.builds(lambda low, size: {"$ge": low, "$lt": low + size}, number, st.sampled_from([0.5, 1, 2])),
    )


expected_values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        operators(inner) | st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)
modes: st.SearchStrategy[Any] = st.sampled_from(["equal", "contain", "partial"])
law = settings(max_examples=150, deadline=None)


def compiled(value: Any, mode: Any) -> Any:
    try:
        return compile_value(value, mode=mode)
    except OperatorProblems:
        return None


@law
@given(expected_values, modes, plain)
def test_a_value_matches_exactly_when_there_is_nothing_to_explain(value: Any, mode: Any, actual: Any) -> None:
    matcher = compiled(value, mode)
    if matcher is not None:
        assert matcher.is_match(actual) is (matcher.explain(actual) == [])


@law
@given(plain, plain)
def test_without_operators_equal_is_json_equality(value: Any, actual: Any) -> None:
    matcher = compile_value(value, mode="equal")
    assert matcher.is_match(actual) is is_json_equal(value, actual)
    assert matcher.is_match(copy.deepcopy(value))


@law
@given(plain, st.data())
def test_exact_is_stricter_than_partial_and_partial_than_contain(value: Any, data: st.DataObject) -> None:
    matchers = [compiled(value, mode) for mode in ("equal", "partial", "contain")]
    actual = data.draw(st.just(value) | plain)
    if None not in matchers:
        equal, partial, contain = (matcher.is_match(actual) for matcher in matchers)
        assert equal <= partial <= contain
        assert all(matcher.is_equal(actual) is equal for matcher in matchers)


@law
@given(expected_values, modes, plain)
def test_equals_is_stricter_than_matches(value: Any, mode: Any, actual: Any) -> None:
    matcher = compiled(value, mode)
    if matcher is not None and matcher.is_equal(actual):
        assert matcher.is_match(actual)


@law
@given(expected_values, modes, plain)
def test_not_is_the_complement(value: Any, mode: Any, actual: Any) -> None:
    matcher, opposite = compiled(value, mode), compiled({"$not": value}, mode)
    if matcher is not None and opposite is not None:
        assert matcher.is_match(actual) is not opposite.is_match(actual)


@law
@given(st.lists(expected_values, min_size=1, max_size=4), modes, st.data())
def test_the_order_of_either_list_means_nothing_to_unordered(items: list[Any], mode: Any, data: st.DataObject) -> None:
    actual = data.draw(st.lists(scalars, min_size=len(items), max_size=len(items)))
    matcher = compiled({"$unordered": items}, mode)
    other = compiled({"$unordered": data.draw(st.permutations(items))}, mode)
    if matcher is not None:
        assert matcher.is_match(actual) is other.is_match(data.draw(st.permutations(actual)))
        assert matcher.is_match(actual) or len(matcher.explain(actual)) > 0


@law
@given(st.lists(plain, min_size=1, max_size=4), st.data())
def test_a_permuted_list_is_the_same_multiset(items: list[Any], data: st.DataObject) -> None:
    matcher = compile_value({"$unordered": [{"$literal": item} for item in items]}, mode="equal")
    assert matcher.is_match(data.draw(st.permutations(items)))
    assert not matcher.is_match(items[1:])
    assert not matcher.is_match([*items, items[0]])


@law
@given(
    st.lists(st.sampled_from(["a", "b", "ab", "a b"]), max_size=3),
    st.lists(st.sampled_from(["a", "b", "a b", "b a"]), max_size=4),
)
def test_contained_items_are_found_whatever_the_order(items: list[str], actual: list[str]) -> None:
    from itertools import permutations

    item_fits = [[compile_value(item, mode="contain").is_match(value) for value in actual] for item in items]
    possible = any(
        all(item_fits[i][at] for i, at in enumerate(order)) for order in permutations(range(len(actual)), len(items))
    )
    assert compile_value(items, mode="contain").is_match(actual) is possible


@law
@given(expected_values, modes, plain)
def test_a_matcher_judges_the_same_after_pickling(value: Any, mode: Any, actual: Any) -> None:
    matcher = compiled(value, mode)
    if matcher is not None:
        again = pickle.loads(pickle.dumps(matcher))
        assert again == matcher
        assert [str(m) for m in again.explain(actual)] == [str(m) for m in matcher.explain(actual)]
        assert matcher.describe() == again.describe()


@law
@given(expected_values, plain)
def test_what_was_written_judges_as_what_was_compiled(value: Any, actual: Any) -> None:
    matcher = compiled(value, "equal")
    again = compiled(matcher.to_data(), "equal") if matcher is not None else None
    if again is not None and "$literal" not in str(value):
        assert again.is_match(actual) is matcher.is_match(actual)
