"""Programs that the code of a run starts, and what is known of them when the run is over.

A process in Python gets a guard of its own: it finds `offline_child/sitecustomize.py` first on its PYTHONPATH, says in
a file that it has begun, and notes there what it was refused, where it connected, and what it started in turn. So its
silence is evidence. Any other program is known as harmless (`git`), or nobody knows what it did.

Whatever is started is told to ask its models at the run's own server, as programs that are agents are.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import wraps
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from evalkit.lazy import LazyModule
from evalkit.records.unobserved import CHILD, CONNECTION, FORK, Unobserved

if TYPE_CHECKING:
    from evalkit.agents import child_programs
else:
    child_programs = LazyModule("evalkit.agents.child_programs")

try:
    import _posixsubprocess
except ImportError:  # Windows
    _posixsubprocess = None  # type: ignore[assignment]

_CHILD_FOLDER = str(Path(__file__).with_name("offline_child"))
_TEMPORARY = os.environ.get("TMPDIR") or os.environ.get("TEMP") or "/tmp"  # noqa: S108 - the name can't be guessed
_owner = os.getpid()
_reports = os.path.join(_TEMPORARY, f"evalkit-{_owner}-{os.urandom(16).hex()}")
_numbers = count(1)

REFUSED, BEGAN, CONNECTED, STARTED, DID = "refused", "began", "connected", "started", "did"
Function = Callable[..., Any]
_kind: ContextVar[str | None] = ContextVar("evalkit_program_kind", default=CHILD)


@contextmanager
def start_as(kind: str | None) -> Iterator[None]:
    """Note programs that are started inside as parts of this kind; None: they are evalkit's own."""
    token = _kind.set(kind)
    try:
        yield
    finally:
        _kind.reset(token)


# -- The file in which processes of a run write


def keep_reports_in(folder: str) -> None:
    """Keep the reports of this process in `folder`, which another process removes when the session ends: a worker of
    xdist may be ended before it can."""
    global _reports
    _reports = os.path.join(folder, f"reports-{os.getpid()}")


def choose_report_path() -> str:
    """Choose the file in which the processes of a run note what happened. Most runs need none."""
    return f"{_reports}{os.sep}{next(_numbers)}"


def _remove_reports() -> None:
    """Remove the folder of reports at the end of the process that it belongs to, and not of one that was forked.

    Not before: a program may write there at any time, and what it was refused would be lost.
    """
    if os.getpid() == _owner:
        shutil.rmtree(_reports, ignore_errors=True)


atexit.register(_remove_reports)


