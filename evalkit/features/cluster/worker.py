"""Batches of cases on a worker of a Dask cluster, which runs them as a process of pytest would.

The workers import this module by its name. A process of theirs may serve several runs, one after another or at the
same time; each run has its own executor, whose cases overlap across the batches of the process's threads. Batches are
pickles, as is everything that Dask carries: any user of a cluster may run code on it.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from platform import python_version
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

import evalkit
from evalkit.agents.registry import import_conftests
from evalkit.bounds import Bounds, set_bounds
from evalkit.errors import EvalkitError
from evalkit.execution.executor import Executor, RunRequest
from evalkit.execution.output import CaseOutput, OutputRouting, begin_output
from evalkit.features.cluster.exchange import TOPIC, Files, RecordingDirectory, SpentByProcess
from evalkit.functions.threads import start_daemon_thread
from evalkit.hooks import SessionPart
from evalkit.hosts.reports.api import redact_verdict
from evalkit.models.providers.budget import Account
from evalkit.records.case import Case
from evalkit.records.registry import map_root
from evalkit.records.settings import Settings
from evalkit.repository import find_commit
from evalkit.runner.changed_runs import arun_with_changes
from evalkit.spec.files import Source
from evalkit.text.redact import Redactor, find_secrets

# The verdict's line, seconds, sections of output, recordings
CaseAnswer = tuple[str, float, list[tuple[str, str]], Files]
CaseInput = tuple[Case, Any, Files]  # a case, the agent if it is not its own, the existing cassettes


class RunSpec(Struct, frozen=True, kw_only=True):
    """The facts that all batches of a run share. `origin` is the project's root where the run was started."""

    run_id: str
    root: str
    origin: str
    python_path: tuple[str, ...]
    commit: str | None
    settings: Settings
    concurrency: int
    parts: Mapping[str, SessionPart]
    secret_keys: tuple[str, ...]
    bounds: Bounds


def serialize_spec(spec: RunSpec) -> bytes:
    """Serialize `spec` for workers. The versions come first: the rest can be read by the same versions alone."""
    return pickle.dumps((_get_versions(), pickle.dumps(spec)))


def _get_versions() -> tuple[str, str]:
    return evalkit.__version__, python_version().rpartition(".")[0]


def check_worker(project: bytes) -> str | None:
    """Import the project. Return why this worker can't run its cases, or None."""
    spec, folders = pickle.loads(project)
    worker_run = _get_worker_run(spec)
    return worker_run if isinstance(worker_run, str) else worker_run.prepare(folders)


def run_batch(batch: bytes) -> list[CaseAnswer] | str | None:
    """Return an answer per case, or why there is none; None if an agent raised KeyboardInterrupt."""
    from distributed import get_worker

    spec, folders, usd_by_process, cases = pickle.loads(batch)
    worker_run = _get_worker_run(spec)
    problem = worker_run if isinstance(worker_run, str) else worker_run.prepare(folders)
    if isinstance(worker_run, str) or problem is not None:
        return f"worker {get_worker().address} can't run this case: {problem}"
    worker_run.update_spent(usd_by_process, get_worker)
    try:
        return worker_run.run(pickle.loads(cases))
    except BaseException as error:
        if worker_run.is_closed:
            return _CALLED_BACK
        if isinstance(error, KeyboardInterrupt):
            return None
        raise
    finally:
        _record_modules(worker_run.spec.root)


def stop_run(spec: bytes) -> None:
    """Abandon what is running. A batch that was on its way arrives later, and is refused."""
    _, inner = pickle.loads(spec)
    with _lock:
        worker_run = _runs.get(inner)
        _runs[inner] = _CALLED_BACK
    if isinstance(worker_run, WorkerRun):
        start_daemon_thread(worker_run.close, "evalkit-stop")  # the worker's own loop must not wait for it


def update_spent(spec: bytes, usd_by_process: SpentByProcess) -> None:
    """Update the spent money of all processes of the run, by their names."""
    _, inner = pickle.loads(spec)
    worker_run = _runs.get(inner)
    if isinstance(worker_run, WorkerRun):
        worker_run.update_spent(usd_by_process)


