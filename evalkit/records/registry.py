"""The registries of what users add, by name: agents, checks, operators, and those of features.

A registration belongs to its place, as a fixture does. What a conftest.py registers holds for its folder and the
folders below; of several the nearest counts. What a module registers that conftest files import, themselves or through
other modules, holds for the folders of those. Anything else (a plugin of pytest, a script) holds everywhere.

The registries stand with the shared data because agents, checks and operators may not import each other's rooms, while
all register the same way. Loading and running a case set the folder that names are looked up for (`look_up_from`).
"""

from __future__ import annotations

import ast
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from msgspec import Struct

from evalkit.errors import UsageError, find_nearest, format_file_path
from evalkit.jsonvalue import JsonDict

F = TypeVar("F", bound=Callable[..., object])

CONFTEST = "conftest.py"
_OWN_PACKAGE = __name__.partition(".")[0] + "."
_INSTALLED = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))

_folder: ContextVar[str | None] = ContextVar("evalkit_registration_folder", default=None)
_moved_roots: dict[str, str] = {}  # of projects whose cases come from another machine


@contextmanager
def look_up_from(folder: str | os.PathLike[str] | None) -> Iterator[None]:
    """Look names up for a case in `folder`; None: for one that has no place, for which all that is registered counts.

    The folder holds for this context, that is, for one case.
    """
    token = _folder.set(None if folder is None else os.fspath(folder))
    try:
        yield
    finally:
        _folder.reset(token)


def get_lookup_folder() -> str | None:
    """Return the folder that names are looked up for in this context."""
    return _folder.get()


def map_root(origin: str, root: str) -> None:
    """Look names up below `root` for cases that were loaded below `origin`, on another machine."""
    _moved_roots[origin] = root


class Registration(Struct, frozen=True, eq=False):
    """What is registered under a name, and where. `folders`: those of the conftest files that it belongs to; None: it
    holds everywhere."""

    item: Any
    options: JsonDict
    file: str
    line: int
    module: str
    folders: frozenset[str] | None
    namespace: dict[str, Any]  # of the module that registers: another one if the file is imported again

    @property
    def is_own(self) -> bool:
        """Return whether a conftest.py itself registers it."""
        return self.folders is not None and os.path.basename(self.file) == CONFTEST

    def describe(self) -> str:
        """Describe what is registered, and where: ``module:qualname (file:line)``."""
        return f"{_get_qualified_name(self.item)} ({self.place})"

    @property
    def place(self) -> str:
        file = format_file_path(self.file, os.getcwd())
        return f"{file}:{self.line}" if self.line else file


