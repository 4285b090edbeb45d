"""suite.yaml: outer suites are inherited, the nearest wins, mappings merge, the rest replaces, null removes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.errors import Location
from evalkit.records.case import CaseSettings
from evalkit.records.transcript import FunctionCall, Transcript
from evalkit.spec.files import Layer, Source, merge_data
from evalkit.yamlfile.write import dump

CASE = "input: {message: hello}\nexpected_output: {response_contains: hello}\n"


def test_suites_are_inherited_from_the_root_down_and_the_nearest_wins(project: Any) -> None:
    case = project.load(
        "scenarios/warranty/a_1.yaml",
        {
            "suite.yaml": "agent: outermost\ndescription: from the root\n",
            "scenarios/suite.yaml": "agent: outer\ncategory: outer\n",
            "scenarios/warranty/suite.yaml": "agent: inner\ntags: [w]\n",
            "scenarios/other/suite.yaml": "agent: other\n",
            "scenarios/warranty/a_1.yaml": CASE,
        },
    )
    assert (case.agent, case.category, case.description, case.tags) == ("inner", "outer", "from the root", ("w",))
    assert case.suite_dirs == (
        project.root,
        project.root / "scenarios",
        project.root / "scenarios" / "warranty",
    )


def test_mappings_merge_key_by_key_and_the_rest_replaces(project: Any) -> None:
    case = project.load(
        "a_1.yaml",
        {
            "suite.yaml": """\
tags: [a, b]
repeat: {runs: 5, min_pass: 4}
settings: {temperature: 0.5, deadline_s: 5}
functions: {check: {description: old, parameters: {type: object}}, send: {}}
input:
  context: {region: eu, shop: {city: Łódź}}
  mock_function_responses:
    check: {status: valid, serial: SN1}
    send: {sent: true}
expected_output: {processing_time_ms: 100, response_excludes: [sorry]}
""",
            "a_1.yaml": """\
tags: [c]
repeat: {min_pass: 5}
settings: {deadline_s: 9}
functions: {check: {description: new}}
input:
  message: hello
  context: {shop: {open: false}}
  mock_function_responses: {check: {status: expired}, send: [1]}
