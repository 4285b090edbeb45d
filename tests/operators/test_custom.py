"""Users' own operators."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import evalkit
from evalkit.errors import UsageError
from evalkit.operators.builtin import list_operators, operator
from evalkit.operators.compile import compile_value
from evalkit.records.registry import OPERATORS


def even(expected: Any, actual: Any) -> bool | str:
    """A user's operator that may raise and may say why."""
    if actual == "raise":
        raise ValueError("no number")
    if actual == "nothing":
        return None  # type: ignore[return-value]
    return (actual % 2 == 0) is expected or f"{actual} is {'odd' if expected else 'even'}"


def test_an_operator_accepts_what_its_function_accepts() -> None:
    operator("even")(even)
    matcher = compile_value({"n": {"$even": True}}, mode="equal")
    assert matcher.is_match({"n": 4})
    assert [str(m) for m in matcher.explain({"n": 3})] == ['n: expected {"$even": true}, got 3: 3 is odd']


def test_the_public_name_is_the_same_and_the_function_stays_usable() -> None:
    assert evalkit.operator is operator

    @operator("$shouted")
    def shouted(expected: bool, actual: str) -> bool:
        return actual.isupper() is expected

    assert shouted(True, "A")
    assert "$shouted" in list_operators()
    found = compile_value({"$shouted": True}, mode="equal").explain("a")
    assert [str(m) for m in found] == ['expected {"$shouted": true}, got "a"']


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        ("raise", 'the operator $even raised ValueError: no number on "raise"'),
        ("nothing", "the operator $even returned null; it must return true, false or a text"),
        ([], "the operator $even raised TypeError: unsupported operand type(s) for %: 'list' and 'int' on []"),
    ],
)
def test_an_operator_that_raises_or_says_nothing_is_a_reason_even_under_not(actual: Any, message: str) -> None:
    operator("even")(even)
    for value in ({"$even": True}, {"$not": {"$even": True}}, {"$one_of": [{"$even": True}, 1]}):
        matcher = compile_value(value, mode="equal")
        assert not matcher.is_match(actual)
        assert [str(m) for m in matcher.explain(actual)] == [message]
    assert compile_value({"$one_of": [{"$even": True}, actual]}, mode="equal").is_match(actual)
    both = compile_value({"$even": True, "$not": actual}, mode="equal")
    assert len(both.explain(actual)) == 2


def test_a_reason_keeps_its_path() -> None:
    operator("even")(even)
    matcher = compile_value({"a": 1, "b": [{"$even": True}]}, mode="equal")
    assert [str(m) for m in matcher.explain({"a": 2, "b": ["raise"]})] == [
        "a: expected 1, got 2",
        'b[0]: the operator $even raised ValueError: no number on "raise"',
    ]


def test_what_is_expected_reaches_the_function_as_data() -> None:
    seen: list[Any] = []

    @operator("seen")
    def see(expected: Any, actual: Any) -> bool:
        seen.append(expected)
        return True

    for expected in ({"$gt": 1}, {"$literal": "{{ input.x }}"}, ["a"], None):
        assert compile_value({"$seen": expected}, mode="contain").is_match(1)
    assert seen == [{"$gt": 1}, "{{ input.x }}", ["a"], None]


def test_a_function_is_found_again_after_pickling_and_missed_where_it_is_not_registered() -> None:
    operator("even")(even)
    matcher = pickle.loads(pickle.dumps(compile_value({"$even": True}, mode="equal")))
    assert matcher.is_match(2)
    OPERATORS.remove("even")
    assert [str(m) for m in matcher.explain(2)] == ["the operator $even is not registered in this process"]


def test_operators_that_could_not_hold_together_do_not_run_a_users_function_at_load() -> None:
    calls: list[Any] = []

    @operator("counted")
    def count(expected: Any, actual: Any) -> bool:
        calls.append(actual)
        return True

    compile_value({"$eq": 5, "$counted": 1}, mode="equal")
    assert calls == []


@pytest.mark.parametrize("name", ["regex", "$regex", "literal", "abs", "absent"])
def test_a_built_in_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        operator(name)
    assert (
        str(caught.value) == f"evalkit.operator({name!r}): ${name.removeprefix('$')} is built in; choose another name"
    )


@pytest.mark.parametrize("name", ["", "$", "two words", "1st", "$$x", None, even])
def test_a_name_that_could_not_be_written_is_refused(name: Any) -> None:
    with pytest.raises(UsageError) as caught:
        operator(name)
    assert str(caught.value).endswith(
        ': a name is letters, digits and _, beginning with a letter, as in evalkit.operator("even")'
    )


def test_the_same_function_may_be_registered_again_and_another_may_not() -> None:
    operator("even")(even)
    operator("even")(even)
    with pytest.raises(UsageError, match="operator 'even' is registered twice"):
        operator("even")(lambda expected, actual: True)
