"""Whatever stands in a file or mapping: it is a case, or a SpecError whose problems each have a place and one line."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalkit.errors import Problem, SpecError
from evalkit.spec.load import case_from_dict, load_case
from evalkit.yamlfile.write import dump

RICH: dict[str, Any] = {
    "scenario_id": "rich_1",
    "tags": ["smoke"],
    "agent": "warranty",
    "repeat": {"runs": 5, "min_pass": 4},
    "xfail": "broken",
    "until": "2027-01-31",
    "functions": {
        "check": {
            "description": "d",
            "parameters": {"type": "object", "properties": {"serial": {"type": "string"}}, "required": ["serial"]},
            "returns": {"type": "object", "properties": {"status": {"enum": ["valid", "expired"]}}},
            "alias": ["verify"],
        },
        "send": {},
    },
    "settings": {"temperature": None, "deadline_s": 5, "strict_mocks": True},
    "input": {
        "turns": ["hi", {"user": {"email": {"body": "b"}}, "expected_output": {"response_contains": ["x", "y"]}}],
        "context": {"a": [1, 2.5, None]},
        "mock_function_responses": {
            "check": {
                "$match": [{"when": {"serial": {"$regex": "SN.*"}}, "$return": {"status": "valid"}}],
                "$default": {"$error": {"type": "timeout", "message": "m"}},
            },
            "send": {"$sequence": [{"id": "{{ arguments.to }}"}, {"$delay_ms": 5, "$return": 1}], "$then": "cycle"},
        },
    },
    "expected_output": {
        "expected_function_calls": [
            {
                "function_name": "check",
                "arguments": {"serial": {"$one_of": ["SN1", {"$search": "2"}]}},
                "times": {"max": 2},
            },
            {
                "any_order": [
                    ["check"],
                    {"function_name": "send", "arguments_contain": {"to": "{{ calls.check.result }}"}},
                ]
            },
            {"function_name": "send", "body_contains": ["a"], "outcome": "any", "optional": True},
        ],
        "extra_calls": "allow",
        "forbidden_function_calls": [{"function_name": "check", "arguments_contain": {"serial": "SN9"}}],
        "grounded": ["serial"],
        "response_json": {"type": "object"},
        "max_tokens": 100,
    },
}
RICH["expected_output"]["expected_function_calls"][1]["any_order"][0] = "check"

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["", "$eq", "{{ calls.x }}", "{{ input.", "check", "yes", "1e5", "\ud800", "a\nb", "*", "a.b:c"])
)
KEYS = st.text(max_size=4) | st.sampled_from(
    [
        "$eq",
        "$error",
        "$sequence",
        "$include",
        "$call",
        "$literal",
        "function_name",
        "arguments",
        "one_of",
        "times",
        "user",
        "type",
    ]
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path] * bool(path) + [place for key, item in inner for place in places(item, (*path, key))]


PLACES = places(RICH)


def changed(path: tuple[Any, ...], how: str, value: Any, key: str) -> dict[str, Any]:
    data = copy.deepcopy(RICH)
    holder: Any = data
    for step in path[:-1]:
        holder = holder[step]
    if how == "replace":
        holder[path[-1]] = value
    elif how == "delete":
        del holder[path[-1]]
    elif isinstance(holder, dict):
        holder[key] = value
    else:
        holder.insert(path[-1], value)
    return data


def judged(load: Any) -> None:
    found: list[Problem] = []
    case = None
    try:
        case = load()
    except SpecError as error:
        found.extend(error.problems)
    assert bool(found) == (case is None)
    assert all(problem.message and "\n" not in problem.message and problem.location.file for problem in found)
    assert pickle.loads(pickle.dumps(case)) == case


def test_the_rich_case_is_a_case() -> None:
    assert case_from_dict(RICH).expectation is not None


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), st.sampled_from(["replace", "delete", "add"]), JSON, KEYS)
@example(("functions", "check", "parameters", "properties", "serial", "type"), "replace", [], "")
@example(("functions", "check", "returns", "type"), "replace", [[]], "")
def test_any_change_of_a_case_is_a_case_or_problems(path: tuple[Any, ...], how: str, value: Any, key: str) -> None:
    data = changed(path, how, value, key)
    judged(lambda: case_from_dict(data))


@settings(max_examples=150, deadline=None)
@given(JSON, JSON)
def test_any_input_and_expectation_is_a_case_or_problems(given_input: Any, expected: Any) -> None:
    judged(lambda: case_from_dict({"input": given_input, "expected_output": expected}))


TEXT = dump(RICH)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, len(TEXT)),
    st.integers(0, 30),
    st.text(" \n\t:-{}[]'\"&*!|>#%a1$", max_size=4) | st.binary(max_size=2),
)
def test_any_damage_to_a_file_gives_a_case_or_located_problems(
    tmp_path_factory: pytest.TempPathFactory, start: int, length: int, patch: str | bytes
) -> None:
    file: Path = tmp_path_factory.getbasetemp() / "rich_1.yaml"
    new = patch if isinstance(patch, bytes) else patch.encode()
    file.write_bytes(TEXT[:start].encode() + new + TEXT[start + length :].encode())
    try:
        load_case(file, root=file.parent)
    except SpecError as error:
        for problem in error.problems:
            assert problem.location.line >= 1
            assert problem.location.column >= 1
