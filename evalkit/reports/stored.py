"""A run file whose verdicts stay on disk, for those who go through many: one verdict at a time is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from evalkit.errors import UsageError
from evalkit.model.verdict import Verdict
from evalkit.reports.runfile import load_run, read_head
from evalkit.reports.wire import from_line, to_line


class StoredRun:
    """`run` is all but the verdicts. A file in another layout than evalkit writes (a journal, say) is read whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: list[tuple[int, int]] = []
        self._lines: list[str] | None = None
        head = read_head(path)
        if head is None:
            self.run = load_run(path)
            self._lines = [to_line(verdict) for verdict in self.run.verdicts]
        else:
            self.run = head
        self._file = path.open("rb")

    def iter_verdicts(self) -> Iterator[Verdict]:
        """Each verdict; `line(n)` of the n-th, from 0, is known once it was given."""
        yield from self._iter_stored() if self._lines is None else map(from_line, self._lines)

    def _iter_stored(self) -> Iterator[Verdict]:
        self._file.seek(0)
        start = len(self._file.readline())
        for raw in self._file:
            text = raw.rstrip(b",\n")
            if text.startswith(b"{"):
                self._places.append((start, len(text)))
                yield from_line(text.decode("ascii"))
            start += len(raw)

    def read_line(self, index: int) -> str:
        """The n-th verdict as it stands in the file."""
        if self._lines is not None:
            return self._lines[index]
        start, length = self._places[index]
        self._file.seek(start)
        return self._file.read(length).decode("ascii")

    def close(self) -> None:
        self._file.close()


def read_verdicts(path: Path) -> Iterator[Verdict]:
    """The verdicts of the run file at `path`, one at a time in memory. UsageError where `load_run` has one."""
    with closing(StoredRun(path)) as stored:
        try:
            yield from stored.iter_verdicts()
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            raise UsageError(f"{path}: a damaged run file: {error}") from None
