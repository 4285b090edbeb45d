"""A family of rules: those whose findings are found together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from evalkit.hosts.lint.facts.project import ProjectFacts
from evalkit.hosts.lint.finding import Finding, Rule


class RuleFamily(NamedTuple):
    """Rules whose findings are found together: those of a module, and the function that finds what breaks them."""

    rules: tuple[Rule, ...]
    check: Callable[[ProjectFacts], Iterator[Finding]]
    title: str = ""  # of the group of their codes, which may be one of their own
