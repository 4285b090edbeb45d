"""Reading single values of a case: what is wrong is collected with its path, never raised, and says what to write."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Any

from evalkit.checks.reader import ExpectationReader
from evalkit.errors import KeyPath, did_you_mean, format_path
from evalkit.fields.reader import explain_quoting
from evalkit.model.case import CaseSettings, Repeat
from evalkit.text.format import format_value

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
TAG_PATTERN = r"[^\W_][\w.+-]*"
_NOT_SELECTABLE = frozenset({"and", "or", "not", "True", "False", "None"})
# Marks on which pytest or a widespread plugin acts: a tag of that name would change how the case runs.
TAGS_WITH_EFFECT = {
    "skip": "to skip the case, write 'skip: reason'",
    "skipif": "to skip the case, write 'skip: reason'",
    "xfail": "to expect a failure, write 'xfail: reason'",
    "parametrize": "write one file per case",
    "usefixtures": "cases have no fixtures",
    "filterwarnings": "set filters in pytest's configuration",
    "timeout": "to limit its time, write 'settings: {deadline_s: 30}'",
    "flaky": "to run it several times, write 'repeat: {runs: 5, min_pass: 4}'",
    "forked": "to run cases in processes of their own, use -n",
    "xdist_group": "evalkit spreads cases over workers itself",
}
REFUSED_TAGS = _NOT_SELECTABLE | set(TAGS_WITH_EFFECT)


class CaseReader(ExpectationReader):
    """The readers of `checks`, with the whole case as the root, and what only a case's own keys need."""

    def __init__(self) -> None:
        super().__init__((), {})

    def format_place(self, path: KeyPath) -> str:
        return format_path(path) or "the case"

    def report_unknown_key(self, path: KeyPath, key: object, known_keys: Iterable[str], hint: str = "") -> None:
        """As in `checks`; of a key at the top level the place says enough, and it may be a suite's."""
        if path or not isinstance(key, str):
            super().report_unknown_key(path, key, known_keys, hint)
        else:
            self.add_problem((key,), f"unknown key '{key}'{hint or did_you_mean(key, known_keys)}", at_key=True)


def read_text(reader: CaseReader, path: KeyPath, value: Any) -> str | None:
    return reader.read_text(path, value)


def read_agent(reader: CaseReader, path: KeyPath, value: Any) -> Any:
    """A name, or the mapping of an agent that is a command or lives behind a URL."""
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    from evalkit.spec.agent_keys import read_agent_mapping

    return read_agent_mapping(reader, path, value)


def read_message(reader: CaseReader, path: KeyPath, value: Any) -> str | None:
    """Any text, but not nothing: an empty message is written ''."""
    if value is None:
        reader.report_wrong(path, value, "text", "an empty message is written ''")
    return reader.read_text(path, value)


def read_user(reader: CaseReader, path: KeyPath, value: Any) -> Any:
    """What the user says in one turn: text, or a mapping."""
    if not isinstance(value, (str, dict)):
        reader.report_wrong(path, value, "what the user says: text, or a mapping", explain_quoting(value))
    return value


