"""What a worker of a Dask cluster does with a parcel of cases: the same as a process of pytest would.

The workers import this module by its name. A process of theirs may serve several runs, one after another or at the
same time; each run has its own executor, whose cases overlap across the parcels that the process has in hand. Parcels
are pickles, as all that Dask carries: whoever may use a cluster may run code on it.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from pathlib import Path
from platform import python_version
from typing import Any
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

import evalkit
from evalkit.agents.conftests import import_conftests
from evalkit.errors import EvalkitError
from evalkit.execution.flight import Job
from evalkit.model.case import Case
from evalkit.model.redaction import Redactor, secrets_of
from evalkit.model.settings import Settings
from evalkit.plugin.commit import commit_of
from evalkit.plugin.output import Output, OutputRouting, begin_output
from evalkit.plugin.purse import TOPIC, Spent
from evalkit.plugin.recordings import Desktop, Files
from evalkit.plugin.shared_executor import executor_of
from evalkit.providers.spending import Account
from evalkit.reports.wire import to_line

# The verdict's line, seconds, what was printed and logged, what was recorded
Answer = tuple[str, float, list[tuple[str, str]], Files]
Sent = tuple[Case, Any, Files]  # a case, the agent that is not its own, the cassettes that it has


class Terms(Struct, frozen=True, kw_only=True):
    """What is the same for all parcels of a run. `here` is the project's root where the run was started."""

    run: str
    root: str
    here: str
    python_path: tuple[str, ...]
    commit: str | None
    settings: Settings
    concurrency: int
    faults: bool
    secret_keys: tuple[str, ...]


def sealed(terms: Terms) -> bytes:
    """`terms` as workers read them: the versions come first, because the rest can be read by the same ones alone."""
    return pickle.dumps((_versions(), pickle.dumps(terms)))


def _versions() -> tuple[str, str]:
    return evalkit.__version__, python_version().rpartition(".")[0]


def check_worker(project: bytes) -> str | None:
    """What is wrong with this worker, or None. It has then imported the project."""
    terms, folders = pickle.loads(project)
    desk = _desk(terms)
    return desk if isinstance(desk, str) else desk.prepare(folders)


def run_parcel(parcel: bytes) -> list[Answer] | str | None:
    """An answer per case, or why there is none; None if an agent raised KeyboardInterrupt."""
    from distributed import get_worker

    terms, folders, spent, cases = pickle.loads(parcel)
    desk = _desk(terms)
    problem = desk if isinstance(desk, str) else desk.prepare(folders)
    if isinstance(desk, str) or problem is not None:
        return f"worker {get_worker().address} can't run this case: {problem}"
    desk.hear(spent, get_worker)
    try:
        return desk.run(pickle.loads(cases))
    except BaseException as error:
        if desk.is_closed:
            return "called back"
        if isinstance(error, KeyboardInterrupt):
            return None
        raise
    finally:
        _remember_modules(desk.terms.root)


def stop_run(terms: bytes) -> None:
    """Leave what is running, and forget the run."""
    _, inner = pickle.loads(terms)
    with _lock:
        desk = _desks.pop(inner, None)
    if desk is not None and not isinstance(desk, str):
        threading.Thread(target=desk.close, daemon=True).start()  # the worker's own loop must not wait for it


def hear_spent(terms: bytes, spent: Spent) -> None:
    """What all processes of the run have spent, by their names."""
    _, inner = pickle.loads(terms)
    desk = _desks.get(inner)
    if isinstance(desk, Desk):
        desk.hear(spent)


_lock = threading.RLock()
_desks: dict[bytes, Desk | str] = {}  # by terms; a text says why this worker is no good for the run
_roots: set[str] = set()  # of the projects that were imported: one, because modules of two may have the same names
_modules: dict[str, int] = {}  # files of projects that were imported: when they had been changed, ns


def _desk(terms: bytes) -> Desk | str:
    versions, inner = pickle.loads(terms)
    if versions != _versions():
        wanted, have = (f"evalkit {version} on Python {python}" for version, python in (versions, _versions()))
        return f"it has {have}, and the run {wanted}"
    with _lock:
        if inner not in _desks:
            made: Terms = pickle.loads(inner)
            problem = _found(made)
            _desks[inner] = Desk(made) if problem is None else problem
        return _desks[inner]


def _found(terms: Terms) -> str | None:
    """Put the project on the path, as pytest would have. Gives what is wrong with it."""
    root = Path(terms.root)
    if not root.is_dir():
        return f"there is no folder {root}; say where the project is on the workers: dask://host:port?root=FOLDER"
    commit = commit_of(root)
    if None not in (commit, terms.commit) and commit != terms.commit:
        return f"its project is of commit {str(commit)[:12]}, and the run of {str(terms.commit)[:12]}"
    if _roots - {terms.root}:
        return f"it has run another project, {min(_roots - {terms.root})}, whose modules it still has; start it anew"
    changed = _changed_module(terms.root)
    if changed is not None:
        return f"it imported {os.path.relpath(changed, root)} before that file changed; start the workers anew"
    _roots.add(terms.root)
    sys.path[:0] = [entry for entry in (*terms.python_path, terms.root) if entry not in sys.path]
    return None


