"""Approvals: what a person answers to calls that need one, as `input.approvals` says.

A function that is declared with `needs_approval` asks when it is called; frameworks ask by their own means, and an
adapter answers them before the call is made. Without an answer in the case nothing is approved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from evalkit.checks.expectation import Expectation
from evalkit.errors import EvalkitError, FunctionError, KeyPath, MockError, PathProblem, did_you_mean, format_path
from evalkit.features.approvals.records import APPROVED, CHANGED, NAME, Approval
from evalkit.fields.reader import FieldReader
from evalkit.functions.call_log import PendingCall
from evalkit.functions.declarations import find_argument_names, find_argument_violations
from evalkit.hooks import RunPart
from evalkit.jsonvalue import JsonObject, JsonValue, copy_json
from evalkit.records.case import Declaration
from evalkit.records.transcript import DENIED, AgentValue, RunFault, Transcript
from evalkit.text.format import format_value

_DEFAULT_REASON = "a person denied this call"
_FORMS = "approve, deny, {deny: why}, {arguments: {...}} or a list of these, one for each request"
_RESUME = "resume"
_INTERRUPTED = "interrupted"  # the stop reason of a run that waits for a person
_UNKNOWN = ("additionalProperties",)  # where in a schema unknown arguments are refused
ApprovalRequest = tuple[str, AgentValue, str | None]  # function (or node of a graph), arguments, id of the call


class ApprovalAnswer(Struct, frozen=True):
    """An answer in the case. `resume` is for a graph that waits for something else than the approval of a call."""

    answer: str
    reason: str = ""
    changes: JsonObject = field(default_factory=dict)
    resume: JsonValue = None
    is_free: bool = False  # it has `resume`


class ApprovalAnswers(Struct, frozen=True):
    """The answers for one function: one for every request, or a list of them, one for each."""

    answers: tuple[ApprovalAnswer, ...]
    is_list: bool = False


class MissingApprovalError(MockError):
    """A call needs the approval of a person, and the case does not answer."""

    code = "missing_approval"
    is_unanswered = True


class Decision(Struct, frozen=True, kw_only=True):
    """An answer to one request. `arguments` are those of the call from now on, `asked` those that it was made with."""

    function: str
    call_id: str | None
    answer: ApprovalAnswer
    asked: AgentValue

    @property
    def is_denied(self) -> bool:
        """True if the call is not made."""
        return self.answer.answer == DENIED

    @property
    def reason(self) -> str:
        """Why the call is denied, as the agent learns it."""
        return self.answer.reason or _DEFAULT_REASON

    @property
    def arguments(self) -> AgentValue:
        """The arguments that the call is made with."""
        if self.answer.answer != CHANGED or not isinstance(self.asked, dict):
            return self.asked
        return {**self.asked, **copy_json(self.answer.changes)}

    def to_record(self) -> Approval:
        """Return what the record of the call says of the answer."""
        return Approval(
            answer=self.answer.answer,
            reason=self.answer.reason,
            asked=self.asked if self.answer.answer == CHANGED else None,
        )


class ApprovalDesk(RunPart):
    """The person of one run: answers requests in the order in which they are made."""

    feature = NAME

    def __init__(self, answers: Mapping[str, ApprovalAnswers], resolve_name: Callable[[str], str]) -> None:
        self.answers = answers
        self.resolve_name = resolve_name
        self.counts: Counter[str] = Counter()
        self.pending: list[Decision] = []  # answers to frameworks, whose calls are still to be made

    def answer(self, call: PendingCall) -> EvalkitError | None:
        """Apply what a person answers to a call that needs approval."""
        decision = self.take(call.name, call.context.call_id)
        if decision is None and self._must_ask(call):
            try:
                decision = self.ask(call.name, call.arguments)
            except MissingApprovalError as error:
                return error
        if decision is None:
            return None
        call.features = {**call.features, NAME: decision.to_record().to_data()}
        if any(call.arguments.get(name) != value for name, value in decision.answer.changes.items()):
            call.arguments = {**call.arguments, **copy_json(decision.answer.changes)}
            call.real = None  # it would run with the arguments as they were
        return FunctionError(DENIED, decision.reason) if decision.is_denied else None

    def _must_ask(self, call: PendingCall) -> bool:
        """Return whether nobody was asked yet about a call that its declaration says to ask about."""
        told = {} if call.declaration is None else call.declaration.features
        return bool(told.get("needs_approval")) and NAME not in call.features

    def finish(self, transcript: Transcript, expectations: Sequence[Expectation | None]) -> Transcript:
        """Mark a run as not measured that ended at a person whom the case does not play."""
        waits_for = transcript.metadata.get("waits_for")
        if transcript.fault is not None or transcript.stop_reason != _INTERRUPTED or not waits_for:
            return transcript
        if any(wanted and wanted.stop_reason.stop_reason == _INTERRUPTED for wanted in expectations):
            return transcript
        fault = RunFault(code=MissingApprovalError.code, message=str(waits_for), measured=False)
        return replace(transcript, fault=fault)

    def decide(self, name: str, arguments: AgentValue, call_id: str | None = None) -> Decision | None:
        """Answer a request of a function, or of a node of a graph; None if the case has no answer for it."""
        full_name = self.resolve_name(name)
        key = next((key for key in self.answers if self.resolve_name(key) == full_name), None)
        if key is None:
            return None
        answers, count = self.answers[key], self.counts[key]
        if answers.is_list and count >= len(answers.answers):
            return None
        self.counts[key] += 1
        answer = answers.answers[count if answers.is_list else 0]
        return Decision(function=full_name, call_id=call_id, answer=answer, asked=arguments)

    def decide_all(self, requests: Sequence[ApprovalRequest]) -> list[Decision] | None:
        """Answer what a framework asks at once; None if an answer is missing.

        The calls take their answers from here when they are made, or refused.
        """
        counts = self.counts.copy()
        decisions = [self.decide(*request) for request in requests]
        complete = [decision for decision in decisions if decision is not None]
        if not decisions or len(complete) < len(decisions):
            self.counts = counts
            return None
        self.pending += [decision for decision in complete if not decision.answer.is_free]
        return complete

    def explain_missing(self, requests: Sequence[ApprovalRequest]) -> str:
        """Word which of the requests has no answer; nothing if each has one."""
        counts = self.counts.copy()
        missing = next((request for request in requests if self.decide(*request) is None), None)
        self.counts = counts
        return "" if missing is None else explain_missing(missing[0], missing[1], counts[missing[0]])

    def take(self, name: str, call_id: str | None) -> Decision | None:
        """Return the answer that a framework got for this call already."""
        for decision in self.pending:
            if decision.function == name and (call_id is None or decision.call_id in (None, call_id)):
                self.pending.remove(decision)
                return decision
        return None

    def forget(self, decision: Decision) -> None:
        """Forget an answer that no call is going to take."""
        self.pending = [kept for kept in self.pending if kept is not decision]

    @property
    def has_answers(self) -> bool:
        """True if the case has an answer to anything."""
        return bool(self.answers)

    def ask(self, name: str, arguments: AgentValue) -> Decision:
        """Answer the request of a declared function. Raises MissingApprovalError."""
        decision = self.decide(name, arguments)
        if decision is None or decision.answer.is_free:
            count = 0 if decision is not None else self.counts[name]
            raise MissingApprovalError(explain_missing(name, arguments, count))
        return decision

    def find_unused(self) -> Iterator[str]:
        """Word a sentence for each answer that nobody asked for."""
        for name, answers in self.answers.items():
            count = self.counts[name]
            if not count:
                yield f"approvals.{name} answers no request: no call of {name} asked for approval"
            elif answers.is_list and count < len(answers.answers):
                yield f"approvals.{name}[{count}] was never reached"


def explain_missing(name: str, arguments: AgentValue, count: int = 0) -> str:
    """Word that a call needs approval, and what to write."""
    number = f"request {count + 1} of {name}" if count else name
    arguments_text = f" (with {format_value(arguments, 120)})" if arguments else ""
    return (
        f"{number} needs the approval of a person{arguments_text}, and the case has no answer; "
        f"write input.approvals: {{{name}: approve}}, or deny"
    )


def parse_approvals(
    value: object, declarations: Mapping[str, Declaration]
) -> tuple[Mapping[str, ApprovalAnswers], list[PathProblem]]:
    """Read `input.approvals`, with everything that is wrong with it. Without declarations no name is checked."""
    path: KeyPath = ("input", "approvals")
    reader = _ApprovalReader(path)
    answers: dict[str, ApprovalAnswers] = {}
    for name, item in (reader.read_mapping(path, value, "a mapping of functions to answers") or {}).items():
        if item is None:  # null takes away what a suite says
            continue
        items = item if isinstance(item, list) else [item]
        if not items:
            reader.report_wrong((*path, name), item, _FORMS)
        read = [
            reader.read_answer((*path, name, *([index] if isinstance(item, list) else [])), entry)
            for index, entry in enumerate(items)
        ]
        listed = tuple(answer for answer in read if answer is not None)
        reader.check_names((*path, name), name, listed, declarations)
        answers[name] = ApprovalAnswers(listed, isinstance(item, list))
    return answers, reader.problems


class _ApprovalReader(FieldReader):
    def read_answer(self, path: KeyPath, value: object) -> ApprovalAnswer | None:
        if value in ("approve", "deny"):
            return ApprovalAnswer(APPROVED if value == "approve" else DENIED)
        if not isinstance(value, dict) or len(value) != 1 or not value.keys() & {"deny", "arguments", _RESUME}:
            hint = did_you_mean(value, ("approve", "deny")).removeprefix("; ") if isinstance(value, str) else ""
            self.report_wrong(path, value, _FORMS, hint)
            return None
        ((key, content),) = value.items()
        if key == _RESUME:
            return ApprovalAnswer(APPROVED, resume=content, is_free=True)
        if key == "deny":
            reason = self.read_name((*path, key), content, "why, as text")
            return None if reason is None else ApprovalAnswer(DENIED, reason)
        changes = self.read_mapping((*path, key), content, "a mapping of the arguments that change")
        return None if changes is None else ApprovalAnswer(CHANGED, changes=changes)

    def check_names(
        self, path: KeyPath, name: str, answers: Iterable[ApprovalAnswer], declarations: Mapping[str, Declaration]
    ) -> None:
        """Report a function that is not declared, and arguments that it does not have."""
        aliases = {alias: declaration for declaration in declarations.values() for alias in declaration.aliases}
        declaration = declarations.get(name) or aliases.get(name)
        is_closed = not all(declared.only_patches for declared in declarations.values())
        if declaration is None and is_closed and not any(answer.is_free for answer in answers):
            names = [*declarations, *aliases]
            message = f"{self.format_place(path)}: no function '{name}' is declared{did_you_mean(name, names)}"
            self.add_problem(path, message, "unknown_function", at_key=True)
        parameters = None if declaration is None or declaration.parameters is None else declaration.parameters
        names_of_arguments = None if parameters is None else find_argument_names(parameters)
        for argument in {argument: None for answer in answers for argument in answer.changes}:
            if names_of_arguments is not None and argument not in names_of_arguments:
                hint = did_you_mean(argument, names_of_arguments)
                self.add_problem(path, f"{name} has no argument '{argument}'{hint}", "unknown_argument", at_key=True)
        for answer in answers:
            for violation in () if declaration is None else find_argument_violations(declaration, answer.changes):
                if violation.path and violation.schema_path != _UNKNOWN:  # what is missing, the call says itself
                    place = format_path(("arguments", *violation.path))
                    self.add_problem(path, f"{self.format_place(path)}: {place}: {violation.message}", at_key=True)