def write_report(report: str, *words: object) -> None:
    """Add a line to a report. A forked process whose parent has ended adds nothing: nobody reads it."""
    if os.getpid() == _owner or _is_alive(_owner):  # a fork may be the first that has something to say
        os.makedirs(os.path.dirname(report), mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError), open(report, "a", encoding="utf-8") as file:
        file.write("\t".join(map(str, words)) + "\n")


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def read_report(report: str) -> list[list[str]]:
    """Read and remove a report: its lines, each once."""
    if not os.path.isdir(_reports):  # opening a file that is not there takes four times as long
        return []
    try:
        with open(report, encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    with suppress(OSError):
        os.unlink(report)
    return [line.split("\t") for line in dict.fromkeys(lines)]


def build_guard_environment(ignored_hosts: tuple[str, ...], report: str) -> dict[str, str]:
    """Build the variables by which the guard of a child process refuses the internet."""
    os.makedirs(_reports, mode=0o700, exist_ok=True)
    return {"EVALKIT_OFFLINE": "\n".join(ignored_hosts), "EVALKIT_OFFLINE_REPORT": report}


def build_child_environment(ignored_hosts: tuple[str, ...], report: str, own: Mapping[str, str]) -> dict[str, str]:
    """Build the variables that guard a child process whose environment is otherwise `own`."""
    return {**build_guard_environment(ignored_hosts, report), "PYTHONPATH": _prepend_guard(own.get("PYTHONPATH"))}


def _prepend_guard(path: str | None) -> str:
    return os.pathsep.join(dict.fromkeys([_CHILD_FOLDER, *(path.split(os.pathsep) if path else ())]))


# -- What a run has started


class Relay(Protocol):
    """Where a program finds its models. `was_asked`: it came there."""

    was_asked: bool


class StartedProgram(Struct, eq=False):
    """A program that is not known as harmless. `kind` is that of the part that it is if nobody knows what it did."""

    number: int
    words: tuple[str, ...]
    kind: str
    name: str
    pid: int | None = None
    relay: Relay | None = None

    def is_seen(self, pids: set[int]) -> bool:
        """Return whether it is known what it did: it has asked the run's own server, or the guard has begun inside, in
        the processes `pids`: in the program itself, or in all that a shell or a launcher runs."""
        if self.pid in pids or (self.relay is not None and self.relay.was_asked):
            return True
        commands = [child_programs.unwrap(command) for command in child_programs.list_commands(self.words)]
        inner = [command for command in commands if not child_programs.is_harmless(command)]
        is_wrapper = commands != [list(self.words)]
        return is_wrapper and bool(pids) and all(child_programs.is_python(command) for command in inner)


class ChildWatch(Struct, eq=False):
    """The programs of one run. `open_relay` returns the variables that lead one to the run's own server, and who is
    there; `build_proxy` those that keep one off the internet. Both get the program's environment."""

    report: str
    offline_hosts: tuple[str, ...] | None  # patterns of hosts that may be reached; None: all may
    ignore_hosts: tuple[str, ...]
    harmless: tuple[str, ...]
    list_peers: Callable[[], list[str]]
    open_relay: Callable[[Mapping[str, str]], tuple[Mapping[str, str | None], Relay | None]]
    build_proxy: Callable[[Mapping[str, str], Iterable[str]], Mapping[str, str]]
    owner: int = field(default_factory=os.getpid)
    programs: list[StartedProgram] = field(default_factory=list)

    def prepare(
        self, words: Sequence[str], environment: Mapping[Any, Any] | None
    ) -> tuple[dict[Any, Any], StartedProgram | None]:
        """Return the environment that a program is started with, and the program, unless it is harmless."""
        merged = dict(os.environ if environment is None else environment)
        kind = _kind.get()
        program = None
        if kind is not None and not child_programs.is_harmless(words, self.harmless):
            program = StartedProgram(
                next(_numbers), tuple(words), kind, child_programs.describe_command(words, self.harmless)
            )
            if os.getpid() == self.owner:
                self.programs.append(program)
                merged |= self._open_server(program, merged)
                merged = {name: value for name, value in merged.items() if value is not None}
            elif not child_programs.is_python(
                child_programs.unwrap(words)
            ):  # a process that was forked, whose list is lost
                write_report(self.report, STARTED, 0, program.name)
            merged |= self._build_watch(program)  # the run's own server is no stranger's
        if self.offline_hosts is not None:
            merged |= build_guard_environment(self.offline_hosts, self.report)
        if program is not None or self.offline_hosts is not None:
            path = merged.get("PYTHONPATH") or merged.pop(b"PYTHONPATH", None)
            merged["PYTHONPATH"] = _prepend_guard(os.fsdecode(path) if path else None)
        return merged, program

    def _open_server(self, program: StartedProgram, environment: Mapping[Any, Any]) -> dict[str, str | None]:
        """Return the variables that lead a program to the run's own server; None: one that it must not get."""
        texts = {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()}
        variables: dict[str, str | None] = {}
        if program.kind == CHILD:
            found, program.relay = self.open_relay(texts)
            variables |= found
        if self.offline_hosts is not None and not child_programs.is_python(child_programs.unwrap(program.words)):
            variables |= self.build_proxy(texts, self.offline_hosts)
        return variables

    def _build_watch(self, program: StartedProgram) -> dict[str, str]:
        os.makedirs(_reports, mode=0o700, exist_ok=True)
        watch = {
            "child": program.number,
            "report": self.report,
            "hosts": [*self.ignore_hosts, *self.list_peers()],
            "harmless": self.harmless,
        }
        return {"EVALKIT_WATCH": json.dumps(watch)}

    def list_unobserved(self, lines: Sequence[Sequence[str]]) -> list[Unobserved]:
        """List what nobody saw of the programs, by the lines of the run's report."""
        names = {str(program.number): program.name for program in self.programs}
        pids: dict[str, set[int]] = {}
        parts = []
        for word, *rest in lines:
            if word == BEGAN:
                pids.setdefault(rest[0], set()).add(int(rest[1]))
            elif word in (CONNECTED, STARTED, DID):
                kind = {CONNECTED: CONNECTION, STARTED: CHILD, DID: FORK}[word]
                parts.append(Unobserved(kind, rest[1], names.get(rest[0], "a process that was forked")))
        return parts + [
            Unobserved(program.kind, program.name)
            for program in self.programs
            if not program.is_seen(pids.get(str(program.number), set()))
        ]


class ProcessPatches:
    """Replacements of the functions that start processes. `find_watch` returns what watches those of the code here."""

    def __init__(self, find_watch: Callable[[], ChildWatch | None]) -> None:
        self._find_watch = find_watch
        self._inside = threading.local()

    def list_patches(self) -> list[tuple[object, str, Callable[[Function], Function]]]:
        """List what starts processes, and what makes each replacement."""
        spawners = [name for name in ("posix_spawn", "posix_spawnp") if hasattr(os, name)]
        return [
            (subprocess.Popen, "__init__", self._guard_popen),
            *((os, name, self._guard_spawn) for name in (*spawners, "execve")),
            *([] if _posixsubprocess is None else [(_posixsubprocess, "fork_exec", self._guard_fork_exec)]),
            (os, "execv", self._guard_exec),
            (os, "system", self._guard_system),
        ]

    def _guard_popen(self, real: Function) -> Function:
        signature = inspect.signature(inspect.unwrap(real))

        @wraps(real)
        def start(*args: Any, **options: Any) -> Any:
            watch = self._find_watch()
            if watch is None:
                return real(*args, **options)
            bound = signature.bind(*args, **options)  # a TypeError is the caller's
            words = _read_words(bound.arguments.get("args"), is_shell=bool(bound.arguments.get("shell")))
            bound.arguments["env"], program = watch.prepare(words, bound.arguments.get("env"))
            self._inside.popen = True  # it may spawn by one of the other functions
            try:
                result = real(*bound.args, **bound.kwargs)
            finally:
                self._inside.popen = False
            if program is not None:
                program.pid = args[0].pid
            return result

        return start

    def _guard_spawn(self, real: Function) -> Function:
        @wraps(real)
        def spawn(path: Any, argv: Any, env: Any, *args: Any, **options: Any) -> Any:
            watch = None if getattr(self._inside, "popen", False) else self._find_watch()
            if watch is None:
                return real(path, argv, env, *args, **options)
            environment, program = watch.prepare(_read_words([path, *list(argv)[1:]]), env)
            pid = real(path, argv, environment, *args, **options)
            if program is not None:
                program.pid = pid
            return pid

        return spawn

    def _guard_fork_exec(self, real: Function) -> Function:
        """Guard what `multiprocessing` starts processes with: a list of the environment's lines, or None for all."""

        @wraps(real)
        def fork_exec(*args: Any) -> Any:
            watch = self._find_watch()
            if watch is None or args[5] is not None:
                return real(*args)
            environment, program = watch.prepare(_read_words(args[0]), None)
            lines = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in environment.items()]
            pid = real(*args[:5], lines, *args[6:])
            if program is not None:
                program.pid = pid
            return pid

        return fork_exec

    def _guard_exec(self, real: Function) -> Function:
        @wraps(real)
        def execv(path: Any, args: Any) -> Any:
            if self._find_watch() is None:
                return real(path, args)
            return os.execve(path, args, dict(os.environ))  # noqa: S606 - as the agent does

        return execv

    def _guard_system(self, real: Function) -> Function:
        @wraps(real)
        def system(command: Any) -> int:
            if self._find_watch() is None:
                return int(real(command))
            status = subprocess.call(command, shell=True)  # noqa: S602 - as os.system does
            return status << 8 if status >= 0 else -status

        return system


def _read_words(args: object, *, is_shell: bool = False) -> list[str]:
    """Return the words of a command as texts, whatever form it has."""
    words: list[str] = []
    with suppress(TypeError):  # what starts it will say so
        single = isinstance(args, (str, bytes, os.PathLike))
        words = [os.fsdecode(word) for word in ([args] if single else args)]  # type: ignore[attr-defined]
    return ["sh", "-c", *words] if is_shell else words
