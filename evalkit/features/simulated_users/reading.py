"""The reader of `input.user`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.key_schemas import Key
from evalkit.checks.read_calls import CallReader
from evalkit.checks.reader import ExpectationReader, check_references
from evalkit.errors import KeyPath, PathProblem, did_you_mean, find_nearest
from evalkit.features.simulated_users.keys import (
    BRANCH_CONDITION_KEYS,
    BRANCH_KEYS,
    CONDITION_KEYS,
    MOST_TURNS,
    USER_KEYS,
)
from evalkit.features.simulated_users.records import KEY
from evalkit.features.simulated_users.user import (
    DEFAULT_MAX_TURNS,
    END_MARK,
    FACT,
    Branch,
    SimulatedUser,
    UserCondition,
)
from evalkit.fields.reader import explain_quoting
from evalkit.jsonvalue import JsonDict
from evalkit.operators.base import Matcher
from evalkit.operators.phrases import fold_text
from evalkit.records.case import Declaration
from evalkit.text.format import format_value

N = TypeVar("N")
_WHY_NOT_LATE = "the end of a conversation is decided without a model; write a phrase, a pattern or another operator"
_PLAYERS = ("model", "script", "call")
_LIMITS = ("max_tokens", "max_cost_usd")
_SYNONYMS = {
    "task": "goal",
    "scenario": "goal",
    "instructions": "goal",
    "profile": "persona",
    "description": "persona",
    "known": "facts",
    "first_message": "opening",
    "message": "opening",
    "stop": "stop_when",
    "end_when": "stop_when",
    "max_messages": "max_turns",
    "turns": "max_turns",
    "callable": "call",
    "text": "say",
    "if": "when",
    "end": "stop",
    "asks": "asks_for",
    "text_contains": "agent_says",
    "says": "agent_says",
    "contains": "agent_says",
    "call_made": "called",
    "calls": "called",
}


def read_user(
    value: object, declarations: Mapping[str, Declaration], case_input: JsonDict
) -> tuple[SimulatedUser | None, list[PathProblem]]:
    """Read `input.user`, with every problem found on the way. Whether `call` may be imported is not checked here."""
    path: KeyPath = ("input", KEY)
    reader = _UserReader(path, declarations, case_input)
    keys = reader.read_mapping(path, value, "a mapping with 'goal'", "what the user says is input.message")
    user = None if keys is None else reader.read(keys)
    return (None if reader.problems else user), reader.problems


class _UserReader(ExpectationReader):
    """Reader of one `input.user`."""

    def __init__(self, path: KeyPath, declarations: Mapping[str, Declaration], case_input: JsonDict) -> None:
        super().__init__(path[:1], declarations, case_input)
        self.synonyms = _SYNONYMS
        self._path = path
        self._calls = CallReader(self, valid_arguments=False)
        self._facts: dict[str, object] = {}

    def read(self, keys: JsonDict) -> SimulatedUser:
        self.check_keys(self._path, keys, USER_KEYS)
        self._check_players(keys)
        self._facts = self._read_facts(keys.get("facts"))
        unknown = [key for key in keys if key not in USER_KEYS]
        if keys.get("goal") is None and not any(
            "goal" in (_SYNONYMS.get(key), find_nearest(key, USER_KEYS)) for key in unknown
        ):
            self.add_problem(self._path, "user has no 'goal': what the user wants, in words")
        phrase, end = self._read_end(keys.get("stop_when"))
        return SimulatedUser(
            goal=self._read_text(keys, "goal") or "",
            persona=self._read_text(keys, "persona") or "",
            facts=self._facts,
            opening=self._read_said(self._path, keys, "opening"),
            phrase=phrase,
            end=end,
            max_turns=self._read_max_turns(keys),
            max_turns_ok=self._read_flag(self._path, keys, "max_turns_ok"),
            max_tokens=self._read_limit(keys, "max_tokens", self.read_count),
            max_cost_usd=self._read_limit(keys, "max_cost_usd", partial(self.read_number, minimum=0)),
            model=self._read_text(keys, "model"),
            script=self._read_script(keys),
            call=self._read_text(keys, "call"),
        )

    def _check_players(self, keys: JsonDict) -> None:
        players = [key for key in _PLAYERS if keys.get(key) is not None]
        if len(players) > 1:
            listed = " and ".join(f"'{key}'" for key in players)
            self.add_problem((*self._path, players[1]), f"user has {listed}; one of them plays the user", at_key=True)
        if "script" in players and keys.get("opening") is None:
            self.add_problem(self._path, "a script needs 'opening': the user's first message, before any branch")
        for key in _LIMITS:
            if keys.get(key) is not None and players and players != ["model"]:
                message = f"'{key}' limits a model that plays the user, and '{players[0]}' asks none"
                self.add_problem((*self._path, key), message, at_key=True)

    def _read_text(self, keys: JsonDict, key: str) -> str | None:
        return None if keys.get(key) is None else self.read_text((*self._path, key), keys[key], empty=False)

    def _read_flag(self, path: KeyPath, keys: JsonDict, key: str) -> bool:
        return keys.get(key) is not None and self.read_boolean((*path, key), keys[key]) is True

    def _read_facts(self, value: object) -> dict[str, object]:
        path = (*self._path, "facts")
        facts: dict[str, object] = {}
        given = {} if value is None else self.read_mapping(path, value, "a mapping of names to values")
        for name, fact in (given or {}).items():
            if not re.fullmatch(r"[^\W\d][\w-]*", name):
                self.add_problem((*path, name), f"a fact has a name such as serial_number, got {name!r}", at_key=True)
            elif isinstance(fact, (list, dict)) or fact is None or fact == "":
                self.report_wrong((*path, name), fact, "text, a number or a boolean", "give each value a name")
            else:
                facts[name] = fact
        return facts

    def _read_max_turns(self, keys: JsonDict) -> int:
        value = keys.get("max_turns")
        if value is None:
            return DEFAULT_MAX_TURNS
        count = self.read_number(
            (*self._path, "max_turns"),
            value,
            is_whole=True,
            minimum=1,
            maximum=MOST_TURNS,
            advice="it counts the messages of the user",
        )
        return DEFAULT_MAX_TURNS if count is None else int(count)

    def _read_limit(self, keys: JsonDict, key: str, read: Callable[[KeyPath, object], N | None]) -> N | None:
        return None if keys.get(key) is None else read((*self._path, key), keys[key])

    def _read_end(self, value: object) -> tuple[str, UserCondition | None]:
        """Read `stop_when`: the phrase that the user says at the end, and the rule, if it is one."""
        path = (*self._path, "stop_when")
        if value is None:
            return END_MARK, None
        if isinstance(value, str):
            if not fold_text(value):
                self.report_wrong(path, value, "a phrase, or a rule such as {called: create_ticket}")
            return value, None
        keys = self.read_mapping(path, value, "a phrase, or a rule such as {called: create_ticket}")
        return END_MARK, None if keys is None else self._read_condition(path, keys, CONDITION_KEYS)

    def _read_condition(self, path: KeyPath, keys: JsonDict, known: Mapping[str, Key]) -> UserCondition | None:
        before = len(self.problems)
        self.check_keys(path, keys, known)
        if not keys:
            self.report_wrong(path, keys, f"a mapping with one of {', '.join(known)}")
        facts = self.read_names((*path, "asks_for"), keys["asks_for"]) if "asks_for" in keys else ()
        for fact in facts or ():
            self._check_fact((*path, "asks_for"), fact)
        says = self._read_says((*path, "agent_says"), keys["agent_says"]) if "agent_says" in keys else None
        state = self._read_state((*path, "state"), keys["state"]) if "state" in keys else None
        calls = self._read_called((*path, "called"), keys["called"]) if "called" in keys else ()
        if len(self.problems) > before:
            return None
        text = ", ".join(f"{key}: {format_value(item)}" for key, item in keys.items())
        return UserCondition(text, calls, says, state, facts or ())

    def _read_says(self, path: KeyPath, value: object) -> Matcher | None:
        """Read what the agent says: a text, several of which one will do, or an operator."""
        check_references(self, path, value)
        if isinstance(value, list) and value and all(isinstance(item, str) and item.strip() for item in value):
            value = {"$one_of": value}
        if isinstance(value, (str, dict)):
            return self.read_matcher(path, value, "contain", _WHY_NOT_LATE)
        self.report_wrong(path, value, "text, a list of texts or an operator", explain_quoting(value))
        return None

    def _read_state(self, path: KeyPath, value: object) -> Matcher | None:
        check_references(self, path, value)
        if isinstance(self.case_input, dict) and "state" not in self.case_input:
            message = "there is no state to look at: declare input.state, which the mocks read and change"
            self.add_problem(path, message, at_key=True)
        if isinstance(value, dict):
            return self.read_matcher(path, value, "partial", _WHY_NOT_LATE)
        self.report_wrong(path, value, "a mapping of values of the state", explain_quoting(value))
        return None

    def _read_called(self, path: KeyPath, value: object) -> tuple[ExpectedCall, ...]:
        if isinstance(value, list) and not value:
            self.report_empty_list(path, "name a call")
        items = enumerate(value) if isinstance(value, list) else [(None, value)]
        calls = [
            self._calls.read_meant_call(path if index is None else (*path, index), item, counts_attempts=False)
            for index, item in items
        ]
        return tuple(call for call in calls if call is not None)

    def _read_script(self, keys: JsonDict) -> tuple[Branch, ...]:
        path, value = (*self._path, "script"), keys.get("script")
        if value is None:
            return ()
        if not isinstance(value, list) or not value:
            self.report_wrong(path, value, "a list of branches: [{when: ..., say: ...}, ...]")
            return ()
        branches = [self._read_branch((*path, index), item) for index, item in enumerate(value)]
        for index, item in enumerate(value[:-1]):
            if isinstance(item, dict) and item.get("when") is None and item.get("times") is None:
                message = f"{self.format_place((*path, index))} always fits, so no branch behind it is ever taken; "
                self.add_problem((*path, index), f"{message}give it 'when' or 'times', or put it last")
        return tuple(branch for branch in branches if branch is not None)

    def _read_branch(self, path: KeyPath, value: object) -> Branch | None:
        keys = self.read_mapping(path, value, "a mapping of when, say and stop")
        if keys is None:
            return None
        self.check_keys(path, keys, BRANCH_KEYS)
        is_end = self._read_flag(path, keys, "stop")
        say = self._read_said(path, keys, "say")
        if keys.get("stop") in (None, False) and not keys.keys() & {"say", "text", "end"}:
            self.add_problem(path, f"{self.format_place(path)} has neither 'say' nor 'stop: true'")
        condition = None
        if keys.get("when") is not None:
            when = self.read_mapping((*path, "when"), keys["when"], "a mapping such as {asks_for: serial_number}")
            condition = None if when is None else self._read_condition((*path, "when"), when, BRANCH_CONDITION_KEYS)
        times = self.read_count((*path, "times"), keys["times"]) if keys.get("times") is not None else None
        return Branch(say or "", condition, is_end, times)

    def _read_said(self, path: KeyPath, keys: JsonDict, key: str) -> str | None:
        """Read words of the user, in which facts may stand."""
        if keys.get(key) is None:
            return None
        text = self.read_text((*path, key), keys[key], empty=False)
        for match in FACT.finditer(text or ""):
            self._check_fact((*path, key), match[1])
        if "{{" in FACT.sub("", text or ""):
            place = self.format_place((*path, key))
            self.add_problem((*path, key), f"{place} may hold {{{{ facts.NAME }}}} and no other braces")
        return text

    def _check_fact(self, path: KeyPath, name: str) -> None:
        if name not in self._facts:
            known = f"; facts are: {', '.join(self._facts)}" if self._facts else "; user.facts is empty"
            hint = did_you_mean(name, self._facts) or known
            self.add_problem(path, f"{self.format_place(path)} names no fact of the user: '{name}'{hint}")
