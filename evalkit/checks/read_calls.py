"""Reading one expected or forbidden call from the case."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from evalkit.checks.call_checks import (
    AbsentCheck,
    CallCheck,
    ChannelCheck,
    GroundedCheck,
    OutcomeCheck,
    TextCheck,
    ValidCheck,
    ValuesCheck,
)
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.keys import CALL_KEYS, CHANNELS, EXPECTED_KEYS, FORBIDDEN_KEYS, GROUP_KEYS, OUTCOMES
from evalkit.checks.matching.plan import (
    MAX_CHILDREN,
    AnyOrder,
    CallPlan,
    InOrder,
    InParallel,
    Leaf,
    Node,
    OneOf,
    Position,
)
from evalkit.checks.phrases import read_phrases
from evalkit.checks.reader import ExpectationReader, find_declared_arguments, format_place_cached, suggest
from evalkit.errors import KeyPath, find_nearest
from evalkit.model.case import Declaration
from evalkit.operators.compile import Mode

_MATCHING_MODES: dict[str, Mode] = {"arguments": "equal", "arguments_contain": "contain", "result_contains": "partial"}
_ANYTHING = {"$one_of": [{"$absent": True}, {"$any": True}]}
_BOOLEANS = frozenset({"yes", "no", "on", "off", "true", "false"})  # texts in YAML 1.2, and meant as something else
_TEXT_ENDS = ("_contains", "_excludes")
# These end like a text key, and are never one unless an argument of that name is declared.
_MISSPELLED = ("arguments_contains", "arguments_excludes", "result_excludes")


class CallReader:
    """Reads the calls of one expectation; `valid_arguments` is the case's own switch.

    Of the arguments `ignored` nothing is demanded where a call does not name them.
    """

    def __init__(self, reader: ExpectationReader, *, valid_arguments: bool, ignored: Sequence[str] = ()) -> None:
        self.reader = reader
        self.valid_arguments = valid_arguments
        self._ignored = dict.fromkeys(ignored, _ANYTHING)

    def read_expected(self, path: KeyPath, item: Any, id: int) -> ExpectedCall | None:
        """An expected call: a mapping with `function_name`, or a bare name."""
        keys = self._read_keys(path, item, CALL_KEYS)
        if keys is None:
            return None
        name = self.reader.read_function(
            path if isinstance(item, str) else (*path, "function_name"), keys["function_name"]
        )
        checks = self._read_checks(path, keys, name)
        minimum, maximum = self._read_times(path, keys)
        optional = bool(self._read_boolean(path, keys, "optional"))
        if len(keys) > 2:  # its name, and more than one demand
            from evalkit.checks.contradictions import check_within_call

            check_within_call(self.reader, path, keys)
        per_call = False
        for key, value in keys.items():
            per_call = self.reader.check_references((*path, key), value, in_call=True) or per_call
        if name is None:
            return None
        return ExpectedCall(
            id,
            path,
            format_place_cached(path),
            name,
            tuple(checks),
            _build_implied(path, "outcome" not in keys, self.valid_arguments and "valid" not in keys),
            min=minimum,
            max=maximum,
            optional=optional,
            has_times="times" in keys,
            per_call=per_call,
            has_templates=any(check.has_templates for check in checks),
        )

    def forbidden(self, path: KeyPath, item: Any) -> ExpectedCall | None:
        """A forbidden call: what it takes to be one of them. Whether it succeeded does not matter."""
        keys = self._read_keys(path, item, FORBIDDEN_KEYS)
        if keys is None:
            return None
        name = self.reader.read_function(
            path if isinstance(item, str) else (*path, "function_name"), keys["function_name"]
        )
        checks = self._read_checks(path, keys, name)
        if name is None:
            return None
        for key, value in keys.items():
            self.reader.check_references((*path, key), value)
        has_templates = any(check.has_templates for check in checks)
        return ExpectedCall(0, path, format_place_cached(path), name, tuple(checks), has_templates=has_templates)

    def _read_keys(self, path: KeyPath, item: Any, known_keys: Mapping[str, object]) -> dict[str, Any] | None:
        """The mapping that `item` is or stands for, without the keys that it may not have."""
        if isinstance(item, str) and item.strip():
            return {"function_name": item}
        if not isinstance(item, dict):
            self.reader.report_wrong(path, item, "the name of a function or a mapping with 'function_name'")
            return None
        keys: dict[str, Any] = {}
        is_explained = False
        for key, value in item.items():
            if isinstance(key, str) and (key in known_keys or self._is_text_key(key, item)):
                keys[key] = value
            else:
                is_explained = self._report_unknown_key(path, key, item, known_keys) or is_explained
        if "function_name" not in keys and is_explained:
            return None
        if "function_name" not in keys:
            self.reader.add_problem(
                path, f"{self.reader.format_place(path)} has no 'function_name'; write which function is meant"
            )
            return None
        return keys

    def _is_text_key(self, key: str, item: Mapping[Any, Any]) -> bool:
        argument = find_text_argument(key)
        if argument is None or key in CALL_KEYS:
            return False
        return key not in _MISSPELLED or argument in (self._find_declared_arguments(item) or ())

    def _find_declared_arguments(self, item: Mapping[Any, Any]) -> frozenset[str] | None:
        name = item.get("function_name")
        canonical = self.reader.find_canonical(name) if isinstance(name, str) else None
        return find_declared_arguments(self.reader.declarations.get(canonical or ""))

    def _report_unknown_key(
        self, path: KeyPath, key: object, item: Mapping[Any, Any], known_keys: Mapping[str, object]
    ) -> bool:
        """Report a key. Returns whether what was meant by it explains a missing function_name."""
        hint = "; it belongs in expected_output, beside the list" if key in EXPECTED_KEYS else ""
        text_keys = [
            f"{name}_{end}" for name in self._find_declared_arguments(item) or () for end in ("contains", "excludes")
        ]
        groups = GROUP_KEYS if known_keys is CALL_KEYS and "function_name" not in item else ()
        names = [*known_keys, *groups, *text_keys]
        self.reader.report_unknown_key(path, key, names, hint or _suggest_text_key(key, names))
        return isinstance(key, str) and any(f"'{name}'" in suggest(key, names) for name in ("function_name", *groups))

    def _read_checks(self, path: KeyPath, keys: Mapping[str, Any], name: str | None) -> list[CallCheck]:
        checks: list[CallCheck | None] = []
        judges_arguments = self.valid_arguments and keys.get("valid") is not False
        for key, value in keys.items():
            if key == "function_name":
                continue
            at = (*path, key)
            argument = find_text_argument(key) if key not in CALL_KEYS else None
            if argument is not None:
                if judges_arguments:
                    self.reader.check_argument(at, name, argument, at_key=True)
                checks.append(self._read_text(at, argument, value))
            elif key in _MATCHING_MODES:
                checks.append(self._read_values(at, key, value, name if judges_arguments else None))
            elif key in _READERS:
                checks.append(_READERS[key](self, at, value, name))
        return [check for check in checks if check is not None]

    def _read_text(self, path: KeyPath, argument: str, value: Any) -> TextCheck | None:
        if isinstance(value, dict):
            self.reader.report_wrong(path, value, "a phrase or a list of phrases", "did you mean 'arguments_contain'?")
            return None
        phrases = read_phrases(self.reader, path, value)
        return TextCheck(argument, phrases, str(path[-1]).endswith("_excludes"), path) if phrases else None

    def _read_values(self, path: KeyPath, key: str, value: Any, name: str | None) -> ValuesCheck | None:
        if key != "result_contains":
            value = self.reader.read_arguments(path, value)
            if value is None:
                return None
        names = tuple(value) if isinstance(value, dict) and not is_operator(value) else ()
        if key != "result_contains":
            for argument in names:
                self.reader.check_argument((*path, argument), name, argument, at_key=True)
        expected = value
        if self._ignored and key == "arguments" and not is_operator(value):
            expected = {**self._ignored, **value}
        matcher = self.reader.read_matcher(path, expected, _MATCHING_MODES[key])
        return ValuesCheck(key, matcher, path, names, value) if matcher else None

    def _read_absent(self, path: KeyPath, value: Any, name: str | None) -> AbsentCheck | None:
        names = self.reader.read_names(path, value)
        for argument in names or ():
            self.reader.check_argument(path, name, argument)
        return AbsentCheck(names, path) if names else None

    def _read_outcome(self, path: KeyPath, value: Any, name: str | None) -> OutcomeCheck | None:
        outcome = self.reader.read_choice(path, value, OUTCOMES)
        return OutcomeCheck(outcome, path) if outcome in ("ok", "error") else None

    def _read_valid(self, path: KeyPath, value: Any, name: str | None) -> ValidCheck | None:
        valid = self.reader.read_boolean(path, value)
        return None if valid is None else ValidCheck(valid, path)

    def _read_channel(self, path: KeyPath, value: Any, name: str | None) -> ChannelCheck | None:
        values = value if isinstance(value, list) and value else [value]
        channels = [self.reader.read_choice(path, item, CHANNELS) for item in values]
        valid_channels = tuple(channel for channel in channels if channel is not None)
        return ChannelCheck(valid_channels, path) if len(valid_channels) == len(values) else None

    def _read_grounded(self, path: KeyPath, value: Any, name: str | None) -> GroundedCheck | None:
        names = read_grounded(self.reader, path, value)
        for argument in names or ():
            self.reader.check_argument(path, name, argument)
        return (
            None
            if names is None
            else GroundedCheck(names, path, list_declared_values(self.reader.declarations.get(name or "")))
        )

    def _read_boolean(self, path: KeyPath, keys: Mapping[str, Any], key: str) -> bool | None:
        return self.reader.read_boolean((*path, key), keys[key]) if key in keys else None

    def _read_times(self, path: KeyPath, keys: Mapping[str, Any]) -> tuple[int, int | None]:
        if "times" not in keys:
            return 1, 1

        return read_times(self.reader, (*path, "times"), keys["times"])


_READERS: dict[str, Callable[[CallReader, KeyPath, Any, str | None], CallCheck | None]] = {
    "arguments_absent": CallReader._read_absent,
    "outcome": CallReader._read_outcome,
    "channel": CallReader._read_channel,
    "valid": CallReader._read_valid,
    "grounded": CallReader._read_grounded,
}


@lru_cache(maxsize=256)  # the calls of all cases stand at the same few paths
def _build_implied(path: KeyPath, succeeds: bool, is_valid: bool) -> tuple[CallCheck, ...]:
    """What goes without saying: the call succeeds, and its arguments are valid."""
    outcome: tuple[CallCheck, ...] = (OutcomeCheck("ok", path),) if succeeds else ()
    return (*outcome, ValidCheck(True, path, "valid_arguments")) if is_valid else outcome


def find_text_argument(key: str) -> str | None:
    """The argument that a key like `body_contains` is about; None for other keys."""
    if key.endswith(_TEXT_ENDS) and key not in _TEXT_ENDS:
        return key[: -len("_contains")]  # both ends are as long
    return None


def _suggest_text_key(key: object, names: list[str]) -> str:
    """The text key of an argument that nothing declares: `body_contain` is meant to be `body_contains`."""
    if not isinstance(key, str) or suggest(key, names):
        return ""
    argument, _, end = key.rpartition("_")
    ending = find_nearest(end, ("contains", "excludes")) if argument else None
    return f"; did you mean '{argument}_{ending}'?" if ending else ""


def is_operator(value: Mapping[Any, Any]) -> bool:
    """Whether a mapping is an operator, and not data."""
    for key in value:
        if not (isinstance(key, str) and key.startswith("$")):
            return False
    return bool(value)


def read_grounded(reader: ExpectationReader, path: KeyPath, value: Any) -> tuple[str, ...] | None:
    """The names of the arguments that must be grounded, () for all of them; None for none."""
    if value is True:
        return ()
    if value is False:
        return None
    if isinstance(value, list) or (isinstance(value, str) and value.lower() not in _BOOLEANS):
        return reader.read_names(path, value)
    from evalkit.fields.reader import suggest_boolean

    listed = f" (an argument of that name: [{value}])" if isinstance(value, str) else ""
    reader.report_wrong(path, value, "true, or names of arguments", suggest_boolean(value) + listed)
    return None


def list_declared_values(declaration: Declaration | None) -> tuple[Any, ...]:
    """The values that a declaration itself offers: every `enum`, `const` and `default` in its parameters."""
    values: list[Any] = []
    pending: list[Any] = [declaration.parameters] if declaration else []
    while pending:
        schema = pending.pop()
        if isinstance(schema, Mapping):
            values += schema["enum"] if isinstance(schema.get("enum"), list) else []
            values += [schema[word] for word in ("const", "default") if word in schema]
            pending += schema.values()
        elif isinstance(schema, list):
            pending += schema
    return tuple(values)


# `times`: how often an expected call is made.

_TIMES_KEYS = ("min", "max")
_NEVER = "demands that the call is never made; list it under forbidden_function_calls instead"


def read_times(reader: ExpectationReader, path: KeyPath, value: Any) -> tuple[int, int | None]:
    """Least and greatest number of calls. `{max: 3}` is one to three, `{min: 2}` two or more."""
    if isinstance(value, dict):
        return _read_range(reader, path, value)
    if _is_zero(value):
        reader.add_problem(path, f"{reader.format_place(path)}: 0 {_NEVER}")
        return 1, 1
    count = _read_count(reader, path, value, 1) or 1
    return count, count


def _read_range(reader: ExpectationReader, path: KeyPath, value: dict[Any, Any]) -> tuple[int, int | None]:
    for key in value:
        if key not in _TIMES_KEYS:
            reader.report_unknown_key(path, key, _TIMES_KEYS)
    if not value:
        reader.report_wrong(path, value, "a number, or a mapping with 'min' and 'max'")
    minimum = _read_count(reader, (*path, "min"), value["min"], 0) if "min" in value else 1
    if _is_zero(value.get("max")):
        reader.add_problem(path, f"{reader.format_place(path)}: max 0 {_NEVER}")
        return 0, None
    maximum = _read_count(reader, (*path, "max"), value["max"], 1) if "max" in value else None
    if minimum is not None and maximum is not None and minimum > maximum:
        reader.add_problem(path, f"{reader.format_place(path)}: min {minimum} is greater than max {maximum}")
    return minimum or 0, maximum


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)


def _read_count(reader: ExpectationReader, path: KeyPath, value: Any, minimum: int) -> int | None:
    count = reader.read_number(path, value, is_whole=True, minimum=minimum)
    return None if count is None else int(count)


# Reading `expected_function_calls`: the list and its groups, as a plan for the matching and as expected calls.

MAX_LEVELS = 2  # of groups inside the list
_NO_CALLS = InOrder(())


class SequenceReader(Struct):
    """Gathers the expected calls of one list, in the order in which they are written."""

    reader: ExpectationReader
    calls: CallReader
    leaves: list[ExpectedCall] = field(default_factory=list)
    groups: dict[Position, KeyPath] = field(default_factory=dict)  # where the groups of the plan stand in the case

    def read_plan(self, path: KeyPath, value: Any, *, in_order: bool, extras: bool) -> CallPlan | None:
        """The plan of the whole list; None where it is no list."""
        if not isinstance(value, list):
            advice = "write a list of calls, or [] for no call at all"
            self.reader.report_wrong(path, value, "a list of calls", advice)
            return None
        nodes = self._read_nodes(path, value, (), 0)
        return CallPlan(InOrder(nodes) if in_order else AnyOrder(nodes), "allow" if extras else "forbid")

    def _read_nodes(self, path: KeyPath, items: list[Any], position: Position, level: int) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for index, item in enumerate(items):
            node = self._read_node((*path, index), item, (*position, len(nodes)), level)
            if node is not None:
                nodes.append(node)
        return tuple(nodes)

    def _read_node(self, path: KeyPath, item: Any, position: Position, level: int) -> Node | None:
        if isinstance(item, list):
            advice = "write in_order, any_order or one_of before it"
            self.reader.add_problem(
                path, f"{self.reader.format_place(path)} is a list where a call is expected; {advice}"
            )
            return None
        keys = [key for key in item if key in GROUP_KEYS] if isinstance(item, dict) else []
        if not keys:
            return self._read_leaf(path, item)
        if len(item) > 1:
            other_keys = ", ".join(f"'{key}'" for key in item if key != keys[0])
            message = (
                f"{self.reader.format_place(path)} is a group ('{keys[0]}'), and can't have {other_keys} beside it"
            )
            self.reader.add_problem(path, message)
            return None
        if level == MAX_LEVELS:
            message = (
                f"{self.reader.format_place(path)} nests groups more than {MAX_LEVELS} levels deep; split the case"
            )
            self.reader.add_problem(path, message)
            return None
        return self._read_group((*path, keys[0]), keys[0], item[keys[0]], position, level + 1)

    def _read_group(self, path: KeyPath, key: str, items: Any, position: Position, level: int) -> Node | None:
        if not isinstance(items, list) or not items:
            description = "a list of calls or of lists of calls" if key == "one_of" else "a list of calls"
            self.reader.report_wrong(path, items, description)
            return None
        if not any(items):
            self.reader.add_problem(
                path, f"{self.reader.format_place(path)} has only empty alternatives, which demand nothing; list a call"
            )
            return None
        if key == "any_order" and len(items) > MAX_CHILDREN:
            self.reader.add_problem(
                path,
                f"{self.reader.format_place(path)} has {len(items)} children, at most {MAX_CHILDREN} can be solved exactly",  # noqa: E501
            )
            return None
        self.groups[position] = path
        if key == "one_of":
            return OneOf(
                tuple(self._read_alternative((*path, i), item, (*position, i), level) for i, item in enumerate(items))
            )
        nodes = self._read_nodes(path, items, position, level)
        if key == "in_order":
            return InOrder(nodes)
        return AnyOrder(nodes) if key == "any_order" else InParallel(nodes)

    def _read_alternative(self, path: KeyPath, item: Any, position: Position, level: int) -> Node:
        if isinstance(item, list):
            return InOrder(self._read_nodes(path, item, position, level))
        return self._read_node(path, item, position, level) or _NO_CALLS

    def _read_leaf(self, path: KeyPath, item: Any) -> Node | None:
        call = self.calls.read_expected(path, item, len(self.leaves))
        if call is None:
            return None
        self.leaves.append(call)
        if not call.optional:
            return _make_leaf(call.id, call.function_name, call.min, call.max)
        if call.min < 2:
            return _make_leaf(call.id, call.function_name, 0, call.max)
        return OneOf((_make_leaf(call.id, call.function_name, call.min, call.max), _NO_CALLS))


_make_leaf = lru_cache(maxsize=256, typed=True)(Leaf)  # the cases of a project name the same few functions
