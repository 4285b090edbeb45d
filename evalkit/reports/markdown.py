"""A run as Markdown, for a comment on a pull request or a step summary: what changed first, then failures, then counts.

Pages take a limited number of characters, so a report that is too long says less of each case, in stages, until it
fits: traces get shorter and go, then the lists do, and what always stays is the decision with its counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff

from msgspec import Struct

from evalkit import stats
from evalkit.model.run import MET, MISSED, GateDecision, Run
from evalkit.model.verdict import ERROR, FAILED, NOT_RUN, PASSED, Verdict
from evalkit.reports.faults import by_function, sweep_summary, swept
from evalkit.reports.markdown_escape import code, fenced, in_html, inline
from evalkit.reports.redacting import Redact, redacted, redacted_decision
from evalkit.reports.trace import duration_text, render

LIMIT = 65_536  # of a comment on GitHub; held in bytes, which is safe whatever a page calls a character
_SIGNS = {MET: "✅", MISSED: "❌"}
_WORDS = {MET: "gate met", MISSED: "gate missed"}
_MARKS = {PASSED: "✅", FAILED: "❌", ERROR: "⚠️", NOT_RUN: "⏭️"}
_CHANGES = {
    "newly_failing": "Newly failing",
    "newly_broken": "Newly broken in every run",
    "newly_flaky": "Newly flaky",
    "flakier": "Flakier",
    "newly_passing": "Newly passing",
    "slower": "Slower",
    "dearer": "Dearer",
    "gone": "No longer there",
}
_SAID_BELOW = ("failed: ", *(f"{what.replace('_', ' ')}: " for what in _CHANGES))  # notes that have a section here
_EXPLAINED = ("newly_failing", "newly_flaky", "flakier")  # changes that are shown with what happened


class MarkdownOptions(Struct, frozen=True):
    """`marker` is a hidden first line by which a comment is found again; `report_url` links to the whole report."""

    title: str = "evalkit"
    limit: int = LIMIT
    marker: str = ""
    report_url: str = ""


class _Stage(Struct, frozen=True):
    """How much is said: characters of a changed case's trace, of another failure's, and cases per list."""

    changed: int
    failed: int
    cases: int


_STAGES = (
    _Stage(6000, 6000, 500),
    _Stage(6000, 1500, 200),
    _Stage(4000, 600, 200),
    _Stage(4000, 0, 200),
    _Stage(1500, 0, 100),
    _Stage(500, 0, 100),
    _Stage(0, 0, 100),
    _Stage(0, 0, 25),
    _Stage(0, 0, 5),
    _Stage(0, 0, 0),
)


def render_markdown(
    run: Run,
    decision: GateDecision,
    baseline: Run | None = None,
    options: MarkdownOptions | None = None,
    redact: Redact | None = None,
) -> str:
    """`run` and the gate's `decision` on it (made with `baseline`, if there is one), below `options.limit` bytes.

    Secrets are redacted by `redact`, by default shapes of tokens and keys of secrets.
    """
    options = options or MarkdownOptions()
    report = _Report(
        redacted(run, redact),
        redacted_decision(decision, redact),
        None if baseline is None else redacted(baseline, redact),
        options,
    )
    text = ""
    for stage in _STAGES:
        text = report.text(stage)
        if len(text.encode("utf-8", "replace")) < options.limit:
            return text
    return _cut(text, options.limit)


def _cut(text: str, limit: int) -> str:
    """The last resort, for limits below a list of counts."""
    return text.encode("utf-8", "replace")[: max(limit - 8, 0)].decode("utf-8", "ignore") + "…"


class _Report:
    def __init__(self, run: Run, decision: GateDecision, baseline: Run | None, options: MarkdownOptions) -> None:
        self._run, self._decision, self._options = run, decision, options
        self._verdicts = {verdict.case_id: verdict for verdict in run.verdicts}
        self._before = {} if baseline is None else {verdict.case_id: verdict for verdict in baseline.verdicts}
        self._changes: Mapping[str, Sequence[str]] = decision.facts.get("changes", {})
        self._traces: dict[tuple[str, bool], str] = {}

    def text(self, stage: _Stage) -> str:
        parts = [self._options.marker] if self._options.marker else []
        parts += self._head()
        if self._before:
            parts += self._changed(stage)
        parts += self._failures(stage)
        parts += self._sweep()
        parts += self._table()
        parts += self._foot(is_cut=stage is not _STAGES[0])
        return "\n\n".join(parts) + "\n"

    def _head(self) -> Iterator[str]:
        sign = _SIGNS.get(self._decision.status, "⚠️")
        word = _WORDS.get(self._decision.status, "gate not measured")
        yield f"## {sign} {inline(self._options.title, 100)}: {word}"
        first, *others = self._decision.reasons or ("",)
        yield f"**{inline(first)}**"
        lines = [*others, *(note for note in self._decision.facts.get("notes", ()) if not note.startswith(_SAID_BELOW))]
        if lines:
            yield "\n".join(f"- {inline(line)}" for line in lines)

    # What changed

    def _changed(self, stage: _Stage) -> Iterator[str]:
        found = {what: self._changes[what] for what in _CHANGES if self._changes.get(what)}
        yield "### Against the baseline"
        if not found:
            yield "No case changed."
        for what, ids in found.items():
            yield f"**{_CHANGES[what]}** ({len(ids)})"
            budget = stage.changed if what in _EXPLAINED else 0
            yield from self._listed(ids, stage.cases, budget, is_change=True)

    def _failures(self, stage: _Stage) -> Iterator[str]:
        told = {case_id for what in _EXPLAINED for case_id in self._changes.get(what, ())}
        for title, status in (("Failed", FAILED), ("Could not be measured", ERROR)):
            found = [v for v in self._run.verdicts if v.status == status and v.quarantined is None]
            ids = [verdict.case_id for verdict in sorted(found, key=lambda v: not v.must_pass)]
            rest = [case_id for case_id in ids if case_id not in told]
            if ids:
                also = f", {len(ids) - len(rest)} of them above" if len(rest) < len(ids) else ""
                yield f"### {title} ({len(ids)}{also})"
                yield from self._listed(rest, stage.cases, stage.failed, is_change=False)

    def _listed(self, ids: Sequence[str], most: int, budget: int, *, is_change: bool) -> Iterator[str]:
        shown = [self._case(case_id, budget, is_change=is_change) for case_id in ids[:most]]
        if shown:
            yield ("\n\n" if budget else "\n").join(shown)
        if len(ids) > most:
            yield f"… and {len(ids) - most} more" if most else f"{len(ids)} cases, named in the full report"

    def _case(self, case_id: str, budget: int, *, is_change: bool) -> str:
        verdict = self._verdicts.get(case_id)
        if verdict is None:
            return f"- {code(case_id)}"
        reason = next((r.message or r.code for r in verdict.reasons), verdict.summary)
        must = " (must pass)" if verdict.must_pass else ""
        if not budget:
            return f"- {_MARKS[verdict.status]} {code(case_id)}{must}{f': {inline(reason, 160)}' if reason else ''}"
        head = f"{_MARKS[verdict.status]} <code>{in_html(case_id)}</code>{must} {in_html(reason, 160)}"
        return (
            f"<details><summary>{head.strip()}</summary>\n\n{self._explained(verdict, budget, is_change)}\n\n</details>"
        )

    def _explained(self, verdict: Verdict, budget: int, is_change: bool) -> str:
        before = self._before.get(verdict.case_id) if is_change else None
        key = (verdict.case_id, is_change)
        if key not in self._traces:
            self._traces[key] = render(verdict) if before is None else _difference(before, verdict)
        text = self._traces[key]
        if len(text) > budget:
            text = text[:budget].rpartition("\n")[0] or text[:budget]
            text += f"\n… ({len(self._traces[key]):,} characters; whole in the full report)"
        return fenced(text, "text" if before is None else "diff")

    # Counts

    def _sweep(self) -> Iterator[str]:
        """What the fault sweep came to, with a row per function."""
        verdicts = self._run.verdicts
        rows = by_function(verdicts)
        if not rows:
            return
        faults = list(dict.fromkeys(fault for row in rows.values() for fault in row))
        lines = [f"| function | {' | '.join(map(inline, faults))} |", f"|---|{'---|' * len(faults)}"]
        lines += [
            f"| {_cell(code(name))} | {' | '.join(_marks(row.get(fault, Counter())) for fault in faults)} |"
            for name, row in list(rows.items())[:50]
        ]
        if len(rows) > 50:
            lines.append(f"| … and {len(rows) - 50} more |{' |' * len(faults)}")
        table = "\n".join(lines)
        yield f"### Fault sweep\n\n{inline(sweep_summary(swept(verdicts), len(verdicts)))}\n\n{table}"

    def _table(self) -> Iterator[str]:
        rows = category_rows(self._run)
        if len(rows) < 2:
            return
        lines = [
            "| category | passed | failed | error | not run | pass rate (95 % interval) |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        lines += [
            f"| {inline(name, 60) or '(none)'} | {' | '.join(map(str, row.values()))} | {_rate(row)} |"
            for name, row in list(rows.items())[:50]
        ]
        if len(rows) > 50:
            lines.append(f"| … and {len(rows) - 50} more | | | | | |")
        yield "### By category\n\n" + "\n".join(lines)

    def _foot(self, *, is_cut: bool) -> Iterator[str]:
        count = len(self._run.selected) or len(self._run.verdicts)
        facts = ["1 case" if count == 1 else f"{count} cases"]
        if self._run.wall_s:
            facts.append(f"{duration_text(1000 * self._run.wall_s)}")
        model = self._run.metadata.get("model")
        facts.append(f"model {inline(str(model), 100)}" if model else "offline")
        costs = [verdict.transcript.cost_usd for verdict in self._run.verdicts]
        if any(costs):
            facts.append(f"{sum(cost or 0 for cost in costs):.4f} USD")
        facts += self._graded()
        if self._run.evalkit:
            facts.append(f"evalkit {inline(self._run.evalkit, 40)}")
        if is_cut:
            facts.append("shortened to fit")
        if self._options.report_url:
            facts.append(f"[full report]({_address(self._options.report_url)})")
        yield f"<sub>{' · '.join(facts)}</sub>"

    def _graded(self) -> Iterator[str]:
        """Not all that decided was deterministic, if a model graded some of it."""
        runs = (run for verdict in self._run.verdicts for run in verdict.runs or (verdict,))
        gradings = [grading for run in runs for grading in run.transcript.gradings]
        if gradings:
            from evalkit.reports.graded import grades_line
            from evalkit.stats.grades import Grades

            grades = Grades().with_those(gradings)
            if grades.graded:
                yield inline(grades_line(grades))


def _cell(text: str) -> str:
    """In a table a bar ends the cell, even inside of a code span, unless it is escaped."""
    return text.replace("|", "\\|")


def _marks(runs: Counter[str]) -> str:
    """``3 ✅ 1 ❌``: how many runs ended how."""
    return " ".join(f"{runs[status]} {mark}" for status, mark in _MARKS.items() if runs[status])


def _address(url: str) -> str:
    """Only web addresses become links, and nothing in one ends it."""
    from urllib.parse import quote

    return quote(url, safe=":/?#&=%@+,;~.-_!") if url.startswith(("https://", "http://")) else "#"


def _difference(before: Verdict, now: Verdict) -> str:
    """What happened then and what happens now, line by line."""
    lines = unified_diff(render(before).split("\n"), render(now).split("\n"), n=1000, lineterm="")
    return "\n".join(list(lines)[3:]) or render(now)


def category_rows(run: Run) -> dict[str, dict[str, int]]:
    """How many cases of each category ended with which status, categories sorted. Quarantined cases are left out."""
    rows: dict[str, dict[str, int]] = {}
    for verdict in run.verdicts:
        if verdict.quarantined is None:
            row = rows.setdefault(verdict.category, dict.fromkeys((PASSED, FAILED, ERROR, NOT_RUN), 0))
            row[verdict.status] += 1
    return dict(sorted(rows.items()))


def _rate(row: Mapping[str, int]) -> str:
    measured = row[PASSED] + row[FAILED]
    if not measured:
        return "–"
    low, high = stats.wilson(row[PASSED], measured)
    return f"{percent(row[PASSED], measured)} ({100 * low:.0f} to {100 * high:.0f} %)"


def percent(part: int, whole: int) -> str:
    """``100 %`` only of all; otherwise rounded down to a tenth, so that nothing less looks like it."""
    tenths = 1000 * part // whole
    return f"{tenths // 10} %" if tenths % 10 == 0 else f"{tenths / 10} %"