_CALLED_BACK = "the run was stopped"
_lock = threading.RLock()
_runs: dict[bytes, WorkerRun | str] = {}  # by spec; a text says why this worker can't run it
_roots: set[str] = set()  # of the projects that were imported: one, because modules of two may have the same names
_modules: dict[str, int] = {}  # files of projects that were imported: when they had been changed, ns


def _get_worker_run(spec_bytes: bytes) -> WorkerRun | str:
    versions, inner = pickle.loads(spec_bytes)
    if versions != _get_versions():
        run_version, worker_version = (
            f"evalkit {version} on Python {python}" for version, python in (versions, _get_versions())
        )
        return f"it has {worker_version}, and the run {run_version}"
    with _lock:
        if inner not in _runs:
            spec: RunSpec = pickle.loads(inner)
            problem = _import_project(spec)
            _runs[inner] = WorkerRun(spec) if problem is None else problem
        return _runs[inner]


def _import_project(spec: RunSpec) -> str | None:
    """Put the project on the path, as pytest would. Return why it can't be used, or None."""
    root = Path(spec.root)
    if not root.is_dir():
        return f"there is no folder {root}; say where the project is on the workers: dask://host:port?root=FOLDER"
    commit = find_commit(root)
    if None not in (commit, spec.commit) and commit != spec.commit:
        return f"its project is of commit {str(commit)[:12]}, and the run of {str(spec.commit)[:12]}"
    if _roots - {spec.root}:
        return f"it has run another project, {min(_roots - {spec.root})}, whose modules it still has; start it anew"
    for changed, time_ns in _modules.items():
        is_unchanged = os.path.exists(changed) and os.stat(changed).st_mtime_ns == time_ns
        if is_unchanged or not changed.startswith(spec.root + os.sep):
            continue
        return f"it imported {os.path.relpath(changed, root)} before that file changed; start the workers anew"
    _roots.add(spec.root)
    map_root(spec.origin, spec.root)
    sys.path[:0] = [entry for entry in (*spec.python_path, spec.root) if entry not in sys.path]
    return None


def _record_modules(root: str) -> None:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.startswith(root + os.sep) and file not in _modules and os.path.exists(file):
            _modules[file] = os.stat(file).st_mtime_ns


