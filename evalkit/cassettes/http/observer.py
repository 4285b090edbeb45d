"""The observation of a live run: requests of the agent's own client go out as they are, and are read on their way.

Nothing is held up: a reply is read piece by piece as its client reads it, and is on record when it has ended, when the
client closes it, or when the run does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

from evalkit.cassettes.http.messages import HttpRequest, HttpResponse
from evalkit.cassettes.http.player import OWN_HOSTS, TrafficListener, is_ignored_host
from evalkit.model.unobserved import CHANNEL, THREAD
from evalkit.wire.table import is_candidate


class Observation:
    """One reply on its way to its client."""

    def __init__(self, observer: Observer, request: HttpRequest) -> None:
        self._observer = observer
        self._request = request
        self._since = perf_counter()
        self._pieces: list[bytes] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._head: tuple[int, tuple[tuple[str, str], ...]] = (0, ())

    def begin(self, status: int, headers: tuple[tuple[str, str], ...]) -> None:
        self._head = (status, headers)

    def feed(self, content: bytes) -> None:
        self._pieces.append(bytes(content))

    def end(self) -> None:
        """Record what came, once."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._observer.finish(self)
        status, headers = self._head
        if status:
            response = HttpResponse(status, "", headers, b"".join(self._pieces))
            self._observer.listener.on_response(
                self._request, response, (perf_counter() - self._since) * 1000, is_live=True
            )

    def fail(self, error: BaseException) -> None:
        """Forget a request without an answer: what it was is the failure's own matter."""
        with self._lock:
            self._is_over = True
        self._observer.finish(self)
        self._observer.failures.append(f"{self._request.method} {self._request.url}: {error!r}")


class Observer:
    """The traffic of one live run."""

    def __init__(self, listener: TrafficListener, ignore_hosts: tuple[str, ...] = ()) -> None:
        self.listener = listener
        self.ignore_hosts = ignore_hosts
        self.failures: list[str] = []
        self.hosts: set[str] = set()  # that requests went to, by any client that is intercepted
        self.is_open = True
        self._running: set[Observation] = set()
        self._lock = threading.Lock()

    def observe(self, request: HttpRequest) -> Observation | None:
        """Return what a reply is fed to; None where there is nothing to be read. Raises BudgetSpentError."""
        self.hosts.add(request.host)
        if not self.is_open or request.host in OWN_HOSTS or not is_candidate(request.method, request.url, request.body):
            return None
        self.listener.on_request()
        observation = Observation(self, request)
        with self._lock:
            self._running.add(observation)
        return observation

    def note_channel(self, host: str) -> None:
        """Note a channel that stays unread, unless no model is at `host`."""
        if host not in OWN_HOSTS and not is_ignored_host(host, self.ignore_hosts):
            self.listener.on_unobserved(CHANNEL, host)

    def finish(self, observation: Observation) -> None:
        with self._lock:
            self._running.discard(observation)

    def close(self) -> None:
        """End the run: replies that are still read are on record as far as they came."""
        with self._lock:
            running = list(self._running)
        for observation in running:
            observation.end()
        self.is_open = False


class SharedObserver(Observer):
    """The traffic of code that belongs to no case while several run live: a request to a model is a fault of each."""

    def __init__(self, observers: list[Observer]) -> None:
        super().__init__(observers[0].listener)
        self._observers = observers

    def observe(self, request: HttpRequest) -> Observation | None:
        if is_candidate(request.method, request.url, request.body):
            for observer in self._observers:
                observer.listener.on_unobserved(THREAD, request.host)
        return None


# -- httpx and httpx2


class TeeStream:
    """The stream of a response, which feeds an observation."""

    def __init__(self, stream: Any, observation: Observation) -> None:
        self._stream = stream
        self._observation = observation

    def __iter__(self) -> Any:
        for piece in self._stream:
            self._observation.feed(piece)
            yield piece
        self._observation.end()

    async def __aiter__(self) -> Any:
        async for piece in self._stream:
            self._observation.feed(piece)
            yield piece
        self._observation.end()

    def close(self) -> None:
        self._observation.end()
        self._stream.close()

    async def aclose(self) -> None:
        self._observation.end()
        await self._stream.aclose()


def tee_httpx(library: Any, response: Any, observation: Observation) -> Any:
    observation.begin(response.status_code, tuple(response.headers.multi_items()))

    class Stream(TeeStream, library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc]
        pass

    response.stream = Stream(response.stream, observation)
    return response


# -- http.client: the file below a response, with the frames of its chunks


class TeeFile:
    """The file that http.client reads a response from, which feeds an observation. It undoes chunks."""

    def __init__(self, file: Any, observation: Observation, *, chunked: bool, length: int | None) -> None:
        self._file = file
        self._observation = observation
        self._chunked = chunked
        self._left = length
        self._buffer = bytearray()
        self._chunk_left = 0
        self._is_at_size = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _take(self, content: bytes) -> bytes:
        if content and not self._chunked:
            self._observation.feed(content)
            if self._left is not None:
                self._left -= len(content)
        elif content:
            self._buffer += content
            self._unchunk()
        if (not content and not self._chunked) or self._left == 0:
            self._observation.end()
        return content

    def _unchunk(self) -> None:
        while self._buffer:
            if self._is_at_size:
                line, found, _ = bytes(self._buffer).partition(b"\n")
                if not found:
                    return
                del self._buffer[: len(line) + 1]
                if not line.strip():
                    continue  # the end of the chunk before
                self._chunk_left = int(line.partition(b";")[0].strip() or b"0", 16)
                self._is_at_size = False
                if not self._chunk_left:
                    self._observation.end()
                    return
            piece = bytes(self._buffer[: self._chunk_left])
            del self._buffer[: len(piece)]
            self._chunk_left -= len(piece)
            if piece:
                self._observation.feed(piece)
            self._is_at_size = self._chunk_left == 0
            if not self._is_at_size:
                return

    def read(self, *args: Any) -> bytes:
        return self._take(self._file.read(*args))

    def read1(self, *args: Any) -> bytes:
        return self._take(self._file.read1(*args))

    def readline(self, *args: Any) -> bytes:
        return self._take(self._file.readline(*args))

    def readinto(self, buffer: Any) -> int:
        count: int = self._file.readinto(buffer)
        self._take(bytes(memoryview(buffer)[:count]))
        return count

    def close(self) -> None:
        self._observation.end()
        self._file.close()


def tee_http_client(response: Any, observation: Observation) -> Any:
    observation.begin(response.status, tuple(response.getheaders()))
    if response.fp is None:
        observation.end()
    else:
        response.fp = TeeFile(response.fp, observation, chunked=bool(response.chunked), length=response.length)
    return response


# -- aiohttp: what leaves the buffer of a response's reader

_readers: dict[int, Observation] = {}


def tee_aiohttp(response: Any, observation: Observation) -> Any:
    headers = tuple((k, v) for k, v in response.headers.items() if k.lower() != "content-encoding")  # it has unpacked
    observation.begin(response.status, headers)
    reader = response.content
    _readers[id(reader)] = observation

    if reader.is_eof() and not reader._buffer:
        _readers.pop(id(reader), None)
        observation.end()
    return response


def make_read_chunk(real: Callable[..., bytes]) -> Callable[..., bytes]:
    def _read_nowait_chunk(self: Any, n: int) -> bytes:
        content = real(self, n)
        observation = _readers.get(id(self))
        if observation is not None:
            observation.feed(content)
            if self._eof and not self._buffer:
                _readers.pop(id(self), None)
                observation.end()
        return content

    return _read_nowait_chunk
