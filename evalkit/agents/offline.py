"""The guard that keeps an agent off the internet while its case runs offline.

HTTP is answered from cassettes where vcrpy is installed. Everything else would go out unnoticed, cost money, and change
the verdict from day to day. So what leads to the internet is refused, whatever client asks for it, and the case can't
be measured. This machine, its containers, private networks, and code outside of cases are not restricted.

A connection belongs to the case in whose context it is made. One without a context, from a thread that was started
since or on a loop that runs cases, belongs to the only case that runs; if several run, it is refused.
"""

from __future__ import annotations

import _thread
import asyncio
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

from evalkit.agents.offline_rules import NetworkGuard, is_ignored
from evalkit.agents.task import Task
from evalkit.cassettes.http.interception import is_bypassed
from evalkit.cassettes.http.unobserved import OWN_PEERS
from evalkit.errors import MissingCassetteError
from evalkit.functions.context_propagation import CURRENT_CASE, start_propagation, stop_propagation
from evalkit.model.settings import Settings

try:
    import _posixsubprocess
except ImportError:  # Windows
    _posixsubprocess = None  # type: ignore[assignment]


AGENT_THREADS = "evalkit-agent-"  # the names of threads in which sync agents run begin so
_NEED = "offline"
_lock = threading.RLock()


class GuardedRun:
    """A run that is under way. `ignored_hosts` are patterns of hosts that stay reachable; None: all of them do."""

    def __init__(self, task: Task, ignored_hosts: tuple[str, ...] | None) -> None:
        self.task = task
        self.ignored_hosts = ignored_hosts
        self.is_abandoned = False
        self.report = choose_report_path()
        self.owner = os.getpid()
        self.loop = _find_loop()
        # Code outside of cases may run there.
        self.older_threads = {thread for thread in threading.enumerate() if not thread.name.startswith(AGENT_THREADS)}


def _find_loop() -> object:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_runs: dict[Task, GuardedRun] = {}
_keepers: set[object] = set()


def keep_guard(keeper: object) -> None:
    """Keep the guard in place between cases, where it lets everything pass, until `remove_guard` of each keeper."""
    _keepers.add(keeper)


def remove_guard(keeper: object) -> None:
    """Take the guard away as soon as no case is guarded and nobody else keeps it."""
    with _lock:
        _keepers.discard(keeper)
        _stop_what_is_unused()


def cut_off(task: Task, settings: Settings) -> None:
    """Cut the run of `task` off the internet, if it is offline."""
    goes_out = settings.model is not None or settings.record is not None or settings.http.cassettes is False
    with _lock:
        if not goes_out and not (_guard.is_active and _list_guarded()):
            _guard.start()
            if not _process_patches:
                _process_patches.append((_thread, "start_new_thread", _start_in_case))
                _process_patches.extend(ProcessPatches(_build_environment).list_patches())
            for owner, name, wrap in _process_patches:
                _guard.wrap(owner, name, wrap)
            # Check gRPC's calls, now or when it is imported.
            for name in _GRPC_MODULES:
                if name in sys.modules:
                    _patch_grpc(sys.modules[name])
            if _finder not in sys.meta_path:
                sys.meta_path.insert(0, _finder)
        if not goes_out:
            start_propagation(_NEED)
        _runs[task] = GuardedRun(task, None if goes_out else settings.http.ignore_hosts)


def restore(task: Task) -> None:
    """End the restriction of `task`: its agent has ended. What its child processes were refused is a fault of it."""
    with _lock:
        run = _runs.pop(task, None)
        _stop_what_is_unused()
    if run is not None:
        record_refused(task, run.report, "a process that the agent started")


def find_offline_hosts(task: Task) -> tuple[str, ...] | None:
    """Return the patterns of hosts that `task`, which runs offline, may reach; None if it may reach all."""
    run = _runs.get(task)
    return None if run is None else run.ignored_hosts


def record_refused(task: Task, report: str, who: str) -> None:
    """Record as a fault of `task` what the process `who`, whose report this is, was refused since the last time."""
    for place in read_report(report):
        task.record_fault(_build_error(task, place, f"{who} connects to {place}"))


def abandon(task: Task) -> None:
    """Leave `task` restricted after its run: its agent could not be ended, and goes on somewhere."""
    with _lock:
        if task in _runs:
            _runs[task].is_abandoned = True
        _stop_what_is_unused()


def _list_guarded() -> list[GuardedRun]:
    return [run for run in _runs.values() if run.ignored_hosts is not None]


def _stop_what_is_unused() -> None:
    guarded = _list_guarded()
    if all(run.is_abandoned for run in guarded):
        stop_propagation(_NEED)
        if not guarded and not _keepers and _guard.is_active:
            _guard.stop()


