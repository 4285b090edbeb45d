"""Patterns of cases and declarations: searched under a time limit, which `re` has not, and checked at load.

A pattern that a case may not hold is one that is invalid, that matches nothing, or that takes all memory to compile.
The scanner reads just enough of the pattern language to be sure. Whatever it does not know (other flags, recursion,
fuzzy matching) makes it unsure, and an unsure pattern is let through.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    import regex

TIME_LIMIT_S = 1.0  # of one match; patterns of cases take microseconds, those that backtrack take forever
_SHORT_LIMIT_S = 0.05  # of one match of a pattern that ran out of time before
_PATIENCE = 3  # matches of a pattern that may run out of time, before the limit is short

_timeouts: dict[str, set[tuple[bool, int, int]]] = {}  # so that a hopeless match is waited for once
_MAX_GIVEN_UP = 1000


class PatternLimitError(Exception):
    """A match took too long, or too much memory. The message follows the pattern."""


def match_pattern(pattern: str, text: str, *, whole: bool) -> bool:
    """Tell whether `pattern` matches: the `whole` text, or a part of it. Raises PatternLimitError."""
    given_up = _timeouts.get(pattern, set())
    key = (whole, len(text), hash(text))
    limit = TIME_LIMIT_S if len(given_up) < _PATIENCE else min(TIME_LIMIT_S, _SHORT_LIMIT_S)
    try:
        if key not in given_up:
            expression = _compile_pattern(pattern)
            return (expression.fullmatch if whole else expression.search)(text, timeout=limit) is not None
    except (TimeoutError, MemoryError):
        if sum(map(len, _timeouts.values())) < _MAX_GIVEN_UP:
            _timeouts.setdefault(pattern, set()).add(key)
    raise PatternLimitError(
        f"gave up after {TIME_LIMIT_S:g} s on a text of {len(text)} "
        "characters; simplify the pattern (nested repetitions like (a+)+ are the usual cause)"
    )


MAX_SIZE = 100_000  # atoms once counted repetitions are written out, as the compiler does

_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_SET = re.compile(r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_CODE = re.compile(r"\{[^}]*\}|<[^>]*>")
_FUZZY = re.compile(r"\{[^{}]*[eids][^{}]*\}")
_NAMED = re.compile(r"\(\?P?<[A-Za-z_]\w*>")
_FLAGS = re.compile(r"\(\?([A-Za-z0-9]*)(?:-[A-Za-z]+)?([:)])")
_SAFE_FLAGS = frozenset("aiLsu")  # these change what a character matches, not where `^` and `$` do


@lru_cache(maxsize=4096)
def _compile_pattern(pattern: str) -> regex.Pattern[str]:
    """Return the compiled pattern. Raises for one that does not parse."""
    import regex

    return regex.compile(pattern)


@lru_cache(maxsize=4096)
def find_pattern_problem(pattern: str) -> str:
    """Explain the fault of a pattern, to be read after it; "" if it has none."""
    try:
        scanner = _Scanner(pattern)
        part = scanner.parse_alternatives()
        if part.size > MAX_SIZE:
            return f"is too large: its repetitions come to more than {MAX_SIZE} characters"
        _compile_pattern(pattern)
    except RecursionError:
        return "is no valid pattern: its groups are nested too deep"
    except Exception as error:  # regex.error, and what its parser runs into on odd input
        return f"is no valid pattern: {error}"
    if not part.possible and not scanner.is_unsure:
        return "can match nothing: see what stands before ^ or behind $"
    return ""


class _Part(Struct, frozen=True):
    """A part of a pattern: the fewest characters that it takes, its size, whether it can match, and what it is."""

    width: int = 0
    size: int = 1
    possible: bool = True
    anchor: str = ""  # "start", "end", "end or newline", "character" (and not a newline)


class _Scanner:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.is_unsure = False

    def parse_alternatives(self) -> _Part:
        """Everything up to the end of the group."""
        branches = [self._parse_sequence()]
        while self.pattern.startswith("|", self.position):
            self.position += 1
            branches.append(self._parse_sequence())
        if self.pattern.startswith(")", self.position):
            self.position += 1
        width = min(branch.width for branch in branches)
        return _Part(width, sum(branch.size for branch in branches), any(branch.possible for branch in branches))

    def _parse_sequence(self) -> _Part:
        width, size, possible = 0, 0, True
        trailing_width, end = 0, ""  # characters taken behind the end of the text, and which end that is
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            part = self._parse_atom()
            # Return the smallest number of repetitions of the atom just read.
            minimum, quantified = 1, False
            while self.position < len(self.pattern):
                if (count := _COUNT.match(self.pattern, self.position)) is not None and count[0] not in ("{}", "{,}"):
                    minimum *= int(count[1] or 0)
                    self.position = count.end()
                elif (fuzzy := _FUZZY.match(self.pattern, self.position)) is not None:
                    self.is_unsure = True
                    self.position = fuzzy.end()
                elif self.pattern[self.position] in "*?+":
                    # A second one makes the first lazy or possessive, which changes no count.
                    minimum = minimum if quantified or self.pattern[self.position] == "+" else 0
                    self.position += 1
                else:
                    break
                quantified = True
            repetitions = minimum
            size += part.size * max(repetitions, 1)
            if not repetitions:
                continue
            possible = possible and part.possible and not (part.anchor == "start" and width)
            width += part.width * repetitions
            trailing_width += part.width * repetitions if end else 0
            if trailing_width > 1 or (trailing_width and (end == "end" or part.anchor == "character")):
                possible = False
            if part.anchor.startswith("end") and end != "end":
                end, trailing_width = part.anchor, trailing_width if end == part.anchor else 0
        return _Part(width, size, possible)

    def _parse_atom(self) -> _Part:
        character = self.pattern[self.position]
        if character == "(":
            rest = self.pattern[self.position : self.position + 4]
            if not rest.startswith("(?"):
                self.position += 1
                return self.parse_alternatives()
            if rest.startswith("(?#"):
                self.position = len(self.pattern) if (close := self.pattern.find(")", self.position)) < 0 else close + 1
                return _Part(size=0)
            for opening in ("(?=", "(?!", "(?<=", "(?<!", "(?>", "(?|", "(?("):
                if rest.startswith(opening):
                    self.position += len(opening)
                    if opening == "(?(":
                        self.is_unsure = True
                        self.position = max(self.position, self.pattern.find(")", self.position) + 1)
                    empty = self.pattern.startswith(")", self.position)
                    inner = self.parse_alternatives()
                    if opening in ("(?!", "(?<!"):
                        return _Part(0, inner.size, not empty)
                    return _Part(0 if "=" in opening else inner.width, inner.size, inner.possible)
            return self._parse_named_group()
        if character == "[":
            match = _SET.match(self.pattern, self.position)
            self.position = match.end() if match else len(self.pattern)
            return _Part(1)
        self.position += 1
        if character == "\\":
            return self._parse_escape()
        anchors = {"^": "start", "$": "end or newline"}
        if character in anchors:
            return _Part(anchor=anchors[character])
        return _Part(1, anchor="" if character in ".\n" else "character")

    def _parse_escape(self) -> _Part:
        character = self.pattern[self.position : self.position + 1]
        self.position += 1
        anchors = {"A": "start", "Z": "end", "z": "end"}
        if character in anchors:
            return _Part(anchor=anchors[character])
        if character.isalnum():
            # A class, a position, a back-reference or a code: how much it takes differs, so count nothing.
            named = _CODE.match(self.pattern, self.position)
            self.position = named.end() if named and character in "pPNgkLxX" else self.position
            return _Part(1 if character in "dDwWsS" else 0)
        return _Part(1, anchor="character")

    def _parse_named_group(self) -> _Part:
        if (named := _NAMED.match(self.pattern, self.position)) is not None:
            self.position = named.end()
            return self.parse_alternatives()
        if (flags := _FLAGS.match(self.pattern, self.position)) is not None:
            self.is_unsure = self.is_unsure or not _SAFE_FLAGS.issuperset(flags[1])
            self.position = flags.end()
            return _Part(size=0) if flags[2] == ")" else self.parse_alternatives()
        self.is_unsure = True  # recursion, a back-reference by name, verbs
        self.position += 2
        inner = self.parse_alternatives()
        return _Part(0, inner.size)


_PIECES = re.compile(
    r"\\k<\w+>|\(\?P=\w+\)|\\[pPu]\{[^}]*\}|\\.|\(\?P?<(?![=!])\w+>|\((?!\?)|\[\^?\]?|\{\d+(?:,\d*)?\}|.", re.DOTALL
)
_CLASS = re.compile(r"\\[dDwWsSpP]")


def translate_pattern(pattern: str) -> str:
    """Return a pattern of ECMA 262, or of Python, in the form in which Rust's engine reads it.

    Sets may be empty (``[^]``) or have a class beside a hyphen (``[\\w-.]``), braces stand for themselves where they
    count nothing, groups are referred to by name.
    """
    numbers: dict[str, int] = {}
    written: list[str] = []
    groups, in_set = 0, False
    pieces = _PIECES.findall(pattern)
    for index, piece in enumerate(pieces):
        before, after = written[-1] if written else "", pieces[index + 1] if index + 1 < len(pieces) else ""
        if in_set:
            if piece == "-" and (_CLASS.match(before) or _CLASS.match(after)) and after != "]":
                piece = r"\-"
            in_set = piece != "]"
            piece = {"[": r"\[", r"\b": r"\x08", r"\0": r"\x00"}.get(piece, piece)
        elif piece.startswith("(") and not piece.startswith("(?P="):
            groups += 1
            name = piece.partition("<")[2].rstrip(">")
            if name:
                numbers[name] = groups
            piece = "("
        elif piece.startswith((r"\k<", "(?P=")):
            name = re.sub(r"\W", "", piece[3:])
            piece = f"(?:\\{numbers[name]})" if name in numbers else piece
        elif piece.startswith("["):
            in_set = piece in ("[", "[^")
            piece = {"[]": r"[^\s\S]", "[^]": r"[\s\S]"}.get(piece, piece)
        else:
            piece = {"{": r"\{", "}": r"\}", r"\Z": r"\z", r"\0": r"\x00"}.get(piece, piece)
        written.append(piece)
    return "".join(written)
