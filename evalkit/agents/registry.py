"""`@evalkit.agent("warranty")`: naming an agent, so that cases can say ``agent: warranty``."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from evalkit.errors import UnknownAgentError, UsageError
from evalkit.model.registry import AGENTS

F = TypeVar("F", bound=Callable[..., Any])


def agent(name: str, *, threads: int = 1) -> Callable[[F], F]:
    """Register the decorated callable, ``agent(task) -> str | Reply``, sync or async, under `name`.

    `threads` is for sync agents: how many of them may run at the same time. The same function registered again
    replaces itself (a reloaded conftest); another one of that name is a UsageError that names both places.
    """
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f'evalkit.agent needs a name, as in @evalkit.agent("warranty"), got {_describe_name(name)}')
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise UsageError(f"evalkit.agent(threads=...) is a number from 1, got {threads!r}")

    def register(item: F) -> F:
        if not callable(item):
            raise UsageError(f"agent '{name}' is no function: {item!r} can't be called")
        AGENTS.add(name, item, threads=threads)
        return item

    return register


def _describe_name(name: object) -> str:
    if callable(name):
        return f"the function {getattr(name, '__name__', name)}; write the parentheses"
    return repr(name)


# Outside pytest nobody imports conftest.py, where agents are registered; a case that names one makes up for it.

_lock = threading.Lock()
_REGISTERED = re.compile(r"^\s*@(?:evalkit\.)?agent\(\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_FOREIGN = frozenset({"node_modules", "site-packages", "venv", "__pycache__"})  # and what begins with a dot
_MOST_FOLDERS = 2_000
_FOLDERS_ABOVE = 4


def import_conftests(folder: Path, root: Path) -> None:
    """Import every ``conftest.py`` from `root` down to `folder`, as pytest would, unless it is imported already.

    Raises UnknownAgentError for one that can't be imported.
    """
    with _lock:
        for file in _find_conftests(folder.resolve(), root.resolve()):
            if not _is_imported(file):
                _import_file(file, root.resolve())


def _find_conftests(folder: Path, root: Path) -> Iterator[Path]:
    """The files, outermost first; only `root`'s own for a folder outside it."""
    inside = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    for depth in range(len(inside) + 1):
        file = root.joinpath(*inside[:depth], "conftest.py")
        if file.is_file():
            yield file


def _is_imported(file: Path) -> bool:
    """Whether pytest (or an earlier case) has it, under whatever name."""
    return any(getattr(module, "__file__", None) == str(file) for module in list(sys.modules.values()))


def _import_file(file: Path, root: Path) -> None:
    name = ".".join(file.relative_to(root).with_suffix("").parts)  # as pytest's importlib mode names it
    spec = spec_from_file_location(name, file)
    assert spec is not None, f"{file} is a Python file"
    assert spec.loader is not None, f"{file} is a Python file"
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        display_path = file.relative_to(root).as_posix()
        raise UnknownAgentError(f"importing {display_path} raised {type(error).__name__}: {error}") from error


def explain_other_registration(name: str, folder: Path, root: Path) -> str:
    """What to do about an agent that a conftest.py of another folder than `folder` registers; "" if none does.

    The files are read, not run.
    """
    root, folder = root.resolve(), folder.resolve()
    for file, names in _find_registrations(root):
        if name in names and not folder.is_relative_to(file.parent):
            both = Path(os.path.commonpath([file.parent, folder])) if folder.is_relative_to(root) else root
            here, better = (path.relative_to(root).as_posix() for path in (file, both / "conftest.py"))
            return f"agent '{name}' is registered in {here}, for the cases of that folder alone; move it to {better}"
    for above in root.parents[:_FOLDERS_ABOVE]:  # pytest was started below the project
        file = above / "conftest.py"
        if file.is_file() and name in _read_agent_names(file):
            return (
                f"agent '{name}' is registered in {file}, above the root of this run, {root}; "
                "start in the project's folder, or put a pyproject.toml there"
            )
    return ""


@lru_cache(maxsize=4)
def _find_registrations(root: Path) -> tuple[tuple[Path, frozenset[str]], ...]:
    """The conftest.py files of a project, as far as it is worth looking, with the agents that their text registers."""
    registrations = []
    for number, (folder, inner, files) in enumerate(os.walk(root)):
        if number == _MOST_FOLDERS:
            break
        inner[:] = sorted(name for name in inner if name not in _FOREIGN and not name.startswith("."))
        if "conftest.py" in files:
            file = Path(folder, "conftest.py")
            registrations.append((file, _read_agent_names(file)))
    return tuple(registrations)


def _read_agent_names(file: Path) -> frozenset[str]:
    return frozenset(_REGISTERED.findall(file.read_text("utf-8", errors="replace")))
