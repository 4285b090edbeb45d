"""The lines about models, and the warning about calls that came as text."""

from __future__ import annotations

from fractions import Fraction

import pytest

from evalkit.hosts.reports.summary import build_fallback_warning, format_accounting
from evalkit.records.transcript import Usage
from evalkit.stats.accounting import Accounting, Channels

USAGE = Usage(input_tokens=12_000, cached_tokens=4_000, output_tokens=900, reasoning_tokens=100, total_tokens=13_000)


@pytest.mark.parametrize(
    ("accounting", "lines"),
    [
        (Accounting(runs=3), []),
        (Accounting(turns=1), ["models: 1 model turn, tokens unknown, cost unknown"]),
        (
            Accounting(
                turns=1234,
                calls=Channels(native=1000),
                usage=USAGE,
                cost_usd=0.01234,
                latencies_ms=(500.0, 800.0, 2400.0),
            ),
            [
                "models: 1,234 model turns, 1.2 per function call, 12,000 tokens in (4,000 cached) and 1,000 out, "
                "0.01234 USD, a turn takes 800 ms (95 % within 2.4 s)"
            ],
        ),
        (
            Accounting(turns=9, calls=Channels(native=5, text=3, malformed=1, mended=2), usage=Usage()),
            [
                "models: 9 model turns, 1 per function call, 0 tokens in and 0 out, cost unknown",
                "calls: 5 native (55.6 %), 3 as text (2 repaired) (33.3 %), 1 malformed (11.1 %)",
            ],
        ),
        (
            Accounting(
                turns=9,
                calls=Channels(native=3, unanswered=16),
                functions={
                    name: Channels(unanswered=count) for name, count in zip("abcde", (1, 2, 4, 4, 5), strict=True)
                },
            ),
            [
                "models: 9 model turns, 3 per function call, tokens unknown, cost unknown",
                "16 native calls carried out by no code: e 5, c 4, d 4, b 2 and 1 more; "
                "`evalkit lint` compares the names",
            ],
        ),
    ],
)
def test_the_lines_say_what_models_took(accounting: Accounting, lines: list[str]) -> None:
    assert list(format_accounting(accounting)) == lines


def test_the_warning_names_the_functions_that_are_written_most() -> None:
    functions = {f"f{index}": Channels(native=9, text=index) for index in range(7)}
    accounting = Accounting(calls=sum(functions.values(), Channels()), functions=functions)

    assert build_fallback_warning(accounting, Fraction(10)) == (
        "21 of 84 calls came as text (25 %), more than 10 %: f6 6 of 15, "
        "f5 5 of 14, f4 4 of 13, f3 3 of 12 and 2 more; more: docs/text-calls.md"
    )


@pytest.mark.parametrize(
    ("text", "most", "warns"), [(1, "10", False), (2, "10", True), (0, "0", False), (1, "0", True)]
)
def test_at_the_limit_nothing_is_said(text: int, most: str, warns: bool) -> None:
    accounting = Accounting(calls=Channels(native=10 - text, text=text))

    assert (build_fallback_warning(accounting, Fraction(most)) is not None) is warns


def test_without_calls_nothing_is_said() -> None:
    assert build_fallback_warning(Accounting(), Fraction(0)) is None
