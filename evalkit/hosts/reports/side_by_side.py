"""The table of a comparison: a row for each measure and each case, a column for each variant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from string import ascii_uppercase

from msgspec import Struct

from evalkit.hosts.reports.trace import format_duration
from evalkit.jsonvalue import JsonObject
from evalkit.records.case import get_case_name, split_variant
from evalkit.records.verdict import ERROR, FAILED, NOT_RUN, PASSED, Verdict
from evalkit.text.format import escape_controls, format_case_count, format_dollars, format_rate

MARKS = {PASSED: "✓", FAILED: "✗", ERROR: "!", NOT_RUN: "–", "quarantined": "~"}
_MOST_ROWS = 20
_MOST_CODES = 2
_GAP = "  "


class Cell(Struct, frozen=True):
    """The result of a case under a variant. `case_id` is the id with the variant."""

    case_id: str
    status: str  # of a verdict, or "quarantined"
    code: str = ""  # of the first reason, if it did not pass
    passed: int = 0  # of its runs
    runs: int = 1

    def describe(self) -> str:
        """Return ``✓ passed``, ``✗ wrong_argument``, ``✗ 2 of 5 runs, wrong_argument``."""
        words = [f"{self.passed} of {self.runs} runs"] if self.runs > 1 else []
        words += [self.code or self.status.replace("_", " ")] if self.status != PASSED or not words else []
        return f"{MARKS.get(self.status, '')} {', '.join(words)}".strip()


class Matrix(Struct, frozen=True):
    """Cases by variants: by the id of a case without variant, its cells by label. A case may lack some."""

    labels: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]

    def list_differing(self) -> list[str]:
        """List the cases that did not end alike under all variants."""
        return [case_id for case_id, cells in self.rows.items() if self._differs(cells)]

    def _differs(self, cells: Mapping[str, Cell]) -> bool:
        ends = {(cell.status, Fraction(cell.passed, cell.runs) if cell.runs > 1 else None) for cell in cells.values()}
        return len(ends) > 1 or len(cells) < len(self.labels)


def build_matrix(labels: Sequence[str], cells: Iterable[Cell]) -> Matrix:
    """Arrange the cells of a run; those of other tests, which have no variant, are left out."""
    rows: dict[str, dict[str, Cell]] = {}
    for cell in cells:
        case_id, label = split_variant(cell.case_id)
        if label in labels:
            rows.setdefault(case_id, {})[label] = cell
    return Matrix(tuple(labels), rows)


def build_cell(verdict: Verdict) -> Cell:
    """Return the cell of a verdict."""
    measured = [run for run in verdict.runs if run.status in (PASSED, FAILED)]
    return Cell(
        verdict.case_id,
        verdict.status if verdict.quarantined is None else "quarantined",
        next((reason.code for reason in verdict.reasons), "") if verdict.status != PASSED else "",
        sum(run.status == PASSED for run in measured),
        max(len(measured), 1),
    )


def list_measures(facts: JsonObject) -> list[tuple[str, list[str]]]:
    """Return quality, reasons, cost, tokens and time of each variant, as the gate's facts have them, in words, by name.

    What is not known of any variant, or nothing for all, is left out.
    """
    variants = facts.get("variants", [])
    measures = [("passed", [_format_share(v["passed"], v["passed"] + v["failed"]) for v in variants])]
    intervals = [variant.get("interval") for variant in variants]
    if any(bounds is not None for bounds in intervals):
        texts = ["–" if bounds is None else f"{bounds[0]:.0f} to {bounds[1]:.0f} %" for bounds in intervals]
        measures.append(("95 % interval", texts))
    is_repeated = any(variant.get("runs_measured") for variant in variants)
    if is_repeated:
        tallies = [(variant.get("runs_passed", 0), variant.get("runs_measured", 0)) for variant in variants]
        measures.append(("runs passed", [_format_share(passed, measured) for passed, measured in tallies]))
    if any(variant["errors"] for variant in variants):
        measures.append(("not measured", [str(variant["errors"]) for variant in variants]))
    measures += _list_categories(variants)
    if any(variant["codes"] for variant in variants):
        measures.append(("reasons, by cases", [_format_codes(variant["codes"]) for variant in variants]))
    unit = "run" if is_repeated else "case"
    measured_by_key: tuple[tuple[str, str, Callable[[float], str]], ...] = (
        ("cost", "cost_usd", format_dollars),
        (f"cost per {unit}", "cost_per_case", partial(format_dollars, decimals=5)),
        (f"tokens per {unit}", "tokens_per_case", "{:,.0f}".format),
        (f"time per {unit}", "ms_per_case", format_duration),
    )
    for name, key, to_words in measured_by_key:
        values = [variant[key] for variant in variants]
        if any(values):
            measures.append((name, ["unknown" if value is None else to_words(value) for value in values]))
    return measures


def _list_categories(variants: Sequence[JsonObject]) -> Iterator[tuple[str, list[str]]]:
    """Yield a measure for each of several categories in which the variants did not pass alike."""
    names = list(dict.fromkeys(name for variant in variants for name in variant["categories"]))
    for name in names if len(names) > 1 else ():
        tallies = [variant["categories"].get(name, [0, 0]) for variant in variants]
        if any(tally != tallies[0] for tally in tallies):
            yield f"passed of {name or '(none)'}", [f"{passed} of {measured}" for passed, measured in tallies]


def _format_codes(codes: Mapping[str, int]) -> str:
    """Return the most frequent reason codes with the number of their cases."""
    listed = [f"{code} {number}" for code, number in codes.items()]
    return ", ".join(listed[:_MOST_CODES]) + (", ..." if len(listed) > _MOST_CODES else "") or "–"


def _format_share(passed: int, measured: int) -> str:
    rate = f" ({format_rate(Fraction(100 * passed, measured))})" if measured else ""
    return f"{passed} of {measured}{rate}"


def describe_side_by_side(facts: JsonObject, matrix: Matrix, columns: int, *, is_whole: bool) -> Iterator[str]:
    """Yield the table as lines of text; `columns` is the width of the terminal. `is_whole`: with every case.

    Otherwise cases that end alike under all variants are left out, and those above a number.
    """
    labels = [variant["label"] for variant in facts["variants"]]
    ids = list(matrix.rows) if is_whole else matrix.list_differing()
    first_ids = ids if is_whole else ids[:_MOST_ROWS]
    names = [get_case_name(case_id) for case_id in first_ids]
    if len(set(names)) < len(names):
        names = first_ids
    rows = [(name, texts) for name, texts in list_measures(facts)]
    for name, case_id in zip(names, first_ids, strict=True):
        cells = matrix.rows[case_id]
        rows.append((name, [cells[label].describe() if label in cells else "" for label in labels]))
    heads = list(labels)
    if max(map(len, _align([("side by side", heads), *rows]))) > columns:
        heads = list(ascii_uppercase[: len(labels)]) if len(labels) <= len(ascii_uppercase) else heads
        yield from (f"{head} is {label}" for head, label in zip(heads, labels, strict=True) if head != label)
    yield from _align([("side by side", heads), *rows])
    if len(ids) > len(first_ids):
        yield f"and {len(ids) - len(first_ids)} more cases that differ; all are in the HTML report"
    alike = len(matrix.rows) - len(ids)
    if alike:
        yield f"alike under all variants: {format_case_count(alike)}"


def _align(rows: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    table = [[escape_controls(text) for text in (name, *texts)] for name, texts in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [_GAP.join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in table]
