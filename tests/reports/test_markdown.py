"""The Markdown report: what it says, what it leaves out when there is no room, and what it never lets through."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from evalkit.gate.decision import decide
from evalkit.hosts.reports.markdown import (
    LIMIT,
    MarkdownOptions,
    escape_for_html,
    escape_inline,
    format_code,
    format_code_block,
    format_percent,
    render_markdown,
)
from evalkit.records.run import Policy, Run
from evalkit.records.transcript import FunctionCall, Timing, Transcript
from evalkit.records.verdict import CallVerdict, Reason, Verdict

GOLDEN = Path(__file__).parent / "golden"


def case(name: str, status: str = "passed", reason: str = "", **fields: object) -> Verdict:
    reasons = (Reason(code="wrong_argument", message=reason),) if reason else ()
    category = name.rpartition("_")[0].replace("_", "-")
    return Verdict(case_id=f"scenarios/{name}.yaml", status=status, reasons=reasons, category=category, **fields)  # type: ignore[arg-type]


def run_of(*verdicts: Verdict) -> Run:
    ids = tuple(verdict.case_id for verdict in verdicts)
    return Run(verdicts=verdicts, selected=ids, collected=len(ids), wall_s=3.2, evalkit="0.1.0")


def report(run: Run, baseline: Run | None = None, options: MarkdownOptions | None = None) -> str:
    return render_markdown(run, decide(run, Policy(), baseline), baseline, options)


@pytest.fixture
def head(warranty_verdict: Verdict) -> Run:
    return run_of(
        replace(warranty_verdict, category="invalid-warranty"),
        case("valid_001"),
        case("valid_002", "failed", 'arguments.id: expected "A1", got "B2"', must_pass=True),
        case("valid_003", "error", "cassette missing"),
        case("valid_004"),
    )


@pytest.fixture
def base(head: Run, warranty_verdict: Verdict) -> Run:
    good = replace(warranty_verdict, status="passed", reasons=(), calls=warranty_verdict.calls[:1])
    return run_of(good, case("valid_001", "failed", "x"), case("valid_002", "failed", "x"), case("valid_009"))


def test_a_report_against_a_baseline_reads_as_the_golden_file(head: Run, base: Run) -> None:
    options = MarkdownOptions(marker="<!-- evalkit -->", report_url="https://example.com/runs/1")
    assert report(head, base, options) == (GOLDEN / "against_baseline.md").read_text("utf-8")


def test_a_report_without_failures_is_short() -> None:
    run = run_of(case("valid_001"), case("valid_002"))
    assert report(run) == (GOLDEN / "all_passed.md").read_text("utf-8")


def test_one_case_is_no_cases() -> None:
    assert "<sub>1 case · " in report(run_of(case("a_001")))


def test_a_fault_sweep_reads_as_the_golden_file(swept_verdicts: tuple[Verdict, ...]) -> None:
    assert report(run_of(*swept_verdicts)) == (GOLDEN / "fault_sweep.md").read_text("utf-8")


def test_a_sweep_of_many_functions_is_cut(swept_verdicts: tuple[Verdict, ...]) -> None:
    runs = tuple(replace(swept_verdicts[0].changed_runs[0], place=f"f{number}|") for number in range(60))
    text = report(run_of(replace(swept_verdicts[0], changed_runs=runs)))
    assert "| `f49\\|` | 1 ✅ |\n| … and 10 more | |" in text


def test_a_case_that_newly_fails_is_told_once_and_as_a_difference(head: Run, base: Run) -> None:
    text = report(head, base)
    assert text.count("<code>scenarios/warranty/invalid_warranty_002.yaml</code>") == 1
    assert "```diff\n" in text
    assert '\n+  2. ✗ create_ticket(serial_number="SN98765"' in text
    assert "### Failed (2, 1 of them above)" in text


def many(failed: int, trace: int, changed: int = 0) -> tuple[Run, Run]:
    call = FunctionCall(name="f", arguments={f"key{i}": "x" * 60 for i in range(6)})
    calls = tuple(CallVerdict(call=replace(call, index=i), status="passed") for i in range(trace))
    verdicts = [
        case(f"long_name_of_a_case_{i:05}", "failed", f"reason {i}", calls=calls, transcript=Transcript())
        for i in range(failed)
    ]
    before = [replace(verdict, status="passed" if i < changed else "failed") for i, verdict in enumerate(verdicts)]
    return run_of(*verdicts), run_of(*before)


@pytest.mark.parametrize(
    ("failed", "trace", "traces", "named"),
    [(3, 5, 3, 3), (40, 30, 40, 40), (150, 30, 108, 150), (1000, 1, 145, 200), (5000, 1, 145, 200)],
)
def test_a_report_that_is_too_long_says_less_by_degrees(failed: int, trace: int, traces: int, named: int) -> None:
    """No step down gives away much room: traces are cut before one goes, and go one by one from the end."""
    text = report(many(failed, trace)[0])
    size = len(text.encode())
    assert size < LIMIT
    assert text.count("<details>") == traces
    assert len(set(re.findall(r"scenarios/long_name_of_a_case_(\d+)", text))) == named
    assert f"0 of {failed}" in text
    if traces < failed:
        assert size > 0.9 * LIMIT
        assert f"{failed - traces} traces left out" in text


def test_what_was_left_out_is_counted_and_where_it_is() -> None:
    run, _ = many(300, 30)
    assert "Shortened" not in report(many(3, 5)[0])
    text = report(run)
    left_out = re.search(r"^Shortened to fit: (\d+) traces cut, (\d+) traces left out, 100 cases not named; "
                         r"all of it is in the run file\.$", text, re.MULTILINE)  # fmt: skip
    assert left_out is not None
    assert int(left_out[1]) == text.count("<details>") == text.count("characters; whole in the run file)")
    assert int(left_out[2]) == 300 - int(left_out[1])
    assert "\n\n… and 100 more, in the run file\n" in text
    linked = report(run, options=MarkdownOptions(report_url="https://example.com/1"))
    assert "all of it is in the full report." in linked
    assert "the run file" not in linked


def test_cases_that_are_well_are_dropped_before_any_trace_is_cut() -> None:
    run, before = many(100, 2, changed=50)
    text = report(run, before)
    better = run_of(*run.verdicts, *(case(f"well_{i:03}") for i in range(500)))
    worse = run_of(*before.verdicts, *(case(f"well_{i:03}", "failed", "x") for i in range(500)))
    assert "Shortened" not in text
    text = report(better, worse)
    assert len(text.encode()) < LIMIT
    assert "Shortened to fit: 475 cases not named; all of it is in the run file." in text
    assert "**Newly passing** (500)" in text


def test_a_heading_has_something_below_it() -> None:
    run, before = many(3, 2, changed=3)
    text = report(run, before)
    assert "**Newly failing** (3)" in text
    assert "### Failed" not in text


def test_changed_cases_keep_their_traces_longer_than_other_failures() -> None:
    run, before = many(300, 20, changed=10)
    text = report(run, before)
    assert len(text.encode()) < LIMIT
    changed, others = text.split("### Failed (300, 10 of them above)")
    assert changed.count("<details>") == 10
    assert "characters; whole" not in changed
    assert others.count("characters; whole") == others.count("<details>") < 100


@pytest.mark.parametrize("limit", [10, 100, 400, 1000, 3000, 20_000])
def test_any_limit_is_kept(limit: int) -> None:
    run, before = many(120, 8, changed=60)
    text = report(run, before, MarkdownOptions(limit=limit, marker="<!-- m -->"))
    assert len(text.encode()) < limit
    assert limit < 100 or text.startswith("<!-- m -->")


def test_letters_of_several_bytes_count_as_such() -> None:
    run = run_of(*(case(f"x_{i:03}", "failed", "ź" * 150) for i in range(400)))
    assert len(report(run).encode()) < LIMIT


HOSTILE = (
    "\x1b[2J<script>alert(1)</script><img src=x onerror=alert(1)> @everyone @acme/team a@b.example #12 acme/shop#1 "
    "GH-7 [click](https://evil.example) https://evil.example www.evil.example ![x](http://e.example/i.png) **bold** "
    "`tick` | cell | ~~gone~~ $x$ \u202egnp.exe \x00 </details></summary> ```\n# heading\n\n- item"
)


def rendered(text: str) -> str:
    page: str = MarkdownIt("gfm-like", {"html": True, "linkify": True}).render(text)
    return page


@pytest.mark.parametrize("status", ["failed", "error"])
def test_hostile_text_shows_and_does_nothing(status: str) -> None:
    """Rendered by a GitHub-like renderer with HTML and links on: no element, link or mention comes of it."""
    call = FunctionCall(name=HOSTILE, arguments={HOSTILE: HOSTILE}, result={"x": HOSTILE})
    hostile = replace(
        case("bad_001", status, HOSTILE),
        case_id=f"scenarios/{HOSTILE}.yaml",
        description=HOSTILE,
        category=HOSTILE,
        calls=(CallVerdict(call=call, status="failed"),),
        transcript=Transcript(calls=(call,), response=HOSTILE, timing=Timing(model_ms=5)),
    )
    run = run_of(hostile, case("bad_002", "failed", HOSTILE))
    before = run_of(replace(hostile, status="passed", calls=()), case("bad_002"))
    for text in (report(run), report(run, before), report(run, before, MarkdownOptions(limit=4000))):
        page = rendered(text)
        for tag in ("<script", "<img", "<a ", "<h1", "<strong>bold", "<s>", "<em>"):
            assert tag not in page, tag
        assert page.count("<details>") == page.count("</details>") == text.count("<details>")
        outside = page
        for start, end in (("<pre>", "</pre>"), ("<code>", "</code>")):
            while start in outside:
                a = outside.index(start)
                outside = outside[:a] + outside[outside.index(end, a) + len(end) :]
        assert "@everyone" not in outside
        assert "@\u200beveryone" in outside or "@&#8203;everyone" in outside
        for char in ("\x1b", "\u202e", "\x00"):
            assert char not in text
        assert r"\x1b[2J" in page


@pytest.mark.parametrize("text", ["a ``` b", "````", "~~~", "```\n````\n", "`"])
def test_a_fence_is_longer_than_any_run_inside(text: str) -> None:
    page = rendered(f"{format_code_block(text)}\n\n# after")
    assert page.count("<pre>") == 1
    assert page.endswith("<h1>after</h1>\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a", "`a`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        ("", "` `"),
        ("a\nb", "`a b`"),
        ("\x07", "`\\x07`"),
    ],
)
def test_a_code_span_holds_any_text(text: str, shown: str) -> None:
    assert format_code(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "plain, with (parentheses) and snake_case_words: 12:30",
            "plain, with (parentheses) and snake_case_words: 12:30",
        ),
        ("# no heading", r"\# no heading"),
        ("1. no list", r"1\. no list"),
        ("- no list", r"\- no list"),
        ("_no_ *emphasis*", r"\_no\_ \*emphasis\*"),
        ("<b>", "&lt;b&gt;"),
        ("@everyone", "@&#8203;everyone"),
        ("see #12", "see #&#8203;12"),
        ("https://a.example", "https:/&#8203;/a.example"),
        ("abcdef", "abcd…"),
    ],
)
def test_inline_text_is_escaped_no_more_than_needed(text: str, shown: str) -> None:
    assert escape_inline(text, 5 if text == "abcdef" else 300) == shown


def test_text_in_an_html_element_has_entities_alone() -> None:
    assert escape_for_html("a *b* <c> @d\n\ne") == "a *b* &lt;c&gt; @&#8203;d e"


def test_secrets_are_redacted() -> None:
    run = run_of(case("valid_001", "failed", 'sent "api_key": "hunter2hunter2" and sk-abcdefghijklmnop1234'))
    text = report(run)
    assert "hunter2" not in text
    assert "sk-abc" not in text
    assert "[redacted]" in text


def test_a_report_url_that_is_no_web_address_is_no_link() -> None:
    run = run_of(case("valid_001"))
    assert "javascript" not in report(run, options=MarkdownOptions(report_url="javascript:alert(1)"))
    assert "[full report](https://a.example/%29x)" in report(
        run, options=MarkdownOptions(report_url="https://a.example/)x")
    )


@pytest.mark.parametrize(("part", "whole", "text"), [(99, 100, "99 %"), (1, 3, "33.3 %"), (9999, 10000, "99.9 %")])
def test_a_rate_is_rounded_down(part: int, whole: int, text: str) -> None:
    assert format_percent(part, whole) == text