def read_input(reader: CaseReader, path: KeyPath, value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    advice = "write input: {message: ...}" if isinstance(value, str) else ""
    reader.report_wrong(path, value, "a mapping", advice)
    return None


def read_name(reader: CaseReader, path: KeyPath, value: Any) -> str | None:
    return reader.read_text(path, value, expected="a name", empty=False)


def read_reason(reader: CaseReader, path: KeyPath, value: Any) -> str | None:
    from evalkit.fields.reader import suggest_boolean

    # `skip: no` is a text in YAML 1.2, and would skip the case for the reason "no".
    advice = f"write {value}".lower() if isinstance(value, bool) else suggest_boolean(value)
    if advice and isinstance(value, (bool, str)):
        why = f"write {path[-1]}: why" if "true" in advice else "remove the line"
        reader.report_wrong(path, value, "the reason, as text", why)
        return None
    return reader.read_text(path, value, expected="the reason, as text", empty=False)


def read_boolean(reader: CaseReader, path: KeyPath, value: Any) -> bool | None:
    return reader.read_boolean(path, value)


def read_date(reader: CaseReader, path: KeyPath, value: Any) -> str | None:
    if isinstance(value, str) and re.fullmatch(_DATE, value):
        try:
            return date.fromisoformat(value).isoformat()
        except ValueError:
            pass  # the 30th of February
    reader.report_wrong(path, value, "a date like 2027-01-31")
    return None


def read_anything(reader: CaseReader, path: KeyPath, value: Any) -> Any:
    return value


def read_mapping(reader: CaseReader, path: KeyPath, value: Any) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    reader.report_wrong(path, value, "a mapping")
    return None


def read_tags(reader: CaseReader, path: KeyPath, value: Any) -> tuple[str, ...]:
    """Names for `-m`, each once. One name alone is a list of one."""
    if value is None:
        return ()
    listed = [value] if isinstance(value, (str, bool, int, float)) else value
    if not isinstance(listed, list):
        reader.report_wrong(path, value, "a tag or a list of tags")
        return ()
    read = [_read_tag(reader, (*path, i) if isinstance(value, list) else path, item) for i, item in enumerate(listed)]
    return tuple(dict.fromkeys(tag for tag in read if tag is not None))


def _read_tag(reader: CaseReader, path: KeyPath, value: Any) -> str | None:
    tag = reader.read_text(path, value, expected="a tag", empty=False)
    if tag is None:
        return None
    if tag in TAGS_WITH_EFFECT:
        reader.add_problem(path, f"tag '{tag}' is a pytest mark that has an effect; {TAGS_WITH_EFFECT[tag]}")
        return None
    if tag in _NOT_SELECTABLE or not re.fullmatch(TAG_PATTERN, tag):
        rule = "begins with a letter or digit and goes on with letters, digits, '_', '-', '.' and '+'"
        suggestion = re.sub(r"[^\w.+-]+", "-", tag).strip("-_.+")
        hint = (
            f"; write '{suggestion}'?"
            if suggestion and suggestion != tag and suggestion not in TAGS_WITH_EFFECT
            else ""
        )
        reader.add_problem(path, f"tag {format_value(tag)} can't be selected with -m: a tag {rule}{hint}")
        return None
    return tag


def read_repeat(reader: CaseReader, path: KeyPath, value: Any) -> Repeat | None:
    """`5`: five runs that all pass; `{runs: 5, min_pass: 4}`: at least four."""
    if not isinstance(value, dict):
        runs = read_count(reader, path, value)
        return None if runs is None else Repeat(runs, runs)
    for key in value:
        if key not in ("runs", "min_pass"):
            reader.report_unknown_key(path, key, ("runs", "min_pass"))
    if "runs" not in value:
        reader.add_problem(path, "repeat has no 'runs': how often the case runs")
        return None
    runs = read_count(reader, (*path, "runs"), value["runs"])
    min_pass = read_count(reader, (*path, "min_pass"), value.get("min_pass", runs or 1))
    if runs is None or min_pass is None:
        return None
    if min_pass > runs:
        reader.add_problem((*path, "min_pass"), f"repeat.min_pass is {min_pass}, more than the {runs} runs")
        return None
    return Repeat(runs, min_pass)


def read_whole_number(reader: CaseReader, path: KeyPath, value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        reader.report_wrong_number(path, value, "a whole number")
        return None
    return int(value)


def read_count(reader: CaseReader, path: KeyPath, value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1 or value < 1:
        reader.report_wrong_number(path, value, "a whole number from 1")
        return None
    return int(value)


def read_positive(reader: CaseReader, path: KeyPath, value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        reader.report_wrong_number(path, value, "a number above 0")
        return None
    return value


def read_temperature(reader: CaseReader, path: KeyPath, value: Any) -> float | None:
    """From 0 to 2; null leaves it to the model."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 2:
        reader.report_wrong_number(path, value, "a number from 0 to 2", "null leaves it to the model")
        return None
    return value


def read_email(reader: CaseReader, path: KeyPath, value: Any) -> dict[str, Any] | None:
    """The known headers are text; others are kept as they are and reach the agent."""
    if not isinstance(value, dict):
        advice = "for plain text write input.message" if isinstance(value, str) else ""
        reader.report_wrong(path, value, "a mapping of subject, body, from and received", advice)
        return None
    for key in EMAIL_KEYS:
        if key in value:
            reader.read_text((*path, key), value[key])
    return value


EMAIL_KEYS = {
    "subject": "The subject line.",
    "body": "The text of the mail.",
    "from": "The sender's address.",
    "received": "When it arrived, as text.",
}


def build_settings(values: dict[str, Any]) -> CaseSettings:
    """The settings that a case or its suites give."""
    return CaseSettings(**values, temperature_is_set="temperature" in values)
