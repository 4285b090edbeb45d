"""`compile_expectation`: from the mapping `expected_output` to an Expectation, with all that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from evalkit.checks.calls import FunctionCalls, is_listed
from evalkit.checks.expectation import Expectation, RunCheck
from evalkit.checks.keys import BUDGETS, CALL_KEYS, CALL_ORDERS, EXPECTED_KEYS, EXTRA_CALLS, MODIFIERS, SCORES
from evalkit.checks.read_call import CallReader, offered, read_grounded, text_argument
from evalkit.checks.reading import Path, Reader, known_arguments, meant
from evalkit.checks.sequence import SequenceReader
from evalkit.checks.stop_reason import COMPLETED, StopReason
from evalkit.errors import PathProblem, did_you_mean
from evalkit.model.case import Declaration
from evalkit.model.registry import CHECKS
from evalkit.operators.shown import shown

if TYPE_CHECKING:
    from evalkit.checks.every_call import ForbiddenCalls, GroundedCalls
    from evalkit.checks.graded import ModelGraded

_Read = Callable[[Reader, Path, Any], RunCheck | None]
# module:function of this room. Few cases have any of these keys, and a module is imported for the first that has.
_READERS = {
    "final_function_call": "run_checks:read_final_call",
    "response_contains": "response:read_response_text",
    "response_excludes": "response:read_response_text",
    "response_matches": "response:read_response_matches",
    "response_json": "response_schema:read_response_json",
    "stop_reason": "stop_reason:read_stop_reason",
    "scenario_instruction_used": "run_checks:read_instruction",
    "email_sent": "older:read_succeeded",
    "ticket_created": "older:read_succeeded",
    "ticket_fields": "older:read_ticket_fields",
    "response_body_contains": "older:read_body_text",
    "response_body_excludes": "older:read_body_text",
    **dict.fromkeys(BUDGETS, "run_checks:read_budget"),
}
_CUSTOM = "custom:read_custom"
_DEMAND_CALLS = frozenset({"final_function_call", "email_sent", "ticket_created", "ticket_fields"})
_CALLS = "expected_function_calls"


@lru_cache(maxsize=256)  # most cases have it at one and the same path
def _completes(path: Path) -> StopReason:
    """What goes without saying: the run completes."""
    return StopReason(COMPLETED, path, written=False)


def compile_expectation(
    expected: Mapping[str, Any],
    *,
    path: Path = ("expected_output",),
    declarations: Mapping[str, Declaration] | None = None,
    input: Any = None,
) -> tuple[Expectation, list[PathProblem]]:
    """Compile `expected_output`. The Expectation can be used only if there are no problems.

    `declarations` are the functions known when the case is loaded, by canonical name; without any, names of functions
    and arguments are not checked. `input` is the case's, where ``{{ input... }}`` is looked up. Each problem has the
    path of its place, starting with `path`.
    """
    return _Compilation(Reader(path, declarations or {}, input)).run(expected)


class _Compilation:
    def __init__(self, reader: Reader) -> None:
        self.path = reader.root
        self.reader = reader

    def run(self, expected: Any) -> tuple[Expectation, list[PathProblem]]:
        if not isinstance(expected, dict):
            self.reader.wrong(self.path, expected, "a mapping of what is expected")
            return Expectation(), self.reader.problems
        known = {key: value for key, value in expected.items() if self._is_known(key)}
        valid = self._valid_arguments(known)
        calls = CallReader(self.reader, valid_arguments=valid, ignored=self._ignored(known))
        listed = self._calls(known, calls)
        forbidden = self._forbidden(known, calls)
        grounded = self._grounded(known)
        graded = self._graded(known)
        checks = self._run_checks(known)
        stop_reason = next((check for check in checks if isinstance(check, StopReason)), None)
        if not self.reader.problems:
            self._demands_nothing(known, listed, forbidden, grounded, graded, checks)
        self._contradictions(known, listed, forbidden)
        expectation = Expectation(
            calls=listed,
            forbidden=forbidden,
            grounded=grounded,
            valid_arguments=valid,
            stop_reason=stop_reason or _completes(self.path),
            checks=tuple(check for check in checks if check is not stop_reason),
            aliases=self.reader.aliases,
            graded=graded,
        )
        return expectation, self.reader.problems

    def _is_known(self, key: object) -> bool:
        if key in EXPECTED_KEYS or (isinstance(key, str) and key in CHECKS):
            return True
        names = [*EXPECTED_KEYS, *CHECKS]
        self.reader.unknown_key(self.path, key, names, _hint(key, names) if isinstance(key, str) else "")
        return False

    def _valid_arguments(self, expected: Mapping[str, Any]) -> bool:
        if "valid_arguments" not in expected:
            return True
        return self.reader.boolean((*self.path, "valid_arguments"), expected["valid_arguments"]) is not False

    def _ignored(self, expected: Mapping[str, Any]) -> tuple[str, ...]:
        key = "ignored_arguments"
        return tuple(self.reader.names((*self.path, key), expected[key]) or ()) if key in expected else ()

    def _choice(self, expected: Mapping[str, Any], key: str, choices: tuple[str, ...]) -> str:
        """The value of a key with a default, which is the first choice."""
        if key not in expected:
            return choices[0]
        at = (*self.path, key)
        return self.reader.choice(at, expected[key], choices) or choices[0]

    def _calls(self, expected: Mapping[str, Any], calls: CallReader) -> FunctionCalls | None:
        in_order = self._choice(expected, "call_order", CALL_ORDERS) == "strict"
        extras = self._choice(expected, "extra_calls", EXTRA_CALLS) == "allow"
        min_score = self._min_score(expected)
        if _CALLS not in expected:
            return None
        at = (*self.path, _CALLS)
        sequence = SequenceReader(self.reader, calls)
        plan = sequence.plan(at, expected[_CALLS], in_order=in_order, extras=extras)
        if plan is None:
            return None
        return FunctionCalls(at, tuple(sequence.leaves), plan, sequence.groups, min_score, is_listed(plan))

    def _min_score(self, expected: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
        if "min_score" not in expected:
            return ()
        at, value = (*self.path, "min_score"), expected["min_score"]
        scores = value if isinstance(value, dict) else {"f1": value}
        if not scores:
            self.reader.wrong(at, value, "a number from 0 to 1, or a mapping of scores to such numbers")
        found = []
        for name, least in scores.items():
            here = (*at, name) if isinstance(value, dict) else at
            if name not in SCORES:
                self.reader.unknown_key(at, name, SCORES)
            elif isinstance(least, bool) or not isinstance(least, (int, float)) or not 0 <= least <= 1:
                self.reader.no_number(here, least, "a number from 0 to 1")
            else:
                found.append((name, least))
        return tuple(found)

    def _forbidden(self, expected: Mapping[str, Any], calls: CallReader) -> ForbiddenCalls | None:
        key = "forbidden_function_calls"
        if key not in expected:
            return None
        from evalkit.checks.every_call import read_forbidden

        return read_forbidden(calls, (*self.path, key), expected[key])

    def _grounded(self, expected: Mapping[str, Any]) -> GroundedCalls | None:
        if "grounded" not in expected:
            return None
        at = (*self.path, "grounded")
        names = read_grounded(self.reader, at, expected["grounded"])
        if names is None:
            return None
        declared = self.reader.declarations
        known = [known_arguments(declaration) for declaration in declared.values()]
        for name in names if declared and None not in known else ():
            if not any(name in arguments for arguments in known if arguments is not None):
                hint = did_you_mean(name, sorted(set().union(*(arguments or () for arguments in known))))
                self.reader.problem(
                    at, f"{self.reader.shown(at)}: no function has an argument '{name}'{hint}", "unknown_argument"
                )
        from evalkit.checks.every_call import GroundedCalls

        return GroundedCalls(names, at, tuple((name, offered(declaration)) for name, declaration in declared.items()))

    def _graded(self, expected: Mapping[str, Any]) -> ModelGraded | None:
        if "judge" not in expected:
            return None
        from evalkit.checks.graded import read_graded

        return read_graded(self.reader, (*self.path, "judge"), expected["judge"])

    def _run_checks(self, expected: Mapping[str, Any]) -> list[RunCheck]:
        checks: list[RunCheck | None] = []
        for key, value in expected.items():
            at = (*self.path, key)
            if key in _READERS or key not in EXPECTED_KEYS:
                checks.append(_reader(_READERS.get(key, _CUSTOM))(self.reader, at, value))
        return [check for check in checks if check is not None]

    def _demands_nothing(self, expected: Mapping[str, Any], *found: Any) -> None:
        """A case that can't fail is no case."""
        if any(found) and expected.keys() - MODIFIERS:
            return
        keys = ", ".join(f"'{key}'" for key in expected)
        what = f"only {keys}, which demand{'s' if len(expected) == 1 else ''} nothing" if expected else "empty"
        message = f"{self.reader.shown(self.path)} is {what}; write what must hold, for example {_CALLS}"
        self.reader.problem(self.path, message, "no_expectation")

    def _contradictions(
        self, expected: Mapping[str, Any], calls: FunctionCalls | None, forbidden: ForbiddenCalls | None
    ) -> None:
        for key in ("response", "response_body"):
            excluded = f"{key}_excludes"
            if excluded in expected:
                from evalkit.checks.contradictions import excluded_in_wanted

                wanted = expected.get(f"{key}_contains")
                excluded_in_wanted(self.reader, (*self.path, excluded), wanted, expected[excluded])
        if not _DEMAND_CALLS.isdisjoint(expected):
            from evalkit.checks.contradictions import calls_beside_the_list

            never = [entry.function_name for entry in forbidden.forbidden if not entry.checks] if forbidden else []
            calls_beside_the_list(self.reader, expected, calls.leaves if calls else (), never)
        if forbidden is not None:
            self._forbidden_and_wanted(expected, calls, forbidden)

    def _forbidden_and_wanted(
        self, expected: Mapping[str, Any], calls: FunctionCalls | None, forbidden: ForbiddenCalls
    ) -> None:
        from evalkit.checks.contradictions import always_forbidden

        for entry in forbidden.forbidden:
            for leaf in calls.leaves if calls else ():
                demanded, ruled_out = (_item(expected, call.path, self.path) for call in (leaf, entry))
                if leaf.function_name == entry.function_name and always_forbidden(demanded, ruled_out):
                    here, there = self.reader.shown(leaf.path), self.reader.shown(entry.path)
                    self.reader.problem(leaf.path, f"{here} expects {leaf.function_name}, which {there} forbids")


def _reader(where: str) -> _Read:
    module, _, function = where.partition(":")
    found: _Read = getattr(import_module(f"evalkit.checks.{module}"), function)
    return found


def _hint(key: str, names: list[str]) -> str:
    """What was probably meant by an unknown key of `expected_output`."""
    from difflib import get_close_matches

    near = meant(key, names)
    if key in CALL_KEYS:
        return f"; it belongs in a call of {_CALLS}"
    if text_argument(key) and not get_close_matches(key, names, 1, 0.85):
        return f"; it belongs in a call of {_CALLS}{near.replace('; did', ', or did')}"
    return near or f"; a key of your own needs a check registered with @evalkit.check({shown(key)})"


def _item(expected: Any, path: Path, root: Path) -> Any:
    """What stands at `path` in the mapping that stands at `root`."""
    for step in path[len(root) :]:
        expected = expected[step]
    return expected
