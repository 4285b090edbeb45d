"""What a case file may start or import: the project's own code, and what [tool.evalkit] allows beside it.

A case file is data, and may come from somebody who may not change code: a pull request that adds one YAML file. So it
names, but does not choose, what runs. Code is the project's own if its file lies below the project's root or in
pytest's `pythonpath`, and neither in an environment nor in a folder of packages. `$call` and `agent: module:function`
run own code alone, not what an own module has imported. `patch` and `exception` run nothing: a module that the project
has imported by itself is allowed, too. A command is an own program, or an interpreter of an own script.

With `untrusted` nothing runs that data names, whatever the configuration allows.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from evalkit.records.case import Permissions
from evalkit.records.registry import AGENTS, CHECKS, OPERATORS

_FOREIGN = frozenset({"node_modules", "site-packages", "dist-packages"})
UNTRUSTED = "--evalkit-untrusted refuses what runs code that a file names"


def explain_import(module: str, permissions: Permissions | None, *, is_called: bool) -> str:
    """Explain why a file may not name an object of `module`; "" if it may. Nothing is imported.

    `is_called`: the object runs in the end. Otherwise the module is only imported, to replace or to raise the object.
    """
    if permissions is None:
        return ""
    is_loaded = module in sys.modules
    if permissions.untrusted:
        is_harmless = module == "builtins" or (is_loaded and is_own(module, permissions))
        return "" if is_harmless and not is_called else UNTRUSTED
    if (is_loaded and not is_called) or _is_listed(module, permissions.imports) or is_own(module, permissions):
        return ""
    return (
        f"'{module}' is not the project's own code; if cases may use it, write "
        f'allow_imports = ["{module.partition(".")[0]}"] into [tool.evalkit]'
    )


def explain_callable(target: str, permissions: Permissions | None) -> str:
    """Explain why a file may not call `target`, whose module is imported; "" if it may.

    An own module has imported others, and what it has of them (`own:os.system`) is not the project's. Nor are the
    methods of its data (`own:LIMITS.update`), and what lies behind a function (`own:check.__globals__.update`).
    """
    module, _, path = target.partition(":")
    if permissions is None or permissions.untrusted or _is_listed(module, permissions.imports):
        return explain_import(module, permissions, is_called=True)
    value: object = sys.modules.get(module)
    for name in path.split("."):
        if name.startswith("__"):
            return f"{name} is Python's own and leads to everything; name a function"
        value = getattr(value, name, None)
        home = value.__name__ if isinstance(value, ModuleType) else None
        if home is None and (inspect.isroutine(value) or isinstance(value, type)):
            home = getattr(value, "__module__", None)
        reason = explain_import(home, permissions, is_called=True) if isinstance(home, str) else ""
        if reason:
            return reason
    if inspect.isbuiltin(value) and not isinstance(value.__self__, ModuleType):
        return f"it is a method of Python's {type(value.__self__).__name__}; name a function of the project's own"
    if callable(value) and not inspect.isroutine(value) and not isinstance(value, partial | type):
        kind = type(value).__module__  # an object that is called: one of the project's own, or what an adapter makes
        return "" if kind.startswith("evalkit.") else explain_import(kind, permissions, is_called=True)
    return ""


# What judges can't be mocked by what is judged. Python's own functions are everybody's.
_JUDGES = frozenset(("builtins", "evalkit", "pytest", "_pytest", "pluggy"))
# A mock of these would name the host to which the environment's key goes, as a command's `env` would.
_ENVIRONMENT = (os.environ, type(os.environ), getattr(os, "environb", None))
_ENVIRONMENT_READERS = (
    *(os.getenv, getattr(os, "getenvb", None)),
    *(it for name in dir(type(os.environ)) if inspect.isfunction(it := inspect.getattr_static(type(os.environ), name))),
)
_OF_PROXIES = re.compile("prox(y|ies)", re.IGNORECASE)  # of Python's and of clients: urllib's, requests', httpx's, ...


def explain_replacement(owner: object, *functions: object, agent: object = None) -> str:
    """Explain why a file may not have a function of `owner` replaced, which is all of `functions` by the ways that lead
    to it; "" if it may. `agent` is the one that the file names, where it is not registered."""
    for value in (owner, *functions):
        home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        code_home = getattr(inspect.unwrap(value), "__globals__", {}).get("__name__") if callable(value) else None
        for module in (home, code_home):
            if isinstance(module, str) and (top := module.partition(".")[0]) in _JUDGES:
                return f"'{top}' judges and runs all cases; name the function that calls it"
    bare = [getattr(function, "__func__", function) for function in functions]
    if any(owner is item for item in _ENVIRONMENT) or any(item is it for item in _ENVIRONMENT_READERS for it in bare):
        return "it reads the environment's variables, which choose hosts and keys; name the function that asks for them"
    codes = [code for it in bare if (code := getattr(it, "__code__", None)) is not None]
    if any(_OF_PROXIES.search(code.co_name) and is_installed(code.co_filename) for code in codes):
        return "it chooses a proxy, through which keys go; name the function of the project's own that is mocked"
    for registry in (AGENTS, CHECKS, OPERATORS):
        for name, item in registry.list_items():
            if _is_entry(item, functions):
                return f"it is the {registry.kind} '{name}'; name a function that it calls"
    return "it is the agent of the case; name a function that it calls" if _is_entry(agent, functions) else ""


def _is_entry(item: object, functions: Sequence[object]) -> bool:
    """Return whether one of `functions` is what is registered, or what is called when it is."""
    entries = [item]
    while entries[-1] is not None:
        last = entries[-1]
        inner = getattr(last, "__wrapped__", None) or getattr(last, "__func__", None)
        entries.append(last.func if isinstance(last, partial) else inner)
    if not inspect.isroutine(item) and not isinstance(item, partial):
        kind = item if isinstance(item, type) else type(item)  # a class that is entered, and its object called
        entries += [inspect.getattr_static(kind, name, None) for name in ("__call__", "__enter__", "__aenter__")]
    return any(entry is function for entry in entries if entry is not None for function in functions)


def _is_listed(module: str, modules: Sequence[str]) -> bool:
    return any(name == "*" or module == name or module.startswith(f"{name}.") for name in modules)


def is_own(module: str, permissions: Permissions, *, if_missing: bool = True) -> bool:
    """Tell whether `module` is in the project's tree. One that does not exist is, so that its absence is reported."""
    top = module.partition(".")[0]
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # a module that runs as __main__, or is made by hand
        spec = getattr(sys.modules.get(top), "__spec__", None)
        if spec is None:
            file = getattr(sys.modules.get(top), "__file__", None)
            return isinstance(file, str) and is_inside(file, permissions)
    if spec is None:
        return if_missing and top not in sys.modules
    places = [spec.origin] if spec.has_location else list(spec.submodule_search_locations or ())
    return any(place is not None and is_inside(place, permissions) for place in places)


