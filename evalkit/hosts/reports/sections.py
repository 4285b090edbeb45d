"""What a feature adds to a page about a run. The page escapes its texts, and draws its charts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import Struct


class Series(Struct, frozen=True):
    """The values of a chart, one for each run; None for a run without one."""

    title: str
    values: tuple[float | None, ...]
    format: Callable[[float], str]


class CaseList(Struct, frozen=True, kw_only=True):
    """A list of cases, each with what is said of it."""

    title: str
    note: str = ""
    cases: tuple[tuple[str, str], ...]  # ids and texts
    is_folded: bool = False  # texts are blocks of lines to copy, which are shown when the list is opened
    rest: int = 0  # further cases, which are not listed


class PageSection(Struct, frozen=True, kw_only=True):
    """A section of the page."""

    title: str
    runs: tuple[str, ...] = ()  # names of the runs that charts and strips are about, the oldest first
    charts: tuple[Series, ...] = ()
    lists: tuple[CaseList, ...] = ()
    # The verdicts of a case in `runs`, by its id, a letter for each run: p(assed), f(ailed), e(rror), n(ot run),
    # q(uarantined), - for a run without the case. A page shows those of one section.
    strips: Mapping[str, str] = MappingProxyType({})
