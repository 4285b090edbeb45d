"""`evalkit import`: logged conversations as case files with their mocks, cassettes and instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from msgspec import Struct

from evalkit.cli.project import Project, build_redactor
from evalkit.errors import SpecError, UsageError
from evalkit.importers.case_files import CaseFiles, build_case_files
from evalkit.importers.log_formats import Conversation, UnreadableLogError
from evalkit.importers.read_log import read_log
from evalkit.runner.run_case import run_case
from evalkit.spec.load import load_case

_CATEGORY = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")


class ImportRequest(Struct, frozen=True, kw_only=True):
    """The options of an import. `agent` None: the cases run under the instruction of the log itself."""

    to: Path
    category: str
    form: str | None = None
    agent: str | None = None


class _WrittenCase(Struct, frozen=True):
    case: Path
    notes: tuple[str, ...]


class _CaseWriter:
    """A writer of the files of one import, which overwrites no file."""

    def __init__(self, request: ImportRequest) -> None:
        self._request = request
        self._project = Project()
        self._redact = build_redactor(self._project.root)
        self._next = 1
        self._instructions = {_strip_name(path.read_bytes()): path.stem for path in self._find_instructions()}

    def write(self, conversation: Conversation) -> _WrittenCase:
        """Write the files of a case. Raise UnreadableLogError, and write nothing, if the conversation makes no case."""
        files, instruction = self._build_files(conversation)
        case = self._find_free_path()
        cassette = self._locate_cassette(case)
        texts = {case: files.case, cassette: files.cassette}
        if files.instruction is not None:
            texts[instruction] = files.instruction
        for path, data in [(path, self._encode(text)) for path, text in texts.items()]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return _WrittenCase(case, files.notes)

    def _encode(self, text: str) -> bytes:
        try:
            return self._redact(text).encode()
        except UnicodeEncodeError as error:
            raise UnreadableLogError(f"{text[error.start]!r} is no character, and it is in the instruction") from None

    def _build_files(self, conversation: Conversation) -> tuple[CaseFiles, Path]:
        """Return the files, and the path of the instruction: of an existing file with the same text, or a new one."""
        category = self._request.category
        files = build_case_files(conversation, agent=self._request.agent, name=category)
        name = category
        if files.instruction is not None:
            content = _strip_name(self._encode(files.instruction))
            name = self._instructions.get(content) or self._find_free_name()
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

    def _find_free_name(self) -> str:
        used_names = {*self._instructions.values(), *(path.stem for path in self._find_instructions())}
        names = (f"{self._request.category}-{number}" for number in count(2))
        return next(name for name in chain([self._request.category], names) if name not in used_names)

    def _find_free_path(self) -> Path:
        """Return the path with the next number that neither a case nor a cassette has."""
        while True:
            path = self._request.to / f"{self._request.category}_{self._next:03}.yaml"
            self._next += 1
            if not path.exists() and not self._locate_cassette(path).exists():
                return path

    def _locate_cassette(self, case: Path) -> Path:
        root = self._project.root
        inside = case.resolve().relative_to(root)
        return root / self._project.settings.cassettes / inside

    def explain_failure(self, case: Path) -> str | None:
        """Return why the case does not pass offline; None if it does."""
        try:
            loaded = load_case(case, root=self._project.root, settings=self._project.settings)
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
    case_count = failure_count = 0
    for log in logs:
        for conversation in read_log(log, request.form):
            if isinstance(conversation, UsageError):
                yield str(conversation), True
                continue
            try:
                result = writer.write(conversation)
            except (UnreadableLogError, UsageError) as error:  # no case, or with what no YAML file can hold
                yield f"{conversation.source}: {error}", True
                continue
            case_count += 1
            yield f"wrote {result.case.resolve().relative_to(Path.cwd()).as_posix()}", False
            yield from ((f"  note: {note}", False) for note in result.notes)
            failure = writer.explain_failure(result.case) if request.agent is None else None
            if failure is not None:
                failure_count += 1
                yield f"  does not pass as it is: {failure}", True
    summary = f"{case_count} case{'s' * (case_count != 1)} from {len(logs)} log{'s' * (len(logs) != 1)}"
    if case_count and request.agent is None:
        summary += f", {case_count - failure_count} of them pass offline; now run: pytest --evalkit"
    yield summary, not case_count
