"""Reading one expected or forbidden call from the case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from evalkit.checks.call_checks import AbsentCheck, CallCheck, ValuesCheck
from evalkit.checks.expected_call import ExpectedCall
from evalkit.checks.keys import CALL_KEYS, CHANNELS, EXPECTED_KEYS, FORBIDDEN_KEYS, GROUP_KEYS, OUTCOMES
from evalkit.checks.phrases import read_phrases
from evalkit.checks.reading import Path, Reader, known_arguments, meant, written_at
from evalkit.checks.text_check import TextCheck
from evalkit.checks.whole_checks import ChannelCheck, GroundedCheck, OutcomeCheck, ValidCheck
from evalkit.errors import nearest
from evalkit.model.case import Declaration
from evalkit.operators.compile import Mode

_MODES: dict[str, Mode] = {"arguments": "equal", "arguments_contain": "contain", "result_contains": "partial"}
_ANYTHING = {"$one_of": [{"$absent": True}, {"$any": True}]}
_BOOLEANS = frozenset({"yes", "no", "on", "off", "true", "false"})  # texts in YAML 1.2, and meant as something else
_TEXT_ENDS = ("_contains", "_excludes")
# These end like a text key, and are never one unless an argument of that name is declared.
_MISSPELLED = ("arguments_contains", "arguments_excludes", "result_excludes")


class CallReader:
    """Reads the calls of one expectation; `valid_arguments` is the case's own switch.

    Of the arguments `ignored` nothing is demanded where a call does not name them.
    """

    def __init__(self, reader: Reader, *, valid_arguments: bool, ignored: Sequence[str] = ()) -> None:
        self.reader = reader
        self.valid_arguments = valid_arguments
        self._ignored = dict.fromkeys(ignored, _ANYTHING)

    def expected(self, path: Path, item: Any, id: int) -> ExpectedCall | None:
        """An expected call: a mapping with `function_name`, or a bare name."""
        written = self._written(path, item, CALL_KEYS)
        if written is None:
            return None
        name = self.reader.function(
            path if isinstance(item, str) else (*path, "function_name"), written["function_name"]
        )
        checks = self._checks(path, written, name)
        least, most = self._times(path, written)
        optional = bool(self._boolean(path, written, "optional"))
        if len(written) > 2:  # its name, and more than one demand
            from evalkit.checks.contradictions import within_call

            within_call(self.reader, path, written)
        per_call = False
        for key, value in written.items():
            per_call = self.reader.references((*path, key), value, in_call=True) or per_call
        if name is None:
            return None
        return ExpectedCall(
            id,
            path,
            written_at(path),
            name,
            tuple(checks),
            _implied(path, "outcome" not in written, self.valid_arguments and "valid" not in written),
            min=least,
            max=most,
            optional=optional,
            counted="times" in written,
            per_call=per_call,
            has_templates=any(check.has_templates for check in checks),
        )

    def forbidden(self, path: Path, item: Any) -> ExpectedCall | None:
        """A forbidden call: what it takes to be one of them. Whether it succeeded does not matter."""
        written = self._written(path, item, FORBIDDEN_KEYS)
        if written is None:
            return None
        name = self.reader.function(
            path if isinstance(item, str) else (*path, "function_name"), written["function_name"]
        )
        checks = self._checks(path, written, name)
        if name is None:
            return None
        for key, value in written.items():
            self.reader.references((*path, key), value)
        has_templates = any(check.has_templates for check in checks)
        return ExpectedCall(0, path, written_at(path), name, tuple(checks), has_templates=has_templates)

    def _written(self, path: Path, item: Any, known: Mapping[str, object]) -> dict[str, Any] | None:
        """The mapping that `item` is or stands for, without the keys that it may not have."""
        if isinstance(item, str) and item.strip():
            return {"function_name": item}
        if not isinstance(item, dict):
            self.reader.wrong(path, item, "the name of a function or a mapping with 'function_name'")
            return None
        written: dict[str, Any] = {}
        explained = False
        for key, value in item.items():
            if isinstance(key, str) and (key in known or self._is_text_key(key, item)):
                written[key] = value
            else:
                explained = self._unknown(path, key, item, known) or explained
        if "function_name" not in written and explained:
            return None
        if "function_name" not in written:
            self.reader.problem(
                path, f"{self.reader.shown(path)} has no 'function_name'; write which function is meant"
            )
            return None
        return written

    def _is_text_key(self, key: str, item: Mapping[Any, Any]) -> bool:
        argument = text_argument(key)
        if argument is None or key in CALL_KEYS:
            return False
        return key not in _MISSPELLED or argument in (self._known_arguments(item) or ())

    def _known_arguments(self, item: Mapping[Any, Any]) -> frozenset[str] | None:
        name = item.get("function_name")
        canonical = self.reader.canonical(name) if isinstance(name, str) else None
        return known_arguments(self.reader.declarations.get(canonical or ""))

    def _unknown(self, path: Path, key: object, item: Mapping[Any, Any], known: Mapping[str, object]) -> bool:
        """Report a key. Returns whether what was meant by it explains a missing function_name."""
        hint = "; it belongs in expected_output, beside the list" if key in EXPECTED_KEYS else ""
        text_keys = [f"{name}_{end}" for name in self._known_arguments(item) or () for end in ("contains", "excludes")]
        groups = GROUP_KEYS if known is CALL_KEYS and "function_name" not in item else ()
        names = [*known, *groups, *text_keys]
        self.reader.unknown_key(path, key, names, hint or _text_key_meant(key, names))
        return isinstance(key, str) and any(f"'{name}'" in meant(key, names) for name in ("function_name", *groups))

    def _checks(self, path: Path, written: Mapping[str, Any], name: str | None) -> list[CallCheck]:
        checks: list[CallCheck | None] = []
        judges_arguments = self.valid_arguments and written.get("valid") is not False
        for key, value in written.items():
            if key == "function_name":
                continue
            at = (*path, key)
            argument = text_argument(key) if key not in CALL_KEYS else None
            if argument is not None:
                if judges_arguments:
                    self.reader.argument(at, name, argument, at_key=True)
                checks.append(self._text(at, argument, value))
            elif key in _MODES:
                checks.append(self._values(at, key, value, name if judges_arguments else None))
            elif key in _READERS:
                checks.append(_READERS[key](self, at, value, name))
        return [check for check in checks if check is not None]

    def _text(self, path: Path, argument: str, value: Any) -> TextCheck | None:
        if isinstance(value, dict):
            self.reader.wrong(path, value, "a phrase or a list of phrases", "did you mean 'arguments_contain'?")
            return None
        phrases = read_phrases(self.reader, path, value)
        return TextCheck(argument, phrases, str(path[-1]).endswith("_excludes"), path) if phrases else None

    def _values(self, path: Path, key: str, value: Any, name: str | None) -> ValuesCheck | None:
        if key != "result_contains":
            value = self.reader.mapping(path, value)
            if value is None:
                return None
        names = tuple(value) if isinstance(value, dict) and not is_operator(value) else ()
        if key != "result_contains":
            for argument in names:
                self.reader.argument((*path, argument), name, argument, at_key=True)
        wanted = value
        if self._ignored and key == "arguments" and not is_operator(value):
            wanted = {**self._ignored, **value}
        matcher = self.reader.matcher(path, wanted, _MODES[key])
        return ValuesCheck(key, matcher, path, names, value) if matcher else None

    def _absent(self, path: Path, value: Any, name: str | None) -> AbsentCheck | None:
        names = self.reader.names(path, value)
        for argument in names or ():
            self.reader.argument(path, name, argument)
        return AbsentCheck(names, path) if names else None

    def _outcome(self, path: Path, value: Any, name: str | None) -> OutcomeCheck | None:
        outcome = self.reader.choice(path, value, OUTCOMES)
        return OutcomeCheck(outcome, path) if outcome in ("ok", "error") else None

    def _valid(self, path: Path, value: Any, name: str | None) -> ValidCheck | None:
        valid = self.reader.boolean(path, value)
        return None if valid is None else ValidCheck(valid, path)

    def _channel(self, path: Path, value: Any, name: str | None) -> ChannelCheck | None:
        values = value if isinstance(value, list) and value else [value]
        channels = [self.reader.choice(path, item, CHANNELS) for item in values]
        found = tuple(channel for channel in channels if channel is not None)
        return ChannelCheck(found, path) if len(found) == len(values) else None

    def _grounded(self, path: Path, value: Any, name: str | None) -> GroundedCheck | None:
        names = read_grounded(self.reader, path, value)
        for argument in names or ():
            self.reader.argument(path, name, argument)
        return None if names is None else GroundedCheck(names, path, offered(self.reader.declarations.get(name or "")))

    def _boolean(self, path: Path, written: Mapping[str, Any], key: str) -> bool | None:
        return self.reader.boolean((*path, key), written[key]) if key in written else None

    def _times(self, path: Path, written: Mapping[str, Any]) -> tuple[int, int | None]:
        if "times" not in written:
            return 1, 1
        from evalkit.checks.times import read_times

        return read_times(self.reader, (*path, "times"), written["times"])


_READERS: dict[str, Callable[[CallReader, Path, Any, str | None], CallCheck | None]] = {
    "arguments_absent": CallReader._absent,
    "outcome": CallReader._outcome,
    "channel": CallReader._channel,
    "valid": CallReader._valid,
    "grounded": CallReader._grounded,
}


@lru_cache(maxsize=256)  # the calls of all cases stand at the same few paths
def _implied(path: Path, succeeds: bool, is_valid: bool) -> tuple[CallCheck, ...]:
    """What goes without saying: the call succeeds, and its arguments are valid."""
    outcome: tuple[CallCheck, ...] = (OutcomeCheck("ok", path),) if succeeds else ()
    return (*outcome, ValidCheck(True, path, "valid_arguments")) if is_valid else outcome


def text_argument(key: str) -> str | None:
    """The argument that a key like `body_contains` is about; None for other keys."""
    if key.endswith(_TEXT_ENDS) and key not in _TEXT_ENDS:
        return key[: -len("_contains")]  # both ends are as long
    return None


def _text_key_meant(key: object, known: list[str]) -> str:
    """The text key of an argument that nothing declares: `body_contain` is meant to be `body_contains`."""
    if not isinstance(key, str) or meant(key, known):
        return ""
    argument, _, end = key.rpartition("_")
    near = nearest(end, ("contains", "excludes")) if argument else None
    return f"; did you mean '{argument}_{near}'?" if near else ""


def is_operator(value: Mapping[Any, Any]) -> bool:
    """Whether a mapping is an operator, and not data."""
    for key in value:
        if not (isinstance(key, str) and key.startswith("$")):
            return False
    return bool(value)


def read_grounded(reader: Reader, path: Path, value: Any) -> tuple[str, ...] | None:
    """The names of the arguments that must be grounded, () for all of them; None for none."""
    if value is True:
        return ()
    if value is False:
        return None
    if isinstance(value, list) or (isinstance(value, str) and value.lower() not in _BOOLEANS):
        return reader.names(path, value)
    from evalkit.operators.advice import boolean_advice

    listed = f" (an argument of that name: [{value}])" if isinstance(value, str) else ""
    reader.wrong(path, value, "true, or names of arguments", boolean_advice(value) + listed)
    return None


def offered(declaration: Declaration | None) -> tuple[Any, ...]:
    """The values that a declaration itself offers: every `enum`, `const` and `default` in its parameters."""
    found: list[Any] = []
    pending: list[Any] = [declaration.parameters] if declaration else []
    while pending:
        schema = pending.pop()
        if isinstance(schema, Mapping):
            found += schema["enum"] if isinstance(schema.get("enum"), list) else []
            found += [schema[word] for word in ("const", "default") if word in schema]
            pending += schema.values()
        elif isinstance(schema, list):
            pending += schema
    return tuple(found)
