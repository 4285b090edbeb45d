"""Patterns that a case may not hold: invalid ones, ones that match nothing, ones that take all memory to compile.

The scanner below reads just enough of the pattern language to be sure. Whatever it does not know (other flags,
recursion, fuzzy matching) makes it unsure, and an unsure pattern is let through.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from evalkit.operators.shown import LIMIT, cut, shown

if TYPE_CHECKING:
    import regex

MAX_SIZE = 100_000  # atoms once counted repetitions are written out, as the compiler does

_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_SET = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_CODE = re.compile(r"\{[^}]*\}|<[^>]*>")
_FUZZY = re.compile(r"\{[^{}]*[eids][^{}]*\}")
_NAMED = re.compile(r"\(\?P?<[A-Za-z_]\w*>")
_FLAGS = re.compile(r"\(\?([A-Za-z0-9]*)(?:-[A-Za-z]+)?([:)])")
_SAFE_FLAGS = frozenset("aiLsu")  # these change what a character matches, not where `^` and `$` do


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> regex.Pattern[str]:
    """The compiled pattern. Raises for one that does not parse."""
    import regex

    return regex.compile(pattern)


@lru_cache(maxsize=4096)
def pattern_problem(pattern: str) -> str:
    """What is wrong with a pattern, to be read after it; "" if nothing is."""
    try:
        scanner = _Scanner(pattern)
        found = scanner.alternatives()
        if found.size > MAX_SIZE:
            return f"is too large: its repetitions come to more than {MAX_SIZE} characters"
        compiled(pattern)
    except RecursionError:
        return "is no valid pattern: its groups are nested too deep"
    except Exception as error:  # regex.error, and what its parser runs into on odd input
        return f"is no valid pattern: {error}"
    if not found.possible and not scanner.unsure:
        return "can match nothing: see what stands before ^ or behind $"
    return ""


class _Part(Struct, frozen=True):
    """A part of a pattern: the fewest characters that it takes, its size, whether it can match, and what it is."""

    width: int = 0
    size: int = 1
    possible: bool = True
    what: str = ""  # "start", "end", "end or newline", "character" (and not a newline)


class _Scanner:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.unsure = False

    def alternatives(self) -> _Part:
        """Everything up to the end of the group."""
        branches = [self._sequence()]
        while self.pattern.startswith("|", self.at):
            self.at += 1
            branches.append(self._sequence())
        if self.pattern.startswith(")", self.at):
            self.at += 1
        width = min(branch.width for branch in branches)
        return _Part(width, sum(branch.size for branch in branches), any(branch.possible for branch in branches))

    def _sequence(self) -> _Part:
        before, size, possible = 0, 0, True
        behind, ended = 0, ""  # characters taken behind the end of the text, and which end that is
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            part = self._atom()
            least = self._repetitions()
            size += part.size * max(least, 1)
            if not least:
                continue
            possible = possible and part.possible and not (part.what == "start" and before)
            before += part.width * least
            behind += part.width * least if ended else 0
            if behind > 1 or (behind and (ended == "end" or part.what == "character")):
                possible = False
            if part.what.startswith("end") and ended != "end":
                ended, behind = part.what, behind if ended == part.what else 0
        return _Part(before, size, possible)

    def _atom(self) -> _Part:
        character = self.pattern[self.at]
        if character == "(":
            return self._group()
        if character == "[":
            return self._set()
        self.at += 1
        if character == "\\":
            return self._escape()
        anchors = {"^": "start", "$": "end or newline"}
        if character in anchors:
            return _Part(what=anchors[character])
        return _Part(1, what="" if character in ".\n" else "character")

    def _escape(self) -> _Part:
        character = self.pattern[self.at : self.at + 1]
        self.at += 1
        anchors = {"A": "start", "Z": "end", "z": "end"}
        if character in anchors:
            return _Part(what=anchors[character])
        if character.isalnum():
            # A class, a position, a back-reference or a code: how much it takes differs, so count nothing.
            named = _CODE.match(self.pattern, self.at)
            self.at = named.end() if named and character in "pPNgkLxX" else self.at
            return _Part(1 if character in "dDwWsS" else 0)
        return _Part(1, what="character")

    def _set(self) -> _Part:
        """A character class; its members don't matter."""
        found = _SET.match(self.pattern, self.at)
        self.at = found.end() if found else len(self.pattern)
        return _Part(1)

    def _group(self) -> _Part:
        rest = self.pattern[self.at : self.at + 4]
        if not rest.startswith("(?"):
            self.at += 1
            return self.alternatives()
        if rest.startswith("(?#"):
            self.at = len(self.pattern) if (close := self.pattern.find(")", self.at)) < 0 else close + 1
            return _Part(size=0)
        for opening in ("(?=", "(?!", "(?<=", "(?<!", "(?>", "(?|", "(?("):
            if rest.startswith(opening):
                self.at += len(opening)
                return self._special(opening)
        return self._named_or_flags()

    def _special(self, opening: str) -> _Part:
        if opening == "(?(":
            self.unsure = True
            self.at = max(self.at, self.pattern.find(")", self.at) + 1)
        empty = self.pattern.startswith(")", self.at)
        inner = self.alternatives()
        if opening in ("(?!", "(?<!"):
            return _Part(0, inner.size, not empty)
        return _Part(0 if "=" in opening else inner.width, inner.size, inner.possible)

    def _named_or_flags(self) -> _Part:
        if (named := _NAMED.match(self.pattern, self.at)) is not None:
            self.at = named.end()
            return self.alternatives()
        if (flags := _FLAGS.match(self.pattern, self.at)) is not None:
            self.unsure = self.unsure or not _SAFE_FLAGS.issuperset(flags[1])
            self.at = flags.end()
            return _Part(size=0) if flags[2] == ")" else self.alternatives()
        self.unsure = True  # recursion, a back-reference by name, verbs
        self.at += 2
        inner = self.alternatives()
        return _Part(0, inner.size)

    def _repetitions(self) -> int:
        """How often at least the atom just read is repeated."""
        least, quantified = 1, False
        while self.at < len(self.pattern):
            if (count := _COUNT.match(self.pattern, self.at)) is not None and count[0] not in ("{}", "{,}"):
                least *= int(count[1] or 0)
                self.at = count.end()
            elif (fuzzy := _FUZZY.match(self.pattern, self.at)) is not None:
                self.unsure = True
                self.at = fuzzy.end()
            elif self.pattern[self.at] in "*?+":
                # A second one makes the first lazy or possessive, which changes no count.
                least = least if quantified or self.pattern[self.at] == "+" else 0
                self.at += 1
            else:
                break
            quantified = True
        return least


def pattern_shown(pattern: str) -> str:
    r"""The pattern in quotes as it is read, not as JSON writes it: ``"\d+"``."""
    return f'"{cut(pattern, LIMIT)}"' if pattern.isprintable() else shown(pattern)


def too_slow(name: str, pattern: str, length: int, limit_s: float) -> str:
    """What is said of a match that was given up."""
    return (
        f"{name} {pattern_shown(pattern)} gave up after {limit_s:g} s on a text of {length} characters; "
        "simplify the pattern (nested repetitions like (a+)+ are the usual cause)"
    )
