"""Agents by name: `@evalkit.agent("warranty")` registers one, and a case's ``agent:`` is resolved to one.

pytest imports conftest.py, where agents are registered. Outside pytest nobody does; so a name that is not registered
has the conftest.py files imported that belong to its case.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from evalkit.agents.contract import AgentUnderTest, Reply, build_agent
from evalkit.agents.instruction import Instruction, load_instruction
from evalkit.agents.task import Task
from evalkit.errors import UnknownAgentError, UsageError, did_you_mean, format_file_path
from evalkit.functions.permissions import explain_agent, explain_callable, explain_path
from evalkit.functions.targets import AgentObject, AnyFunction
from evalkit.jsonvalue import JsonObject
from evalkit.model.case import Case, Permissions
from evalkit.model.registry import AGENTS, MCP_SERVERS
from evalkit.text.format import format_value

F = TypeVar("F", bound=AnyFunction)

_lock = threading.Lock()  # over sys.path
_conftest_lock = threading.Lock()
_resolved: dict[str, AgentUnderTest] = {}  # by registered name: inspected once, not for each case
_REGISTERED = re.compile(r"^\s*@(?:evalkit\.)?agent\(\s*['\"]([^'\"]+)['\"]", re.MULTILINE)
_FOREIGN = frozenset({"node_modules", "site-packages", "venv", "__pycache__"})  # as are names that begin with a dot
_MOST_FOLDERS = 2_000
_FOLDERS_ABOVE = 4


def agent(name: str = "", *, threads: int = 1) -> Callable[[F], F]:
    """Register the decorated callable, ``agent(task) -> str | Reply``, sync or async, under `name`.

    `threads` is for sync agents: how many of them may run at the same time. The same function registered again
    replaces itself (a reloaded conftest); another one of that name is a UsageError that names both places.
    """
    if not isinstance(name, str) or not name.strip():
        own_name = getattr(name, "__name__", "warranty")  # where the decorator has no parentheses
        got = f"the function {own_name}; write the parentheses" if callable(name) else repr(name)
        raise UsageError(f'evalkit.agent needs a name, as in @evalkit.agent("{own_name}"), got {got}')
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise UsageError(f"evalkit.agent(threads=...) is a number from 1, got {threads!r}")

    def register(item: F) -> F:
        if not callable(item):
            raise UsageError(
                f"agent '{name}' is no function: {item!r} can't be called; "
                f'write @evalkit.agent("{name}") above a function'
            )
        AGENTS.add(name, item, threads=threads)
        return item

    return register


def resolve_agent(spec: AgentObject, *, case: Case, root: Path) -> AgentUnderTest:
    """Resolve `spec`: a callable, a registered name, ``module:attribute``, an instruction file, or a mapping that
    describes a command or a URL.

    A name that is not registered is looked for in the conftest.py files from `root` down to the case. A file is
    looked up beside the case, then in its suites' folders (the nearest first), then below `root`; a module with `root`
    first on ``sys.path``. Raises UnknownAgentError; a broken instruction file is a SpecError.
    """
    permissions = _get_permissions(spec, case, root)
    if permissions is not None and (reason := explain_agent(spec, permissions, AGENTS.__contains__)):
        raise UnknownAgentError(f"agent {format_value(spec)} is refused: {reason}")
    if isinstance(spec, Mapping):
        if len({"command", "url", "mcp"} & set(spec)) != 1:
            forms = "'command', 'url' and 'mcp'"
            raise UnknownAgentError(f"an agent that is a mapping has one of {forms}, got {dict(spec)!r}")
        if "mcp" in spec:
            return _build_mcp_agent(spec, case, root)
        from evalkit.agents.remote.agents import build_command_agent, build_url_agent  # few runs need a server

        return build_url_agent(spec, case) if "url" in spec else build_command_agent(spec, root, case)
    if callable(spec):
        return build_agent(getattr(spec, "__name__", type(spec).__name__), spec)
    if spec is None or spec == "":
        subject = case.id or "the case"
        hint = f"write 'agent:' in the case or its suite.yaml. {_list_registered()}"
        raise UnknownAgentError(f"{subject} names no agent: {hint}")
    if not isinstance(spec, str) or not spec.strip():
        kinds = "a name, module:attribute, an instruction file or a mapping"
        raise UnknownAgentError(f"'agent' is {kinds}, got {spec!r}")
    spec = spec.strip()
    if spec in AGENTS:
        return _get_registered_agent(spec)
    if spec.endswith(".md"):
        return _build_instruction_agent(spec, case, root)
    if ":" in spec:
        imported = _import_attribute(spec, root)
        if reason := explain_callable(spec, permissions):
            raise UnknownAgentError(f"agent '{spec}' is refused: {reason}")
        return build_agent(spec, imported)
    return _find_in_conftests(spec, case, root)


def _get_registered_agent(name: str) -> AgentUnderTest:
    run: AgentObject = AGENTS.get(name)
    options = AGENTS.get_options(name)
    resolved = _resolved.get(name)
    if resolved is None or resolved.run is not run or resolved.threads != options.get("threads", 1):
        resolved = _resolved[name] = build_agent(name, run, **options)
    return resolved


def _list_registered() -> str:
    names = ", ".join(f"'{name}'" for name in AGENTS)
    return f"Registered: {names}" if names else "No agent is registered"


def _import_attribute(spec: str, root: Path) -> AgentObject:
    module_name, _, path = spec.partition(":")
    if not path or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise UnknownAgentError(f"agent '{spec}' does not read as package.module:attribute. {_list_registered()}")
    put_first_on_path(root)
    try:
        value: AgentObject = import_module(module_name)
    except Exception as error:
        expected = (root / Path(*module_name.split("."))).with_suffix(".py")
        place = f" (looked for {expected.relative_to(root).as_posix()} below the project's root first)"
        raise UnknownAgentError(
            f"agent '{spec}': importing {module_name} raised {type(error).__name__}: {error}"
            f"{'' if expected.exists() else place}"
        ) from error
    for part in path.split("."):
        if not hasattr(value, part):
            names = [name for name in vars(value) if not name.startswith("_")] if hasattr(value, "__dict__") else []
            raise UnknownAgentError(f"agent '{spec}': {module_name} has no '{part}'{did_you_mean(part, names)}")
        value = getattr(value, part)
    if not callable(value):
        raise UnknownAgentError(f"agent '{spec}' is a {type(value).__name__}, which can't be called")
    return value


def put_first_on_path(root: Path) -> None:
    """Put `root` first on ``sys.path``, unless it is on it."""
    entry = str(root.resolve())
    with _lock:
        if entry not in sys.path:
            sys.path.insert(0, entry)


def load_case_instruction(case: Case, root: Path) -> Instruction | None:
    """Load the instruction file that `case` names as its agent; None if its agent is something else."""
    agent = case.agent
    if not isinstance(agent, str) or not agent.endswith(".md"):
        return None
    return _find_instruction(agent, case, root, _get_permissions(agent, case, root))


def _build_mcp_agent(spec: JsonObject, case: Case, root: Path) -> AgentUnderTest:
    from evalkit.agents.mcp.agent import build_mcp_agent  # few cases are about an MCP server

    if isinstance(spec["mcp"], str) and spec["mcp"] not in MCP_SERVERS:
        put_first_on_path(root)
        import_conftests(next(_list_folders(case, root)), root)

    def load(name: str) -> Instruction:
        return _find_instruction(name, case, root, _get_permissions(spec, case, root))

    return build_mcp_agent(spec, root, case.permissions, load)


def mcp_server(
    name: str, *, timeout: float | None = None, scope: str = "worker", results: str = "value"
) -> Callable[[F], F]:
    """Register the decorated function, which makes a server object of the `mcp` package, as MCP server `name`.

    Cases use it with ``agent: {mcp: NAME}``. It runs in this process. For the options see ``agent.mcp``.
    """
    if scope not in ("worker", "case") or results not in ("value", "json", "whole"):
        raise UsageError("evalkit.mcp_server: scope is 'worker' or 'case', results is 'value', 'json' or 'whole'")
    return MCP_SERVERS.build_decorator(name, timeout_s=timeout, scope=scope, results=results)


def _build_instruction_agent(spec: str, case: Case, root: Path) -> AgentUnderTest:
    instruction = _find_instruction(spec, case, root, _get_permissions(spec, case, root))

    async def run(task: Task) -> Reply:
        return await task.run_instruction(instruction)

    return AgentUnderTest(spec, run, is_async=True)


def _get_permissions(spec: AgentObject, case: Case, root: Path) -> Permissions | None:
    """Return what `spec` may name, below `root` too; None for an option or Python code, which may name anything."""
    if spec != case.agent or case.permissions is None or case.has_chosen_agent:
        return None
    return replace(case.permissions, folders=(str(root), *case.permissions.folders))


def _find_instruction(spec: str, case: Case, root: Path, permissions: Permissions | None) -> Instruction:
    folders = list(dict.fromkeys(_list_folders(case, root)))
    path = next((folder / spec for folder in folders if (folder / spec).is_file()), None)
    if path is not None and (reason := explain_path(path, permissions)):
        raise UnknownAgentError(f"{case.locate(('agent',))}: instruction file '{spec}' is refused: {reason}")
    if path is None:
        searched = ", ".join("." if folder == root else format_file_path(folder, root) for folder in folders)
        hint = did_you_mean(Path(spec).name, [file.name for folder in folders for file in folder.glob("*.md")])
        hint = hint or "; write it there, or name its path from the project's root"
        raise UnknownAgentError(f"instruction file '{spec}' is in none of {searched}{hint}")
    return load_instruction(path, shown_as=format_file_path(path, root), permissions=case.permissions)


def _list_folders(case: Case, root: Path) -> Iterator[Path]:
    if case.path is not None:
        yield (root / case.path).parent
    yield from reversed(case.suite_dirs)
    yield root


def _find_in_conftests(name: str, case: Case, root: Path) -> AgentUnderTest:
    """Find the agent that a conftest.py of the case's folder, or one above it, registers."""
    put_first_on_path(root)
    folder = next(_list_folders(case, root))
    import_conftests(folder, root)
    if name in AGENTS:
        return _get_registered_agent(name)
    explanation = _explain_other_registration(name, folder.resolve(), root.resolve())
    if explanation:
        raise UnknownAgentError(explanation)
    hint = did_you_mean(name, AGENTS)
    how = f'An agent is registered in conftest.py with @evalkit.agent("{name}"), or named as package.module:attribute'
    advice = "" if hint else f". {how} or instruction.md"
    raise UnknownAgentError(f"unknown agent '{name}'{hint or '.'} {_list_registered()}{advice}")


def import_conftests(folder: Path, root: Path) -> None:
    """Import every ``conftest.py`` from `root` down to `folder`, as pytest would, unless it is imported already.

    Outside `root` only its own is imported. Raises UnknownAgentError for one that can't be imported.
    """
    folder, root = folder.resolve(), root.resolve()
    inside = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
    with _conftest_lock:
        for depth in range(len(inside) + 1):
            file = root.joinpath(*inside[:depth], "conftest.py")
            # pytest, or an earlier case, may have imported it under another name.
            modules = list(sys.modules.values())
            if file.is_file() and not any(getattr(module, "__file__", None) == str(file) for module in modules):
                _import_file(file, root)


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
        path = file.relative_to(root).as_posix()
        raise UnknownAgentError(f"importing {path} raised {type(error).__name__}: {error}") from error


def _explain_other_registration(name: str, folder: Path, root: Path) -> str:
    """Explain what to do about an agent that a conftest.py of another folder registers; "" if none does.

    The files are read, not run.
    """
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
    """Find the conftest.py files of a project of reasonable size, with the agents that their text registers."""
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
