"""The report: the longest sentence of each reply."""

from __future__ import annotations

from collections.abc import Iterator

from evalkit.api import escape_controls
from evalkit.hosts.reports.api import ReportInput
from evalkit_readability.sentences import count_words, find_longest


def render_sentences(source: ReportInput) -> Iterator[str]:
    """Yield a line for each case. What an agent wrote is shown escaped."""
    for verdict in source.iter_verdicts():
        sentence = find_longest(verdict.transcript.response)
        yield f"{verdict.case_id}: {count_words(sentence)} words: {escape_controls(sentence)}\n"
