"""Which recorded run is a case's: by the file that it names, by its id, by its input."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from evalkit.agents.task_input import copy_visible_input, format_message
from evalkit.errors import MeasurementError, UsageError
from evalkit.features.recorded_runs.records import TRACE
from evalkit.hosts.traces.api import Conversation, list_user_texts, read_log
from evalkit.records.case import Case, get_case_name


class MissingTraceError(MeasurementError):
    """There is no recorded run of this case, or none that can be told from others."""

    code = "missing_trace"


def choose_run(case: Case, root: Path, harmless: tuple[str, ...] = ()) -> Conversation:
    """Return the run in the file that `input.trace` names. Raise MissingTraceError if it is not there.

    Of several in the file it is the one that names the case, else the one with its input.
    """
    file = case.input[TRACE]
    place = case.locate(("input", TRACE))
    name = str(file.get("file")) if isinstance(file, Mapping) else str(file)
    path = root / str(file.get("path")) if isinstance(file, Mapping) else root / name
    try:
        runs, broken = read_runs(path, root, harmless)
    except UsageError as error:
        raise MissingTraceError(f"{place}: {error}") from None
    if runs and broken:
        broken_count = f"{len(broken)} records" if len(broken) > 1 else "a record"
        problem = f"{name} holds {broken_count} that can't be read, and could be of this run: {broken[0]}"
        raise MissingTraceError(f"{place}: {problem}")
    chosen = runs
    if len(runs) > 1:
        named = [run for run in runs if run.case_id in list_names(case)]
        chosen = named or [run for run in runs if has_same_input(run, case)]
    if len(chosen) == 1:
        return chosen[0]
    if not runs:
        why = f": {broken[0]}" if broken else ""
        raise MissingTraceError(f"{place}: {name} holds no run of an agent{why}")
    how = "are of this case" if chosen else "are there, and none names this case or has its input"
    raise MissingTraceError(f"{place}: {name}: {len(chosen or runs)} runs {how}; give it a file of one")


def read_runs(path: Path, root: Path, harmless: tuple[str, ...]) -> tuple[list[Conversation], list[UsageError]]:
    """Return the runs in a file, each with its place in the project, and the errors of records that hold none."""
    prefix = format_folder(path, root)
    results = _read_file(path, harmless)
    runs = [replace(run, source=f"{prefix}{run.source}") for run in results if isinstance(run, Conversation)]
    return runs, [error for error in results if not isinstance(error, Conversation)]


def format_folder(path: Path, root: Path) -> str:
    """Return the folder of a file from the project's root: ``traces/``; "" for the root itself."""
    folder = Path(os.path.relpath(path.parent, root)).as_posix()
    return "" if folder == "." else f"{folder}/"


def _read_file(path: Path, harmless: tuple[str, ...]) -> Sequence[Conversation | UsageError]:
    """Read a file of traces once for all cases that name it, as long as it does not change."""
    try:
        status = path.stat()
    except OSError:
        return tuple(read_log(path))  # which says why
    return _read_file_once(path, status.st_mtime_ns, status.st_size, harmless)


@lru_cache(maxsize=2)
def _read_file_once(
    path: Path, modified_ns: int, size: int, harmless: tuple[str, ...]
) -> Sequence[Conversation | UsageError]:
    return tuple(read_log(path, harmless=harmless))


def has_same_input(conversation: Conversation, case: Case) -> bool:
    """Return whether the user says the same: letter by letter, but for white space and forms of Unicode."""
    return fold_texts(list_user_texts(conversation)) in list_inputs(case)


def list_names(case: Case) -> tuple[str, str]:
    """Return the names by which a record may call a case: its id, and the name of its file without the ending."""
    return case.id, get_case_name(case.id)


def list_inputs(case: Case) -> set[tuple[str, ...]]:
    """Return what the user of a case says, folded, in the forms in which an agent may have been given it."""
    if case.turns:
        return {fold_texts(format_message(turn.user) for turn in case.turns)}
    texts = [format_message(copy_visible_input(case.input))]
    message, email = case.input.get("message"), case.input.get("email")
    texts += [message] if isinstance(message, str) else []  # without the context
    texts += [str(email.get("body") or "")] if isinstance(email, Mapping) else []
    return {fold_texts([text]) for text in texts}


def fold_texts(texts: Iterable[str]) -> tuple[str, ...]:
    """Normalise texts for a comparison: their Unicode form, and white space."""
    return tuple(" ".join(unicodedata.normalize("NFC", text).split()) for text in texts)
