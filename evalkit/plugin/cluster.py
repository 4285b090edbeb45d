"""--evalkit-executor dask://HOST:PORT: the cases that this session selects run on the workers of a cluster."""

from __future__ import annotations

import os
import pickle
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from evalkit.errors import UsageError
from evalkit.execution.cluster import ClusterExecutor, Work, parse_address
from evalkit.execution.executor import broken
from evalkit.execution.flight import Job
from evalkit.model.verdict import Verdict
from evalkit.plugin.collection import CaseItem
from evalkit.plugin.commit import commit_of
from evalkit.plugin.configuration import Configuration, only_lists
from evalkit.plugin.on_worker import Answer, Terms, check_worker, hear_spent, run_parcel, sealed, stop_run
from evalkit.plugin.output import output_of
from evalkit.plugin.purse import TOPIC, Purse, Spent
from evalkit.plugin.recordings import Files, files_in, names_of, write_recordings
from evalkit.reports.wire import from_line


class Cluster:
    """Stands in for the executor of this process: it has its methods, once the session has begun to run tests."""

    def __init__(self, config: pytest.Config, configuration: Configuration, *, singly: bool = False) -> None:
        """`singly`: the session may stop at any verdict, so none should wait for another."""
        assert configuration.executor is not None
        _refuse(config, configuration)
        self._config = config
        self._configuration = configuration
        self._singly = singly
        try:
            self._address = parse_address(configuration.executor)
        except ValueError as error:
            raise UsageError(f"--evalkit-executor: {configuration.executor!r} is not {error}") from None
        self._executor: ClusterExecutor | None = None
        self._terms = b""
        cap = configuration.settings.max_cost_usd
        self._purse = None if cap is None else Purse(cap, self._spread)
        self._unwritten: dict[str, str] = {}  # by case id: why a recording of it is not in the project
        config.pluginmanager.register(self, "evalkit-cluster")

    # The executor

    @property
    def window(self) -> int:
        """As `Executor` has it."""
        return self._connected.window

    @property
    def seconds(self) -> float:
        """As `Executor` has it."""
        return self._connected.seconds

    def run(self, job: Job, ahead: Any = ()) -> Verdict:
        """As `Executor` has it."""
        return self._connected.run(job, ahead)

    def settle(self) -> None:
        """As `Executor` has it."""
        if self._executor is not None:
            self._executor.settle()

    def close(self) -> None:
        """As `Executor` has it."""
        if self._executor is not None:
            self._executor.close()

    @property
    def _connected(self) -> ClusterExecutor:
        assert self._executor is not None, "pytest_runtestloop comes before any test"
        return self._executor

    # The session

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Connect when it is known what is to run, and only if anything is."""
        items = [item for item in session.items if isinstance(item, CaseItem)]
        if items and not only_lists(self._config):
            try:
                self._connect(items)
            except UsageError as error:
                raise pytest.UsageError(f"evalkit: --evalkit-executor: {error}") from None
        return (yield)

    def _connect(self, items: Sequence[CaseItem]) -> None:
        configuration = self._configuration
        here = os.fspath(configuration.root)
        root = self._address.root or here
        executor = ClusterExecutor(self._address, configuration.concurrency, singly=self._singly)
        processes = executor.connect()
        terms = Terms(
            run=uuid4().hex,
            root=root,
            here=here,
            python_path=tuple(_moved(os.fspath(path), here, root) for path in self._config.getini("pythonpath")),
            commit=commit_of(configuration.root),
            # Secrets stay here; workers have their own.
            settings=replace(configuration.settings, extra={}, workers=processes),
            concurrency=configuration.concurrency,
            faults=configuration.faults,
            secret_keys=configuration.secret_keys,
        )
        self._terms = sealed(terms)
        project = pickle.dumps((self._terms, folders_of(item.path.parent for item in items)))
        work = Work(
            self._terms, project, run_parcel, self._packed, self._unpacked, check_worker, stop_run, self._landed
        )
        executor.begin(work)
        if self._purse is not None:
            executor.client.subscribe_topic(TOPIC + terms.run, self._purse.hear)
        self._executor = executor
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            plural = "" if processes == 1 else "es"
            reporter.write_line(f"evalkit: {processes} worker process{plural} at {self._address.scheduler}")

    def _packed(self, jobs: Sequence[Job]) -> bytes:
        root = self._configuration.root
        folders = folders_of((root / (job.case.path or "")).parent for job in jobs)
        spent = {} if self._purse is None else self._purse.spent
        sent = [(job.case, job.agent, self._cassettes(job)) for job in jobs]
        return pickle.dumps((self._terms, folders, spent, pickle.dumps(sent)))

    def _cassettes(self, job: Job) -> Files:
        recording = self._configuration.settings.record is not None
        return files_in(self._folder, names_of(job.case)) if recording else {}

    @property
    def _folder(self) -> Path:
        """Of cassettes."""
        return self._configuration.root / self._configuration.settings.cassettes

    def _spread(self, spent: Spent, worker: str | None) -> None:
        """Called on the event loop of Dask's client, which must not wait for the workers."""
        client = self._connected.client
        workers = None if worker is None else [worker]
        tell = partial(client.run, hear_spent, self._terms, spent, workers=workers, on_error="ignore")
        client.loop.add_callback(tell)

    def _landed(self, job: Job, answer: Answer) -> None:
        """Recordings are paid for, and none waits for its verdict to be told."""
        problem = write_recordings(self._folder, job.case, answer[3], self._configuration.secrets)
        if problem is not None:
            self._unwritten[job.case.id] = problem

    def _unpacked(self, job: Job, answer: Answer) -> Verdict:
        line, _, sections, _ = answer
        output = None if job.context is None else output_of(job.context)
        if output is not None:
            for kind, text in sections:
                output.add(kind, text)
        problem = self._unwritten.pop(job.case.id, None)
        return from_line(line) if problem is None else broken(job.case, "not_measured", problem)


def folders_of(folders: Iterable[Path]) -> tuple[str, ...]:
    """Each once; a run of many cases has few folders."""
    return tuple(sorted(set(map(os.fspath, folders))))


def _moved(path: str, here: str, root: str) -> str:
    """Where `path` is on the workers; outside the project, where it is here."""
    return os.path.join(root, os.path.relpath(path, here)) if Path(path).is_relative_to(here) else path


def _refuse(config: pytest.Config, configuration: Configuration) -> None:
    """What can't be had on other machines."""
    if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
        raise UsageError("--evalkit-executor and -n exclude each other: the workers of the cluster are the processes")
