"""The executor of a session whose cases run on the workers of a cluster."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from evalkit.bounds import get_bounds
from evalkit.errors import UsageError
from evalkit.execution.executor import ExecutorRequest, RunRequest, build_error_verdict
from evalkit.execution.output import get_output
from evalkit.features.cluster.dask_executor import Address, ClusterExecutor, WorkerTasks
from evalkit.features.cluster.exchange import (
    TOPIC,
    ClusterBudget,
    SpentByProcess,
    list_cassette_names,
    read_files,
    write_recordings,
)
from evalkit.features.cluster.worker import (
    CaseAnswer,
    RunSpec,
    check_worker,
    run_batch,
    serialize_spec,
    stop_run,
    update_spent,
)
from evalkit.hosts.reports.api import from_line
from evalkit.records.verdict import Verdict
from evalkit.repository import find_commit
from evalkit.text.format import format_count


class ClusterSession:
    """The executor of a session whose cases run on a cluster. It connects when the session begins to run tests."""

    def __init__(self, address: Address, request: ExecutorRequest) -> None:
        self._address = address
        self._request = request
        self._executor: ClusterExecutor | None = None
        self._spec = b""
        cap = request.settings.max_cost_usd
        self._budget = None if cap is None else ClusterBudget(cap, self._send_spent)
        self._unwritten: dict[str, str] = {}  # by case id: why a recording of it is not in the project

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
        assert self._executor is not None, "make_ready comes before any case"
        return self._executor

    # The session

    def make_ready(self, folders: Sequence[Path]) -> str:
        """Connect, and check that the workers can run the cases in `folders`."""
        try:
            processes = self._connect(folders)
        except UsageError as error:
            raise UsageError(f"--evalkit-executor: {error}") from None
        return f"{format_count(processes, 'worker process', 'worker processes')} at {self._address.scheduler}"

    def _connect(self, folders: Sequence[Path]) -> int:
        request = self._request
        here = os.fspath(request.root)
        root = self._address.root or here
        executor = ClusterExecutor(self._address, request.concurrency, singly=request.stops_early)
        processes = executor.connect()
        spec = RunSpec(
            run_id=uuid4().hex,
            root=root,
            origin=here,
            python_path=tuple(_map_path(path, here, root) for path in request.python_path),
            commit=find_commit(request.root),
            # Secrets stay here; workers have their own.
            settings=replace(request.settings, extra={}, workers=processes),
            concurrency=request.concurrency,
            parts=request.parts,
            secret_keys=request.secret_keys,
            bounds=get_bounds(),
        )
        self._spec = serialize_spec(spec)
        project = pickle.dumps((self._spec, list_folders(folders)))
        work = WorkerTasks(
            self._spec, project, run_batch, self._pack, self._unpack, check_worker, stop_run, self._store_recordings
        )
        executor.begin(work)
        if self._budget is not None:
            executor.client.subscribe_topic(TOPIC + spec.run_id, self._budget.handle_event)
        self._executor = executor
        return processes

    def _pack(self, requests: Sequence[RunRequest]) -> bytes:
        root = self._request.root
        folders = list_folders((root / (request.case.path or "")).parent for request in requests)
        usd_by_process = {} if self._budget is None else self._budget.usd_by_process
        is_recording = self._request.settings.record is not None
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
        return self._request.root / self._request.settings.cassettes

    def _send_spent(self, usd_by_process: SpentByProcess, worker: str | None) -> None:
        """Tell the workers the spent money. Called on the event loop of Dask's client, which must not wait for them."""
        client = self._connected.client
        workers = None if worker is None else [worker]
        tell = partial(client.run, update_spent, self._spec, usd_by_process, workers=workers, on_error="ignore")
        client.loop.add_callback(tell)

    def _store_recordings(self, request: RunRequest, answer: CaseAnswer) -> None:
        """Write the recordings of a case at once: they are paid for, whether or not its verdict is asked for."""
        problem = write_recordings(self._folder, request.case, answer[3], self._request.secrets)
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
