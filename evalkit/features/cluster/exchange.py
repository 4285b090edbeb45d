"""The facts that the session and the workers of a cluster exchange beside verdicts: spent money and recordings.

--evalkit-max-cost: the session sums up the money that all processes spend, and sends it to each. A process reports the
sum of what it spent after every reply of a model, and stops by itself once that and the reported sums of the others
come to the budget. It gets those with each batch, and at once when the budget is spent. Beyond the budget go only the
requests that are under way then, and those of the moment until all processes know. Reports of a process that dies stay
valid; money that it had not reported yet is not counted.

--evalkit-record: a case's cassettes travel to its worker and, if they are recorded there, back. A worker's own
cassettes are neither used nor changed: the project where the run was started decides whether there is a recording, and
gets the new ones. On the worker a case finds its files in a folder of this run alone, and records into it as it would
into the project.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evalkit.models.cassettes.model import write_atomically
from evalkit.models.cassettes.paths import SUFFIXES, build_cassette_name, build_run_path, list_endings
from evalkit.records.case import Case
from evalkit.records.settings import Settings
from evalkit.yamlfile.events import Limits
from evalkit.yamlfile.parse import load

TOPIC = "evalkit-spent-"  # and the run's name: the topic of Dask's events by which workers report
SpentByProcess = dict[str, float]  # USD by process of this run


class ClusterBudget:
    """The sum, in the process of the session. `send` tells workers, all of them if it is given no address."""

    def __init__(self, cap_usd: float, send: Callable[[SpentByProcess, str | None], None]) -> None:
        self._cap_usd = cap_usd
        self._send = send
        self._is_exhausted = False
        self.usd_by_process: SpentByProcess = {}

    def handle_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        """Handle an event of Dask's: a process has spent more. Called on the event loop of Dask's client."""
        _, message = event
        process = message["process"]
        self.usd_by_process = {
            **self.usd_by_process,
            process: max(self.usd_by_process.get(process, 0.0), message["usd"]),
        }
        if sum(self.usd_by_process.values()) >= self._cap_usd:
            everybody = not self._is_exhausted
            self._is_exhausted = True
            self._send(self.usd_by_process, None if everybody else message["worker"])


Files = dict[str, bytes]  # by their names below the folder of cassettes
_LIMITS = Limits(max_bytes=1_000_000_000, max_nodes=50_000_000)  # our own files; what is too large to read is refused


def list_cassette_names(case: Case) -> tuple[str, ...]:
    """Return the files that a case's cassettes may be in, for each of its runs."""
    base = Path(build_cassette_name(case.id))
    paths = [
        path
        for run in range(case.repeat.runs)
        for ending in ("", *list_endings())
        for path in _list_variants(build_run_path(base, run, ending))
    ]
    return tuple(dict.fromkeys(path.as_posix() for path in paths))


def _list_variants(path: Path) -> tuple[Path, ...]:
    return (path, *(path.with_suffix(suffix) for suffix in SUFFIXES))


def read_files(folder: Path, names: Iterable[str]) -> Files:
    """Return the contents of the files that exist."""
    return {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}


def write_recordings(folder: Path, case: Case, files: Files, secrets: tuple[str, ...]) -> str | None:
    """Write a case's recordings into the project, each in one step; return why, if one was not written.

    A recording that holds a secret of this machine is refused: recorded here, it would not hold it.
    """
    for name, content in files.items():
        path = folder / name
        if name not in list_cassette_names(case):
            return f"the worker sent a recording '{name}', which does not belong to this case"
        # YAML breaks lines, so its strings are searched, and not its text.
        strings = json.dumps(load(content, name, _LIMITS)) if secrets else ""
        if any(json.dumps(secret)[1:-1] in strings for secret in secrets):
            return (
                f"its recording {name} was not written: it holds the value of a secret variable of this machine, which "
                "the worker does not have; set the same variables there"
            )
        try:
            write_atomically(path, content)
        except OSError as error:
            return f"its recording {name} was not written: {error}"
    return None


class RecordingDirectory:
    """The folder in which cases record on a worker."""

    def __init__(self, settings: Settings) -> None:
        root = settings.root or Path.cwd()
        folder = root / settings.cassettes
        self._project_folder = (folder.relative_to(root) if folder.is_relative_to(root) else folder).as_posix()
        self._temporary = TemporaryDirectory(prefix="evalkit-recorded-", ignore_cleanup_errors=True)
        self.folder = Path(self._temporary.name)

    def write_cassettes(self, files: Files) -> None:
        """Write the existing cassettes of a case."""
        for name, content in files.items():
            write_atomically(self.folder / name, content)

    def take_recordings(self, case: Case, before: Mapping[str, bytes]) -> Files:
        """Return the files that were recorded for a case, and remove its files."""
        names = list_cassette_names(case)
        files = read_files(self.folder, names)
        for name in files:
            (self.folder / name).unlink()
        return {name: content for name, content in files.items() if content != before.get(name)}

    def replace_paths(self, text: str) -> str:
        """Return `text`, which may be JSON, with the paths of the project's own files."""
        here = os.fspath(self.folder)
        return text.replace(here, self._project_folder).replace(json.dumps(here)[1:-1], self._project_folder)

    def remove(self) -> None:
        self._temporary.cleanup()
