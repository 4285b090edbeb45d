"""A glance at a case file gives the tags that loading it gives, or says that only loading tells."""

from __future__ import annotations

from typing import Any

import pytest

from evalkit.spec.load import TagScanner

BODY = 'input: {message: "a: b"}\nexpected_output: {response_contains: [x]}\n'
JSON = '{"input": {"message": "hi\\n"}, "expected_output": {"response_contains": ["x"]}'
SUITE = {"s/suite.yaml": "tags: [shared]\n", "suite.yaml": "tags: [outer]\nagent: one\n"}

FILES = {
    "none": BODY,
    "a comment and a marker first": f"# yaml-language-server: $schema=x\n\n---\n{BODY}",
    "a list": f"tags: [a, b]\n{BODY}",
    "a list at the end": f"{BODY}tags:\n- a\n- b\n",
    "one name": f"{BODY}tags: a\n",
    "null": f"tags:\n{BODY}",
    "twice the same": f"tags: [a, a]\n{BODY}",
    "only further in": f"{BODY}functions: {{f: {{parameters: {{properties: {{tags: {{type: string}}}}}}}}}}\n",
    "a property of that name in the first column": f'description: "one\ntags: no"\n{BODY}',
    "a quoted key": f'{BODY}"tags": [a]\n',
    "an escaped key": f'{BODY}"t\\u0061gs": [a]\n',
    "JSON": f'{JSON}, "tags": ["a"]}}',
    "JSON without": JSON + "}",
    "an escaped key in JSON": f'{JSON}, "t\\u0061gs": ["a"]}}',
    "indented": "".join(f"  {line}\n" for line in (*BODY.splitlines(), "tags: [a]")),
    "an explicit key": f"{BODY}? tags\n: [a]\n",
    "an anchor": f"{BODY}&x tags: [a]\n",
    "an alias": f"{BODY}created: &x tags\n*x : [a]\n",
    "carriage returns": BODY.replace("\n", "\r") + "tags: [a]\r",
    "breaks of Windows": BODY.replace("\n", "\r\n") + "tags: [a]\r\n",
    "breaks of Windows, without": BODY.replace("\n", "\r\n"),
    "a byte order mark": f"\ufefftags: [a]\n{BODY}",
    "a tag of a name that -m can't take as a mark": f"tags: [größe]\n{BODY}",
}


@pytest.mark.parametrize("suites", [{}, SUITE], ids=["without suites", "with suites"])
@pytest.mark.parametrize("text", FILES.values(), ids=FILES)
def test_the_tags_are_those_of_the_loaded_case(project: Any, text: str, suites: dict[str, str]) -> None:
    case = project.load("s/a_001.yaml", {"s/a_001.yaml": text, **suites})
    glances = TagScanner(project.root)
    glances.scan(str(project.root / "s/first_001.yaml"))
    assert glances.scan(str(project.root / "s/a_001.yaml")).tags == case.tags


TO_LOAD = {
    "another case": f"extends: b_001\n{BODY}",
    "another case, JSON": JSON + ', "extends": "b_001"}',
    "another case, escaped": JSON + ', "\\u0065xtends": "b_001"}',
    "code that answers": BODY.replace("input: {", 'input: {mock_function_responses: {f: {$call: "m:f"}}, '),
    "a file that may": BODY.replace("input: {", "input: {mock_function_responses: {f: {$include: m/f}}, "),
    "a real function": f"{BODY}functions: {{f: {{patch: 'm:f'}}}}\n",
}


@pytest.mark.parametrize("text", TO_LOAD.values(), ids=TO_LOAD)
def test_a_case_that_names_python_code_or_another_case_is_to_be_loaded_at_once(project: Any, text: str) -> None:
    project.write({"s/a_001.yaml": text, "s/b_001.yaml": BODY})
    glances = TagScanner(project.root)
    glances.scan(str(project.root / "s/b_001.yaml"))
    assert glances.scan(str(project.root / "s/a_001.yaml")).tags is None


def test_code_that_a_case_before_names_needs_no_second_look(project: Any) -> None:
    one, other = (
        BODY.replace("input: {", f"input: {{mock_function_responses: {{f: {{$call: {name}}}}}, ") for name in "ab"
    )
    below = f"{BODY}functions:\n  f:\n    patch:\n      m:f\n"
    texts = {"b_001": BODY, "c_001": one, "c_002": one, "c_003": other, "c_004": below, "c_005": below}
    project.write({f"s/{name}.yaml": text for name, text in texts.items()})
    project.write({"s/d_001.yaml": BODY.replace("a: b", "dispatch by exception")})
    glances = TagScanner(project.root)
    found = {name: glances.scan(str(project.root / f"s/{name}.yaml")).tags for name in (*texts, "d_001")}
    assert [name for name, tags in found.items() if tags is None] == ["b_001", "c_001", "c_003", "c_004", "c_005"]


def test_so_is_the_first_of_each_folder_whose_suites_may_name_code(project: Any) -> None:
    project.write({"s/a_001.yaml": BODY, "s/a_002.yaml": BODY, "t/a_001.yaml": BODY})
    glances = TagScanner(project.root)
    found = [glances.scan(str(project.root / name)).tags for name in ("s/a_001.yaml", "s/a_002.yaml", "t/a_001.yaml")]
    assert found == [None, (), None]


@pytest.mark.parametrize("text", ["tags: [skip, good]\n", "tags: {a: b}\n", "]", "tags: [good\n"], ids=str)
def test_of_a_broken_file_the_tags_that_are_valid_are_given(project: Any, text: str) -> None:
    project.write({"s/a_001.yaml": text})
    glances = TagScanner(project.root)
    glances.scan(str(project.root / "s/first_001.yaml"))
    assert glances.scan(str(project.root / "s/a_001.yaml")).tags == (("good",) if "skip" in text else ())


def test_a_file_that_is_gone_has_none(project: Any) -> None:
    glances = TagScanner(project.root)
    glances.scan(str(project.root / "s/first_001.yaml"))
    assert glances.scan(str(project.root / "s/a_001.yaml")).tags == ()
