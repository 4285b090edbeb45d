"""`evalkit import` and `evalkit record-mocks`: cases of logged conversations, and mocks of calls of real functions.

An import writes case files with their mocks, cassettes and instructions; a recording keys of a mock file, and a schema
beside it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

from msgspec import Struct

from evalkit.config import read_options, read_python_path
from evalkit.errors import SpecError, UsageError
from evalkit.features.recorded_runs.importing import CaseFiles, build_case_files, read_conversations
from evalkit.functions.mocks.files import RecordedCall, build_answer, build_returns_schema, record_calls
from evalkit.hosts.commands.api import build_redactor, open_project
from evalkit.hosts.traces.log_formats import Conversation, UnreadableLogError
from evalkit.project import put_on_path
from evalkit.records.settings import HttpSettings
from evalkit.runner.run_case import run_case
from evalkit.text.format import format_case_count, format_count
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.write import YamlEditor, dump

_BARE_REDACTED = re.compile(r"(?m)([:-]) (\[redacted\])$")  # in YAML, unquoted, it would be a list
_CATEGORY = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")


class ImportRequest(Struct, frozen=True, kw_only=True):
    """The options of an import. `agent` None: the cases run under the instruction of the log itself."""

    to: Path
    category: str
    form: str | None = None
    agent: str | None = None


class _WrittenCase(Struct, frozen=True):
    case: Path
    others: tuple[Path, ...]  # that were written beside it
    notes: tuple[str, ...]


class _CaseWriter:
    """A writer of the files of one import, which overwrites no file."""

    def __init__(self, request: ImportRequest) -> None:
        self._request = request
        self._project = open_project()
        self._redact = build_redactor(self._project.root)
        self._next = 1
        self._instructions = {_strip_name(path.read_bytes()): path.stem for path in self._find_instructions()}

    def write(self, conversation: Conversation) -> _WrittenCase:
        """Write the files of a case. Raise UnreadableLogError, and write nothing, if the conversation makes no case."""
        files, instruction = self._build_files(conversation)
        while True:  # to the next number that neither a case nor a cassette has
            case = self._request.to / f"{self._request.category}_{self._next:03}.yaml"
            inside = case.resolve().relative_to(self._project.root)
            cassette = self._project.root / self._project.settings.cassettes / inside
            self._next += 1
            if not case.exists() and not cassette.exists():
                break
        texts = {case: files.case, cassette: files.cassette}
        if files.instruction is not None and not instruction.exists():
            texts[instruction] = files.instruction
        for path, data in [(path, self._encode(text)) for path, text in texts.items()]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return _WrittenCase(case, tuple(texts)[1:], files.notes)

    def _encode(self, text: str) -> bytes:
        try:
            return _BARE_REDACTED.sub(r'\1 "\2"', self._redact(text)).encode()
        except UnicodeEncodeError as error:
            raise UnreadableLogError(f"{text[error.start]!r} is no character, and it is in the instruction") from None

    def _build_files(self, conversation: Conversation) -> tuple[CaseFiles, Path]:
        """Return the files, and the path of the instruction: of an existing file with the same text, or a new one."""
        category = self._request.category
        files = build_case_files(conversation, agent=self._request.agent, name=category)
        name = category
        if files.instruction is not None:
            content = _strip_name(self._encode(files.instruction))
            used_names = {*self._instructions.values(), *(path.stem for path in self._find_instructions())}
            names = chain([category], (f"{category}-{number}" for number in count(2)))
            name = self._instructions.get(content) or next(free for free in names if free not in used_names)
            self._instructions[content] = name
        if name != category:
            files = build_case_files(conversation, agent=self._request.agent, name=name)
        return files, self._request.to / f"{name}.md"

    def _find_instructions(self) -> list[Path]:
        """Return the category's instruction files, the highest number first: of equal ones the lowest counts."""
        category = re.escape(self._request.category)
        paths = self._request.to.glob("*.md") if self._request.to.is_dir() else ()
        mine = [path for path in paths if re.fullmatch(rf"{category}(-[0-9]+)?", path.stem)]
        return sorted(mine, key=lambda path: (len(path.stem), path.stem), reverse=True)

    def explain_failure(self, case: Path) -> str | None:
        """Return why the case does not pass offline; None if it does."""
        try:
            loaded = self._project.load_case(case)
        except SpecError as error:
            return str(error)
        verdict = run_case(loaded, settings=self._project.settings)
        return None if verdict.passed else "; ".join(reason.message.split("\n")[0] for reason in verdict.reasons[:2])


def _strip_name(instruction: bytes) -> bytes:
    """Return an instruction file without its second line, which is its name."""
    lines = instruction.split(b"\n", 2)
    return b"\n".join((lines[0], *lines[2:]))


