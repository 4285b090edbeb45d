"""The rule of lint about graders: a model is to grade what an operator says for nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from evalkit.errors import KeyPath
from evalkit.features.graders.records import OPERATOR
from evalkit.hosts.lint.api import WARNING, Finding, ProjectFacts, Rule, RuleFamily

JUDGED_PLAINLY = Rule(
    "L515", "judged-plainly", WARNING, "A model is to grade what an operator without a model can say."
)

_SUBJECT = r"(?:(?:it|this|the (?:value|text|mail|email|body|subject|response|answer|reply|letter)) )?"
_QUOTED = r"(?:the )?(?:words? |phrases? |texts? )?[\"'“”„‘’`](.+?)[\"'“”„‘’`]"
# What a criterion says as a whole, and what to write instead.
_PLAIN: tuple[tuple[str, str], ...] = (
    (rf"(?:contains?|includes?|mentions?|has|names?) {_QUOTED}", "{{$icontains: {0}}}"),
    (
        rf"(?:does not|doesn't|must not|never) (?:contain|include|mention|name) {_QUOTED}",
        "{{$not: {{$icontains: {0}}}}}",
    ),
    (rf"(?:starts?|begins?) with {_QUOTED}", "{{$starts_with: {0}}}"),
    (rf"ends? with {_QUOTED}", "{{$ends_with: {0}}}"),
    (rf"(?:equals?|is(?: exactly)?|is equal to|says exactly) {_QUOTED}", "{{$eq: {0}}}"),
    (r"is (?:not empty|non-empty|present)", "{{$len: {{$gt: 0}}}}"),
    (r"is empty", "{{$len: 0}}"),
    (r"is an? (string|number|integer|boolean|array|object)", "{{$type: {0}}}"),
    (r"is (?:at most|no longer than|shorter than) (\d+) characters(?: long)?", "{{$len: {{$le: {0}}}}}"),
    (r"is an? (?:valid )?(?:ip address)", "{{$ip_address: any}}"),
    (r"matches (?:the )?(?:regex|regular expression|pattern) (.+)", "{{$search: {0}}}"),
)


def check(facts: ProjectFacts) -> Iterator[Finding]:
    """Yield the values that a model is to grade, and that an operator says for nothing, and without a doubt."""
    for case in facts.cases:
        found = (item for expected, path in case.list_expectations() for item in _list_judged(expected, path))
        for criterion, place in found:
            instead = suggest_operator(criterion)
            if instead:
                yield JUDGED_PLAINLY.report(
                    case.locate(place),
                    f"a model is to grade '{criterion}', which {instead} says without one",
                    f"write {instead}: it costs nothing, and is never wrong",
                )


def suggest_operator(criterion: str) -> str:
    """Return the operator that says what a criterion says; "" where a reader is needed."""
    text = " ".join(criterion.split()).rstrip(".")
    for pattern, instead in _PLAIN:
        match = re.fullmatch(_SUBJECT + pattern, text, re.IGNORECASE)
        if match is not None:
            return instead.format(*match.groups())
    return ""


def _list_judged(value: object, path: KeyPath) -> Iterator[tuple[str, KeyPath]]:
    """Yield each criterion of `$judge` in an expected value, with its path. What is under `$literal` is data."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if key == OPERATOR:
                words = item.get("rubric") if isinstance(item, Mapping) else item
                if isinstance(words, str):
                    yield words, (*path, key)
            elif key != "$literal":
                yield from _list_judged(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _list_judged(item, (*path, index))


FAMILY = RuleFamily((JUDGED_PLAINLY,), check)
