"""The run file: everything about a run as one JSON document, versioned, with a published schema (run.schema.json)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from evalkit.errors import UsageError
from evalkit.model.codec import encode_fields, to_plain_json
from evalkit.model.run import Run
from evalkit.reports.journal import read_journal
from evalkit.reports.wire import from_line, to_line

_VERDICTS_OPEN = b', "verdicts": ['  # how the first line of a run file that evalkit wrote ends


def load_run(path: str | os.PathLike[str]) -> Run:
    """Read a run file, or the journal (``.jsonl``) of a run that was killed.

    Raises UsageError if there is no such file, or it is no run file, or one of a version that this evalkit can't read.
    """
    file = Path(path)
    try:
        if file.suffix == ".jsonl":
            return read_journal(file)
        run = _load_by_lines(file)
        if run is not None:
            return run
        data = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"{file}: there is no such run file; `pytest --evalkit` writes .evalkit/last-run.json"
        ) from None
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{file}: not a run file of evalkit: {error}") from None
    if not isinstance(data, dict) or "verdicts" not in data:
        raise UsageError(f"{file}: not a run file of evalkit: it has no 'verdicts'")
    try:
        return Run.from_json(data)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    except (TypeError, AttributeError, KeyError, ValueError) as error:
        raise UsageError(f"{file}: a damaged run file: {error}") from None


def _load_by_lines(file: Path) -> Run | None:
    """The run, without all of it in memory as plain data too; None for a file in another layout, or a damaged one."""
    try:
        head = read_head(file)
        if head is None:
            return None
        with file.open("rb") as opened:
            opened.readline()
            lines = (line.rstrip(b",\n") for line in opened)
            verdicts = tuple(from_line(line.decode("ascii")) for line in lines if line.startswith(b"{"))
        return replace(head, verdicts=verdicts)
    except (UsageError, TypeError, AttributeError, KeyError, ValueError):
        return None


def read_head(path: Path) -> Run | None:
    """The run without its verdicts; None for a file of another layout, or none that can be read this way."""
    try:
        with path.open("rb") as file:
            first = file.readline().rstrip(b"\n")
            if not first.endswith(_VERDICTS_OPEN) or not _is_complete(path):
                return None
            return Run.from_json({**json.loads(first.removesuffix(_VERDICTS_OPEN) + b"}"), "verdicts": []})
    except (OSError, ValueError):
        return None


def _is_complete(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 4, 0))
        return file.read() == b"\n]}\n"


def write_run(path: str | os.PathLike[str], run: Run, lines: Iterable[str] | None = None) -> None:
    """Write `run` as JSON, all or nothing: a reader sees the old file or the new one.

    `lines` are its verdicts as `to_line` wrote them, for runs whose verdicts are in a journal; without, `run.verdicts`.
    Raises UsageError for a folder or a device: the finished file would be renamed over it.
    """
    target = Path(path)
    if target.exists() and not target.is_file():
        raise UsageError(f"{target} is no regular file, and the run file would take its place; name another")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            head = json.dumps(
                to_plain_json({name: value for name, value in encode_fields(run).items() if name != "verdicts"})
            )
            file.write(head[:-1] + _VERDICTS_OPEN.decode())
            separator = "\n"
            for line in map(to_line, run.verdicts) if lines is None else lines:
                file.write(separator + line)
                separator = ",\n"
            file.write("\n]}\n")
        partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
