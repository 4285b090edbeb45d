"""The guard of a child process in Python, which finds this file first on its PYTHONPATH.

Offline, what leads to the internet raises, and the host is noted in a file for the run that started the process. In
every mode the process says there that it has begun, where it connects, and what it starts in turn. The project's own
sitecustomize is imported as if this one were not there.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))
AGENTS = os.path.dirname(FOLDER)
HOSTS = os.environ.get("EVALKIT_OFFLINE")  # patterns of hosts that stay reachable, one a line; None: all do
REPORT = os.environ.get("EVALKIT_OFFLINE_REPORT", "")
WATCH = json.loads(os.environ.get("EVALKIT_WATCH", "null"))  # None: a program of evalkit's own, or no run's


def load(name: str, *path: str) -> ModuleType:
    """Load a module of evalkit by its path: evalkit need not be installed here."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(*path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def note(report: str, *words: object) -> None:
    """Add a line to a report."""
    try:
        with open(report, "a", encoding="utf-8") as file:
            file.write("\t".join(map(str, words)) + "\n")
    except OSError:  # the run is over
        pass


def install_guard() -> None:
    """Refuse what leads to the internet, and note what the run is to know, from now on."""
    for name in ("https_proxy", "HTTPS_PROXY"):  # that of programs in other languages, which refuses all
        if "EVALKIT_PROXY" in os.environ and os.environ.get(name) == os.environ["EVALKIT_PROXY"]:
            del os.environ[name]
    rules = load("evalkit_offline_rules", AGENTS, "offline_rules.py")
    refused_hosts = None if HOSTS is None else HOSTS.splitlines()

    def refuse(host: str, port: object) -> None:
        if refused_hosts is None or rules.is_ignored(host, port, refused_hosts):
            return
        place = host if port is None else f"{host}:{port}"
        if REPORT:
            note(REPORT, "refused", place)
        raise RuntimeError(f"offline: a process that a case started connects to {place}")

    guard = rules.NetworkGuard(refuse)
    guard.start()
    if WATCH is not None:
        watch(rules, guard)


def watch(rules: ModuleType, guard: Any) -> None:
    """Note that the process has begun, and from now on its connections and the programs that it starts."""
    others = load("evalkit_other_services", os.path.dirname(AGENTS), "models", "cassettes", "http", "other_services.py")
    programs = load("evalkit_child_programs", AGENTS, "child_programs.py")
    report, number = WATCH["report"], WATCH["child"]
    note(report, "began", number, os.getpid())

    def note_program(words: Sequence[str], environment: object) -> None:
        has_guard = environment is None or "EVALKIT_WATCH" in str(environment)
        if programs.is_harmless(words, WATCH["harmless"]) or (programs.is_python(programs.unwrap(words)) and has_guard):
            return
        note(report, "started", number, programs.describe_command(words, WATCH["harmless"]))

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            place = rules.find_destination(event, args)
            if place is None or rules.is_datagram(args[0]) or place[1] in others.OTHER_PORTS:
                return
            host, port = guard.find_name(place[0]), place[1]
            is_other = others.is_opened_by(sys._getframe(1), others.OTHER_CLIENTS)
            if not is_other and not any(rules.is_ignored(name, port, WATCH["hosts"]) for name in (host, place[0])):
                note(report, "connected", number, f"{host}:{port}")
        elif event in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
            program, words, *_, environment = args
            words = [words] if isinstance(words, (str, bytes)) else list(words or [program])
            note_program([os.fsdecode(word) for word in words], environment)
        elif event == "os.system":
            note_program(["sh", "-c", os.fsdecode(args[0])], None)

    sys.addaudithook(audit)


def import_own_sitecustomize() -> None:
    """Import the sitecustomize that this one stands before."""
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != FOLDER]
    this = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if this is not None:
            sys.modules["sitecustomize"] = this


if HOSTS is not None or WATCH is not None:
    install_guard()
import_own_sitecustomize()
