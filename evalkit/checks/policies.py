"""Policies: rules over all cases of a folder, read from `policies.yaml`, and held against what happened in a run.

`evalkit.checks.policy_rules` says when a rule is broken. Here calls and messages of the user become its events, and a
breach a reason that names the policy, its line, the call that broke it and what that call is held against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.absence import UNOBSERVED, is_seen_in_part, select_unseen
from evalkit.checks.call_checks import UnresolvedCheck
from evalkit.checks.call_origin import AgentCheck
from evalkit.checks.call_results import OutcomeCheck
from evalkit.checks.evidence import Evidence, list_messages
from evalkit.checks.expectation import Judgement, format_summary, sort_reasons
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.keys import POLICY_KEYS
from evalkit.checks.policy_rules import Breach, Event, find_excess, find_unmet
from evalkit.checks.read_calls import CallReader
from evalkit.checks.reader import ExpectationReader, check_references
from evalkit.checks.reasons import build_failures, build_reason, describe_call, rank
from evalkit.errors import KeyPath, Location, PathProblem, format_path
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, is_mapping, to_hashable
from evalkit.model.case import Case
from evalkit.model.template import TemplateError
from evalkit.model.transcript import FunctionCall, RunFault, Transcript
from evalkit.model.unobserved import Unobserved, format_unobserved
from evalkit.model.verdict import ERROR, FAILED, PASSED, CheckResult, PolicyResult, Reason
from evalkit.operators.base import Matcher
from evalkit.text.format import format_value

KEY = "policies"
_KINDS = ("never", "at_most", "must")
_NO_JUDGE = "a policy is decided without a model; write a phrase, a pattern or another operator"
_MOST_EXPLAINED = 20  # breaches of one policy in one run; explaining one looks at all calls
_ABSENT = "(not sent)"  # the value of an argument under `for_each` that a call does not send


class PolicyUserMessage(Struct, frozen=True):
    """A message of the user that a policy speaks of: `{user: <text or operator>}`."""

    matcher: Matcher


class PolicyCall(Struct, frozen=True):
    """Calls that a policy speaks of. `text` is how it describes them."""

    expected: ExpectedCall
    text: str


PolicyEvent = PolicyCall | PolicyUserMessage


class SuitePolicy(Struct, frozen=True):
    """A policy, compiled. `openings` None: it holds from the beginning; `limit` None: its calls must be made."""

    name: str
    rule: str
    location: Location  # of its name
    limit: int | None
    subjects: tuple[PolicyCall, ...]
    openings: tuple[PolicyEvent, ...] | None = None
    closings: tuple[PolicyEvent, ...] = ()
    for_each: tuple[str, ...] = ()
    for_each_of: tuple[tuple[str, tuple[str, ...]], ...] = ()  # other names of those arguments, by function

    @property
    def place(self) -> str:
        """The file and line of the policy."""
        return f"{self.location.file}:{self.location.line}"

    def list_calls(self) -> list[PolicyCall]:
        """Return the calls that it speaks of, in whatever part."""
        events = (*self.subjects, *(self.openings or ()), *self.closings)
        return [event for event in events if isinstance(event, PolicyCall)]

    def list_keys(self, function: str) -> set[str]:
        """Return the keys by which it tells calls of `function` apart: `result_contains`, `approval`, ..."""
        calls = (call.expected for call in self.list_calls() if call.expected.function_name == function)
        return {check.key for call in calls for check in call.checks}

    @property
    def is_ban(self) -> bool:
        """True if nothing that went unseen could make up for a call that breaks it: no call that comes before or
        between."""
        may_end = any(isinstance(event, PolicyCall) for event in self.closings)
        return self.limit is not None and not may_end and (self.limit == 0 or self.openings is None)

    @property
    def looks_at_messages(self) -> bool:
        """True if it depends on what the user says."""
        return any(isinstance(event, PolicyUserMessage) for event in (*(self.openings or ()), *self.closings))

    @property
    def looks_at_arguments(self) -> bool:
        """True if it depends on more of a call than its name and outcome."""
        checks = (check for call in self.list_calls() for check in call.expected.checks)
        return bool(self.for_each or self.for_each_of) or any(not isinstance(check, OutcomeCheck) for check in checks)

    def select_unseen(self, transcript: Transcript) -> tuple[Unobserved, ...]:
        """Return the unseen parts of a run in which the policy may have been broken."""
        return select_unseen(
            transcript.unobserved, demands_absence=self.limit is not None, on_arguments=self.looks_at_arguments
        )

    def get_key_names(self, function: str) -> tuple[str, ...]:
        """Return the arguments of `function` whose values `for_each` tells apart."""
        return dict(self.for_each_of).get(function, self.for_each)


def get_policies(case: Case) -> tuple[SuitePolicy, ...]:
    """Return the policies that hold for a case."""
    return tuple(policy for policy in case.policies if isinstance(policy, SuitePolicy))


# ---- reading ----


def read_policies(
    data: JsonObject, locations: Mapping[str, Location]
) -> tuple[tuple[SuitePolicy, ...], list[PathProblem]]:
    """Read the policies of one file, by name. `locations` are those of the names. Only without problems are they whole.

    Functions and arguments are not compared with declarations here: a policy holds for cases with different ones.
    """
    reader = ExpectationReader((), {})
    policies = []
    for name, rule in data.items():
        keys = reader.read_mapping((name,), rule, "a mapping such as {never: refund, before: check}")
        if keys is not None:
            policies.append(_PolicyReader(reader, name, keys).read(locations[name]))
    return tuple(policy for policy in policies if policy is not None), reader.problems


class _PolicyReader:
    """Reader of one policy."""

    def __init__(self, reader: ExpectationReader, name: str, keys: JsonDict) -> None:
        self._reader = reader
        self._calls = CallReader(reader, valid_arguments=False)
        self._name = name
        self._keys = keys
        self._path: KeyPath = (name,)

    def read(self, location: Location) -> SuitePolicy | None:
        before = len(self._reader.problems)
        for key in self._keys:
            if key not in POLICY_KEYS:
                self._reader.report_unknown_key(self._path, key, POLICY_KEYS)
        self._check_kinds()
        if len(self._reader.problems) > before:
            return None
        kind = next(kind for kind in _KINDS if kind in self._keys)
        limit = None if kind == "must" else 0
        if kind == "at_most":
            limit = self._reader.read_count((*self._path, "at_most"), self._keys["at_most"], 0)
        subjects = self._read_subjects("calls" if kind == "at_most" else kind)
        openings = self._read_events("after") if "after" in self._keys else None
        closing_key = "until" if "until" in self._keys else "before"
        closings = self._read_events(closing_key) if closing_key in self._keys else ()
        for_each, for_each_of = self._read_for_each()
        if len(self._reader.problems) > before:
            return None
        if kind == "must" and openings is None and closings:  # "a before b": no b before the first a
            calls = tuple(event for event in closings if isinstance(event, PolicyCall))
            if len(calls) < len(closings):
                self._report("must is not demanded before a message of the user; say after what, with 'after'")
                return None
            attempts = tuple(replace(call, expected=replace(call.expected, implied=())) for call in calls)
            limit, subjects, closings = 0, attempts, subjects
        return SuitePolicy(
            self._name,
            describe_rule(self._keys),
            location,
            limit,
            subjects,
            openings,
            closings,
            for_each,
            for_each_of,
        )

    def _report(self, message: str, *steps: str) -> None:
        self._reader.add_problem((*self._path, *steps), f"{self._name}: {message}")

    def _check_kinds(self) -> None:
        kinds = [kind for kind in _KINDS if kind in self._keys]
        if not kinds:
            self._report("a policy says 'never', 'at_most' or 'must'; for example {never: refund, before: check}")
        elif len(kinds) > 1:
            self._report(f"'{kinds[0]}' and '{kinds[1]}' are two policies; give each a name of its own")
        if "at_most" in self._keys and "calls" not in self._keys:
            self._report("'at_most' is a number, and 'calls' says of what: {at_most: 1, calls: create_ticket}")
        if "calls" in self._keys and "at_most" not in self._keys and kinds:
            self._report(f"'calls' belongs to 'at_most'; write the calls under '{kinds[0]}'", "calls")
        if "before" in self._keys and "until" in self._keys:
            self._report("'before' and 'until' mean the same; keep one", "until")

    def _read_subjects(self, key: str) -> tuple[PolicyCall, ...]:
        calls = []
        for event in self._read_events(key):
            if isinstance(event, PolicyUserMessage):
                self._report(f"'{key}' names calls; a message of the user stands under before, until or after", key)
            else:
                calls.append(event)
        return tuple(calls)

    def _read_events(self, key: str) -> tuple[PolicyEvent, ...]:
        """Read one event or a list of them. A call under `never` or `calls` is meant whether it succeeds or not."""
        path, value = (*self._path, key), self._keys[key]
        if isinstance(value, list) and not value:
            self._reader.report_empty_list(path, "name a call")
        items = list(enumerate(value)) if isinstance(value, list) else [(None, value)]
        events = (
            self._read_event(path if index is None else (*path, index), item, key in ("never", "calls"))
            for index, item in items
        )
        return tuple(event for event in events if event is not None)

    def _read_event(self, path: KeyPath, item: JsonValue, counts_attempts: bool) -> PolicyEvent | None:
        if isinstance(item, dict) and "user" in item:
            for key in item:
                if key != "user":
                    self._reader.report_unknown_key(path, key, ("user",))
            check_references(self._reader, (*path, "user"), item["user"])
            matcher = self._reader.read_matcher((*path, "user"), item["user"], "contain", _NO_JUDGE)
            return None if matcher is None else PolicyUserMessage(matcher)
        call = self._calls.read_meant_call(path, item, counts_attempts=counts_attempts)
        return None if call is None else PolicyCall(call, describe_event(item))

    def _read_for_each(self) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
        path, value = (*self._path, "for_each"), self._keys.get("for_each")
        if value is None:
            return (), ()
        if not isinstance(value, dict):
            return self._reader.read_names(path, value) or (), ()
        names = {function: self._reader.read_names((*path, function), item) or () for function, item in value.items()}
        if len(set(map(len, names.values()))) > 1:
            self._report("each function under for_each names as many arguments as the others", "for_each")
        return (), tuple(names.items())


def describe_rule(keys: JsonObject) -> str:
    """Return a policy in one line: ``never refund before check, for each order_id``. Every key of it is in the line."""
    parts = []
    for key in ("never", "at_most", "calls", "must", "after", "before", "until"):
        if key not in keys:
            continue
        value = keys[key]
        words = "at most" if key == "at_most" else "" if key == "calls" else key
        parts.append(f"{words} {value if key == 'at_most' else describe_event(value)}".strip())
    argument = keys.get("for_each")
    return " ".join(parts) + ("" if argument is None else f", for each {_describe_names(argument)}")


def _describe_names(value: JsonValue) -> str:
    if isinstance(value, dict):
        return " / ".join(f"{_describe_names(names)} of {function}" for function, names in value.items())
    return " and ".join(map(str, value)) if isinstance(value, list) else str(value)


def describe_event(value: JsonValue) -> str:
    """Return an event, or a list of events, as messages write it: ``check(result_contains={"valid": true})``."""
    if isinstance(value, list):
        return " or ".join(map(describe_event, value))
    if not isinstance(value, dict):
        return str(value)
    if "user" in value:
        return f"the user says {format_value(value['user'])}"
    conditions = ", ".join(f"{key}={format_value(item)}" for key, item in value.items() if key != "function_name")
    return f"{value.get('function_name')}({conditions})" if conditions else str(value.get("function_name"))


# ---- judging ----


def apply_policies(
    judgement: Judgement, case: Case, transcript: Transcript, aliases: Mapping[str, str] | None = None
) -> Judgement:
    """Return `judgement` with what the policies of `case` say of the run. Never raises.

    A run that could not be measured proves nothing about them either, and is left as it is; but where a part of it went
    unread, calls that were seen break bans all the same.
    """
    policies = get_policies(case)
    fault = transcript.fault
    is_unmeasured = fault is not None and not fault.measured
    if is_unmeasured:
        policies = tuple(policy for policy in policies if policy.is_ban) if is_seen_in_part(fault) else ()
    if not policies:
        return judgement
    run = PolicyRun(transcript, case.input, aliases)
    results, failures = [], []
    for policy in policies:
        applied, broken, reasons = run.judge(policy)
        excepted = case.policy_exceptions.get(policy.name)
        result = PolicyResult(
            name=policy.name,
            rule=policy.rule,
            place=policy.place,
            applied=applied,
            broken=broken,
            excepted=excepted,
        )
        if broken or not is_unmeasured:
            results.append(result)
        if reasons and excepted is None:
            failures.append(build_failures(f"{KEY}.{policy.name}", reasons))
        elif excepted is None and not is_unmeasured and (lack := run.find_lack(policy)):
            failures.append(_build_unmeasured(policy, lack))
        elif excepted is None and not is_unmeasured and (unseen := policy.select_unseen(transcript)):
            failures.append(_build_unmeasured(policy, f"evalkit did not see {format_unobserved(unseen)}", UNOBSERVED))
    judgement = replace(judgement, policies=tuple(results))
    return _add_failures(judgement, failures, fault)


def _add_failures(judgement: Judgement, failures: Sequence[CheckResult], fault: RunFault | None) -> Judgement:
    """Fail the judgement, each reason at the call that it names, or beside the calls. A policy that could not be
    judged makes a pass an error.
    """
    if not failures:
        return judgement
    calls = list(judgement.calls)
    checks = list(judgement.checks)
    places = {line.call.index: place for place, line in enumerate(calls) if line.call is not None}
    for failure in failures:
        for reason in failure.reasons:
            place = None if reason.call is None else places.get(reason.call)
            result = replace(failure, reasons=(reason,), message=build_failures(failure.check, [reason]).message)
            if place is None:
                checks.append(result)
            else:
                line = calls[place]
                calls[place] = replace(line, status=FAILED, results=(*line.results, result))
    own_reasons = sort_reasons((), failures)
    if fault is None:
        reasons = tuple(sorted((*judgement.reasons, *own_reasons), key=rank))
    elif (
        fault.measured
    ):  # a fault is the first reason, whatever its rank; but of a run that could not be measured, bans
        reasons = (*judgement.reasons, *own_reasons)
    else:  # broken bans say more than what went unread
        reasons = (*own_reasons, *judgement.reasons)
    return replace(
        judgement,
        status=FAILED if FAILED in (judgement.status, *(failure.status for failure in failures)) else ERROR,
        reasons=reasons,
        calls=tuple(calls),
        checks=tuple(checks),
        summary=format_summary(reasons),
    )


def _build_unmeasured(policy: SuitePolicy, lack: str, code: str = "not_measured") -> CheckResult:
    message = f"policy {policy.name} ({policy.place}): can't be judged: {lack}"
    reason = replace(build_reason(code, message, format_path((KEY, policy.name))), location=str(policy.location))
    return CheckResult(check=f"{KEY}.{policy.name}", status=ERROR, message=message, reasons=(reason,))


class PolicyRun:
    """The events of one run, as policies see them."""

    def __init__(self, transcript: Transcript, case_input: object, aliases: Mapping[str, str] | None = None) -> None:
        self.calls = transcript.calls
        self.known_functions = frozenset(transcript.functions)
        self._aliases = aliases or {}
        self._evidence = Evidence(transcript, case_input, "run", aliases=self._aliases)
        self._messages = list_messages(self._evidence.input)
        self._moments, self._message_moments = find_moments(transcript, len(self._messages))

    def judge(self, policy: SuitePolicy) -> tuple[int, int, list[Reason]]:
        """Return how often the policy had something to judge, how often it was broken, and a reason for each breach; of
        very many the first are explained."""
        bound_policy, unresolved = self._bind(policy)
        if unresolved:
            return 1, 1, [self._build_reason(policy, unresolved, code="unresolved_reference")]
        subjects = self._find_events(bound_policy, bound_policy.subjects)
        openings = None if bound_policy.openings is None else self._find_events(bound_policy, bound_policy.openings)
        closings = self._find_events(bound_policy, bound_policy.closings)
        if bound_policy.limit is None:
            breaches = find_unmet(subjects, openings, closings)
        else:
            breaches = find_excess(subjects, bound_policy.limit, openings, closings)
        applied = self._count_applications(bound_policy, subjects, openings)
        reasons = [self._explain(bound_policy, breach) for breach in breaches[:_MOST_EXPLAINED]]
        if len(breaches) > _MOST_EXPLAINED:
            message = f"{policy.rule}; it was broken {len(breaches) - _MOST_EXPLAINED:,} more times"
            reasons.append(self._build_reason(policy, message))
        return applied, len(breaches), reasons

    def find_lack(self, policy: SuitePolicy) -> str:
        """Return why calls that the policy tells apart by their agent can't be told apart; "" if they can."""
        for call in self.calls:
            for wanted in policy.list_calls():
                if self._aliases.get(wanted.expected.function_name, wanted.expected.function_name) == call.name:
                    checks = (check for check in wanted.expected.checks if isinstance(check, AgentCheck))
                    lacks = (check.explain_unmeasured(call, self._evidence) for check in checks)
                    if lack := next(filter(None, lacks), ""):
                        return lack
        return ""

    def _bind(self, policy: SuitePolicy) -> tuple[SuitePolicy, str]:
        """Return the policy with its templates filled and the names that functions are recorded under; else why not."""
        unresolved = ""

        def bind(event: PolicyEvent) -> PolicyEvent:
            nonlocal unresolved
            if isinstance(event, PolicyUserMessage):
                try:
                    return replace(event, matcher=event.matcher.bind(self._evidence.resolve))
                except TemplateError as error:
                    unresolved = unresolved or str(error)
                    return event
            name = self._aliases.get(event.expected.function_name, event.expected.function_name)
            if all(call.name != name for call in self.calls):
                return replace(event, expected=replace(event.expected, function_name=name, checks=()))
            expected = replace(event.expected.bind(self._evidence.resolve), function_name=name)
            broken = (check.message for check in expected.checks if isinstance(check, UnresolvedCheck))
            unresolved = unresolved or next(broken, "")
            return replace(event, expected=expected)

        subjects = tuple(event for event in map(bind, policy.subjects) if isinstance(event, PolicyCall))
        openings = None if policy.openings is None else tuple(map(bind, policy.openings))
        bound_policy = replace(policy, subjects=subjects, openings=openings, closings=tuple(map(bind, policy.closings)))
        return bound_policy, unresolved

    def _find_events(self, policy: SuitePolicy, wanted: Sequence[PolicyEvent]) -> list[Event]:
        """Find the events that one of `wanted` means, in their order. A message's index is below 0."""
        events = []
        for number, message in enumerate(self._messages[: len(self._message_moments)]):
            for event in wanted:
                if isinstance(event, PolicyUserMessage) and any(map(event.matcher.is_match, message)):
                    events.append(Event(self._message_moments[number], -2 - number))
                    break
        expected = [event.expected for event in wanted if isinstance(event, PolicyCall)]
        for place, call in enumerate(self.calls):
            if any(entry.is_met_by(call, self._evidence) for entry in expected):
                events.append(Event(self._moments[place], place, get_key(policy, call)))
        return sorted(events, key=lambda event: event.moment)

    def _count_applications(
        self, policy: SuitePolicy, subjects: Sequence[Event], openings: Sequence[Event] | None
    ) -> int:
        if openings is not None:
            return len(openings)
        if policy.limit is None:
            return 1
        if policy.limit == 0 and not policy.closings:  # a plain prohibition: the agent could have made such a call
            names = {call.expected.function_name for call in policy.subjects}
            return int(bool(subjects) or not names.isdisjoint(self.known_functions))
        return len(subjects)

    # Explaining

    def _build_reason(
        self, policy: SuitePolicy, message: str, call: FunctionCall | None = None, code: str = "policy_broken"
    ) -> Reason:
        text = f"policy {policy.name}: {message} ({policy.place})"
        reason = build_reason(code, text, format_path((KEY, policy.name)), call=call)
        return replace(reason, location=str(policy.location))

    def _explain(self, policy: SuitePolicy, breach: Breach) -> Reason:
        event, reference = breach.event, breach.reference
        against = "" if reference is None else self._describe(reference)
        if policy.limit is None:
            end = f" before {against}" if reference is not None else ""
            calls_text = " or ".join(call.text for call in policy.subjects)
            if event is None:
                return self._build_reason(policy, f"{policy.rule}; no {calls_text} was made{end}")
            call = self.calls[event.index] if event.index >= 0 else None
            after = "it" if call is not None else self._describe(event)
            return self._build_reason(policy, f"{policy.rule}; no {calls_text} came after {after}{end}", call)
        assert event is not None
        call = self.calls[event.index]
        if policy.limit:
            detail = f"{against}, was {'the one' if policy.limit == 1 else 'the first'} that is allowed"
            detail += self._describe_key(policy, call)
        elif reference is not None:
            detail = f"{against}, came before"
            detail += self._describe_key(policy, call)
        elif policy.closings:
            detail = "; ".join(self._explain_absence(policy, closing, event, call) for closing in policy.closings)
        else:
            detail = "such a call is never allowed"
        return self._build_reason(policy, f"{policy.rule}; {detail}", call)

    def _describe(self, event: Event) -> str:
        """Return ``call 3, refund`` or ``the user's message 2``."""
        return describe_call(self.calls[event.index]) if event.index >= 0 else f"the user's message {-1 - event.index}"

    def _describe_key(self, policy: SuitePolicy, call: FunctionCall) -> str:
        names = policy.get_key_names(call.name)
        arguments = call.arguments if is_mapping(call.arguments) else {}
        values = (f"{name} {format_value(arguments[name]) if name in arguments else 'not sent'}" for name in names)
        return f", for {', '.join(values)}" if names else ""

    def _explain_absence(self, policy: SuitePolicy, closing: PolicyEvent, event: Event, call: FunctionCall) -> str:
        """Explain why nothing that `closing` means came before a call: the nearest thing that did not do."""
        key = get_key(policy, call)
        fitting = self._find_events(policy, [closing])
        later = next((e for e in fitting if e.moment >= event.moment and (e.key is None or e.key == key)), None)
        if later is not None:
            if later.moment == event.moment:
                return f"{self._describe(later)}, was asked for in the same model turn"
            return f"{self._describe(later)}, came later"
        if isinstance(closing, PolicyUserMessage):
            return "no message of the user is like that"
        previous = next((e for e in reversed(fitting) if e.moment < event.moment), None)
        if previous is not None:
            return f"{self._describe(previous)}, was another{self._describe_key(policy, self.calls[previous.index])}"
        name = closing.expected.function_name
        for earlier in reversed(self.calls[: event.index]):
            if earlier.name == name:
                results = closing.expected.report_results(earlier, self._evidence)
                message = next((result.message for result in results if result.status != PASSED), "")
                return f"{describe_call(earlier)}, does not count: {message}"
        return f"{name} was not called before"


