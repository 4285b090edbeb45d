"""The journal: each verdict as one JSON line, appended as it lands, so that a killed run loses nothing it had.

The first line says what run it is; each further line is a verdict. A case that is told twice counts as it was told
last. While a run lasts, its verdicts are read back from here instead of being kept in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from evalkit.errors import UsageError
from evalkit.model.codec import decode
from evalkit.model.run import Run, Selection
from evalkit.model.verdict import Verdict
from evalkit.reports.serialization import from_line

JOURNAL_VERSION = 1
_HEAD_KEY = "evalkit_journal"


class Journal:
    """Verdicts on disk by case id. `path` None keeps them in an unnamed temporary file.

    `kept` are lines of the run before, which this one goes on with: who reads the file after a kill finds them too.
    Here they count for nothing until they are told anew.
    """

    def __init__(
        self, path: Path | None, head: Mapping[str, Any] | None = None, previous_lines: Iterable[str] = ()
    ) -> None:
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        self._file = _open_file(path, (json.dumps({_HEAD_KEY: JOURNAL_VERSION, **(head or {})}), *previous_lines))

    def append(self, case_id: str, line: str) -> None:
        """Write a verdict's line; it is with the operating system when this returns."""
        self._places[case_id] = self._write(line.encode("ascii"))

    def _write(self, line: bytes) -> tuple[int, int]:
        start = self._file.seek(0, 2)
        self._file.write(line + b"\n")
        self._file.flush()
        return start, len(line)

    def read_line(self, case_id: str) -> str | None:
        """The line of a case as it was written last."""
        place = self._places.get(case_id)
        if place is None:
            return None
        self._file.seek(place[0])
        return self._file.read(place[1]).decode("ascii")

    def read_verdict(self, case_id: str) -> Verdict | None:
        line = self.read_line(case_id)
        return None if line is None else from_line(line)

    def iter_lines(self, order: Iterable[str] = ()) -> Iterator[str]:
        """Every case's line: those of `order` first, in that order, then the others as they landed."""
        for case_id in dict.fromkeys((*order, *self._places)):
            line = self.read_line(case_id)
            if line is not None:
                yield line

    def close(self, *, remove: bool = False) -> None:
        self._file.close()
        if remove and self.path is not None:
            self.path.unlink(missing_ok=True)


def _open_file(path: Path | None, beginning: Iterable[str]) -> IO[bytes]:
    if path is None:
        from tempfile import TemporaryFile

        return TemporaryFile()  # which nobody else will read
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            file.writelines(f"{line}\n".encode("ascii") for line in beginning)
        partial.replace(path)  # there is always a whole journal, the old one or this
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return path.open("r+b")


def read_journal(path: Path) -> Run:
    """The run that a journal tells of, as far as it got: `interrupted`, its cases in the order of their verdicts.

    A last line that was cut off by the kill is left out. Raises UsageError for what is no journal.
    """
    with path.open("rb") as file:
        head = _parse_line(file.readline())
        if head.get(_HEAD_KEY) != JOURNAL_VERSION:
            raise UsageError(f"{path}: not a journal of version {JOURNAL_VERSION} of evalkit")
        verdicts = {verdict.case_id: verdict for line in file if (verdict := _parse_verdict(line)) is not None}
    return Run(
        verdicts=tuple(verdicts.values()),
        selected=tuple(head.get("selected", ())),
        collected=int(head.get("collected", 0)),
        started=str(head.get("started", "")),
        evalkit=str(head.get("evalkit", "")),
        shard=head.get("shard"),
        selection=None if head.get("selection") is None else decode(Selection, head["selection"]),
        metadata=head.get("metadata") or {},
        interrupted=True,
    )


def _parse_verdict(line: bytes) -> Verdict | None:
    data = _parse_line(line)
    return Verdict.from_json(data) if "case_id" in data else None


def _parse_line(line: bytes) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
