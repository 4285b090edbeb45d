"""Could anything satisfy this case? Its expected calls are made against its own mocks, and judged by itself.

Each alternative of a `one_of` is walked. What the case leaves open is filled in; where no value was found, or where
only a real run can tell (time, tokens, a user's own check), the walk says "not checked" instead of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.checks.judgement import Judgement
from evalkit.checks.keys import EXPECTED_KEYS
from evalkit.checks.references import resolver
from evalkit.errors import FunctionError, MockError, shown_path
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.model.case import Case, Declaration
from evalkit.model.settings import Settings
from evalkit.model.template import TemplateError
from evalkit.model.transcript import FunctionCall, Transcript
from evalkit.model.verdict import CheckResult, Reason
from evalkit.pipeline.aliases import with_aliases
from evalkit.pipeline.judging import path_of
from evalkit.probing.calls import (
    PHRASES,
    Made,
    Path,
    Wanted,
    implied,
    left_open,
    listed_texts,
    make_arguments,
    refused,
    variants,
    wanted_calls,
)
from evalkit.probing.examples import Impossible, Resolve, Unsure, example, texts_of, unmatchable

ADVICE = {
    "invalid_arguments": "change the expected arguments or the declared schema; `valid: false` expects a violation",
    "unmocked_call": "add an answer for it under input.mock_function_responses",
    "unknown_function": "declare it under functions, or correct its name",
    "result_mismatch": "let the mock return it, or expect what the mock returns",
    "wrong_outcome": "let the mock fail or succeed as expected, or change `outcome`",
    "text_missing": "the expected texts contradict each other; take one of them away",
    "text_forbidden": "the same text is demanded and excluded; take one of them away",
    "forbidden_call": "this call is expected and forbidden; take one of them away",
    "unresolved_reference": "name a call that is made before, and a key that its mock returns",
    "unmatchable_pattern": "correct the pattern",
    "ungrounded_argument": "the expected value is in neither the input nor an earlier result; correct it or `grounded`",
    "budget_exceeded": "raise the limit: the expected calls alone exceed it",
    "mock_error": "mend the mock",
}
_GUESSABLE = frozenset(
    {"text_forbidden", "wrong_argument", "missing_argument", "ungrounded_argument", "text_missing", "invalid_arguments"}
)
# What is judged by the names and the number of calls alone.
_WHATEVER_IS_SENT = frozenset(("max_function_calls", "final_function_call"))


class Finding(Struct, frozen=True):
    """Why the case can't be satisfied. `location` is ``file:line:col``."""

    code: str
    place: str
    location: str
    message: str
    advice: str


class Walked(Struct, frozen=True):
    """What a walk found. `not_checked` are sentences on what it could not tell."""

    case_id: str
    findings: tuple[Finding, ...] = ()
    not_checked: tuple[str, ...] = ()
    calls: int = 0


def walk_case(
    case: Case, settings: Settings | None = None, declarations: Mapping[str, Declaration] | None = None
) -> Walked:
    """Walk every expectation of a loaded case. `declarations` are those that its agent brings (an instruction file)."""
    known = {**(declarations or {}), **{function.name: function for function in case.functions}}
    walk = _Walk(case, settings or Settings(), known)
    expectation, turns = with_aliases(case, case.expectation, known.values())
    if expectation is not None:
        for variant in range(variants(case.expected_output.get("expected_function_calls"))):
            walk.start()
            walk.expectation(case.expected_output, ("expected_output",), expectation, variant, None)
    listed: Any = case.input.get("turns") or []
    walk.start()
    for number, turn in enumerate(turns):
        if turn is not None:
            path: Path = ("input", "turns", number, "expected_output")
            walk.expectation(listed[number]["expected_output"], path, turn, 0, number)
    return Walked(case.id, tuple(dict.fromkeys(walk.findings)), tuple(dict.fromkeys(walk.notes)), walk.made)


