"""The one reader of mappings that came from YAML, TOML or Python: keys, kinds, and words for what is wrong.

A `FieldReader` collects problems with their paths and never raises. Every message has the same grammar: the place, what
is expected, what is there, what to write. Rooms with values of their own (expected calls, a case's keys, mocks) add
methods in a subclass.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from evalkit.errors import KeyPath, PathProblem, did_you_mean, format_path
from evalkit.text.format import describe_type, format_value

_MAX_LISTED = 13  # names that a message can list


class FieldReader:
    """Typed values of one document, and its problems so far.

    `root` is the path of what is read in the whole document: messages name places below it. `subject` is the name of
    the root itself, by default its path. `synonyms` are keys that people write for others.
    """

    def __init__(self, root: KeyPath = (), *, subject: str = "", synonyms: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.subject = subject or format_path(root)
        self.synonyms = synonyms or {}
        self.problems: list[PathProblem] = []

    def add_problem(self, path: KeyPath, message: str, code: str = "invalid_case", *, at_key: bool = False) -> None:
        """Add a problem at `path`; `at_key`: its place is that of the key, not of the value."""
        self.problems.append(PathProblem(path, message, code, at_key))

    def add_problems(self, problems: Iterable[PathProblem]) -> None:
        """Add problems that something else found below the same root."""
        for problem in problems:
            self.add_problem(problem.path, problem.message, problem.code, at_key=problem.at_key)

    def format_place(self, path: KeyPath) -> str:
        """Write `path` as messages do: from below the root, whose own name is `subject`."""
        return format_path(path[len(self.root) :]) or self.subject

    def report_unknown_key(self, path: KeyPath, key: object, known_keys: Iterable[str], hint: str = "") -> None:
        """Report `key`, which `path` may not hold; `hint` replaces the nearest name."""
        place = self.format_place(path)
        if not isinstance(key, str):
            self.add_problem(
                path, f"key {format_value(key)} in {place} is {describe_type(key)}; keys are names, quote it"
            )
            return
        hint = hint or suggest_key(key, list(known_keys), self.synonyms)
        self.add_problem((*path, key), describe_unknown_key(key, place, hint=hint), at_key=True)

    def check_keys(self, path: KeyPath, data: Mapping[str, object], known_keys: Collection[str]) -> None:
        """Report each key of `data` that is not among `known_keys`."""
        for key in data:
            if key not in known_keys:
                self.report_unknown_key(path, key, known_keys)

    def report_wrong(self, path: KeyPath, value: object, expected: str, advice: str = "") -> None:
        """Report a value of the wrong kind: the place, what was expected, what is there, what to write."""
        if isinstance(value, (list, dict)) and not value:
            actual = "an empty list" if isinstance(value, list) else "an empty mapping"
        elif isinstance(value, (str, int, float)) or value is None:
            actual = format_value(value)
        else:
            actual = describe_type(value)
        self.add_problem(path, f"{self.format_place(path)} must be {expected}, got {actual}{advice and f'; {advice}'}")

    def report_wrong_number(self, path: KeyPath, value: object, expected: str, default_advice: str = "") -> None:
        """Report a value that is not the number `expected`, with the digits to write where it is a number as text."""
        self.report_wrong(path, value, expected, suggest_number(value) or default_advice)

    def read_mapping(
        self, path: KeyPath, value: object, expected: str = "a mapping", advice: str = ""
    ) -> dict[str, Any] | None:
        """Read a mapping; None, and a problem, for anything else."""
        if isinstance(value, dict):
            return value
        if isinstance(value, Mapping):
            return dict(value)
        self.report_wrong(path, value, expected, advice)
        return None

    def read_list(self, path: KeyPath, value: object, expected: str, advice: str = "") -> list[Any]:
        """Read a list of one item or more; an empty one, and a problem, for anything else."""
        if isinstance(value, list) and value:
            return value
        self.report_wrong(path, value, expected, advice)
        return []

    def read_boolean(self, path: KeyPath, value: object) -> bool | None:
        """Read true or false; texts such as `yes` are none."""
        if isinstance(value, bool):
            return value
        self.report_wrong(path, value, "true or false", suggest_boolean(value))
        return None

    def read_number(
        self,
        path: KeyPath,
        value: object,
        *,
        is_whole: bool = False,
        minimum: float | None = None,
        above: float | None = None,
        maximum: float | None = None,
        advice: str = "",
    ) -> float | None:
        """Read a finite number: from `minimum` or greater than `above`, up to `maximum`; `is_whole`: an int."""
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value - value == 0:
            is_small = (minimum is not None and value < minimum) or (above is not None and value <= above)
            is_large = maximum is not None and value > maximum
            if not is_small and not is_large and (not is_whole or value == value // 1):
                return int(value) if is_whole else value
        bounds = "" if minimum is None else f" from {minimum}"
        bounds += "" if above is None else f" above {above}"
        bounds += "" if maximum is None else f" to {maximum}"
        self.report_wrong_number(path, value, f"a {'whole ' if is_whole else ''}number{bounds}", advice)
        return None

    def read_count(self, path: KeyPath, value: object, minimum: int | None = 1) -> int | None:
        """Read a whole number from `minimum` on."""
        number = self.read_number(path, value, is_whole=True, minimum=minimum)
        return None if number is None else int(number)

    def read_choice(self, path: KeyPath, value: object, choices: tuple[str, ...]) -> str | None:
        """Read one of a few names."""
        if isinstance(value, str) and value in choices:
            return value
        listed = " or ".join(filter(None, (", ".join(f"'{choice}'" for choice in choices[:-1]), f"'{choices[-1]}'")))
        hint = did_you_mean(value, choices)
        self.add_problem(path, f"{self.format_place(path)} must be {listed}, got {format_value(value)}{hint}")
        return None

    def read_text(self, path: KeyPath, value: object, expected: str = "text", *, empty: bool = True) -> str | None:
        """Read any text; `empty` allows "" and null, which means that there is none."""
        if isinstance(value, str) and (empty or value.strip()):
            return value
        if value is not None or not empty:
            self.report_wrong(path, value, expected, explain_quoting(value))
        return None

    def read_name(self, path: KeyPath, value: object, expected: str = "a name") -> str | None:
        """Read text that is not blank."""
        if isinstance(value, str) and value.strip():
            return value
        self.report_wrong(path, value, expected, "quote it" if isinstance(value, (int, float)) else "")
        return None

    def read_names(self, path: KeyPath, value: object) -> tuple[str, ...] | None:
        """Read one name, or a list of names; each counts once."""
        if isinstance(value, str):
            value = [value]
        items = self.read_list(path, value, "a name or a list of names")
        names = [self.read_name((*path, index), item) for index, item in enumerate(items)]
        valid_names = [name for name in names if name is not None]
        return tuple(dict.fromkeys(valid_names)) if names and len(valid_names) == len(names) else None


def describe_unknown_key(key: object, place: str = "", known_keys: Iterable[str] = (), *, hint: str = "") -> str:
    """Word the message on a key that `place` may not hold: with `hint`, by default the nearest of `known_keys`."""
    return f"unknown key '{key}'{place and f' in {place}'}{hint or did_you_mean(key, known_keys)}"


def suggest_key(key: str, known_keys: list[str], synonyms: Mapping[str, str]) -> str:
    """End a message with the key that was probably meant; with all keys where they are few and none is near."""
    synonym = synonyms.get(key.lower())
    if synonym in known_keys:
        return f"; did you mean '{synonym}'?"
    listed = f"; known are: {', '.join(known_keys)}" if len(known_keys) <= _MAX_LISTED else ""
    return did_you_mean(key, known_keys) or listed


def explain_quoting(value: object) -> str:
    """Explain how to write a number or boolean where text is wanted: ``"quote it: '5'"``."""
    literal = str(value).lower() if isinstance(value, bool) else str(value)
    return f"quote it: '{literal}'" if isinstance(value, (bool, int, float)) else ""


# In case files `no` and `1e5` are texts.
_BOOLEANS = {
    **dict.fromkeys(("true", "yes", "on", "y"), True),
    **dict.fromkeys(("false", "no", "off", "n"), False),
}
# As text: few cases need one of them, and `re` keeps what it has compiled.
_JSON_NUMBER = r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?"
_WHOLE = ((16, r"0x[0-9a-f]{1,16}"), (8, r"0o[0-7]{1,20}"), (10, r"\+?[0-9]{1,30}"))
_DECIMAL = r"[-+]?(?:[0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:e[-+]?[0-9]{1,2})?"


def guess_boolean(value: object) -> bool | None:
    """Return the boolean that a text or a number is meant as, None for any other value."""
    if isinstance(value, str):
        return _BOOLEANS.get(value.strip().lower())
    return {0: False, 1: True}.get(value) if type(value) is int else None


def suggest_boolean(value: object) -> str:
    """Explain how to write a boolean that `value` gives in another form: ``"write true"``."""
    guess = guess_boolean(value)
    if guess is None:
        return ""
    word = str(guess).lower()
    is_quoted = isinstance(value, str) and value.strip().lower() == word
    return f"write {word} without quotes" if is_quoted else f"write {word}"


def suggest_number(value: object) -> str:
    """Explain how to write a number that `value` gives as text: ``"write 100000"``."""
    return guess_number(value) or "write it as digits" if isinstance(value, str) else ""


def guess_number(text: str) -> str:
    """Explain how to write the number that a text stands for; "" where it is none."""
    folded = text.strip().lower().replace("_", "")
    if re.fullmatch(_JSON_NUMBER, folded):
        return f"write {folded} without quotes"
    for base, form in _WHOLE:
        if re.fullmatch(form, folded):
            return f"write {int(folded, base)}"
    return f"write {float(folded):.15g}" if re.fullmatch(_DECIMAL, folded) else ""