def import_logs(logs: Sequence[Path], request: ImportRequest) -> Iterator[tuple[str, bool]]:
    """Yield lines to show, and whether each reports a problem. Raise UsageError for bad options."""
    if not _CATEGORY.fullmatch(request.category):
        raise UsageError(
            f"--category: {request.category!r} is no name of a category; expected small letters, digits, _ and -"
        )
    if not request.to.resolve().is_relative_to(Path.cwd()):
        raise UsageError(f"--to: {request.to} is outside the project {Path.cwd()}; cases live below its root")
    writer = _CaseWriter(request)
    harmless = HttpSettings(**read_options(Path.cwd()).get("http", {})).harmless
    case_count = failure_count = 0
    for log in logs:
        for conversation in read_conversations(log, request.form, harmless):
            if isinstance(conversation, UsageError):
                yield str(conversation), True
                continue
            try:
                result = writer.write(conversation)
            except (UnreadableLogError, UsageError) as error:  # no case, or with what no YAML file can hold
                yield f"{conversation.source}: {error}", True
                continue
            case_count += 1
            case, *others = (
                path.resolve().relative_to(Path.cwd()).as_posix() for path in (result.case, *result.others)
            )
            yield f"wrote {case}", False
            yield from ((f"  with {other}", False) for other in others)
            yield from ((f"  note: {note}", False) for note in result.notes)
            failure = writer.explain_failure(result.case) if request.agent is None else None
            if failure is not None:
                failure_count += 1
                yield f"  does not pass as it is: {failure}", True
    summary = f"{format_case_count(case_count)} from {format_count(len(logs), 'log')}"
    if case_count and request.agent is None:
        summary += f", {case_count - failure_count} of them pass offline; now run: pytest --evalkit"
    yield summary, not case_count


_ENDINGS = (".yaml", ".yml")
_LINE_KEYS = {"key", "arguments"}


class MockCall(Struct, frozen=True):
    """A call to make, and the key for its result."""

    key: str
    arguments: Mapping[str, Any]


def parse_calls(call_texts: Sequence[str], file: Path | None, key: str | None) -> list[MockCall]:
    """Return the calls of the options and of the lines of `file`. Raise UsageError for an invalid one."""
    texts = [(f"--call {text}", text) for text in call_texts]
    lines = file.read_text("utf-8").splitlines() if file is not None else []
    texts += [(f"{file}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not texts:
        raise UsageError('record-mocks needs calls: --call \'{"argument": "value"}\', or --calls FILE')
    calls = []
    for source, text in texts:
        try:
            call = json.loads(text)
        except ValueError as error:
            raise UsageError(f"{source}: not JSON: {error}") from None
        if not isinstance(call, dict):
            raise UsageError(f"{source}: a call is a JSON object of arguments by name")
        if call.keys() == _LINE_KEYS and isinstance(call["arguments"], dict):
            calls.append(MockCall(str(call["key"]), call["arguments"]))
        elif key is None:
            raise UsageError(f'{source}: under which key? Say --key, or write {{"key": ..., "arguments": {{...}}}}')
        else:
            calls.append(MockCall(key, call))
    return calls


def record_mocks(target: str, calls: Sequence[MockCall], to: Path, *, force: bool) -> Iterator[str]:
    """Make the calls, write `to` and the schema beside it, and yield what was written: nothing, if a call fails."""
    root = Path.cwd()
    if to.suffix not in _ENDINGS:
        raise UsageError(f"--to {to}: a mock file is YAML; name it {to.with_suffix('.yaml')}")
    before = to.read_bytes().decode("utf-8") if to.exists() else ""  # with its line ends as they are
    present = load(before, str(to)) if before.strip() else {}
    if not isinstance(present, dict):
        raise UsageError(f"{to} holds no mapping, so that no key can be added")
    keys = [call.key for call in calls if call.key in present]
    if keys and not force:
        raise UsageError(f"{to} has the key '{keys[0]}' already; nothing was called. Choose another, or add --force")
    put_on_path(read_python_path(root), root)
    recorded_calls = record_calls(target, [call.arguments for call in calls])
    by_key: dict[str, list[RecordedCall]] = {}
    redact = build_redactor(root)
    for mock_call, call in zip(calls, recorded_calls, strict=True):
        arguments, result = (redact.redact_all(value) for value in (call.arguments, call.result))
        by_key.setdefault(mock_call.key, []).append(RecordedCall(arguments, result))
    sent = [call.arguments for call in recorded_calls]
    for same in by_key.values():
        if len(same) > 1 and any(call.arguments not in sent for call in same):
            raise UsageError("an argument is a secret, which a rule in a file can't name; record that call under a key")
    answers = {key: build_answer(same) for key, same in by_key.items()}
    schema_path = to.with_name(f"{to.stem}.returns.json")
    known_schema = json.loads(schema_path.read_text("utf-8")) if schema_path.exists() else None
    schema = build_returns_schema([call.result for same in by_key.values() for call in same], known_schema)
    to.parent.mkdir(parents=True, exist_ok=True)
    text = dump(answers)
    if present:  # keep the comments and the layout of the file
        editor = YamlEditor(before)
        for key, answer in answers.items():
            editor.set((key,), answer)
        text = editor.to_text()
    to.write_bytes(text.encode("utf-8"))
    schema_path.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")
    for key, same in by_key.items():
        yield f"wrote {to}: {key} ({format_count(len(same), 'call')})"
    yield f"wrote {schema_path}: the schema of what it returns, for `returns` where the function is declared"