def get_key(policy: SuitePolicy, call: FunctionCall) -> tuple[object, ...] | None:
    """Return the values by which `for_each` tells calls apart; None where it does not."""
    names = policy.get_key_names(call.name)
    if not names:  # it belongs to every value
        return None
    arguments = call.arguments if is_mapping(call.arguments) else {}
    return tuple(to_hashable(arguments[name]) if name in arguments else _ABSENT for name in names)


def find_moments(transcript: Transcript, messages: int) -> tuple[list[int], list[int]]:
    """Return the moment of each call, and of each message of the user that the run came to.

    A message comes before the calls of its turn. Calls of one model turn share a moment; a call that code made, or
    whose model turn nobody knows, has one of its own.
    """
    moments: list[int] = []
    message_moments: list[int] = []
    moment_of_turn: dict[int, int] = {}
    now = -1
    for call in transcript.calls:
        while len(message_moments) <= min(call.user_turn, messages - 1):
            now += 1
            message_moments.append(now)
        if call.turn is None or call.turn not in moment_of_turn:
            now += 1
            if call.turn is not None:
                moment_of_turn[call.turn] = now
            moments.append(now)
        else:
            moments.append(moment_of_turn[call.turn])
    while len(message_moments) < min(messages, len(transcript.responses) + 1):
        now += 1
        message_moments.append(now)
    return moments, message_moments
