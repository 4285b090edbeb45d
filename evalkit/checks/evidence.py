"""What one judgement looks at: the calls under judgement, what came before them, and what is computed from both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalkit.checks.phrases import extract_texts
from evalkit.checks.reader import ExpectationReader
from evalkit.errors import KeyPath
from evalkit.model.template import Reference, Template, TemplateError, follow_path, parse_template
from evalkit.model.transcript import FunctionCall, Transcript
from evalkit.operators.phrases import fold_text

if TYPE_CHECKING:
    from evalkit.checks.grounding import Grounding


class Evidence:
    """One transcript, or the part of it that belongs to one user turn.

    `calls` are judged; `known` are also those of earlier user turns, to which references and `grounded` may lead.
    """

    __slots__ = ("_aliases", "_folded", "_grounding", "_resolve", "calls", "input", "known_calls", "mode", "transcript")

    def __init__(
        self,
        transcript: Transcript,
        case_input: Any,
        mode: str,
        known_calls: tuple[FunctionCall, ...] | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.transcript = transcript
        self.calls = transcript.calls
        self.known_calls = transcript.calls if known_calls is None else known_calls
        self.input = case_input
        self.mode = mode
        self._aliases = aliases or {}
        self._folded: dict[int, list[str]] = {}
        self._grounding: Grounding | None = None
        self._resolve: Callable[[Reference], Any] | None = None

    @property
    def resolve(self) -> Callable[[Reference], Any]:
        """What a reference in an expected value stands for; raises TemplateError where it leads nowhere."""
        if self._resolve is None:
            self._resolve = build_resolver(self.known_calls, self.input, self._aliases)
        return self._resolve

    @property
    def grounding(self) -> Grounding:
        """The index of what the agent could have known before each call."""
        if self._grounding is None:
            from evalkit.checks.grounding import Grounding

            self._grounding = Grounding(self.input, self.known_calls)
        return self._grounding

    def fold_texts(self, value: Any) -> list[str]:
        """The folded texts of a value of the transcript, folded once however many phrases are looked for."""
        texts = self._folded.get(id(value))  # the transcript keeps the value alive, and with it its id
        if texts is None:
            texts = self._folded[id(value)] = [fold_text(value)] if type(value) is str else extract_texts(value)
        return texts


# ``{{ calls.X[n].result.path }}`` and ``{{ input.path }}`` in expected values: checked at load, resolved later.

PARTS = ("result", "arguments")


def find_references(value: Any) -> Iterator[Reference]:
    """Every reference in the strings of an expected value; below `$literal` there are none."""
    if isinstance(value, str):
        if "{{" in value:
            yield from _parse_references(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "$literal":
                yield from find_references(item)
    elif isinstance(value, list):
        for item in value:
            yield from find_references(item)


def _parse_references(text: str) -> Iterator[Reference]:
    try:
        template = parse_template(text)
    except TemplateError:
        return  # reported where the value is compiled
    if isinstance(template, Template):
        yield from (part for part in template.parts if isinstance(part, Reference))


def check_references(reader: ExpectationReader, path: KeyPath, value: Any, *, in_call: bool = False) -> bool:
    """Report references that can lead nowhere, whatever happens. Returns whether `{{ arguments... }}` is used."""
    needs_call = False
    for reference in find_references(value):
        problem = _find_problem(reader, reference, in_call)
        if problem:
            reader.add_problem(path, f"{reader.format_place(path)}: template {reference.text} {problem}")
        needs_call = needs_call or reference.root == "arguments"
    return needs_call


def _find_problem(reader: ExpectationReader, reference: Reference, in_call: bool) -> str:
    if reference.root == "state":
        return "can't be known here: state belongs to the mocks; expectations may use calls, input and arguments"
    if reference.root == "arguments":
        return "" if in_call else "can't be known here: arguments are those of one expected call"
    return (
        _find_calls_problem(reader, reference) if reference.root == "calls" else _find_input_problem(reader, reference)
    )


def _find_input_problem(reader: ExpectationReader, reference: Reference) -> str:
    if reader.case_input is None:
        return ""
    try:
        follow_path(reader.case_input, reference.path, "")
    except TemplateError as error:
        return str(error).removeprefix("template  ")
    return ""


def _find_calls_problem(reader: ExpectationReader, reference: Reference) -> str:
    from evalkit.errors import did_you_mean

    path = reference.path
    if not path or not isinstance(path[0], str):
        return "names no function; write {{ calls.create_ticket.result.ticket_id }}"
    if reader.declarations and reader.find_canonical(path[0]) is None:
        return f"names '{path[0]}', which is not declared{did_you_mean(path[0], reader.declarations)}"
    rest = path[1:]
    if rest and isinstance(rest[0], int):
        if rest[0] < 1:
            return "counts calls from 0; the first call is [1], as in the trace"
        rest = rest[1:]
    if not rest or rest[0] not in PARTS:
        return f"must go on with .result or .arguments after the function{did_you_mean(rest[0] if rest else '', PARTS)}"
    return ""


def build_resolver(
    calls: Sequence[FunctionCall], case_input: Any, aliases: Mapping[str, str] | None = None
) -> Callable[[Reference], Any]:
    """What a reference stands for, given the calls made and the case's input. Raises TemplateError where nothing is.

    `aliases` give the names that functions are recorded under.
    """

    def resolve(reference: Reference) -> Any:
        if reference.root == "input":
            return follow_path(case_input, reference.path, reference.text)
        if reference.root == "calls":
            return _resolve_call_reference(calls, reference, aliases or {})
        raise TemplateError(f"template {reference.text} can't be known here")

    return resolve


def build_call_resolver(resolve: Callable[[Reference], Any], call: FunctionCall) -> Callable[[Reference], Any]:
    """As `resolve`, where ``arguments`` are those of `call`."""

    def resolve_in_call(reference: Reference) -> Any:
        if reference.root == "arguments":
            return follow_path(call.arguments, reference.path, reference.text)
        return resolve(reference)

    return resolve_in_call


def _resolve_call_reference(calls: Sequence[FunctionCall], reference: Reference, aliases: Mapping[str, str]) -> Any:
    name, *rest = reference.path
    names = (name, aliases.get(str(name), name))
    named = [call for call in calls if call.name in names or call.requested_name == name]
    successful = [call for call in named if call.outcome == "ok"]
    number = rest.pop(0) if rest and isinstance(rest[0], int) else 1
    if not isinstance(number, int) or not 1 <= number <= len(successful):
        counts = _describe_count(str(name), len(successful), len(named))
        raise TemplateError(f"template {reference.text} leads nowhere: {counts}")
    part, *path = rest
    call = successful[number - 1]
    return follow_path(call.result if part == "result" else call.arguments, tuple(path), reference.text)


def _describe_count(name: str, successful: int, attempts: int) -> str:
    if not attempts:
        return f"{name} was not called"
    if not successful:
        return f"{name} was called, but never successfully"
    return f"{name} succeeded {successful} time{'s' if successful > 1 else ''}"