class Registry:
    """Names of one kind, and what is registered under them, in order of registration."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, list[Registration]] = {}

    def add(self, name: str, item: object, **options: object) -> None:
        """Register `item` for the place of the code that calls. A name twice in one place is a UsageError, unless the
        file is imported again, or, outside of conftest files, the same function is defined anew."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"evalkit.{self.kind}(...) needs a name, got {name!r}")
        new = _describe_registration(item, options)
        entries = self._entries.setdefault(name, [])
        for old in [old for old in entries if _stand_in_one_place(old, new)]:
            is_again = old.namespace is not new.namespace if new.is_own else _is_same_function(old.item, item)
            if old.item is not item and not is_again:
                raise UsageError(self._explain_twice(name, old, new))
            entries.remove(old)
        entries.append(new)

    def find(self, name: object, folder: str | None = None) -> Registration | None:
        """Find what a name stands for in `folder`, by default that of this context. Raise UsageError if it may be two
        things."""
        entries = self._entries.get(name) if isinstance(name, str) else None
        if not entries:
            return None
        folder = _folder.get() if folder is None else folder
        chain = None if folder is None else _list_chain(folder)
        if chain is None:
            return self._choose_without_place(str(name), entries)
        if len(entries) == 1 and (entries[0].folders is None or not entries[0].folders.isdisjoint(chain)):
            return entries[0]
        for above in chain:
            found = [entry for entry in entries if _holds_in(entry, above)]
            if len(found) > 1:
                raise UsageError(self._explain_twice(str(name), found[0], found[1]))
            if found:
                return found[0]
        return next((entry for entry in entries if entry.folders is None), None)

    def add_unread(self, name: str, file: str, folders: frozenset[str] | None) -> None:
        """Add a name that the code in `file` registers, and that is not run."""
        folders = folders and frozenset(map(_normalize, folders))
        entries = self._entries.setdefault(name, [])
        if not any(entry.folders == folders for entry in entries):
            entries.append(Registration(_accept, {}, file, 0, "", folders, {}))

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Forget at the end what is registered meanwhile."""
        before = {name: list(entries) for name, entries in self._entries.items()}
        try:
            yield
        finally:
            self._entries = before

    def _choose_without_place(self, name: str, entries: list[Registration]) -> Registration:
        """Choose for a case without a place: what holds everywhere, or for the folder around all the others."""
        for entry in entries:
            folders = entry.folders or frozenset(("",))
            if all(
                any(other == folder or folder == "" or other.startswith(folder + os.sep) for folder in folders)
                for later in entries
                if later is not entry
                for other in later.folders or ("",)
            ):
                return entry
        places = " and ".join(entry.place for entry in entries)
        raise UsageError(
            f"{self.kind} '{name}' is registered for several folders: {places}; a case without a file has no folder "
            "that says which one it means"
        )

    def _explain_twice(self, name: str, old: Registration, new: Registration) -> str:
        places = f"{old.describe()} and {new.describe()}"
        return f"{self.kind} '{name}' is registered twice: {places}; rename one of them"

    def get(self, name: object, folder: str | None = None) -> Any | None:
        """Return what is registered under a name, for `folder` or else that of this context."""
        entry = self.find(name, folder)
        return None if entry is None else entry.item

    def explain_elsewhere(self, name: object, *, is_like: bool = True) -> str:
        """Explain where a name, or one that `is_like` it, is registered for other folders, as the end of a message;
        else ""."""
        others = [other for other in self._entries if self._entries[other] and other not in self]
        other = name if name in others else find_nearest(name, others) if is_like else None
        if not isinstance(other, str):
            return ""
        places = " and ".join(entry.place for entry in self._entries[other])
        return f"; '{other}' is registered in {places}, for the cases in that folder alone"

    def remove(self, name: str) -> None:
        """Remove a name, wherever it is registered."""
        self._entries.pop(name, None)

    def list_items(self) -> list[tuple[str, Any]]:
        """List all names, whatever folder they hold for, with what is registered under them."""
        return [(name, entry.item) for name, entries in self._entries.items() for entry in entries]

    def list_all(self) -> list[str]:
        """List the names that hold for any folder."""
        return [name for name, entries in self._entries.items() if entries]

    def __contains__(self, name: object) -> bool:
        try:
            return self.find(name) is not None
        except UsageError:  # it may be two things
            return True

    def __iter__(self) -> Iterator[str]:
        return (name for name in list(self._entries) if name in self)

    def build_decorator(self, name: str, **options: object) -> Callable[[F], F]:
        """Build a decorator that registers its function under `name`, and returns it unchanged."""

        def register(item: F) -> F:
            self.add(name, item, **options)
            return item

        return register


def _accept(expected: object, actual: object) -> bool:
    return True


AGENTS = Registry("agent")
CHECKS = Registry("check")
OPERATORS = Registry("operator")


# The place of a registration


def _describe_registration(item: object, options: JsonDict) -> Registration:
    """Describe the registration of `item` by the code that has called evalkit.

    Code of a conftest.py, in a hook too, registers for itself; a module that is being imported, for the conftest files
    that import it.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith(_OWN_PACKAGE):
        frame = frame.f_back
    caller = frame
    while frame is not None and not _is_module(frame) and not _is_conftest(frame):
        frame = frame.f_back
    registering = frame or caller
    importing = set()
    while frame is not None:
        if _is_conftest(frame) and (frame is registering or _is_module(frame)):
            importing.add(_normalize(os.path.dirname(_get_file(frame))))
            if frame is registering:
                break
        frame = frame.f_back
    assert caller is not None, "Python code has called"
    assert registering is not None, "as above"
    return Registration(
        item=item,
        options=options,
        file=_get_file(caller),
        line=caller.f_lineno,
        module=str(registering.f_globals.get("__name__")),
        folders=frozenset(importing) or None,
        namespace=registering.f_globals,
    )


