"""Outside pytest nobody imports conftest.py, where agents are registered; a case that names one makes up for it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from evalkit.errors import UnknownAgentError

_lock = threading.Lock()


def import_conftests(folder: Path, root: Path) -> None:
    """Import every ``conftest.py`` from `root` down to `folder`, as pytest would, unless it is imported already.

    Raises UnknownAgentError for one that can't be imported.
    """
    with _lock:
        for file in _conftests(folder.resolve(), root.resolve()):
            if not _is_imported(file):
                _import(file, root.resolve())


def _conftests(folder: Path, root: Path) -> Iterator[Path]:
    """The files, outermost first; only `root`'s own for a folder outside it."""
    inside = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    for depth in range(len(inside) + 1):
        file = root.joinpath(*inside[:depth], "conftest.py")
        if file.is_file():
            yield file


def _is_imported(file: Path) -> bool:
    """Whether pytest (or an earlier case) has it, under whatever name."""
    return any(getattr(module, "__file__", None) == str(file) for module in list(sys.modules.values()))


def _import(file: Path, root: Path) -> None:
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
        shown = file.relative_to(root).as_posix()
        raise UnknownAgentError(f"importing {shown} raised {type(error).__name__}: {error}") from error
