"""Whatever an agent did, its verdict has a line, a trace and a conversation, and none of them is dangerous."""

from __future__ import annotations

import json
from typing import Any
from unicodedata import category

from hypothesis import given, settings
from hypothesis import strategies as st

from evalkit.hosts.reports.serialization import from_line, to_line
from evalkit.hosts.reports.trace import TraceOptions, build_trace_lines, render_ansi, render_trace
from evalkit.records.transcript import FunctionCall, ModelCall, ModelTurn, RunFault, Timing, Transcript
from evalkit.records.verdict import STATUSES, CallVerdict, CheckResult, Reason, Verdict
from evalkit.text.redact import Redactor

# Any character at all, lone surrogates and controls included, with some that matter made likely.
text = st.text(st.one_of(st.characters(), st.sampled_from("\ud800\x1b\x00\u202e\n\t'\"\\{}[]…✓")), max_size=40)
# Keys that are no text become text in JSON, which holds no two that are alike then.
key = st.one_of(text, st.integers(), st.none())


def differ_in_json(mapping: dict[Any, Any]) -> bool:
    return len({name if isinstance(name, str) else json.dumps(name) for name in mapping}) == len(mapping)


value: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text, st.binary(max_size=5), st.just(object)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(key, inner, max_size=4).filter(differ_in_json)
    ),
    max_leaves=12,
)
reason = st.builds(Reason, code=text, message=text, location=text, expected=value, actual=value)
result = st.builds(
    CheckResult,
    check=text,
    status=st.sampled_from(["passed", "failed", "error", "not_judged"]),
    message=text,
    reasons=st.lists(reason, max_size=2).map(tuple),
    note=text,
)
call = st.builds(
    FunctionCall,
    name=text,
    arguments=value,
    outcome=st.sampled_from(["ok", "error"]),
    result=value,
    turn=st.one_of(st.none(), st.integers(0, 3)),
    channel=st.sampled_from(["native", "text", "direct"]),
    requested_name=st.one_of(st.none(), text),
)
turn = st.builds(
    ModelTurn,
    text=text,
    calls=st.lists(st.builds(ModelCall, name=text, arguments=value, malformed=st.none() | text), max_size=2).map(tuple),
)
transcript = st.builds(
    Transcript,
    input=value,
    calls=st.lists(call, max_size=3).map(tuple),
    turns=st.lists(turn, max_size=3).map(tuple),
    response=text,
    fault=st.none() | st.builds(RunFault, code=text, message=text),
    timing=st.none() | st.builds(Timing, model_ms=st.floats(0, 1e9)),
    unused_mocks=st.lists(text, max_size=2).map(tuple),
    warnings=st.lists(text, max_size=2).map(tuple),
)


def verdicts(runs: st.SearchStrategy[tuple[Verdict, ...]]) -> st.SearchStrategy[Verdict]:
    return st.builds(
        Verdict,
        case_id=text,
        status=st.sampled_from(STATUSES),
        reasons=st.lists(reason, max_size=3).map(tuple),
        calls=st.lists(
            st.builds(
                CallVerdict,
                call=st.none() | call,
                status=st.sampled_from(["passed", "failed"]),
                expected_name=text,
                results=st.lists(result, max_size=2).map(tuple),
            ),
            max_size=3,
        ).map(tuple),
        transcript=transcript,
        description=text,
        runs=runs,
        warnings=st.lists(text, max_size=2).map(tuple),
        case=st.dictionaries(text, value, max_size=2),
    )


def harmless(char: str) -> bool:
    """Printable, a line break, a space, a joiner, or a character of private use."""
    return char.isprintable() or char in "\n\t\u200c\u200d" or category(char) in ("Zs", "Co")


any_verdict = verdicts(st.one_of(st.just(()), st.lists(verdicts(st.just(())), max_size=2).map(tuple)))


@settings(max_examples=60, deadline=None)
@given(any_verdict, st.integers(1, 200))
def test_a_trace_is_made_of_printable_lines(verdict: Verdict, width: int) -> None:
    shown = render_trace(verdict, TraceOptions(width=width, conversation=True))
    assert all(map(harmless, shown))
    shown.encode("utf-8")
    render_trace(verdict, TraceOptions(width=width, encoding="ascii")).encode("ascii")
    painted = render_ansi(build_trace_lines(verdict, TraceOptions(width=width, conversation=True)))
    painted.encode("utf-8")


@settings(max_examples=60, deadline=None)
@given(any_verdict)
def test_a_line_is_ascii_and_what_is_read_from_it_is_written_to_be_read_alike(verdict: Verdict) -> None:
    """Keys that are no text may become one that is there already; who reads the line finds the last of them."""
    line = to_line(verdict)
    assert line.isascii()
    assert "\n" not in line
    again = from_line(line)
    assert from_line(to_line(again)) == again
    assert from_line(Redactor(["secret-value"])(line)).status == verdict.status
