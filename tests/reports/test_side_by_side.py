"""The table of a comparison: in the terminal, in Markdown, and what its cells say."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.gate.decision import decide
from evalkit.hosts.reports.markdown import MarkdownOptions, render_markdown
from evalkit.hosts.reports.side_by_side import Cell, build_cell, build_matrix, describe_side_by_side, list_measures
from evalkit.records.run import Policy, Run
from evalkit.records.verdict import Reason, Verdict

LABELS = ("agent=polite", "agent=terse")


def verdict(name: str, label: str, status: str = "passed", code: str = "") -> Verdict:
    reasons = (Reason(code=code, message=f"it is {code}"),) if code else ()
    return Verdict(case_id=f"scenarios/{name}.yaml[{label}]", status=status, reasons=reasons)


def run_of(*verdicts: Verdict, labels: tuple[str, ...] = LABELS) -> Run:
    ids = tuple(each.case_id for each in verdicts)
    metadata = {"compare": [{"label": label, "values": {}} for label in labels]}
    return Run(verdicts=verdicts, selected=ids, collected=len(ids), metadata=metadata)


def hotel() -> Run:
    return run_of(
        verdict("hotel/book_001", LABELS[0]),
        verdict("hotel/book_001", LABELS[1], "failed", "wrong_argument"),
        verdict("hotel/book_002", LABELS[0]),
        verdict("hotel/book_002", LABELS[1]),
    )


def lines_of(run: Run, columns: int = 100, labels: tuple[str, ...] = LABELS, **options: Any) -> list[str]:
    facts = decide(run, Policy()).facts["side_by_side"]
    matrix = build_matrix(labels, map(build_cell, run.verdicts))
    return list(describe_side_by_side(facts, matrix, columns, **{"is_whole": False, **options}))


def test_the_terminal_has_a_column_for_each_variant_and_the_cases_that_differ() -> None:
    assert lines_of(hotel()) == [
        "side by side       agent=polite    agent=terse",
        "passed             2 of 2 (100 %)  1 of 2 (50 %)",
        "95 % interval      34 to 100 %     9 to 91 %",
        "reasons, by cases  –               wrong_argument 1",
        "book_001           ✓ passed        ✗ wrong_argument",
        "alike under all variants: 1 case",
    ]
    assert "book_002           ✓ passed        ✓ passed" in lines_of(hotel(), is_whole=True)


def test_columns_that_do_not_fit_have_letters() -> None:
    lines = lines_of(hotel(), columns=40)
    assert lines[:3] == [
        "A is agent=polite",
        "B is agent=terse",
        "side by side       A               B",
    ]


def test_many_cases_that_differ_are_counted() -> None:
    verdicts = [
        each
        for number in range(30)
        for each in (
            verdict(f"book_{number:03}", LABELS[0]),
            verdict(f"book_{number:03}", LABELS[1], "failed", "missing_call"),
        )
    ]
    lines = lines_of(run_of(*verdicts))
    assert lines[-1] == "and 10 more cases that differ; all are in the HTML report"
    assert len([line for line in lines if line.startswith("book_")]) == 20


def test_cases_of_one_name_in_two_folders_are_told_apart() -> None:
    run = run_of(*(verdict(f"{folder}/book_001", label) for folder in ("a", "b") for label in LABELS))
    lines = lines_of(run, is_whole=True)
    assert lines[-2].startswith("scenarios/a/book_001.yaml")
    assert lines[-1].startswith("scenarios/b/book_001.yaml")


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (Cell("i", "passed"), "✓ passed"),
        (Cell("i", "failed", "wrong_argument"), "✗ wrong_argument"),
        (Cell("i", "failed", "wrong_argument", 2, 5), "✗ 2 of 5 runs, wrong_argument"),
        (Cell("i", "passed", "", 5, 5), "✓ 5 of 5 runs"),
        (Cell("i", "error"), "! error"),
        (Cell("i", "not_run"), "– not run"),
        (Cell("i", "quarantined"), "~ quarantined"),
    ],
)
def test_a_cell_says_how_the_case_ended_and_why(cell: Cell, words: str) -> None:
    assert cell.describe() == words


def test_a_cell_of_repeated_runs_counts_those_that_were_measured() -> None:
    runs = tuple(Verdict(status=status) for status in ("passed", "failed", "error", "passed"))
    assert build_cell(replace(verdict("a_001", LABELS[0]), runs=runs)) == Cell(
        f"scenarios/a_001.yaml[{LABELS[0]}]", "passed", "", 2, 3
    )


def test_a_case_that_one_variant_lacks_differs() -> None:
    matrix = build_matrix(LABELS, [Cell("a_001.yaml[agent=polite]", "passed"), Cell("t.py::test", "failed")])
    assert matrix.list_differing() == ["a_001.yaml"]


def test_measures_that_nobody_knows_are_left_out_and_unknown_is_no_zero() -> None:
    known: dict[str, Any] = {
        "passed": 1,
        "failed": 0,
        "errors": 0,
        "cost_usd": 0.1,
        "cost_per_case": 0.1,
        "tokens_per_case": 9.6,
    }
    known |= {"categories": {}, "codes": {}}
    unknown = {**known, "passed": 0, "errors": 1, "cost_usd": None, "cost_per_case": None, "tokens_per_case": None}
    variants = [{**known, "ms_per_case": 2500.0}, {**unknown, "ms_per_case": None}]
    assert list_measures({"variants": variants}) == [
        ("passed", ["1 of 1 (100 %)", "0 of 0"]),
        ("not measured", ["0", "1"]),
        ("cost", ["$0.1000", "unknown"]),
        ("cost per case", ["$0.10000", "unknown"]),
        ("tokens per case", ["10", "unknown"]),
        ("time per case", ["2.5 s", "unknown"]),
    ]
    repeated = {**known, "ms_per_case": 2500.0, "runs_passed": 7, "runs_measured": 8, "cost_per_case": 0.00002}
    assert list_measures({"variants": [repeated]}) == [
        ("passed", ["1 of 1 (100 %)"]),
        ("runs passed", ["7 of 8 (87.5 %)"]),
        ("cost", ["$0.1000"]),
        ("cost per run", ["$0.00002"]),
        ("tokens per run", ["10"]),
        ("time per run", ["2.5 s"]),
    ]
    nothing = {**known, "cost_usd": 0.0, "cost_per_case": 0.0, "tokens_per_case": 0.0, "ms_per_case": 0.0}
    assert [name for name, _ in list_measures({"variants": [nothing, nothing]})] == ["passed"]


def test_categories_in_which_the_variants_differ_say_on_what_one_is_worse() -> None:
    def categorised(name: str, label: str, status: str = "passed") -> Verdict:
        return replace(verdict(name, label, status), category=name.partition("_")[0])

    run = run_of(
        *(categorised(name, LABELS[0]) for name in ("book_001", "pay_001", "pay_002")),
        *(categorised(name, LABELS[1]) for name in ("book_001", "pay_001")),
        categorised("pay_002", LABELS[1], "failed"),
    )
    measures = dict(list_measures(decide(run, Policy()).facts["side_by_side"]))
    assert measures["passed of pay"] == ["2 of 2", "1 of 2"]
    assert "passed of book" not in measures


def test_of_many_reason_codes_the_most_frequent_stand_in_the_table() -> None:
    codes = ["wrong_argument", "wrong_argument", "missing_call", "deadline", "wrong_order"]
    run = run_of(
        *(verdict(f"a_{number:03}", LABELS[0]) for number in range(5)),
        *(verdict(f"a_{number:03}", LABELS[1], "failed", code) for number, code in enumerate(codes)),
    )
    measures = dict(list_measures(decide(run, Policy()).facts["side_by_side"]))
    assert measures["reasons, by cases"] == ["–", "wrong_argument 2, deadline 1, ..."]


def markdown(run: Run, **options: Any) -> str:
    return render_markdown(run, decide(run, Policy()), None, MarkdownOptions(**options))


def test_a_comment_says_what_is_more_than_luck_behind_the_names_of_many_cases() -> None:
    names = [f"late_delivery_of_an_order_{number:03}" for number in range(20)]
    run = run_of(
        *(verdict(name, LABELS[0]) for name in names),
        *(verdict(name, LABELS[1], "failed", "missing_call") for name in names),
    )
    assert "better in none: offline, where luck has no part\n" in markdown(run)


def test_a_comment_has_the_table_and_what_is_more_than_luck_once() -> None:
    text = markdown(hotel())
    assert (
        "### Side by side\n\n"
        "| | agent=polite (reference) | agent=terse |\n"
        "|---|---|---|\n"
        "| passed | 2 of 2 (100 %) | 1 of 2 (50 %) |\n"
        "| 95 % interval | 34 to 100 % | 9 to 91 % |\n"
        "| reasons, by cases | – | wrong_argument 1 |\n"
        "| scenarios/hotel/book_001.yaml | ✓ passed | ✗ wrong_argument |\n"
        "| *1 alike* | | |\n\n"
        "- agent=terse against agent=polite, 2 cases: worse in 1 (scenarios/hotel/book_001.yaml), better in none: "
        "offline, where luck has no part\n" in text
    )
    assert text.count("worse in 1") == 1


def test_a_comment_without_room_says_how_many_rows_are_left_out() -> None:
    verdicts = [
        each
        for number in range(400)
        for each in (verdict(f"b_{number:03}", LABELS[0]), verdict(f"b_{number:03}", LABELS[1], "failed", "x"))
    ]
    text = markdown(run_of(*verdicts), limit=12_000)
    assert len(text.encode()) < 12_000
    assert "rows of the comparison" in text
    assert "| passed | 400 of 400 (100 %) | 0 of 400 (0 %) |" in text


def test_a_hostile_label_does_nothing_in_markdown() -> None:
    labels = ("v=a|b", "v=<img src=x>@team\x1b")
    text = markdown(run_of(*(verdict("a_001", label) for label in labels), labels=labels))
    assert "| | v=a\\|b (reference) | v=&lt;img src=x&gt;@&#8203;team\\\\x1b |" in text


def test_a_run_without_variants_has_no_table() -> None:
    run = Run(verdicts=(Verdict(case_id="a", status="passed"),), selected=("a",))
    assert "side_by_side" not in decide(run, Policy()).facts
    assert "Side by side" not in markdown(run)
