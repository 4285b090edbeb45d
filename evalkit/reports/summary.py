"""What a run used, in two or three lines."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from evalkit.stats.accounting import Accounting

_NAMED = 4  # functions in the warning


def format_accounting(accounting: Accounting) -> Iterator[str]:
    """Nothing for a run without model turns and grades."""
    if accounting.turns:
        yield from _format_models(accounting)
    if accounting.grades is not None and accounting.grades.graded:
        from evalkit.reports.trace import format_grades

        yield format_grades(accounting.grades)


def _format_models(accounting: Accounting) -> Iterator[str]:
    parts = [f"{_format_count(accounting.turns, 'model turn')}"]
    if accounting.turns_per_call is not None:
        parts.append(f"{accounting.turns_per_call:.2g} per function call")
    parts += [_format_tokens(accounting), _format_cost(accounting)]
    median, slow = accounting.compute_latency_ms(0.5), accounting.compute_latency_ms(0.95)
    if median is not None and slow is not None and slow > 0:
        parts.append(f"a turn takes {_format_turn_time(median)} (95 % within {_format_turn_time(slow)})")
    yield "models: " + ", ".join(parts)
    calls = accounting.calls
    if calls.text or calls.malformed:
        mended = f" ({calls.mended} mended)" if calls.mended else ""
        yield (
            f"calls: {calls.native} native ({_format_percent(calls.native, calls.total)}), {calls.text} as text{mended} "  # noqa: E501
            f"({_format_percent(calls.text, calls.total)}), {calls.malformed} malformed "
            f"({_format_percent(calls.malformed, calls.total)})"
        )
    if calls.unanswered:
        yield _format_unanswered(accounting)


def build_fallback_warning(accounting: Accounting, limit: Fraction) -> str | None:
    """What to say if more than `most` percent of the calls came as text."""
    calls = accounting.calls
    if not calls.total or Fraction(100 * calls.text, calls.total) <= limit:
        return None
    text_callers = {name: channels for name, channels in accounting.functions.items() if channels.text}
    worst = sorted(text_callers.items(), key=lambda item: (-item[1].text, item[0]))
    named = ", ".join(f"{name} {channels.text} of {channels.total}" for name, channels in worst[:_NAMED])
    rest = f" and {len(worst) - _NAMED} more" if len(worst) > _NAMED else ""
    return (
        f"{calls.text} of {calls.total} calls came as text ({_format_percent(calls.text, calls.total)}), more than "
        f"{float(limit):g} %: {named}{rest}"
    )


def _format_unanswered(accounting: Accounting) -> str:
    counts = {name: channels.unanswered for name, channels in accounting.functions.items() if channels.unanswered}
    worst = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{name} {count}" for name, count in worst[:_NAMED])
    rest = f" and {len(worst) - _NAMED} more" if len(worst) > _NAMED else ""
    calls = _format_count(accounting.calls.unanswered, "native call")
    return f"{calls} carried out by no code: {named}{rest}; `evalkit lint` compares the names"


def _format_tokens(accounting: Accounting) -> str:
    usage = accounting.usage
    if usage is None:
        return "tokens unknown"
    output = usage.output_tokens + usage.reasoning_tokens
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    return f"{usage.input_tokens:,} tokens in{cached} and {output:,} out"


def _format_cost(accounting: Accounting) -> str:
    if accounting.cost_usd is not None:
        return f"{accounting.cost_usd:.4g} USD"
    return "cost unknown"


def _format_percent(part: int, total: int) -> str:
    return f"{100 * part / total:.3g} %"


def _format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _format_turn_time(ms: float) -> str:
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{ms:.0f} ms"
