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

from evalkit.bounds import get_bounds
from evalkit.errors import UsageError
from evalkit.execution.cluster import ClusterExecutor, WorkerTasks, parse_address
from evalkit.execution.executor import RunRequest, build_error_verdict
from evalkit.hooks import select_changing
from evalkit.hosts.reports.serialization import from_line
from evalkit.plugin.capture import get_output
from evalkit.plugin.cluster.exchange import (
    TOPIC,
    ClusterBudget,
    SpentByProcess,
    list_cassette_names,
    read_files,
    write_recordings,
)
from evalkit.plugin.cluster.worker import (
    CaseAnswer,
    RunSpec,
    check_worker,
    run_batch,
    serialize_spec,
    stop_run,
    update_spent,
)
from evalkit.plugin.collection import CaseItem
from evalkit.plugin.configuration import Configuration, find_commit, is_listing
from evalkit.records.verdict import Verdict
from evalkit.text.format import format_count


class ClusterSession:
    """The executor of a session whose cases run on a cluster. It connects when the session begins to run tests."""

    def __init__(self, config: pytest.Config, configuration: Configuration, *, singly: bool = False) -> None:
        """`singly`: the session may stop at any verdict, so none should wait for another."""
        assert configuration.executor is not None
        if hasattr(config, "workerinput") or config.getoption("numprocesses", None):
            raise UsageError(
                "--evalkit-executor and -n exclude each other: the workers of the cluster are the processes"
            )
        self._config = config
        self._configuration = configuration
        self._singly = singly
        try:
            self._address = parse_address(configuration.executor)
        except ValueError as error:
            raise UsageError(f"--evalkit-executor: {configuration.executor!r} is not {error}") from None
        self._executor: ClusterExecutor | None = None
        self._spec = b""
        if configuration.settings.max_tokens is not None:
            raise UsageError(
                "--evalkit-max-tokens: processes of a cluster count no tokens together; use --evalkit-max-cost"
            )
        cap = configuration.settings.max_cost_usd
        self._budget = None if cap is None else ClusterBudget(cap, self._send_spent)
        self._unwritten: dict[str, str] = {}  # by case id: why a recording of it is not in the project
        config.pluginmanager.register(self, "evalkit-cluster")

    # The executor

    @property
    def window(self) -> int:
        """The number of requests ahead that are worth announcing."""
        return self._connected.window

    @property
    def seconds(self) -> float:
        """The duration of the case whose verdict was returned last."""
        return self._connected.seconds

    @property
    def under_way(self) -> int:
        """Zero: which cases run on the cluster is not known here."""
        return 0

    def run(self, request: RunRequest, ahead: Any = ()) -> Verdict:
        """Return the verdict of `request`."""
        return self._connected.run(request, ahead)

    def cancel_pending(self) -> None:
        """Call back the requests that will not be asked for."""
        if self._executor is not None:
            self._executor.cancel_pending()

    def close(self) -> None:
        """Stop everything, and disconnect."""
        if self._executor is not None:
            self._executor.close()

    @property
    def _connected(self) -> ClusterExecutor:
        assert self._executor is not None, "pytest_runtestloop comes before any test"
        return self._executor

    # The session

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Connect once the tests to run are known, and only if there are cases among them."""
        items = [item for item in session.items if isinstance(item, CaseItem)]
        if items and not is_listing(self._config):
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
        spec = RunSpec(
            run_id=uuid4().hex,
            root=root,
            origin=here,
            python_path=tuple(_map_path(os.fspath(path), here, root) for path in self._config.getini("pythonpath")),
            commit=find_commit(configuration.root),
            # Secrets stay here; workers have their own.
            settings=replace(configuration.settings, extra={}, workers=processes),
            concurrency=configuration.concurrency,
            parts=select_changing(configuration.parts),
            secret_keys=configuration.secret_keys,
            bounds=get_bounds(),
        )
        self._spec = serialize_spec(spec)
        project = pickle.dumps((self._spec, list_folders(item.path.parent for item in items)))
        work = WorkerTasks(
            self._spec, project, run_batch, self._pack, self._unpack, check_worker, stop_run, self._store_recordings
        )
        executor.begin(work)
        if self._budget is not None:
            executor.client.subscribe_topic(TOPIC + spec.run_id, self._budget.handle_event)
        self._executor = executor
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            count = format_count(processes, "worker process", "worker processes")
            reporter.write_line(f"evalkit: {count} at {self._address.scheduler}")

    def _pack(self, requests: Sequence[RunRequest]) -> bytes:
        root = self._configuration.root
        folders = list_folders((root / (request.case.path or "")).parent for request in requests)
        usd_by_process = {} if self._budget is None else self._budget.usd_by_process
        is_recording = self._configuration.settings.record is not None
        sent = [
            (
                request.case,
                request.agent,
                read_files(self._folder, list_cassette_names(request.case)) if is_recording else {},
            )
            for request in requests
        ]
        return pickle.dumps((self._spec, folders, usd_by_process, pickle.dumps(sent)))

    @property
    def _folder(self) -> Path:
        """The folder of cassettes."""
        return self._configuration.root / self._configuration.settings.cassettes

    def _send_spent(self, usd_by_process: SpentByProcess, worker: str | None) -> None:
        """Tell the workers the spent money. Called on the event loop of Dask's client, which must not wait for them."""
        client = self._connected.client
        workers = None if worker is None else [worker]
        tell = partial(client.run, update_spent, self._spec, usd_by_process, workers=workers, on_error="ignore")
        client.loop.add_callback(tell)

    def _store_recordings(self, request: RunRequest, answer: CaseAnswer) -> None:
        """Write the recordings of a case at once: they are paid for, whether or not its verdict is asked for."""
        problem = write_recordings(self._folder, request.case, answer[3], self._configuration.secrets)
        if problem is not None:
            self._unwritten[request.case.id] = problem
        elif request.on_verdict is not None:
            request.on_verdict(from_line(answer[0]))

    def _unpack(self, request: RunRequest, answer: CaseAnswer) -> Verdict:
        line, _, sections, _ = answer
        output = None if request.context is None else get_output(request.context)
        if output is not None:
            for kind, text in sections:
                output.add(kind, text)
        problem = self._unwritten.pop(request.case.id, None)
        return from_line(line) if problem is None else build_error_verdict(request.case, "not_measured", problem)


def list_folders(folders: Iterable[Path]) -> tuple[str, ...]:
    """Return each folder once."""
    return tuple(sorted(set(map(os.fspath, folders))))


def _map_path(path: str, here: str, root: str) -> str:
    """Return the place of `path` on the workers; outside the project it is the same."""
    return os.path.join(root, os.path.relpath(path, here)) if Path(path).is_relative_to(here) else path