def _remember_modules(root: str) -> None:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and file.startswith(root + os.sep) and file not in _modules and os.path.exists(file):
            _modules[file] = os.stat(file).st_mtime_ns


def _changed_module(root: str) -> str | None:
    return next(
        (
            file
            for file, changed in _modules.items()
            if file.startswith(root + os.sep) and (not os.path.exists(file) or os.stat(file).st_mtime_ns != changed)
        ),
        None,
    )


class Desk:
    """A run's executor in this process."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._worker: Any = None  # Dask's, once there is a parcel
        self._name = uuid4().hex
        self._account = (
            None if terms.settings.max_cost_usd is None else Account(terms.settings.max_cost_usd, tell=self._tell)
        )
        secrets = secrets_of(os.environ)
        extra = {"secrets": secrets, "secret_keys": terms.secret_keys, "account": self._account}
        settings = replace(terms.settings, root=Path(terms.root), extra=extra)
        self._desktop = None if settings.record is None else Desktop(settings)
        if self._desktop is not None:
            settings = replace(settings, cassettes=self._desktop.folder)
        self._redact = Redactor(secrets, terms.secret_keys)
        self._prepared: dict[str, str | None] = {}  # by folder of cases: what is wrong with its conftest.py files
        self.is_closed = False
        self._executor = executor_of(settings, max(terms.concurrency, 1), faults=terms.faults)
        _route_output()

    def prepare(self, folders: Sequence[str]) -> str | None:
        """Import what pytest would have imported for cases in `folders`. Gives what is wrong."""
        with _lock:
            for folder in folders:
                if folder not in self._prepared:
                    self._prepared[folder] = self._imported(self._there(folder))
        return next((problem for folder in folders if (problem := self._prepared[folder]) is not None), None)

    def _imported(self, folder: str) -> str | None:
        try:
            import_conftests(Path(folder), Path(self.terms.root))
        except EvalkitError as error:
            return str(error)
        _remember_modules(self.terms.root)
        return None

    def hear(self, spent: Spent, worker: Callable[[], Any] | None = None) -> None:
        """What all processes of the run have spent, this one included. `worker` gives Dask's, to tell through."""
        if self._account is not None:
            if worker is not None:
                self._worker = worker()
            self._account.hear(sum(usd for process, usd in spent.items() if process != self._name))

    def _tell(self, usd: float) -> None:
        """This process has spent so much by now. Dask sends it off at once, from any thread."""
        told = {"process": self._name, "worker": self._worker.address, "usd": usd}
        self._worker.log_event(TOPIC + self.terms.run, told)

    def run(self, cases: Sequence[Sent]) -> list[Answer]:
        """An answer per case, in their order."""
        outputs = [Output() for _ in cases]
        if self._desktop is not None:
            for _, _, files in cases:
                self._desktop.lay_out(files)
        jobs = [self._job(case, agent, output) for (case, agent, _), output in zip(cases, outputs, strict=True)]
        answers = []
        for place, (job, output, (_, _, files)) in enumerate(zip(jobs, outputs, cases, strict=True)):
            verdict = self._executor.run(job, () if place else jobs[1:])
            line = self._shown(to_line(verdict))
            sections = [(kind, self._shown(text)) for kind, text in output.sections()]
            recorded = {} if self._desktop is None else self._desktop.taken(job.case, files)
            answers.append((line, self._executor.seconds, sections, recorded))
        return answers

    def _shown(self, text: str) -> str:
        """`text` as it may be shown."""
        return self._redact(text if self._desktop is None else self._desktop.as_shown(text))

    def _job(self, case: Case, agent: Any, output: Output) -> Job:
        context = copy_context()
        context.run(begin_output, output)
        return Job(self._moved(case), agent, context)

    def _moved(self, case: Case) -> Case:
        """The case with its files where they are on this machine."""
        if self.terms.root == self.terms.here:
            return case
        dirs = tuple(Path(self._there(str(folder))) for folder in case.suite_dirs)
        layers = () if case.source is None else case.source.layers
        moved = tuple(layer if layer.path is None else replace(layer, path=self._there(layer.path)) for layer in layers)
        return replace(
            case, suite_dirs=dirs, source=None if case.source is None else replace(case.source, layers=moved)
        )

    def _there(self, path: str) -> str:
        """Where `path` is on this machine."""
        return os.path.join(self.terms.root, os.path.relpath(path, self.terms.here))

    def close(self) -> None:
        """End what is running."""
        self.is_closed = True
        self._executor.interrupt()
        self._executor.close()
        if self._desktop is not None:
            self._desktop.remove()


def _route_output() -> None:
    if not _routings:
        _routings.append(OutputRouting())
        _routings[0].begin()


_routings: list[OutputRouting] = []
