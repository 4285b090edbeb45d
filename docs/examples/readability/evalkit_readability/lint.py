"""A rule of lint."""

from __future__ import annotations

from collections.abc import Iterator

from evalkit.hosts.lint.api import WARNING, Finding, ProjectFacts, Rule, RuleFamily

MOST_WORDS = 30
LOOSE_LIMIT = Rule("R101", "readability-loose", WARNING, "A case allows sentences that few readers follow.")


def check(facts: ProjectFacts) -> Iterator[Finding]:
    for case in facts.cases:
        said = case.examined.data.get("readability")
        limit = said.get("max_words") if isinstance(said, dict) else None
        if isinstance(limit, int) and limit > MOST_WORDS:
            place = case.locate(("readability", "max_words"))
            yield LOOSE_LIMIT.report(place, f"sentences may have {limit} words", f"allow at most {MOST_WORDS}")


FAMILY = RuleFamily((LOOSE_LIMIT,), check, title="Readability")