def _is_module(frame: FrameType) -> bool:
    return frame.f_code.co_name == "<module>"


def _is_conftest(frame: FrameType) -> bool:
    return os.path.basename(_get_file(frame)) == CONFTEST


def _get_file(frame: FrameType) -> str:
    return os.path.abspath(frame.f_globals.get("__file__") or frame.f_code.co_filename)


@lru_cache(maxsize=1024)
def _normalize(folder: str) -> str:
    return os.path.realpath(folder)


@lru_cache(maxsize=1024)
def _list_chain(folder: str) -> tuple[str, ...]:
    """List a folder and those above it, with links resolved, the nearest first."""
    for origin, root in _moved_roots.items():
        if folder == origin or folder.startswith(origin + os.sep):
            folder = root + folder[len(origin) :]
    path = Path(os.path.abspath(folder))
    return tuple(_normalize(os.fspath(above)) for above in (path, *path.parents))


def _stand_in_one_place(old: Registration, new: Registration) -> bool:
    """Return whether a name can't stand for both: both of one conftest.py, or both of modules for the same folders."""
    return old.is_own == new.is_own and old.folders == new.folders


def _is_same_function(old: object, new: object) -> bool:
    return _get_qualified_name(old) == _get_qualified_name(new)


def _get_qualified_name(item: object) -> str:
    item = inspect.unwrap(item) if callable(item) else item
    owner = item if hasattr(item, "__qualname__") else type(item)
    return f"{owner.__module__}:{owner.__qualname__}"


def _holds_in(entry: Registration, folder: str) -> bool:
    """Return whether a registration is one of the conftest.py in `folder`, or of a module that this file imports."""
    if entry.folders is None:
        return False
    if folder in entry.folders:
        return True
    file = os.path.join(folder, CONFTEST)
    return not entry.is_own and os.path.isfile(file) and imports_module(file, entry.module)


# What conftest files import. The first of several that import a module has run it; for the others their text tells.


def imports_module(file: str, module: str) -> bool:
    """Return whether the code of `file` imports `module`, itself or through other modules of the project."""
    top = module.partition(".")[0]
    pending, visited = [file], {file}
    while pending:
        for name in _list_imports(pending.pop()):
            if name == module:
                return True
            path = getattr(sys.modules.get(name), "__file__", None) or ""
            is_near = name.partition(".")[0] == top or not path.startswith(_INSTALLED)
            if path.endswith(".py") and path not in visited and is_near:
                visited.add(path)
                pending.append(path)
    return False


@lru_cache(maxsize=1024)
def _list_imports(file: str) -> frozenset[str]:
    """List the modules that the text of a file imports, and the packages around them; what a module holds may be one.
    Nothing of a file that can't be read."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = _find_package(Path(file)).split(".")
            around = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join(filter(None, [*around, node.module]))
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            names |= {str(node.args[0].value)} if called in ("import_module", "__import__") else set()
    return frozenset(".".join(name.split(".")[:count]) for name in names for count in range(1, name.count(".") + 2))


def _find_package(file: Path) -> str:
    """Return the package that a file lies in: the folders around it that hold an ``__init__.py``."""
    parts: list[str] = []
    folder = file.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)
