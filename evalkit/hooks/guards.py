"""Hooks that sum up and report never end a run: where one of another package raises, a line says so in its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evalkit.hooks.feature import Feature
from evalkit.hooks.records import CaseReport, RunReport, Summary, Table


class FailedSum(str):
    """What is kept of a case whose data could not be added up: words on the error."""

    __slots__ = ()


_INSTEAD: dict[str, Callable[[str], object]] = {
    "add_up": FailedSum,
    "summarize": lambda words: Summary(key_notes=(words,)),
    "build_table": lambda words: Table(words, (), ()),
    "report_case": lambda words: CaseReport(remarks=(words,)),
    "report_run": lambda words: RunReport(lines={None: (words,)}),
    "report_call": lambda words: words,
    "trace_call": lambda words: {"evalkit.feature.error": words},
    "describe_usage": lambda words: words,
}


def guard_reports(feature: Feature) -> None:
    """Let the hooks of `feature` that sum up and report return words on their error where they raise."""
    own = {name: getattr(feature, name) for name in _INSTEAD if getattr(type(feature), name) is not vars(Feature)[name]}
    vars(feature).update({name: _guard(feature.name, name, hook) for name, hook in own.items()})
    if "add_up" in own:
        vars(feature)["summarize"] = _pass_failures_on(feature.summarize)


def _guard(feature: str, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
    def ask(*arguments: object) -> Any:
        try:
            answer = hook(*arguments)
            if name == "add_up":
                hash(answer)  # equal values are shared
        except Exception as error:
            return _INSTEAD[name](f"feature '{feature}' raised {type(error).__name__}: {error}")
        return answer

    return ask


def _pass_failures_on(
    summarize: Callable[[Sequence[tuple[str, Any]], bool], Summary | None],
) -> Callable[[Sequence[tuple[str, Any]], bool], Summary | None]:
    def ask(outcomes: Sequence[tuple[str, Any]], is_whole: bool) -> Summary | None:
        failed = dict.fromkeys(str(data) for _, data in outcomes if isinstance(data, FailedSum))
        return Summary(key_notes=tuple(failed)) if failed else summarize(outcomes, is_whole)

    return ask