class _Walk:
    """One case on its way."""

    def __init__(self, case: Case, settings: Settings, declarations: Mapping[str, Declaration]) -> None:
        self._case = case
        self._settings = settings
        self._declarations = declarations
        self._aliases = {alias: one for one in declarations.values() for alias in one.aliases}
        self._named = {alias: one.name for alias, one in self._aliases.items()}
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.made = 0
        self.start()

    def start(self) -> None:
        """Mocks from their beginning."""
        self._dispatcher = FakeDispatcher(
            self._case.mocks, self._declarations.values(), input=self._case.input, settings=self._settings,
            case_id=self._case.id,
        )  # fmt: skip
        self._turns: dict[Path, int] = {}
        self._turn = -1
        self._unsure: set[int] = set()  # calls of which nothing certain can be said
        self._undeclared: set[int] = set()
        self._guessed: dict[int, set[str]] = {}
        self._places: dict[int, Path] = {}

    def _find(self, code: str, path: Path, message: str) -> None:
        location = str(self._case.locate(path))
        advice = ADVICE.get(code, "change the expectation or the mock")
        self.findings.append(Finding(code, shown_path(path), location, message, advice))

    def expectation(
        self, expected: Mapping[str, Any], path: Path, compiled: Expectation, variant: int, user_turn: int | None
    ) -> None:
        # The whole is judged as if all was said by now: which call belongs to which turn is not written there.
        self._dispatcher.user_turn = max(len(self._case.turns) - 1, 0) if user_turn is None else user_turn
        listed = expected.get("expected_function_calls")
        wanted = list(wanted_calls(listed, (*path, "expected_function_calls"), variant)) if listed else []
        if listed is None:
            wanted = [Wanted(keys, path) for keys in implied(expected)]
        for one in wanted:
            for _ in range(one.times):
                self._call(one, expected)
        self._time(expected, path)
        transcript = self._transcript(expected, path, user_turn)
        judgement = compiled.judge(transcript, input=self._case.input, mode="judge", user_turn=user_turn)
        self._report(judgement, path)

    def _call(self, wanted: Wanted, expected: Mapping[str, Any]) -> None:
        declaration = self._declarations.get(wanted.name) or self._aliases.get(wanted.name)
        if wanted.name == "create_ticket" and expected.get("ticket_fields") and "arguments" not in wanted.keys:
            fields = {**expected["ticket_fields"], **(wanted.keys.get("arguments_contain") or {})}
            wanted = replace(wanted, keys={**wanted.keys, "arguments_contain": fields})
        made = make_arguments(wanted, declaration, self._resolver())
        if wanted.name == "send_email" and "body" not in made.arguments:
            made.arguments.update(self._body(expected))
        index = len(self._dispatcher.calls)
        self._note(wanted, made, declaration, index)
        self._places[index] = wanted.path
        self._guessed[index] = made.guessed
        channels = wanted.keys.get("channel", "native")
        try:
            self._dispatcher.call(
                wanted.name, made.arguments, turn=self._turn_of(wanted),
                channel=channels[0] if isinstance(channels, list) else channels,
            )  # fmt: skip
        except (FunctionError, MockError) as error:  # a failure is what the agent would see, and the judge judges
            mock = self._case.mocks.answers.get(wanted.name)
            note = left_open(wanted, declaration, mock, error, bool(self._unsure))
            if note is not None:
                self.notes.append(f"{shown_path(wanted.path)}: {note}")
            elif isinstance(error, MockError):
                self._find("mock_error", wanted.path, str(error))
            if note is not None or isinstance(error, MockError):
                self._unsure.add(index)
        self.made += 1

    def _resolver(self) -> Resolve:
        return resolver(self._dispatcher.calls, self._case.input, self._named)

    def _time(self, expected: Mapping[str, Any], path: Path) -> None:
        """Calls may be made at once, but no run is shorter than what one mock takes."""
        longest = max(self._dispatcher.calls, key=lambda call: call.duration_ms, default=None)
        limit = expected.get("processing_time_ms")
        if longest is not None and isinstance(limit, (int, float)) and longest.duration_ms > limit:
            says = f"the mock of {longest.name} alone takes {longest.duration_ms:g} ms, more than {limit:g} ms"
            self._find("budget_exceeded", (*path, "processing_time_ms"), says)

    def _body(self, expected: Mapping[str, Any]) -> dict[str, str]:
        phrases = listed_texts(expected.get("response_body_contains"))
        return {"body": "\n".join(phrases)} if phrases else {}

    def _note(self, wanted: Wanted, made: Made, declaration: Declaration | None, index: int) -> None:
        for path, code, message in made.wrong:
            self._find(code, path, message)
        said, guessed = refused(made, declaration)
        self.notes += [f"{shown_path(wanted.path)}: {what}" for what in made.unsure]
        self.notes += [
            f"{shown_path(wanted.path)}: a value that was filled in does not fit: {what}" for what in guessed
        ]
        if declaration is None and wanted.keys.get("valid") is False:
            self.notes.append(f"{shown_path(wanted.path)}.valid: the case does not declare {wanted.name}")
            self._undeclared.add(index)
        if made.wrong or made.unsure or (guessed and not said):
            self._unsure.add(index)

    def _turn_of(self, wanted: Wanted) -> int:
        if wanted.together is not None and wanted.together in self._turns:
            return self._turns[wanted.together]
        self._turn += 1
        if wanted.together is not None:
            self._turns[wanted.together] = self._turn
        return self._turn

    def _transcript(self, expected: Mapping[str, Any], path: Path, user_turn: int | None) -> Transcript:
        response = self._response(expected, path)
        number = self._dispatcher.user_turn
        return Transcript(
            input=self._case.input,
            calls=self._dispatcher.calls,
            response=response,
            responses=(*[""] * number, response),
            stop_reason=expected.get("stop_reason", "completed"),
            instruction_used=expected.get("scenario_instruction_used"),
            functions=self._dispatcher.names,
        )

    def _response(self, expected: Mapping[str, Any], path: Path) -> str:
        lines = []
        resolve = self._resolver()
        for key in PHRASES:
            for number, phrase in enumerate(listed_texts(expected.get(key))):
                try:
                    lines.append(str(example(phrase, resolve)))
                except TemplateError as error:
                    self._find("unresolved_reference", (*path, key, number), str(error))
                except (Unsure, Impossible):
                    self.notes.append(f"{shown_path((*path, key, number))}: no text was found")
        for number, pattern in enumerate(listed_texts(expected.get("response_matches"))):
            hopeless = unmatchable("$search", pattern)
            if hopeless:
                self._find("unmatchable_pattern", (*path, "response_matches", number), hopeless)
            lines.append(next(texts_of(pattern), ""))
        return "\n".join(lines)

    def _report(self, judgement: Judgement, path: Path) -> None:
        for line in judgement.calls:
            call = line.call
            for result in line.results:
                for reason in result.reasons:
                    self._judged(reason, call, path)
        for check in judgement.checks:
            self._run_check(check, path)

    def _judged(self, reason: Reason, call: FunctionCall | None, path: Path) -> None:
        if call is None:
            if not self._unsure:
                self._find(reason.code, path_of(reason.place) or path, reason.message)
            return
        if call.index in self._undeclared and reason.code == "valid_arguments":
            return
        guessed = bool(reason.path) and reason.path[0] in self._guessed.get(call.index, ())
        if call.index in self._unsure or (guessed and reason.code in _GUESSABLE):
            if call.index not in self._unsure:
                self.notes.append(f"{shown_path(self._places[call.index])}: {reason.message}")
            return
        self._find(reason.code, self._place(reason, call, path), reason.message)

    def _place(self, reason: Reason, call: FunctionCall, path: Path) -> Path:
        named = path_of(reason.place)
        return named if len(named) > len(path) else self._places.get(call.index, path)

    def _run_check(self, check: CheckResult, path: Path) -> None:
        if check.check == "judge":
            self.notes.append(f"{shown_path(path)}.judge: {check.message.removeprefix('not judged: ')}")
        if check.status != "failed":
            return
        key = check.check.partition("[")[0]
        if key not in EXPECTED_KEYS or key in ("response_json", "response_matches", "min_score"):
            self.notes.append(f"{shown_path(path)}.{key}: only a run can tell")
            return
        is_told = any(finding.code == "unresolved_reference" for finding in self.findings)
        for reason in check.reasons:
            if not is_told and (not self._unsure or key in _WHATEVER_IS_SENT):
                self._find(reason.code, path_of(reason.place) or path, reason.message)