expected_output: {response_excludes: [no]}
""",
        },
    )
    assert case.merged == {
        "tags": ["c"],
        "repeat": {"runs": 5, "min_pass": 5},
        "settings": {"temperature": 0.5, "deadline_s": 9},
        "functions": {"check": {"description": "new", "parameters": {"type": "object"}}, "send": {}},
        "input": {
            "context": {"region": "eu", "shop": {"city": "Łódź", "open": False}},
            "mock_function_responses": {"check": {"status": "expired", "serial": "SN1"}, "send": [1]},
            "message": "hello",
        },
        "expected_output": {"processing_time_ms": 100, "response_excludes": ["no"]},
    }


def test_null_removes_what_is_inherited_and_is_itself_elsewhere(project: Any) -> None:
    case = project.load(
        "a_1.yaml",
        {
            "suite.yaml": "xfail: broken\ntags: [a]\nsettings: {temperature: 1, seed: 5}\n"
            "input: {mock_function_responses: {check: {a: 1}, send: {b: 1}}}\n"
            "expected_output: {processing_time_ms: 5}\n",
            "a_1.yaml": "xfail: null\ntags: null\nsettings: {temperature: null, seed: null}\n"
            "input: {message: x, mock_function_responses: {check: null, other: null}}\n"
            "expected_output: {processing_time_ms: null, response_contains: x}\n",
        },
    )
    assert (case.xfail, case.tags) == (None, ())
    assert case.settings == CaseSettings(left_to_model=frozenset({"temperature", "seed"}))
    assert list(case.mocks) == ["send", "other"]
    assert case.mocks.answers["other"].value is None
    assert case.expected_output == {"response_contains": "x"}


def test_a_directive_replaces_and_is_replaced_as_a_whole(project: Any) -> None:
    case = project.load(
        "a_1.yaml",
        {
            "suite.yaml": "input: {mock_function_responses: {check: {a: 1}, send: {$error: timeout}}}\n",
            "a_1.yaml": "input: {message: x, mock_function_responses: {check: {$error: timeout}, send: {b: 1}}}\n"
            "expected_output: {response_contains: x}\n",
        },
    )
    assert case.input["mock_function_responses"] == {"check": {"$error": "timeout"}, "send": {"b": 1}}


def test_both_names_of_the_mocks_merge(project: Any) -> None:
    case = project.load(
        "a_1.yaml",
        {
            "suite.yaml": "input: {mock_responses: {check: {a: 1, b: 1}}}\n",
            "a_1.yaml": "input: {message: x, mock_function_responses: {check: {b: 2}}}\n"
            "expected_output: {response_contains: x}\n",
        },
    )
    assert case.input["mock_function_responses"] == {"check": {"a": 1, "b": 2}}
    assert case.locate(("input", "mock_function_responses", "check", "a")) == Location("suite.yaml", 1, 37)
    assert case.locate(("input", "mock_function_responses", "check", "b")) == Location("a_1.yaml", 1, 58)


def test_required_keys_may_come_from_a_suite(project: Any) -> None:
    files = {"suite.yaml": "expected_output: {response_contains: x}\n", "a_1.yaml": "input: {message: x}\n"}
    assert project.load("a_1.yaml", files).expected_output == {"response_contains": "x"}


def test_an_empty_suite_says_nothing(project: Any) -> None:
    assert project.load("a_1.yaml", {"suite.yaml": "# later\n", "a_1.yaml": CASE}).tags == ()


def test_a_suite_is_read_again_when_it_changes(project: Any) -> None:
    assert project.load("a_1.yaml", {"suite.yaml": "tags: [a]\n", "a_1.yaml": CASE}).tags == ("a",)
    project.write({"suite.yaml": "tags: [b]\n"})
    os.utime(project.root / "suite.yaml", ns=(1, 1))
    assert project.load("a_1.yaml").tags == ("b",)
    (project.root / "suite.yaml").unlink()
    assert project.load("a_1.yaml").tags == ()


def test_a_suite_is_read_once_for_many_cases(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from evalkit.spec import suites

    project.write({"suite.yaml": "tags: [a]\n", "a_1.yaml": CASE, "a_2.yaml": CASE})
    project.load("a_1.yaml")
    monkeypatch.setattr(suites, "_read_suite", None)
    assert project.load("a_2.yaml").tags == ("a",)


def test_a_suite_that_can_not_be_read_is_a_problem_of_each_of_its_cases(project: Any) -> None:
    (project.root / "suite.yaml").mkdir()
    assert project.problems("a_1.yaml", {"a_1.yaml": CASE}) == ["suite.yaml: can't be read: Is a directory"]


def test_problems_name_the_file_that_says_it(project: Any) -> None:
    files = {
        "scenarios/suite.yaml": "must_pass: maybe\nexpected_output:\n  processing_time_ms: fast\n",
        "scenarios/a_1.yaml": "repeat: 0\n" + CASE,
    }
    assert project.problems("scenarios/a_1.yaml", files) == [
        "scenarios/a_1.yaml:1:9: repeat must be a whole number from 1, got 0",
        'scenarios/suite.yaml:1:12: must_pass must be true or false, got "maybe"',
        'scenarios/suite.yaml:3:23: processing_time_ms must be a number from 0, got "fast"; write it as digits',
    ]


LEAVES = st.integers() | st.text("ab", max_size=2) | st.lists(st.integers(), min_size=1, max_size=2)
TREES = st.recursive(LEAVES, lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3))
LAYERS = st.dictionaries(st.sampled_from("abcd"), TREES, min_size=1, max_size=3)


def defined(data: Any, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], Any]:
    """Every path in `data` below mappings, with its value."""
    found = {path: data} if path else {}
    if isinstance(data, dict):
        for key, value in data.items():
            found |= defined(value, (*path, key))
    return found


@settings(max_examples=60, deadline=None)
@given(LAYERS, LAYERS, LAYERS)
def test_a_merged_value_is_found_in_the_file_that_defines_it(
    tmp_path_factory: pytest.TempPathFactory, outer: Any, inner: Any, case: Any
) -> None:
    folder: Path = tmp_path_factory.mktemp("layers")
    layers = {"case.yaml": case, "inner.yaml": inner, "outer.yaml": outer}
    for name, data in layers.items():
        (folder / name).write_text(dump(data), encoding="utf-8")
    source = Source(tuple(Layer(name, str(folder / name)) for name in layers))
    whole = merge_data(merge_data(outer, inner), case)
    for path, value in defined(whole).items():
        place = source.locate(path)
        nearest = next(name for name, data in layers.items() if path in defined(data))
        assert place.file == nearest
        if not isinstance(value, dict):
            assert defined(layers[nearest])[path] == value


@given(LAYERS, LAYERS)
def test_merging_changes_neither_side_and_keeps_every_key(outer: Any, inner: Any) -> None:
    before = dump(outer), dump(inner)
    whole = merge_data(outer, inner)
    assert (dump(outer), dump(inner)) == before
    assert set(whole) == set(outer) | set(inner)
    assert merge_data(whole, inner) == whole


@pytest.mark.parametrize("key", ["mock_function_responses", "mock_responses"])
def test_mocks_that_a_case_does_not_name_itself_are_shared(project: Any, key: str) -> None:
    """One that it changes is its own, and one that it extends another case for is not."""
    expected = "expected_output: {response_contains: x}\n"
    files = {
        "s/suite.yaml": "input: {mock_function_responses: {f: {a: 1}, g: {b: 1}, h: 1}}\n" + expected,
        "s/a_001.yaml": f"input: {{message: hi, {key}: {{g: {{b: 2}}, i: 1}}}}\n",
        "s/b_001.yaml": "extends: a_001\ninput: {mock_function_responses: {h: 2}}\n",
    }
    assert project.load("s/a_001.yaml", files).mocks.shared == {"f", "h"}
    assert project.load("s/b_001.yaml").mocks.shared == {"f", "g", "i"}


def test_what_a_suite_ignores_holds_for_every_turn_of_its_conversations(project: Any) -> None:
    """A suite that only says how calls are judged leaves the demands to the turns."""
    turn = "{user: hi, expected_output: {expected_function_calls: [{function_name: f, arguments: {a: 1}}]}}"
    files = {
        "s/suite.yaml": "expected_output: {ignored_arguments: [b]}\n",
        "s/a_001.yaml": f"input: {{turns: [{turn}]}}\n",
        "s/b_001.yaml": "input: {message: hi}\n",
    }
    case = project.load("s/a_001.yaml", files)
    for sent, status in (({"a": 1, "b": 2}, "passed"), ({"a": 1, "c": 2}, "failed")):
        calls = (FunctionCall(name="f", arguments=sent),)
        assert case.turns[0].expectation.judge(Transcript(calls=calls, responses=("ok",)), user_turn=0).status == status
    (problem,) = project.problems("s/b_001.yaml")
    assert "only 'ignored_arguments', which demands nothing" in problem
