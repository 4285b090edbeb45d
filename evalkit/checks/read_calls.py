"""Reading expected calls, forbidden ones, and those that rules speak of: one call, the list with its groups, and
demands that exclude each other. One reader for every place at which a call may stand: so the module is long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from evalkit.checks.call_checks import (
    TEXT_ONLY,
    AbsentCheck,
    CallCheck,
    GroundedCheck,
    LatencyCheck,
    OutcomeCheck,
    TextCheck,
    ValidCheck,
    ValuesCheck,
)
from evalkit.checks.call_origin import AgentCheck, AnswererCheck, ApprovalCheck, ChannelCheck, MessageCheck
from evalkit.checks.calls import ForbiddenCalls
from evalkit.checks.contradictions import check_within_call
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.keys import (
    APPROVAL_CHOICES,
    APPROVAL_KEYS,
    CHANNELS,
    GROUP_KEYS,
    OUTCOMES,
    TEXT_ENDS,
    find_text_argument,
    list_call_keys,
    list_expected_keys,
    list_forbidden_keys,
    list_meant_keys,
)
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
from evalkit.checks.reader import (
    ExpectationReader,
    check_references,
    find_declared_arguments,
    find_declared_kinds,
    list_declared_values,
    read_phrases,
    suggest,
)
from evalkit.errors import KeyPath, find_nearest, format_path
from evalkit.fields.reader import suggest_boolean
from evalkit.jsonvalue import KINDS, NULL
from evalkit.model.template import is_operator
from evalkit.model.transcript import ANSWERERS, DENIED, NOBODY, SERVICE
from evalkit.operators.compile import Mode
from evalkit.text.format import format_value

_NO_JUDGE_OF_USERS = "what the user said is decided without a model; write a phrase, a pattern or another operator"
_MATCHING_MODES: dict[str, Mode] = {"arguments": "equal", "arguments_contain": "contain", "result_contains": "partial"}
_ANYTHING = {"$one_of": [{"$absent": True}, {"$any": True}]}
_BOOLEANS = frozenset({"yes", "no", "on", "off", "true", "false"})  # texts in YAML 1.2, and meant as something else
# These end like a text key, and are never one unless an argument of that name is declared.
_MISSPELLED = ("arguments_contains", "arguments_excludes", "result_excludes")
_TIMES_KEYS = ("min", "max")
_NEVER = "demands that the call is never made; list it under forbidden_function_calls instead"
_MAX_LEVELS = 2  # of groups inside the list
_NO_CALLS = InOrder(())

_ASKED_JUDGE = "for what a person is asked is decided without a model; write it in an expected call"
_FORBIDDEN_JUDGE = "what is forbidden is decided without a model; expect a call, or write a criterion under judge"


class CallReader:
    """Reader of the calls of one expectation; `valid_arguments` is the case's own switch.

    Of the arguments `ignored` nothing is demanded where a call does not name them; one with a default may be left out,
    or sent with that value.
    """

    def __init__(self, reader: ExpectationReader, *, valid_arguments: bool, ignored: Sequence[str] = ()) -> None:
        self.reader = reader
        self.valid_arguments = valid_arguments
        self._ignored = dict.fromkeys(ignored, _ANYTHING)

    def read_expected(self, path: KeyPath, item: object, id: int) -> ExpectedCall | None:
        """Read an expected call: a mapping with `function_name`, or a bare name."""
        keys = self._read_keys(path, item, list_call_keys())
        if keys is None:
            return None
        name = self._read_function(path, item, keys)
        checks = self._read_checks(path, keys, name)
        minimum, maximum = read_times(self.reader, (*path, "times"), keys.get("times", 1))
        optional = "optional" in keys and bool(self.reader.read_boolean((*path, "optional"), keys["optional"]))
        if len(keys) > 2:  # its name, and more than one demand
            check_within_call(self.reader, path, keys)
        per_call = False
        for key, value in keys.items():
            per_call = check_references(self.reader, (*path, key), value, in_call=True) or per_call
        if name is None:
            return None
        return ExpectedCall(
            id,
            path,
            format_path(path),
            name,
            tuple(checks),
            self._build_implied_checks(path, keys, checks),
            min=minimum,
            max=maximum,
            optional=optional,
            has_times="times" in keys,
            per_call=per_call,
            has_templates=any(check.has_templates for check in checks),
        )

    def _build_implied_checks(
        self, path: KeyPath, keys: Mapping[str, object], checks: Iterable[CallCheck]
    ) -> tuple[CallCheck, ...]:
        """Build what is demanded without a word: the call succeeds, and its arguments are valid."""
        implied: list[CallCheck] = []
        # What nobody answers, fails, and so does what a person denies.
        fails = any(
            (isinstance(check, AnswererCheck) and NOBODY in check.answered_by)
            or (isinstance(check, ApprovalCheck) and DENIED in check.approval)
            for check in checks
        )
        if "outcome" not in keys and not fails:
            implied.append(OutcomeCheck("ok", path))
        if self.valid_arguments and "valid" not in keys:
            implied.append(ValidCheck(True, path, "valid_arguments"))
        return tuple(implied)

    def read_forbidden(self, path: KeyPath, item: object) -> ExpectedCall | None:
        """Read a forbidden call: the demands that a call must meet to be one. Whether it succeeds does not matter."""
        return self.read_demands(path, item, list_forbidden_keys(), 0, forbids=True, no_judge=_FORBIDDEN_JUDGE)

    def read_meant_call(self, path: KeyPath, item: object, *, counts_attempts: bool) -> ExpectedCall | None:
        """Read the calls that a rule or a condition speaks of; unless `counts_attempts`, those that succeeded."""
        call = self.read_demands(path, item, list_meant_keys(), 0, forbids=True, no_judge=_FORBIDDEN_JUDGE)
        says_outcome = isinstance(item, dict) and "outcome" in item
        if call is None or counts_attempts or says_outcome:
            return call
        return replace(call, implied=(OutcomeCheck("ok", path),))

    def read_asked(self, path: KeyPath, item: object, id: int) -> ExpectedCall | None:
        """Read a call for which a person is to be asked; whether it succeeds then does not matter."""
        return self.read_demands(path, item, APPROVAL_KEYS, id, no_judge=_ASKED_JUDGE)

    def read_demands(
        self,
        path: KeyPath,
        item: object,
        known_keys: Mapping[str, object],
        id: int,
        *,
        no_judge: str,
        forbids: bool = False,
    ) -> ExpectedCall | None:
        """Read a call that may have `known_keys`: the demands that tell which calls are meant.

        `no_judge` says why no value is for a model to grade; `forbids`: a text is one in any form.
        """
        keys = self._read_keys(path, item, known_keys)
        if keys is None:
            return None
        name = self._read_function(path, item, keys)
        checks = self._read_checks(path, keys, name, forbids=forbids, no_judge=no_judge)
        if name is None:
            return None
        for key, value in keys.items():
            check_references(self.reader, (*path, key), value)
        has_templates = any(check.has_templates for check in checks)
        return ExpectedCall(id, path, format_path(path), name, tuple(checks), has_templates=has_templates)

    def _read_function(self, path: KeyPath, item: object, keys: Mapping[str, Any]) -> str | None:
        name_path = path if isinstance(item, str) else (*path, "function_name")
        if keys.get("answered_by") == SERVICE:  # a tool of the model's service, which no case declares
            return self.reader.read_name(name_path, keys["function_name"], "the name of a function")
        return self.reader.read_function(name_path, keys["function_name"])

    def _read_keys(self, path: KeyPath, item: object, known_keys: Mapping[str, object]) -> dict[str, Any] | None:
        """Return the mapping that `item` is or stands for, without the keys that it may not have."""
        if isinstance(item, str) and item.strip():
            return {"function_name": item}
        if not isinstance(item, dict):
            self.reader.report_wrong(path, item, "the name of a function or a mapping with 'function_name'")
            return None
        keys: dict[str, Any] = {}
        is_explained = False
        for key, value in item.items():
            is_known = isinstance(key, str) and key in known_keys
            if not is_known and isinstance(key, str) and key not in list_call_keys():
                argument = find_text_argument(key)
                is_declared = argument in (self._find_declared_arguments(item) or ())
                is_known = argument is not None and (key not in _MISSPELLED or is_declared)
            if is_known:
                keys[key] = value
            else:
                is_explained = self._report_unknown_key(path, key, item, known_keys) or is_explained
        if "function_name" in keys:
            return keys
        if not is_explained:
            misplaced = next((key for key in keys if key in list_expected_keys() and key not in list_call_keys()), None)
            advice = (
                f"'{misplaced}' belongs in expected_output, beside the list"
                if misplaced
                else "write which function is meant"
            )
            self.reader.add_problem(path, f"{self.reader.format_place(path)} has no 'function_name'; {advice}")
        return None

    def _find_declared_arguments(self, item: Mapping[Any, Any]) -> frozenset[str] | None:
        name = item.get("function_name")
        canonical = self.reader.find_canonical(name) if isinstance(name, str) else None
        return find_declared_arguments(self.reader.declarations.get(canonical or ""))

    def _report_unknown_key(
        self, path: KeyPath, key: object, item: Mapping[Any, Any], known_keys: Mapping[str, object]
    ) -> bool:
        """Report a key. Return whether the key that was probably meant explains a missing function_name."""
        arguments = self._find_declared_arguments(item) or ()
        text_keys = [f"{name}{end}" for name in arguments for end in TEXT_ENDS]
        groups = GROUP_KEYS if known_keys is list_call_keys() and "function_name" not in item else ()
        names = [*known_keys, *groups, *text_keys]
        suggestion = suggest(key, names) if isinstance(key, str) else ""
        hint = ""
        is_alone = len(item) == 1 and known_keys is list_call_keys() and isinstance(key, str)
        if key in list_expected_keys():
            hint = "; it belongs in expected_output, beside the list"
        elif is_alone and isinstance(item[key], dict) and not any(f"'{name}'" in suggestion for name in names):
            # The short form of a cassette: {check_warranty: {serial_number: SN1}}.
            message = f"{self.reader.format_place(path)} is a call as a cassette writes it"
            advice = f"write {{function_name: {key}, arguments: {format_value(item[key])}}}"
            self.reader.add_problem((*path, str(key)), f"{message}; {advice}", at_key=True)
            return True
        elif isinstance(key, str) and not suggestion:
            # `body_contain` of an argument that nothing declares is meant to be `body_contains`.
            argument, _, end = key.rpartition("_")
            ending = find_nearest(end, ("contains", "excludes")) if argument else None
            hint = f"; did you mean '{argument}_{ending}'?" if ending else ""
        self.reader.report_unknown_key(path, key, names, hint)
        return any(f"'{name}'" in suggestion for name in ("function_name", *groups))

    def _read_checks(
        self, path: KeyPath, keys: Mapping[str, Any], name: str | None, *, forbids: bool = False, no_judge: str = ""
    ) -> list[CallCheck]:
        checks: list[CallCheck | None] = []
        judges_arguments = self.valid_arguments and keys.get("valid") is not False
        for key, value in keys.items():
            key_path = (*path, key)
            argument = find_text_argument(key) if key not in list_call_keys() else None
            if argument is not None:
                if judges_arguments:
                    self.reader.check_argument(key_path, name, argument, at_key=True)
                if isinstance(value, dict):
                    advice = "did you mean 'arguments_contain'?"
                    self.reader.report_wrong(key_path, value, "a phrase or a list of phrases", advice)
                elif phrases := read_phrases(self.reader, key_path, value):
                    declared = find_declared_kinds(self.reader.declarations.get(name or ""), argument)
                    # A forbidden text is one in any form; and what must not be without a text must not be without any.
                    kinds = KINDS | {""} if forbids else (declared | TEXT_ONLY) - {NULL}
                    checks.append(TextCheck(argument, phrases, key.endswith("_excludes"), key_path, kinds))
            elif key in _MATCHING_MODES:
                checks.append(
                    self._read_values(key_path, key, value, name, check_names=judges_arguments, no_judge=no_judge)
                )
            elif key in _READERS:
                checks.append(_READERS[key](self, key_path, value, name))
        return [check for check in checks if check is not None]

    def _read_values(
        self, path: KeyPath, key: str, value: Any, name: str | None, *, check_names: bool, no_judge: str
    ) -> ValuesCheck | None:
        if key != "result_contains":
            value = self.reader.read_arguments(path, value)
            if value is None:
                return None
        names = tuple(value) if isinstance(value, dict) and not is_operator(value) else ()
        if key != "result_contains" and check_names:
            for argument in names:
                self.reader.check_argument((*path, argument), name, argument, at_key=True)
        expected = value
        if key == "arguments" and not is_operator(value):
            defaults = {argument: {"$default": item} for argument, item in self.reader.find_defaults(name).items()}
            expected = {**defaults, **self._ignored, **value} if defaults or self._ignored else value
        matcher = self.reader.read_matcher(path, expected, _MATCHING_MODES[key], no_judge)
        return ValuesCheck(key, matcher, path, names, value) if matcher else None

    def read_absent(self, path: KeyPath, value: object, name: str | None) -> AbsentCheck | None:
        names = self.reader.read_names(path, value)
        for argument in names or ():
            self.reader.check_argument(path, name, argument)
        return AbsentCheck(names, path) if names else None

    def read_outcome(self, path: KeyPath, value: object, name: str | None) -> OutcomeCheck | None:
        outcome = self.reader.read_choice(path, value, OUTCOMES)
        return OutcomeCheck(outcome, path) if outcome in ("ok", "error") else None

    def read_valid(self, path: KeyPath, value: object, name: str | None) -> ValidCheck | None:
        valid = self.reader.read_boolean(path, value)
        return None if valid is None else ValidCheck(valid, path)

    def read_channel(self, path: KeyPath, value: object, name: str | None) -> ChannelCheck | None:
        channels = self._read_choices(path, value, CHANNELS)
        return ChannelCheck(channels, path) if channels else None

    def read_answerer(self, path: KeyPath, value: object, name: str | None) -> AnswererCheck | None:
        answerers = self._read_choices(path, value, ANSWERERS)
        return AnswererCheck(answerers, path) if answerers else None

    def read_approval(self, path: KeyPath, value: object, name: str | None) -> ApprovalCheck | None:
        answers = self._read_choices(path, value, APPROVAL_CHOICES)
        return ApprovalCheck(answers, path) if answers else None

    def read_agents(self, path: KeyPath, value: object, name: str | None) -> AgentCheck | None:
        agents = self.reader.read_names(path, value)
        return AgentCheck(agents, path) if agents else None

    def read_message(self, path: KeyPath, value: object, name: str | None) -> MessageCheck | None:
        if not isinstance(value, (str, dict)) or not value:
            self.reader.report_wrong(path, value, "a text of the user's message, or an operator")
            return None
        matcher = self.reader.read_matcher(path, value, "contain", _NO_JUDGE_OF_USERS)
        return None if matcher is None else MessageCheck(matcher, path)

    def read_latency(self, path: KeyPath, value: object, name: str | None) -> LatencyCheck | None:
        limit = self.reader.read_number(path, value, minimum=0)
        return None if limit is None else LatencyCheck(limit, path)

    def _read_choices(self, path: KeyPath, value: object, choices: tuple[str, ...]) -> tuple[str, ...]:
        """Read one of `choices` or a list of them; () if a value is none of them."""
        values = value if isinstance(value, list) and value else [value]
        chosen = [self.reader.read_choice(path, item, choices) for item in values]
        return tuple(choice for choice in chosen if choice is not None) if None not in chosen else ()

    def read_grounded(self, path: KeyPath, value: object, name: str | None) -> GroundedCheck | None:
        names = read_grounded(self.reader, path, value)
        if names is None:
            return None
        for argument in names:
            self.reader.check_argument(path, name, argument)
        return GroundedCheck(names, path, list_declared_values(self.reader.declarations.get(name or "")))


_READERS: dict[str, Callable[[CallReader, KeyPath, Any, str | None], CallCheck | None]] = {
    "arguments_absent": CallReader.read_absent,
    "outcome": CallReader.read_outcome,
    "channel": CallReader.read_channel,
    "answered_by": CallReader.read_answerer,
    "by": CallReader.read_agents,
    "in_reply_to": CallReader.read_message,
    "approval": CallReader.read_approval,
    "max_latency_ms": CallReader.read_latency,
    "valid": CallReader.read_valid,
    "grounded": CallReader.read_grounded,
}


def read_grounded(reader: ExpectationReader, path: KeyPath, value: object) -> tuple[str, ...] | None:
    """Read the names of the arguments that must be grounded, () for all of them; None for none."""
    if value is True:
        return ()
    if value is False:
        return None
    if isinstance(value, list) or (isinstance(value, str) and value.lower() not in _BOOLEANS):
        return reader.read_names(path, value)
    listed = f" (an argument of that name: [{value}])" if isinstance(value, str) else ""
    reader.report_wrong(path, value, "true, or names of arguments", suggest_boolean(value) + listed)
    return None


def read_times(reader: ExpectationReader, path: KeyPath, value: object) -> tuple[int, int | None]:
    """Read the least and greatest number of calls. `{max: 3}` is one to three, `{min: 2}` two or more."""
    if not isinstance(value, dict):
        if _is_zero(value):
            reader.add_problem(path, f"{reader.format_place(path)}: 0 {_NEVER}")
            return 1, 1
        count = reader.read_count(path, value) or 1
        return count, count
    reader.check_keys(path, value, _TIMES_KEYS)
    if not value:
        reader.report_wrong(path, value, "a number, or a mapping with 'min' and 'max'")
    minimum = reader.read_count((*path, "min"), value["min"], 0) if "min" in value else 1
    if _is_zero(value.get("max")):
        reader.add_problem(path, f"{reader.format_place(path)}: max 0 {_NEVER}")
        return 0, None
    maximum = reader.read_count((*path, "max"), value["max"]) if "max" in value else None
    if minimum is not None and maximum is not None and minimum > maximum:
        reader.add_problem(path, f"{reader.format_place(path)}: min {minimum} is greater than max {maximum}")
    return minimum or 0, maximum


def _is_zero(value: object) -> bool:
    return value == 0 and not isinstance(value, bool)


class SequenceReader:
    """Reader of `expected_function_calls`: a plan for the matching, and the expected calls in the order of the file."""

    def __init__(self, reader: ExpectationReader, calls: CallReader) -> None:
        self.reader = reader
        self.calls = calls
        self.leaves: list[ExpectedCall] = []
        self.groups: dict[Position, KeyPath] = {}  # where the groups of the plan stand in the case

    def read_plan(self, path: KeyPath, value: object, *, in_order: bool, extras: bool) -> CallPlan | None:
        """Read the whole list; None where it is no list."""
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

    def _report(self, path: KeyPath, message: str) -> None:
        self.reader.add_problem(path, f"{self.reader.format_place(path)} {message}")

    def _read_node(self, path: KeyPath, item: Any, position: Position, level: int) -> Node | None:
        if isinstance(item, list):
            self._report(path, "is a list where a call is expected; write in_order, any_order or one_of before it")
            return None
        keys = [key for key in item if key in GROUP_KEYS] if isinstance(item, dict) else []
        if not keys:
            call = self.calls.read_expected(path, item, len(self.leaves))
            if call is None:
                return None
            self.leaves.append(call)
            if call.optional and call.min >= 2:
                return OneOf((Leaf(call.id, call.function_name, call.min, call.max), _NO_CALLS))
            return Leaf(call.id, call.function_name, 0 if call.optional else call.min, call.max)
        key = keys[0]
        if len(item) > 1:
            other_keys = ", ".join(f"'{other_key}'" for other_key in item if other_key != key)
            self._report(path, f"is a group ('{key}'), and can't have {other_keys} beside it")
            return None
        if level == _MAX_LEVELS:
            self._report(path, f"nests groups more than {_MAX_LEVELS} levels deep; split the case")
            return None
        return self._read_group((*path, key), key, item[key], position, level + 1)

    def _read_group(self, path: KeyPath, key: str, value: object, position: Position, level: int) -> Node | None:
        expected = "a list of calls or of lists of calls" if key == "one_of" else "a list of calls"
        items = self.reader.read_list(path, value, expected)
        if not items:
            return None
        if not any(items):
            self._report(path, "has only empty alternatives, which demand nothing; list a call")
            return None
        if key == "any_order" and len(items) > MAX_CHILDREN:
            advice = "if all calls may come in any order, list them under 'call_order: any'"
            self._report(path, f"has {len(items)} children, at most {MAX_CHILDREN} can be solved exactly; {advice}")
            return None
        self.groups[position] = path
        if key == "one_of":
            alternatives: list[Node] = []
            for i, item in enumerate(items):
                if isinstance(item, list):
                    alternatives.append(InOrder(self._read_nodes((*path, i), item, (*position, i), level)))
                else:
                    alternatives.append(self._read_node((*path, i), item, (*position, i), level) or _NO_CALLS)
            return OneOf(tuple(alternatives))
        nodes = self._read_nodes(path, items, position, level)
        if key == "in_order":
            return InOrder(nodes)
        return AnyOrder(nodes) if key == "any_order" else InParallel(nodes)


def read_forbidden(calls: CallReader, path: KeyPath, value: object) -> ForbiddenCalls | None:
    """Read one forbidden call, or a list of them."""
    items = [((*path, index), item) for index, item in enumerate(value)] if isinstance(value, list) else [(path, value)]
    entries = tuple(entry for item in items if (entry := calls.read_forbidden(*item)) is not None)
    return ForbiddenCalls(entries, path) if entries else None
