"""Whether a case can keep a policy at all: its expected calls, before anything runs, held against the policy.

Nothing is said where a run may make other calls, or in another order: only a list of calls that are made once each, in
its order, and no others, is looked at. Of an expected call it may be open whether the policy means it: a breach is
certain if it needs only calls that are meant for certain, and no call that might be meant could prevent it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.checks.call_keys import find_call_key
from evalkit.checks.call_results import OutcomeCheck
from evalkit.checks.evidence import Evidence, list_messages
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.features.policies.judging import get_key
from evalkit.features.policies.policy import PolicyCall, PolicyEvent, PolicyUserMessage, SuitePolicy
from evalkit.features.policies.rules import Event, find_excess, find_unmet
from evalkit.hooks import list_messages as list_feature_messages
from evalkit.jsonvalue import is_mapping, walk_leaves
from evalkit.records.case import list_hidden_inputs
from evalkit.records.transcript import FunctionCall, Transcript

_OPEN_KEYS = ("times", "optional")  # with them a call may be made more often, or not at all


def find_certain_breach(policy: SuitePolicy, expected: Mapping[str, Any], case_input: object) -> int | None:
    """Return the place of an expected call at which every run that makes the expected calls breaks `policy`.

    None where that is not certain. A case that must make a call that it never expects is broken at its first call.
    """
    listed = _list_fixed_calls(expected)
    if not listed:
        return None
    forecast = _Forecast(policy, listed, case_input)
    if not forecast.has_known_keys:
        return None
    is_demand = policy.limit is None
    subjects = forecast.find_events(policy.subjects, certain=not is_demand)
    openings = None if policy.openings is None else forecast.find_events(policy.openings, certain=True)
    closings = forecast.find_events(policy.closings, certain=is_demand)
    if policy.limit is None:
        breaches = find_unmet(subjects, openings, closings)
    else:
        breaches = find_excess(subjects, policy.limit, openings, closings)
    return next((max(breach.event.index, 0) if breach.event else 0 for breach in breaches), None)


def _list_fixed_calls(expected: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the expected calls if a run makes just these, once each, in this order; else nothing."""
    listed = expected.get("expected_function_calls")
    is_loose = expected.get("call_order") == "any" or expected.get("extra_calls") == "allow" or "min_score" in expected
    if not isinstance(listed, list) or is_loose:
        return []
    calls: list[Mapping[str, Any]] = [{"function_name": item} if isinstance(item, str) else item for item in listed]
    are_fixed = all(
        isinstance(call, Mapping)
        and isinstance(call.get("function_name"), str)
        and not any(key in call for key in _OPEN_KEYS)
        and all(find_call_key(key) for key in call)
        for call in calls
    )
    return calls if are_fixed else []


class _Forecast:
    """The expected calls as events, as far as they are known."""

    def __init__(self, policy: SuitePolicy, listed: Sequence[Mapping[str, Any]], case_input: object) -> None:
        self._policy = policy
        self._messages = list_messages(case_input)
        spoken = list_hidden_inputs().intersection(list_feature_messages())  # in the run
        self._is_open = is_mapping(case_input) and any(key in case_input for key in spoken)
        self._arguments_known = [_is_literal(call.get("arguments")) for call in listed]
        self._calls = [
            FunctionCall(
                name=call["function_name"],
                arguments=(call.get("arguments") or {}) if is_known else {},
                index=index,
                outcome=str(call.get("outcome", "ok")),
            )
            for index, (call, is_known) in enumerate(zip(listed, self._arguments_known, strict=True))
        ]
        self._evidence = Evidence(Transcript(calls=tuple(self._calls)), case_input, "judge")

    @property
    def has_known_keys(self) -> bool:
        """True if `for_each` has no say, or the value by which it tells each call apart is known."""
        if not self._policy.for_each and not self._policy.for_each_of:
            return True
        names = {call.expected.function_name for call in self._policy.list_calls()}
        pairs = zip(self._calls, self._arguments_known, strict=True)
        return all(is_known or call.name not in names for call, is_known in pairs)

    def find_events(self, wanted: Sequence[PolicyEvent], *, certain: bool) -> list[Event]:
        """Find the events that are meant for certain, or that may be. All messages come before all calls: of several it
        is not known which calls they stand between, so that they may be anywhere."""
        events: list[Event] = []
        messages = [event for event in wanted if isinstance(event, PolicyUserMessage)]
        if self._is_open:  # nobody knows yet what the user says
            events += [Event(0, -2)] if messages and not certain else []
        elif messages and (not certain or len(self._messages) == 1):
            fitting = (any(map(event.matcher.is_match, texts)) for event in messages for texts in self._messages)
            events += [Event(0, -2)] if any(fitting) or any(event.matcher.has_templates for event in messages) else []
        for index, call in enumerate(self._calls):
            matches = [self._means(event.expected, index) for event in wanted if isinstance(event, PolicyCall)]
            if True in matches or (not certain and None in matches):
                events.append(Event(index + 1, index, get_key(self._policy, call)))
        return events

    def _means(self, entry: ExpectedCall, index: int) -> bool | None:
        """Return whether the policy means the expected call; None where that is open."""
        call = self._calls[index]
        if call.name != entry.function_name:
            return False
        answers: list[bool | None] = []
        for check in (*entry.checks, *entry.implied):
            if isinstance(check, OutcomeCheck):
                answers.append(None if call.outcome == "any" else check.is_met(call, self._evidence))
            elif check.on_arguments and self._arguments_known[index] and not check.has_templates:
                answers.append(check.is_met(call, self._evidence))
            else:
                answers.append(None)
        if False in answers:
            return False
        return None if None in answers else True


def _is_literal(arguments: object) -> bool:
    """Return whether expected arguments are known to the letter: no operator and no template in them."""
    if not isinstance(arguments, dict):
        return False
    return not any(
        (isinstance(leaf, str) and "{{" in leaf) or any(str(step).startswith("$") for step in path)
        for path, leaf in walk_leaves(arguments)
    )