def _check(host: str, port: object) -> None:
    """Raise MissingCassetteError if the code that runs here is cut off from `host`."""
    if f"{host}:{port}" in OWN_PEERS or is_bypassed(anywhere=CURRENT_CASE.get() is None):
        return
    place = host if port is None else f"{host}:{port}"
    run = _find_run(place)
    if run is None or run.ignored_hosts is None or is_ignored(host, port, run.ignored_hosts):
        return
    error = _build_error(run.task, place, f"the agent's own client connects to {place}")
    if os.getpid() != run.owner:  # a process that was forked
        write_report(run.report, place)
    run.task.record_fault(error)
    raise error


def _find_run(place: str) -> GuardedRun | None:
    """Find the run that the code here belongs to; None for code outside of cases."""
    case = CURRENT_CASE.get()
    if case is not None and case.dispatcher.task in _runs:
        return _runs[case.dispatcher.task]
    with _lock:
        runs = [run for run in _runs.values() if not run.is_abandoned]
    if case is None:  # otherwise it was left over by a case that has ended
        thread, loop = threading.current_thread(), _find_loop()
        runs = [run for run in runs if thread not in run.older_threads or (loop is not None and loop is run.loop)]
    if any(run.ignored_hosts is None for run in runs):
        return None  # perhaps it is of a run that may go out
    if len(runs) > 1:
        raise MissingCassetteError(
            f"offline, and code of an agent connects to {place} without the context of its case, while {len(runs)} "
            "cases run, so nobody knows whose it is: tie what runs there to its case with evalkit.bind(function), or "
            "run one case at a time (--evalkit-concurrency 1)"
        )
    return runs[0] if runs else None


def _build_error(task: Task, place: str, problem: str) -> MissingCassetteError:
    host = place.partition(":")[0] if place.count(":") == 1 else place
    advice = (
        "To record what it asks and play it back: pip install 'pytest-evalkit[vcr]'."
        if task.http_player is None
        else "HTTP cassettes can't play this: it is no HTTP, or comes from a client that they don't know."
    )
    return MissingCassetteError(
        f"offline, and {problem}; without --evalkit-model no case reaches the internet\n{advice} In "
        f'[tool.evalkit.http], ignore_hosts = ["{host}"] lets this host through, cassettes = false all of them'
    )


_guard = NetworkGuard(_check)
_process_patches: list[tuple[object, str, Callable[[Callable[..., Any]], Callable[..., Any]]]] = []


def _build_environment() -> dict[str, str] | None:
    """Build the variables that guard a process which the code here starts; None outside of guarded runs."""
    case = CURRENT_CASE.get()
    run = None if case is None else _runs.get(case.dispatcher.task)
    if run is None or run.ignored_hosts is None:
        return None
    return build_guard_environment(run.ignored_hosts, run.report)


def _start_in_case(real: Callable[..., int]) -> Callable[..., int]:
    """Carry the case into a thread of `_thread`, which has a context of its own."""

    @wraps(real)
    def start_new_thread(function: Callable[..., object], *args: Any) -> int:
        case = CURRENT_CASE.get()

        def run_in_case(*inner: object, **options: object) -> object:
            CURRENT_CASE.set(case)
            return function(*inner, **options)

        return real(run_in_case, *args)

    return start_new_thread


# -- gRPC opens its connections in C, and tries again until the deadline: its calls are checked instead.

_GRPC_MODULES = ("grpc._channel", "grpc.aio._channel")
_GRPC_CALLS = ("__call__", "with_call", "future")


