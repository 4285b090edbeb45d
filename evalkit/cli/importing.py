"""`evalkit import`: logged conversations as case files with their mocks, cassettes and instructions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, count
from pathlib import Path

from msgspec import Struct

from evalkit.cli.cases import Project
from evalkit.cli.redacting import redactor
from evalkit.errors import SpecError, UsageError
from evalkit.importing.casefile import CaseFiles, case_files
from evalkit.importing.conversation import Conversation, UnreadableLogError
from evalkit.importing.reading import read_log
from evalkit.pipeline.running import run_case
from evalkit.spec.loading import load_case

_CATEGORY = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*")


class Import(Struct, frozen=True, kw_only=True):
    """What is asked for. `agent` None: the cases run under the instruction of the log itself."""

    to: Path
    category: str
    form: str | None = None
    agent: str | None = None


class _Written(Struct, frozen=True):
    case: Path
    notes: tuple[str, ...]


class _Writer:
    """Writes the files of one import, and never over a file that is there."""

    def __init__(self, asked: Import) -> None:
        self._asked = asked
        self._project = Project()
        self._redact = redactor(self._project.root)
        self._next = 1
        self._instructions = {_nameless(path.read_bytes()): path.stem for path in self._written_instructions()}

    def write(self, conversation: Conversation) -> _Written:
        """Raises UnreadableLogError, and writes nothing, where the conversation makes no case."""
        files, instruction = self._files(conversation)
        case = self._free()
        cassette = self._cassette(case)
        texts = {case: files.case, cassette: files.cassette}
        if files.instruction is not None:
            texts[instruction] = files.instruction
        for path, data in [(path, self._bytes(text)) for path, text in texts.items()]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return _Written(case, files.notes)

    def _bytes(self, text: str) -> bytes:
        try:
            return self._redact(text).encode()
        except UnicodeEncodeError as error:
            raise UnreadableLogError(f"{text[error.start]!r} is no character, and it is in the instruction") from None

    def _files(self, conversation: Conversation) -> tuple[CaseFiles, Path]:
        """The files, with the instruction file that holds the same instruction already, or a new one."""
        category = self._asked.category
        files = case_files(conversation, agent=self._asked.agent, name=category)
        name = category
        if files.instruction is not None:
            known = _nameless(self._bytes(files.instruction))
            name = self._instructions.get(known) or self._free_name()
            self._instructions[known] = name
        if name != category:
            files = case_files(conversation, agent=self._asked.agent, name=name)
        return files, self._asked.to / f"{name}.md"

    def _written_instructions(self) -> list[Path]:
        """Those of the category, in the order of their numbers, so that the first of two that are equal is taken."""
        category = re.escape(self._asked.category)
        found = self._asked.to.glob("*.md") if self._asked.to.is_dir() else ()
        mine = [path for path in found if re.fullmatch(rf"{category}(-[0-9]+)?", path.stem)]
        return sorted(mine, key=lambda path: (len(path.stem), path.stem), reverse=True)

    def _free_name(self) -> str:
        taken = {*self._instructions.values(), *(path.stem for path in self._written_instructions())}
        names = (f"{self._asked.category}-{number}" for number in count(2))
        return next(name for name in chain([self._asked.category], names) if name not in taken)

    def _free(self) -> Path:
        """The next number that neither a case nor a cassette has."""
        while True:
            path = self._asked.to / f"{self._asked.category}_{self._next:03}.yaml"
            self._next += 1
            if not path.exists() and not self._cassette(path).exists():
                return path

    def _cassette(self, case: Path) -> Path:
        root = self._project.root
        inside = case.resolve().relative_to(root)
        return root / self._project.settings.cassettes / inside

    def outcome(self, case: Path) -> str | None:
        """Why the case does not pass offline; None if it does."""
        try:
            loaded = load_case(case, root=self._project.root, settings=self._project.settings)
        except SpecError as error:
            return str(error)
        verdict = run_case(loaded, settings=self._project.settings)
        return None if verdict.passed else "; ".join(reason.message.split("\n")[0] for reason in verdict.reasons[:2])


def _nameless(instruction: bytes) -> bytes:
    """An instruction file without its second line, which is its name."""
    lines = instruction.split(b"\n", 2)
    return b"\n".join((lines[0], *lines[2:]))


def import_logs(logs: Sequence[Path], asked: Import) -> Iterator[tuple[str, bool]]:
    """Lines to show, and whether each tells of something that went wrong. Raises UsageError for bad demands."""
    _check(asked)
    writer, written = _Writer(asked), 0
    failed = 0
    for log in logs:
        for found in read_log(log, asked.form):
            if isinstance(found, UsageError):
                yield str(found), True
                continue
            try:
                done = writer.write(found)
            except (UnreadableLogError, UsageError) as error:  # no case, or with what no YAML file can hold
                yield f"{found.source}: {error}", True
                continue
            written += 1
            yield f"wrote {_shown(done.case)}", False
            yield from ((f"  note: {note}", False) for note in done.notes)
            why = writer.outcome(done.case) if asked.agent is None else None
            if why is not None:
                failed += 1
                yield f"  does not pass as it is: {why}", True
    yield (
        f"{written} case{'s' * (written != 1)} from {len(logs)} log{'s' * (len(logs) != 1)}"
        + _checked(asked, written, failed),
        not written,
    )


def _checked(asked: Import, written: int, failed: int) -> str:
    if asked.agent is not None or not written:
        return ""
    return f", {written - failed} of them pass offline; now run: pytest --evalkit"


def _check(asked: Import) -> None:
    if not _CATEGORY.fullmatch(asked.category):
        raise UsageError(
            f"--category: {asked.category!r} is no name of a category; expected small letters, digits, _ and -"
        )
    if not asked.to.resolve().is_relative_to(Path.cwd()):
        raise UsageError(f"--to: {asked.to} is outside the project {Path.cwd()}; cases live below its root")


def _shown(path: Path) -> str:
    full = path.resolve()
    return full.relative_to(Path.cwd()).as_posix() if full.is_relative_to(Path.cwd()) else str(path)
