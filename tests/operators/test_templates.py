"""Templates in expected values: compiled at load, replaced once, and what replaces them is data."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit import operator
from evalkit.operators.base import Matcher
from evalkit.operators.compile import OperatorProblems, compile_value
from evalkit.records.template import Literal, Reference, TemplateError, follow_path, parse_template

INPUT: dict[str, Any] = {
    "id": "TKT-1",
    "n": 5,
    "mail": "a.b@example.com",
    "list": ["x", "y"],
    "map": {"k": [1, {"$gt": 1}]},
    "text": "{{ input.id }}",
    "odd": {"$any": True},
    "empty": "",
    "none": None,
    "day": "2025-12-31",
    "tuple": (1, 2),
}


def resolve(reference: Reference) -> Any:
    return follow_path(INPUT, reference.path, reference.text)


def bound(value: Any, mode: Any = "equal") -> Matcher:
    matcher = compile_value(value, mode=mode)
    assert matcher.has_templates
    found = matcher.bind(resolve)
    assert not found.has_templates
    return found


TABLE: list[tuple[Any, str, list[Any], list[Any]]] = [
    ("{{ input.id }}", "equal", ["TKT-1"], ["{{ input.id }}", "tkt-1", None]),
    ("{{ input.n }}", "equal", [5, 5.0], ["5"]),
    ("{{ input.none }}", "equal", [None], [""]),
    ("no. {{ input.n }} ({{input.id}})", "equal", ["no. 5 (TKT-1)"], ["no. 5"]),
    ("{{ input.map }}", "equal", [{"k": [1, {"$gt": 1}]}], [{"k": [1, 2]}]),
    ("{{ input.text }}", "equal", ["{{ input.id }}"], ["TKT-1"]),
    ("{{ input.odd }}", "equal", [{"$any": True}], [1]),
    ("{{ input.id }}", "contain", ["see tkt-1."], ["see TKT-12"]),
    ("{{ input.list }}", "contain", [["b", "an x", "y"]], [["x"], "x y"]),
    ("{{ input.empty }}", "contain", [""], ["x"]),
    ({"a": ["{{ input.n }}", 1]}, "equal", [{"a": [5, 1]}], [{"a": [1, 5]}]),
    ({"a": {"b": "{{ input.n }}"}}, "partial", [{"a": {"b": 5, "c": 1}}], [{"a": {}}]),
    ({"$eq": "{{ input.id }}"}, "contain", ["TKT-1"], ["x TKT-1"]),
    ({"$ne": "{{ input.n }}"}, "equal", [6, "5"], [5]),
    ({"$not": "{{ input.id }}"}, "contain", ["TKT-2"], ["x TKT-1"]),
    ({"$one_of": ["{{ input.n }}", 1]}, "equal", [1, 5], [2]),
    ({"$one_of": "{{ input.list }}"}, "equal", ["x", "y"], ["z", ["x", "y"]]),
    ({"$one_of": "{{ input.list }}"}, "contain", ["an x"], ["z"]),
    ({"$all_of": ["{{ input.n }}", {"$type": "integer"}]}, "equal", [5], [6]),
    ({"$unordered": "{{ input.list }}"}, "equal", [["y", "x"]], [["x"]]),
    ({"$unordered": ["{{ input.n }}", "a"]}, "equal", [["a", 5]], [["a"]]),
    ({"$each": "{{ input.n }}"}, "equal", [[5, 5]], [[5, 6]]),
    ({"$len": "{{ input.n }}"}, "equal", ["abcde"], ["abcd"]),
    ({"$gt": "{{ input.n }}"}, "equal", [6], [5]),
    ({"$gt": "{{ input.n }}", "$lt": 10}, "equal", [6], [5, 10]),
    ({"$between": [1, "{{ input.n }}"]}, "equal", [1, 5], [6]),
    ({"$approx": "{{ input.n }}", "$abs": 1}, "equal", [4, 6], [3]),
    ({"$approx": 10, "$abs": "{{ input.n }}"}, "equal", [5, 15], [4]),
    ({"$contains": "{{ input.id }}"}, "equal", ["xTKT-1x", ["TKT-1"]], ["tkt-1"]),
    ({"$contains": "{{ input.n }}"}, "equal", [[5]], ["5", 5]),
    ({"$contains": {"$gt": "{{ input.n }}"}}, "equal", [[1, 6]], [[5]]),
    ({"$icontains": "{{ input.id }}"}, "equal", ["xtkt-1x"], ["tkt"]),
    ({"$starts_with": "{{ input.id }}-"}, "equal", ["TKT-1-x"], ["TKT-1"]),
    ({"$ends_with": "{{ input.id }}"}, "equal", ["xTKT-1"], ["TKT-1 "]),
    ({"$regex": "{{ input.mail }}"}, "equal", ["a.b@example.com"], ["aXb@example.com"]),
    ({"$regex": "{{ input.id }}/[0-9]+"}, "equal", ["TKT-1/77"], ["TKT-1/"]),
    ({"$search": "n={{ input.n }}$"}, "equal", ["x n=5"], ["n=55"]),
    ({"$date": "{{ input.day }}"}, "equal", ["2025-12-31T10:00:00Z"], ["2026-01-01"]),
]


@pytest.mark.parametrize(("value", "mode", "accepted", "refused"), TABLE, ids=[str(row[:2]) for row in TABLE])
def test_a_template_stands_for_its_value(value: Any, mode: Any, accepted: list[Any], refused: list[Any]) -> None:
    matcher = bound(value, mode)
    for actual in accepted:
        assert matcher.is_match(actual), matcher.explain(actual)
    for actual in refused:
        assert not matcher.is_match(actual)
        assert matcher.explain(actual)


WRONG_OPERANDS = [
    ({"$gt": "{{ input.id }}"}, '{"$gt": "{{ input.id }}"}: $gt wants a number, got "TKT-1"'),
    ({"$one_of": "{{ input.id }}"}, '{"$one_of": "{{ input.id }}"}: $one_of wants a list of alternatives, got "TKT-1"'),
    (
        {"$approx": 1, "$abs": "{{ input.id }}"},
        '{"$approx": 1, "$abs": "{{ input.id }}"}: $abs wants a number that is not negative, got "TKT-1"',
    ),
    (
        {"$contains": "{{ input.empty }}"},
        '{"$contains": "{{ input.empty }}"}: $contains wants a part that is not empty, got "", '
        "which every text contains",
    ),
    (
        "{{ input.tuple }}",
        "a template was replaced by <tuple (1, 2)>: <tuple (1, 2)> is a tuple, which is not JSON",
    ),
    ("{{ input.gone }}", None),
]


@pytest.mark.parametrize(("value", "message"), WRONG_OPERANDS, ids=[str(value) for value, _ in WRONG_OPERANDS])
def test_a_template_that_gives_no_fitting_value_is_a_template_error(value: Any, message: str | None) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_value(value, mode="equal").bind(resolve)
    assert message is None or str(caught.value) == message


def test_nothing_matches_before_templates_have_values() -> None:
    matcher = compile_value({"a": "{{ input.n }}", "b": {"$gt": "{{ input.n }}"}}, mode="equal")
    assert not matcher.is_match({"a": 5, "b": 6})
    assert [str(mismatch) for mismatch in matcher.explain({"a": 5, "b": 6}, ("x",))] == [
        'x.a: the template "{{ input.n }}" has no value yet',
        'x.b: the template in {"$gt": "{{ input.n }}"} has no value yet',
    ]


def test_a_template_is_described_by_what_was_written() -> None:
    matcher = compile_value({"a": "id {{ input.id }}", "b": {"$len": {"$gt": "{{ input.n }}"}}}, mode="equal")
    assert matcher.to_data() == {"a": "id {{ input.id }}", "b": {"$len": {"$gt": "{{ input.n }}"}}}
    assert matcher.describe() == (
        '{"a": the value of "id {{ input.id }}", "b": a length that is {"$gt": "{{ input.n }}"}}'
    )


def test_a_parsed_template_is_taken_as_one() -> None:
    assert compile_value(parse_template("{{ input.id }}"), mode="equal").bind(resolve).is_match("TKT-1")


def test_a_literal_object_in_an_operand_is_its_value() -> None:
    assert compile_value({"$gt": Literal(5), "$lt": 7}, mode="equal").is_match(6)
    assert compile_value({"$contains": Literal("{{ input.id }}")}, mode="equal").is_match("{{ input.id }}")
    assert compile_value(Literal({"$any": True}), mode="equal").is_match({"$any": True})


def test_other_braces_are_text() -> None:
    matcher = compile_value("Dear {{#name}}", mode="equal")
    assert not matcher.has_templates
    assert matcher.is_match("Dear {{#name}}")


def test_quoted_braces_are_text() -> None:
    for mode in ("equal", "contain", "partial"):
        matcher = compile_value("Dear {{ '{{ name }}' }}", mode=mode)
        assert not matcher.has_templates
        assert matcher.is_match("Dear {{ name }}")
    assert compile_value({"$one_of": ["{{ '{{ a }}' }}"]}, mode="equal").is_match("{{ a }}")
    assert compile_value({"$search": "{{ '{{ a }}' }}"}, mode="equal").is_match("is {{ a }}")


@pytest.mark.parametrize("value", ["{{ inputs.id }}", ["{{ inputs.id }}"], {"$ne": "{{ inputs.id }}"}])
def test_a_misspelt_root_is_a_problem(value: object) -> None:
    with pytest.raises(OperatorProblems, match="did you mean 'input'"):
        compile_value(value, mode="contain")


def test_a_key_is_no_template() -> None:
    """It would be compared as it is written, and so never be met: which is what a forbidden call is to be."""
    with pytest.raises(OperatorProblems) as caught:
        compile_value({"{{ input.key }}": 1}, mode="partial")
    assert str(caught.value) == (
        "['{{ input.key }}']: the key '{{ input.key }}' holds a template, which only values may; "
        "{$literal: ...} makes the mapping data"
    )
    assert compile_value({"$literal": {"{{ input.key }}": 1}}, mode="equal").is_match({"{{ input.key }}": 1})


def test_what_has_no_template_binds_to_itself() -> None:
    matcher = compile_value({"a": 1}, mode="equal")
    assert matcher.bind(resolve) is matcher


def test_a_users_operator_gets_the_value() -> None:
    operator("over")(lambda expected, actual: actual > expected["limit"])
    matcher = compile_value({"$over": {"limit": "{{ input.n }}"}}, mode="equal").bind(resolve)
    assert matcher.is_match(6)
    assert not matcher.is_match(5)