class WorkerRun:
    """A run in this process: its executor, its settings, and the money it has spent."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self._worker: Any = None  # Dask's, once there is a batch
        self._name = uuid4().hex
        self._account = (
            None if spec.settings.max_cost_usd is None else Account(spec.settings.max_cost_usd, report=self._send_spent)
        )
        secrets = find_secrets(os.environ)
        extra = {"secrets": secrets, "secret_keys": spec.secret_keys, "account": self._account}
        settings = replace(spec.settings, root=Path(spec.root), extra=extra)
        self._recordings = None if settings.record is None else RecordingDirectory(settings)
        if self._recordings is not None:
            settings = replace(settings, cassettes=self._recordings.folder)
        self._redact = Redactor(secrets, spec.secret_keys)
        self._prepared: dict[str, str | None] = {}  # by folder of cases: the problem of its conftest.py files
        self.is_closed = False
        run_case = partial(arun_with_changes, parts=spec.parts) if spec.parts else None
        self._executor = SharedExecutor(settings, max(spec.concurrency, 1), run_case)
        if not _routings:
            _routings.append(OutputRouting())
            _routings[0].begin()

    def prepare(self, folders: Sequence[str]) -> str | None:
        """Import the conftest files of `folders`, as pytest would. Return why that failed, or None."""
        with _lock:
            for folder in folders:
                if folder not in self._prepared:
                    problem = None
                    try:
                        import_conftests(Path(self._map_path(folder)), Path(self.spec.root))
                        _record_modules(self.spec.root)
                    except EvalkitError as error:
                        problem = str(error)
                    self._prepared[folder] = problem
        return next((problem for folder in folders if (problem := self._prepared[folder]) is not None), None)

    def update_spent(self, usd_by_process: SpentByProcess, worker: Callable[[], Any] | None = None) -> None:
        """Update the spent money of all processes of the run, this one included. `worker` returns Dask's, to send
        through.
        """
        if self._account is not None:
            if worker is not None:
                self._worker = worker()
            self._account.record_elsewhere(sum(usd for process, usd in usd_by_process.items() if process != self._name))

    def _send_spent(self, usd: float) -> None:
        """Send the money that this process has spent by now. Dask sends it at once, from any thread."""
        message = {"process": self._name, "worker": self._worker.address, "usd": usd}
        self._worker.log_event(TOPIC + self.spec.run_id, message)

    def run(self, cases: Sequence[CaseInput]) -> list[CaseAnswer]:
        """Return an answer per case, in their order."""
        set_bounds(self.spec.bounds)  # of the process: another run may have been here
        outputs = [CaseOutput() for _ in cases]
        if self._recordings is not None:
            for _, _, files in cases:
                self._recordings.write_cassettes(files)
        requests = []
        for (case, agent, _), output in zip(cases, outputs, strict=True):
            context = copy_context()
            context.run(begin_output, output)
            requests.append(RunRequest(self._move_case(case), agent, context))
        answers = []
        for place, (request, output, (_, _, files)) in enumerate(zip(requests, outputs, cases, strict=True)):
            verdict = self._executor.run(request, () if place else requests[1:])
            line = self._replace_paths(redact_verdict(verdict, self._redact)[0])
            sections = [(kind, self._redact(self._replace_paths(text))) for kind, text in output.list_sections()]
            recorded = {} if self._recordings is None else self._recordings.take_recordings(request.case, files)
            answers.append((line, self._executor.seconds, sections, recorded))
        return answers

    def _replace_paths(self, text: str) -> str:
        """Return `text` with the paths of the project's own files."""
        return text if self._recordings is None else self._recordings.replace_paths(text)

    def _move_case(self, case: Case) -> Case:
        """Return the case with the paths of its files on this machine."""
        if self.spec.root == self.spec.origin:
            return case
        dirs = tuple(Path(self._map_path(str(folder))) for folder in case.suite_dirs)
        source = case.source if isinstance(case.source, Source) else None
        layers = () if source is None else source.layers
        moved = tuple(
            layer if layer.path is None else replace(layer, path=self._map_path(layer.path)) for layer in layers
        )
        return replace(case, suite_dirs=dirs, source=None if source is None else replace(source, layers=moved))

    def _map_path(self, path: str) -> str:
        """Return the place of `path` on this machine."""
        return os.path.join(self.spec.root, os.path.relpath(path, self.spec.origin))

    def close(self) -> None:
        """Stop what is running."""
        self.is_closed = True
        self._executor.interrupt()
        self._executor.close()
        if self._recordings is not None:
            self._recordings.remove()


_routings: list[OutputRouting] = []


class SharedExecutor(Executor):
    """An executor that several threads use, each for cases of its own."""

    def __init__(self, *arguments: Any) -> None:
        self._starting = threading.RLock()
        self._local = threading.local()
        self._is_closed = False
        super().__init__(*arguments)

    @property  # of the case that this thread took last
    def seconds(self) -> float:
        return getattr(self._local, "seconds", 0.0)

    @seconds.setter
    def seconds(self, value: float) -> None:
        self._local.seconds = value

    def close(self) -> None:
        with self._starting:
            self._is_closed = True
        super().close()

    def _start(self, runs: Any) -> None:
        with self._starting:
            if self._is_closed:  # by another thread, while this one was about to begin
                raise KeyboardInterrupt
            super()._start(runs)

    def _replace_blocked_loop(self, loop: Any) -> None:
        with self._starting:
            if self._loop is not None and loop is self._loop:  # else another thread was first
                super()._replace_blocked_loop(self._loop)
