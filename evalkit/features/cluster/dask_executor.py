"""Running cases on a Dask cluster, for a caller that takes their verdicts in order, one by one.

Cases are sent in batches, so that the scheduler has one task for many cases, and cases of a batch overlap on their
worker. The caller gives the functions that a worker applies; both sides can import them. When a worker dies, Dask gives
its batches to others; a batch that took several workers with it is split, and its cases are sent one by one, so
that the one that kills is named, and the others get their verdicts.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct, field

from evalkit.errors import UsageError
from evalkit.execution.executor import RunRequest, build_error_verdict
from evalkit.records.verdict import Verdict

DEFAULT_PORT = 8786
_SCHEMES = {"dask": "tcp", "dask+tls": "tls"}
_CONNECT_S = 10.0
_STARTING_S = 2.0  # so long a scheduler may take until it listens, when it is started together with the run
_LONGEST_GREETING = 1_000_000  # bytes; it is some hundred
_WORKERS_S = 30.0  # so long a scheduler may be without workers at first
_LOOK_S = 2.0  # between looks at whether there is still a cluster


class Address(Struct, frozen=True):
    """The address of the scheduler, and the project's root on its workers (None: the same as here)."""

    scheduler: str
    root: str | None = None


def parse_address(text: str) -> Address:
    """Parse ``dask://host:port``, ``dask+tls://host``, ``dask://host?root=/srv/project``. Raise ValueError for anything
    else.
    """
    parts = urlsplit(text)
    options = parse_qs(parts.query)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    is_valid = parts.scheme in _SCHEMES and parts.hostname and port and set(options) <= {"root"}
    if not is_valid or parts.path.strip("/") or parts.fragment:
        raise ValueError("the address of a Dask scheduler, such as dask://host:8786")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return Address(f"{_SCHEMES[parts.scheme]}://{host}:{port}", options.get("root", [None])[0])


class WorkerTasks(Struct, frozen=True):
    """The functions of the workers. `task`, `check` and `stop` run there, and are imported there by their names.

    ``task(pack(requests))`` returns a list with an answer per request, or a text that says why there is none, or None
    if an agent raised KeyboardInterrupt; ``unpack(request, answer)`` makes the verdict of an answer. ``check(project)``
    returns what is wrong with a worker, or None; ``stop(spec)`` lets it abandon what is running. ``on_answer(request,
    answer)`` is called here as soon as an answer has come, in a thread of Dask's, and raises nothing.
    """

    spec: bytes
    project: bytes
    task: Callable[[bytes], Any]
    pack: Callable[[Sequence[RunRequest]], bytes]
    unpack: Callable[[RunRequest, Any], Verdict]
    check: Callable[[bytes], str | None]
    stop: Callable[[bytes], None]
    on_answer: Callable[[RunRequest, Any], None]


class Batch(Struct, eq=False):
    """Cases that are sent together."""

    requests: tuple[RunRequest, ...]
    future: Any
    arrived: threading.Event = field(default_factory=threading.Event)
    answers: dict[str, Any] = field(default_factory=dict)  # by case id
    error: Exception | None = None

    def receive(self, on_answer: Callable[[RunRequest, Any], None], future: Any) -> None:
        """Fetch the answers, in a thread of Dask's: answers that stay on a worker are lost with it, and the cases run
        again.
        """
        try:
            result = future.result()
            answers = result if isinstance(result, list) else [result] * len(self.requests)
            self.answers.update(zip((request.case.id for request in self.requests), answers, strict=True))
            if isinstance(result, list):
                for request, answer in zip(self.requests, result, strict=True):
                    on_answer(request, answer)
        except Exception as error:
            self.error = error
        self.future = None  # the cluster may forget it, and need not run it again if its worker dies now
        self.arrived.set()


class LostError(Exception):
    """A batch will never get an answer; the text says why."""