class _PatchAfterImport(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _GRPC_MODULES else None
        if spec is None or spec.loader is None:
            return None
        real = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            real(module)
            _patch_grpc(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_finder = _PatchAfterImport()


def _patch_grpc(module: ModuleType) -> None:
    for owner in [value for name, value in vars(module).items() if name.endswith("MultiCallable")]:
        for name in _GRPC_CALLS:
            real = vars(owner).get(name)
            if real is not None and not hasattr(real, "evalkit_guard"):
                setattr(owner, name, _check_grpc_call(real))


def _check_grpc_call(real: Callable[..., object]) -> Callable[..., object]:
    @wraps(real)
    def call(self: Any, *args: object, **options: object) -> object:
        target = self._channel.target  # of asyncio's channels the bytes, of others a method
        target = (target() if callable(target) else target).decode("utf-8", "replace")
        if _guard.is_active and not target.startswith("unix"):
            address = target.rpartition("/")[2].removeprefix("ipv4:").removeprefix("ipv6:").removeprefix("dns:")
            host, _, port = address.rpartition(":")
            _guard.examine(host.strip("[]") or address, port)
        return real(self, *args, **options)

    call.evalkit_guard = True  # type: ignore[attr-defined]
    return call


# -- Processes that an agent starts: those in Python get a guard of their own. They find
# `offline_child/sitecustomize.py` first on their PYTHONPATH, and note what they are refused in a file.

_CHILD_FOLDER = str(Path(__file__).with_name("offline_child"))
_TEMPORARY = os.environ.get("TMPDIR") or os.environ.get("TEMP") or "/tmp"  # noqa: S108 - the name can't be guessed
_REPORTS = os.path.join(_TEMPORARY, f"evalkit-offline-{os.urandom(16).hex()}")
_numbers = count(1)

Function = Callable[..., Any]
BuildVariables = Callable[[], dict[str, str] | None]


def choose_report_path() -> str:
    """Choose the file in which the processes of a run note what they are refused. Most runs need none."""
    return f"{_REPORTS}{os.sep}{next(_numbers)}"


def write_report(report: str, place: str) -> None:
    """Note that a process of a run was refused `place`."""
    os.makedirs(_REPORTS, mode=0o700, exist_ok=True)
    with open(report, "a", encoding="utf-8") as file:
        file.write(f"{place}\n")


def build_guard_environment(ignored_hosts: tuple[str, ...], report: str) -> dict[str, str]:
    """Build the variables that guard a child process."""
    os.makedirs(_REPORTS, mode=0o700, exist_ok=True)
    return {"EVALKIT_OFFLINE": "\n".join(ignored_hosts), "EVALKIT_OFFLINE_REPORT": report}


def build_child_environment(ignored_hosts: tuple[str, ...], report: str, own: Mapping[str, str]) -> dict[str, str]:
    """Build the variables that guard a child process whose environment is otherwise `own`."""
    return {**build_guard_environment(ignored_hosts, report), "PYTHONPATH": _prepend_guard(own.get("PYTHONPATH"))}


def _prepend_guard(path: str | None) -> str:
    return os.pathsep.join(dict.fromkeys([_CHILD_FOLDER, *(path.split(os.pathsep) if path else ())]))


def read_report(report: str) -> list[str]:
    """Read and remove a report: the places that child processes were refused, each once."""
    if not os.path.isdir(_REPORTS):  # opening a file that is not there takes four times as long
        return []
    try:
        with open(report, encoding="utf-8", errors="replace") as file:
            places = file.read().split()
    except OSError:
        return []
    with suppress(OSError):
        os.unlink(report)
        os.rmdir(_REPORTS)  # unless another run has one
    return list(dict.fromkeys(places))


class ProcessPatches:
    """Replacements of the functions that start processes. `build_variables` returns the guard's variables, None outside
    of guarded runs."""

    def __init__(self, build_variables: BuildVariables) -> None:
        self._build_variables = build_variables

    def list_patches(self) -> list[tuple[object, str, Callable[[Function], Function]]]:
        """List what starts processes, and what makes each replacement."""
        popen_position = inspect.unwrap(subprocess.Popen.__init__).__code__.co_varnames.index("env")
        spawners = [name for name in ("execve", "posix_spawn", "posix_spawnp") if hasattr(os, name)]
        return [
            (subprocess.Popen, "__init__", partial(self._guard_environment, popen_position)),
            *((os, name, partial(self._guard_environment, 2)) for name in spawners),
            *([] if _posixsubprocess is None else [(_posixsubprocess, "fork_exec", self._guard_fork_exec)]),
            (os, "execv", self._guard_exec),
            (os, "system", self._guard_system),
        ]

    def _add_variables(self, environment: Mapping[Any, Any] | None) -> Mapping[Any, Any] | None:
        variables = self._build_variables()
        if variables is None:
            return environment
        merged = dict(os.environ if environment is None else environment)
        path = merged.get("PYTHONPATH") or merged.get(b"PYTHONPATH")
        merged.pop(b"PYTHONPATH", None)
        return {**merged, **variables, "PYTHONPATH": _prepend_guard(os.fsdecode(path) if path else None)}

    def _guard_environment(self, position: int, real: Function) -> Function:
        @wraps(real)
        def start(*args: Any, **options: Any) -> Any:
            if len(args) > position:
                args = (*args[:position], self._add_variables(args[position]), *args[position + 1 :])
            else:
                options["env"] = self._add_variables(options.get("env"))
            return real(*args, **options)

        return start

    def _guard_fork_exec(self, real: Function) -> Function:
        """Guard what `multiprocessing` starts processes with: a list of the environment's lines, or None for all."""

        @wraps(real)
        def fork_exec(*args: Any) -> Any:
            environment = self._add_variables(None) if args[5] is None else None
            if environment is not None:
                lines = [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in environment.items()]
                args = (*args[:5], lines, *args[6:])
            return real(*args)

        return fork_exec

    def _guard_exec(self, real: Function) -> Function:
        @wraps(real)
        def execv(path: Any, args: Any) -> Any:
            environment = self._add_variables(None)
            if environment is None:
                return real(path, args)
            return os.execve(path, args, environment)  # noqa: S606 - as the agent does

        return execv

    def _guard_system(self, real: Function) -> Function:
        @wraps(real)
        def system(command: Any) -> int:
            if self._build_variables() is None:
                return int(real(command))
            status = subprocess.call(command, shell=True)  # noqa: S602 - as os.system does
            return status << 8 if status >= 0 else -status

        return system
