"""Rows under pytest: each is a test with an id, a place, a verdict and a cassette of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evalkit.hosts.reports.run_file import load_run
from tests.plugin.test_collection import ids

Project = Any

CASE = """\
agent: obedient
from: rows.csv
input:
  message: '{"calls": [["check", {"id": "{{ row.sent }}"}]]}'
  mock_function_responses: {check: {ok: true}}
expected_output:
  expected_function_calls: [{function_name: check, arguments: {id: "{{ row.wanted }}"}}]
"""
ROWS = "id,sent,wanted,tags,must_pass\ngold,A1,A1,smoke,true\nbasic,A1,A2,,\nguest,A3,A3,smoke,\n"
FILE = "scenarios/refund_001.yaml"


@pytest.fixture
def rows(running_project: Project) -> Project:
    running_project.write(FILE, CASE)
    running_project.write("scenarios/rows.csv", ROWS)
    return running_project


def node(row: str) -> str:
    return f"{FILE}::refund_001[{row}]"


def test_each_row_is_a_test_with_a_verdict_of_its_own(rows: Project) -> None:
    result = rows.run("-v")
    assert result.ret == 1
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines([f"{FILE}::refund_001[[]basic[]] FAILED*"])
    run = load_run(rows.root / ".evalkit/last-run.json")
    assert {verdict.case_id: verdict.status for verdict in run.verdicts} == {
        f"{FILE}[gold]": "passed",
        f"{FILE}[basic]": "failed",
        f"{FILE}[guest]": "passed",
    }
    assert [verdict.must_pass for verdict in run.verdicts] == [True, False, False]
    result.stdout.fnmatch_lines(["✗ refund_001[[]basic[]]*"])
    assert "2 of 3 cases passed" in result.stdout.str()


@pytest.mark.parametrize(
    ("arguments", "selected"),
    [
        ((node("basic"),), ["basic"]),
        ((f"{FILE}[basic]", f"{FILE}[gold]"), ["basic", "gold"]),
        ((FILE,), ["gold", "basic", "guest"]),
        (("-k", "guest or gold"), ["gold", "guest"]),
        (("-m", "smoke"), ["gold", "guest"]),
        (("--deselect", node("gold")), ["basic", "guest"]),
    ],
)
def test_rows_are_selected_as_any_test(rows: Project, arguments: tuple[str, ...], selected: list[str]) -> None:
    assert ids(rows.run("--collect-only", "-q", *arguments)) == [node(row) for row in selected]


def test_the_last_failed_row_runs_alone(rows: Project) -> None:
    rows.run("-p", "cacheprovider")
    again = rows.run("-p", "cacheprovider", "--lf")
    again.assert_outcomes(failed=1)
    assert "over 1 of 3 collected" in again.stdout.str()


def test_the_place_of_a_row_is_its_line(rows: Project) -> None:
    rows.run("--junitxml=j.xml", "-o", "junit_family=xunit1")
    text = (rows.root / "j.xml").read_text("utf-8")
    assert 'name="refund_001[basic]" file="scenarios/rows.csv" line="2"' in text


@pytest.mark.parametrize("options", [("-n", "2"), ("--evalkit-concurrency", "4"), ("--evalkit-concurrency", "1")])
def test_rows_give_the_same_verdicts_in_every_mode(rows: Project, options: tuple[str, ...]) -> None:
    rows.write("scenarios/rows.csv", "id,sent,wanted\n" + "".join(f"r{n},A{n},A{n % 7}\n" for n in range(40)))
    rows.run(*options)
    run = load_run(rows.root / ".evalkit/last-run.json")
    passed = {verdict.case_id for verdict in run.verdicts if verdict.status == "passed"}
    assert passed == {f"{FILE}[r{n}]" for n in range(7)}
    assert len(run.verdicts) == 40
    assert [verdict.case_id for verdict in run.verdicts] == [f"{FILE}[r{n}]" for n in range(40)]


def test_a_malformed_row_is_one_error_and_its_neighbours_run(rows: Project) -> None:
    rows.write("scenarios/rows.csv", ROWS.replace("A1,A2,,", "A1,A2").replace("guest", "gold"))
    result = rows.run()
    result.assert_outcomes(passed=1, errors=2)
    result.stdout.fnmatch_lines(
        [
            "*scenarios/rows.csv:3: the row can't be read: it has 3 cells, and the header 5*",
            "*scenarios/rows.csv:4: the row has the id 'gold', as line 2 has; give each row an 'id' of its own*",
        ]
    )
    assert result.ret == 1 or result.ret == 6


def test_an_empty_file_of_rows_is_never_green(rows: Project) -> None:
    rows.write("scenarios/rows.csv", "id,sent,wanted\n")
    result = rows.run()
    result.assert_outcomes(errors=1)
    assert result.ret == 6
    assert ids(rows.run("--collect-only", "-q")) == [f"{FILE}::refund_001"]


def test_a_run_goes_on_where_it_stopped(rows: Project) -> None:
    rows.run(node("gold"), "--evalkit-results", "r.json")
    rows.write("scenarios/rows.csv", ROWS.replace("guest,A3", "guest,A4"))
    rows.started.unlink()
    rows.run("--evalkit-resume", "--evalkit-results", "r.json")
    started = [line.split()[0] for line in rows.started.read_text().splitlines()]
    assert started == [f"{FILE}[basic]", f"{FILE}[guest]"]


def test_a_baseline_knows_a_row_again(rows: Project) -> None:
    rows.run("--evalkit-results", "old.json")
    rows.write("scenarios/rows.csv", ROWS.replace("guest,A3", "guest,A4"))
    result = rows.run("--evalkit-baseline", "old.json")
    result.stdout.fnmatch_lines([f"*newly failing*{FILE.replace('.yaml', '.yaml[[]')}guest[]]*"])


def test_a_shard_runs_its_rows(rows: Project) -> None:
    parts = [ids(rows.run("--collect-only", "-q", "--evalkit-shard", f"{part}/2")) for part in (1, 2)]
    assert sorted(parts[0] + parts[1]) == sorted(node(row) for row in ("gold", "basic", "guest"))
    assert all(parts)


def test_a_row_has_a_cassette_of_its_own(running_project: Project) -> None:
    running_project.write("agent.md", "---\nname: agent\n---\nAnswer.\n")
    running_project.write(
        "scenarios/say_001.yaml",
        "agent: agent.md\ncases: [{word: one}, {word: two}]\ninput: {message: 'Say {{ row.word }}'}\n"
        "expected_output: {response_contains: '{{ row.word }}'}\n",
    )
    for word in ("one", "two"):
        running_project.write(f"mocks/cassettes/scenarios/say_001[{word}].yaml", f"turns: [{{text: It is {word}.}}]\n")
    running_project.run().assert_outcomes(passed=2)
    (running_project.root / "mocks/cassettes/scenarios/say_001[two].yaml").unlink()
    result = running_project.run()
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*mocks/cassettes/scenarios/say_001[[]two[]].yaml*"])


def test_repeats_and_updates_name_the_row(rows: Project) -> None:
    result = rows.run("--evalkit-update")
    result.stdout.fnmatch_lines(
        [f"{FILE}: left as it is; [[]basic[]] is a row, and what is expected of rows is not rewritten"]
    )
    assert (rows.root / FILE).read_text("utf-8") == CASE
    rows.run("--evalkit-repeat", "3", node("gold"))
    (verdict,) = load_run(rows.root / ".evalkit/last-run.json").verdicts
    assert (verdict.case_id, len(verdict.runs)) == (f"{FILE}[gold]", 3)


def test_an_ordinary_test_runs_each_row(rows: Project) -> None:
    rows.write(
        "tests/test_rows.py",
        "import pytest\n\n@pytest.mark.evalkit('scenarios')\ndef test_rows(evalkit_case):\n    evalkit_case.run()\n",
    )
    result = rows.pytester.runpytest("-v", "tests/test_rows.py")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["tests/test_rows.py::test_rows[[]refund_001[[]basic[]][]] FAILED*"])


def test_code_that_a_file_with_rows_names_is_imported_once_before_the_run(running_project: Project) -> None:
    running_project.write("answers.py", "def check(id):\n    return {'id': id}\n")
    running_project.write(
        FILE,
        CASE.replace("{check: {ok: true}}", "{check: {$call: 'answers:check'}}"),
    )
    running_project.write("scenarios/rows.csv", ROWS)
    running_project.run().assert_outcomes(passed=2, failed=1)


def test_the_run_file_says_what_the_row_was(rows: Project) -> None:
    rows.run(node("guest"))
    (verdict,) = load_run(rows.root / ".evalkit/last-run.json").verdicts
    assert json.loads(verdict.case["input"]["message"]) == {"calls": [["check", {"id": "A3"}]]}


def test_tags_of_a_case_outside_of_the_project_are_not_read(rows: Project) -> None:
    case = rows.root / FILE
    (rows.root.parent / "outside_001.yaml").write_text("tags: [secret]\n", "utf-8")
    case.write_text("extends: ../../outside_001\n" + case.read_text("utf-8"), "utf-8")
    assert rows.run("-m", "secret", "--collect-only").ret == 5


def test_a_failing_row_names_the_line_of_its_row(rows: Project) -> None:
    """The trace and the run file name the row's own line, beside the line of the expectation that it shares."""
    result = rows.run("--evalkit-html", "report.html")
    result.stdout.fnmatch_lines([f"  at {FILE}:*, row scenarios/rows.csv:3 [[]wrong_argument]"])
    run = load_run(rows.root / ".evalkit/last-run.json")
    assert [verdict.row for verdict in run.verdicts] == [f"scenarios/rows.csv:{line}" for line in (2, 3, 4)]
    assert "scenarios/rows.csv:3" in (rows.root / "report.html").read_text("utf-8")