class ClusterExecutor:
    """An executor on a cluster, which gives each case a verdict, whatever happens. It is used from one thread."""

    def __init__(self, address: Address, concurrency: int, *, singly: bool = False, patience_s: float = 60.0) -> None:
        """`concurrency` cases overlap in each process of the cluster. `singly`: no batch holds several, so that no
        verdict waits for another. After `patience_s` without any worker, the cases that are left are not measured."""
        self._address = address
        self._work: WorkerTasks
        self._concurrency = concurrency
        self._singly = singly
        self._patience_s = patience_s
        self.client: Any = None  # Dask's, once connected
        self._threads = self._processes = 1
        self._batches: dict[str, Batch] = {}  # by case id: sent and not taken yet
        self._suspects: set[str] = set()  # cases that were with another one when its worker died
        self._last_worker_seen = 0.0
        self._failure: str | None = None  # why there is no cluster any more
        self.seconds = 0.0  # of the case whose verdict was returned last, on its worker

    @property
    def window(self) -> int:
        """The number of requests ahead of the current one that are worth announcing: two batches a thread."""
        return 2 * self._threads * self._size

    @property
    def _size(self) -> int:
        """The size of a batch: a process's batches come to as many cases as may overlap in it."""
        return 1 if self._singly else max(1, -(-self._concurrency * self._processes // self._threads))

    def connect(self) -> int:
        """Connect to the scheduler. Return the number of its workers' processes. Raise UsageError on failure."""
        self.client = _connect_client(self._address.scheduler)
        with suppress(TimeoutError):
            self.client.wait_for_workers(1, timeout=_WORKERS_S)
        threads = self.client.nthreads()
        if not threads:
            raise UsageError(f"{self._address.scheduler}: the scheduler has no workers; start some with `dask worker`")
        self._threads, self._processes = sum(threads.values()), len(threads)
        self._last_worker_seen = time.monotonic()
        return self._processes

    def begin(self, work: WorkerTasks) -> None:
        """Check that the workers can run the tasks. Raise UsageError if not."""
        self._work = work
        try:
            results = self.client.run(work.check, work.project, on_error="return")
        except Exception as error:  # what the workers could not even read
            raise UsageError(f"the workers can't run evalkit: {type(error).__name__}: {error}") from None
        failures = {worker: message for worker, message in results.items() if message is not None}
        if failures:
            worker, message = min(failures.items())
            problem = f"{type(message).__name__}: {message}" if isinstance(message, BaseException) else message
            note = f" ({len(failures)} of {len(results)} workers)" if len(results) > 1 else ""
            raise UsageError(f"worker {worker} can't run the cases{note}: {problem}")

    def run(self, request: RunRequest, ahead: Iterable[RunRequest] = ()) -> Verdict:
        """Return the verdict of `request`. Requests `ahead`, in the order of later calls, are sent out meanwhile.

        KeyboardInterrupt passes through, after everything has been called back.
        """
        try:
            self._send([request, *ahead])
            self.seconds = 0.0
            while self._failure is None:
                batch = self._batches[request.case.id]
                try:
                    self._wait(batch)
                except LostError as lost:
                    for each in batch.requests:
                        self._batches.pop(each.case.id, None)
                    if len(batch.requests) == 1 or self._failure is not None:
                        return build_error_verdict(request.case, "crashed", str(lost))
                    self._suspects.update(each.case.id for each in batch.requests)
                    self._send([request])
                    continue
                del self._batches[request.case.id]
                answer = batch.answers[request.case.id]
                if answer is None:
                    raise KeyboardInterrupt
                if isinstance(answer, str):
                    return build_error_verdict(request.case, "not_measured", answer)
                self.seconds = answer[1]
                return self._work.unpack(request, answer)
            return build_error_verdict(request.case, "crashed", self._failure)
        except BaseException:
            self.cancel_pending()
            raise

    def cancel_pending(self) -> None:
        """Call back the batches that were sent out and will not be asked for."""
        futures = [future for batch in set(self._batches.values()) if (future := batch.future) is not None]
        self._batches.clear()
        if futures and self.client is not None:
            with suppress(Exception):  # a cluster that is gone has nothing to call back
                self.client.cancel(futures)
                self.client.run(self._work.stop, self._work.spec)

    def close(self) -> None:
        """Stop everything, and disconnect."""
        self.cancel_pending()
        if self.client is not None:
            with suppress(Exception):
                if self._failure is None:
                    self.client.run(self._work.stop, self._work.spec)
                self.client.close(timeout=5)
            self.client = None

    # On the way out

    def _send(self, requests: Sequence[RunRequest]) -> None:
        new = [request for request in requests if request.case.id not in self._batches]
        if self._failure is not None or not new:
            return
        if new[0].case.id in self._suspects:
            self._post([new.pop(0)])
        size = min(self._size, max(1, -(-len(new) // (2 * self._threads))))
        for start in range(0, len(new), size):
            self._post(new[start : start + size])

    def _post(self, requests: Sequence[RunRequest]) -> None:
        future = self.client.submit(self._work.task, self._work.pack(requests), pure=False)
        batch = Batch(tuple(requests), future)
        self._batches.update((request.case.id, batch) for request in requests)
        future.add_done_callback(partial(batch.receive, self._work.on_answer))

    # On the way back

    def _wait(self, batch: Batch) -> None:
        """Wait for the answers. Raise LostError if none will come, or there have been no workers for too long."""
        while not batch.arrived.wait(_LOOK_S):
            try:
                threads = self.client.nthreads()
            except Exception as gone:
                self._failure = f"the cluster is gone: {type(gone).__name__}: {gone}"
                raise LostError(self._failure) from None
            if threads:
                self._last_worker_seen = time.monotonic()
            elif time.monotonic() - self._last_worker_seen > self._patience_s:
                self._failure = f"the cluster has had no worker for {self._patience_s:g} s"
                raise LostError(self._failure)
        if batch.error is None:
            return
        from distributed import KilledWorker

        error = batch.error
        if isinstance(error, KilledWorker):
            tries = f"{error.allowed_failures + 1} workers died of it, the last was {error.last_worker.address}"
            raise LostError(f"the worker that ran this case died each time: {tries}")
        raise LostError(f"the cluster lost this case: {type(error).__name__}: {error}")  # cancelled by another, say


def _connect_client(address: str) -> Any:
    try:
        from distributed import Client
    except ModuleNotFoundError:
        raise UsageError("Dask is not installed: pip install 'pytest-evalkit[dask]'") from None
    try:
        # Check that a Dask scheduler answers. Dask tries for its whole timeout where nobody listens, and waits for ever
        # for another kind of server.
        parts = urlsplit(address)
        end = time.monotonic() + _STARTING_S
        while True:
            try:
                with socket.create_connection((parts.hostname or "", parts.port or DEFAULT_PORT), _CONNECT_S) as server:
                    greeting = b"" if parts.scheme == "tls" else server.recv(8)
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        if parts.scheme != "tls" and not 0 < int.from_bytes(greeting, sys.byteorder) < _LONGEST_GREETING:
            raise UsageError(f"{address}: what answers there is no Dask scheduler")
        return Client(address, timeout=_CONNECT_S, set_as_default=False)
    except OSError as error:  # TimeoutError is one
        raise UsageError(f"{address}: no Dask scheduler answers there: {error}") from None
