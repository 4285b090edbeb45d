"""What rows share is searched for templates once; what they don't share is filled for each of them."""

from __future__ import annotations

from pathlib import Path

from evalkit.spec.load import load_case

SUITE = "functions: {f: {description: A function., parameters: {type: object, properties: {x: {}}}}}\n"
CASE = """\
cases: [{id: a, x: 1}, {id: b, x: 2}]
input: {message: "is {{ row.x }}", mock_function_responses: {f: "{{ row.x }}"}}
functions: {g: {description: "{{ row.id }}"}}
expected_output: {expected_function_calls: [{function_name: f, arguments: {x: "{{ row.x }}"}}]}
"""


def test_rows_share_declarations_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE, "utf-8")
    (tmp_path / "case_001.yaml").write_text(CASE, "utf-8")
    (tmp_path / "plain_001.yaml").write_text(
        CASE.replace('functions: {g: {description: "{{ row.id }}"}}\n', ""), "utf-8"
    )
    a, b = (load_case(tmp_path / f"case_001.yaml[{row}]", root=tmp_path) for row in "ab")
    descriptions = [[function.description for function in case.functions] for case in (a, b)]
    assert descriptions == [["A function.", "a"], ["A function.", "b"]]
    assert (a.input["message"], b.input["message"]) == ("is 1", "is 2")
    assert [case.expected_output["expected_function_calls"][0]["arguments"] for case in (a, b)] == [{"x": 1}, {"x": 2}]
    plain_a, plain_b = (load_case(tmp_path / f"plain_001.yaml[{row}]", root=tmp_path) for row in "ab")
    assert plain_a.functions is plain_b.functions
    assert plain_a.merged["functions"] is plain_b.merged["functions"]
