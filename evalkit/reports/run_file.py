"""The run file: everything about a run as one JSON document, versioned, with a published schema (run.schema.json)."""

from __future__ import annotations

import json
import os
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields, replace

from evalkit.errors import UsageError
from evalkit.model.codec import encode_fields, to_plain_json
from evalkit.model.run import RUN_VERSION, Run
from evalkit.model.verdict import STATUSES, Verdict
from evalkit.reports.journal import read_journal
from evalkit.reports.serialization import from_line, to_line

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


# A run file whose verdicts stay on disk, for those who go through many: one verdict at a time is in memory.


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


# The JSON Schema of run files, generated from the records themselves. Shipped as run.schema.json, tested current.

_SCALAR_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def build_run_schema() -> dict[str, Any]:
    """Draft 2020-12. Keys that a later minor version adds are allowed; the version itself is not."""
    definitions: dict[str, Any] = {}
    root = _build_record_schema(Run, definitions)
    definitions["Verdict"]["properties"]["status"] = {"enum": list(STATUSES)}
    definitions["Run"]["properties"]["version"] = {"const": RUN_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "evalkit run file",
        "description": "All verdicts of one run of evalkit, as written by `pytest --evalkit`.",
        **root,
        "$defs": definitions,
    }


def _build_record_schema(cls: type[Struct], definitions: dict[str, Any]) -> dict[str, Any]:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        hints = get_type_hints(cls)
        complete = not cls.__struct_config__.omit_defaults
        definitions[cls.__name__] = {
            "type": "object",
            "description": " ".join((cls.__doc__ or "").split("\n\n")[0].split()),
            "properties": {f.name: _build_schema(hints[f.name], definitions) for f in fields(cls)},
            "required": [f.name for f in fields(cls) if complete],
        }
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _build_schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALAR_TYPES:
        return {"type": _SCALAR_TYPES[hint]}
    if origin in (Union, types.UnionType):
        inner = [_build_schema(argument, definitions) for argument in arguments if argument is not type(None)]
        return {"anyOf": [*inner, {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _build_schema(arguments[0], definitions)}
    if origin is Mapping:
        return {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _build_record_schema(hint, definitions)
    return {}