@cache
def is_installed(path: str) -> bool:
    """Return whether a file is of the standard library or of an installed package."""
    real = Path(os.path.realpath(path))
    return bool(_FOREIGN.intersection(real.parts)) or any(real.is_relative_to(it) for it in _list_installed())


def is_inside(path: str | Path, permissions: Permissions) -> bool:
    real = Path(os.path.realpath(path))
    if is_installed(str(path)):
        return False
    for folder in permissions.folders:
        base = Path(os.path.realpath(folder))
        if real.is_relative_to(base):
            return not any(part.startswith(".") for part in real.relative_to(base).parts)
    return False


@cache
def _list_installed() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple(Path(os.path.realpath(sysconfig.get_paths()[name])) for name in names)


def explain_path(path: str | Path, permissions: Permissions | None, *, folder: str | Path | None = None) -> str:
    """Explain why the file or folder at `path`, to which a file or a link leads, may not be read; "" if it may.

    `folder` is one that the project's configuration names: it may lie anywhere, but what lies in it may not lead out.
    """
    if permissions is None or not permissions.folders or "*" in permissions.paths:
        return ""
    root = permissions.folders[0]
    if _is_below_without_links(os.fspath(path), root):  # nothing to resolve
        return ""
    bases = [*permissions.folders, *(os.path.join(root, path) for path in permissions.paths)]
    if folder is not None and not _is_below_folder(os.path.abspath(folder), os.path.abspath(root)):
        bases.append(str(folder))
    real = os.path.realpath(path)
    if any(_is_below_folder(real, os.path.realpath(base)) for base in bases):
        return ""
    outside = os.path.relpath(real if os.path.isdir(real) else os.path.dirname(real), os.path.realpath(root))
    entry = outside.replace(os.sep, "/").replace('"', '\\"')
    advice = f'if cases may read there, write allow_paths = ["{entry}"] into [tool.evalkit]'
    return f"it leads out of the project, to {real}; {advice}"


def _is_below_folder(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def _is_below_without_links(path: str, folder: str) -> bool:
    if not _is_below_folder(path, folder) or os.pardir in path.split(os.sep):
        return False
    while len(path) > len(folder):
        if os.path.islink(path):
            return False
        path = os.path.dirname(path)
    return True
