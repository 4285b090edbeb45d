"""From what a case says under ``agent:`` to something that can be called."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.errors import UnknownAgentError, did_you_mean
from evalkit.model.case import Case
from evalkit.model.registry import AGENTS

if TYPE_CHECKING:
    from evalkit.agents.agent_under_test import Opening
    from evalkit.agents.instruction import Instruction
    from evalkit.agents.reply import Reply
    from evalkit.agents.task import Task


_path_lock = threading.Lock()


class AgentUnderTest(Struct, frozen=True):
    """A resolved agent: ``run(task) -> str | Reply``, awaitable if `is_async`; `threads` sync runs may overlap.

    `timeout_s` limits one answer, within the case's deadline. `grace_s` is how long an async agent that is cut off may
    take to clean up.
    """

    name: str
    run: Callable[..., Any]
    is_async: bool = False
    threads: int = 1
    timeout_s: float | None = None
    grace_s: float = 0.0
    opening: Opening | None = None  # of an agent with a set-up and a tear-down: `run` is then not called itself


def resolve_agent(spec: Any, *, case: Case, root: Path) -> AgentUnderTest:
    """The agent that `spec` names: a callable, a registered name, ``module:attribute``, an instruction file, or a
    mapping that describes a command or a URL.

    A name that nobody has registered is looked for in the conftest.py files from `root` down to the case. A file is
    looked up beside the case, then in its suites' folders (the nearest first), then below `root`; a module with `root`
    first on ``sys.path``. Raises UnknownAgentError; a broken instruction file is a SpecError.
    """
    if isinstance(spec, Mapping):
        return _build_remote_agent(spec, root)
    if callable(spec):
        return _build_agent(getattr(spec, "__name__", type(spec).__name__), spec)
    if not isinstance(spec, str) or not spec.strip():
        raise UnknownAgentError(_describe_missing_agent(spec, case))
    spec = spec.strip()
    if spec in AGENTS:
        return _get_registered_agent(spec)
    if spec.endswith(".md"):
        return _build_instruction_agent(spec, case, root)
    if ":" in spec:
        return _build_agent(spec, _import_attribute(spec, root))
    from evalkit.agents.registry import explain_other_registration, import_conftests

    put_first_on_path(root)
    folder = next(iter(_list_folders(case, root)))
    import_conftests(folder, root)
    if spec in AGENTS:
        return _get_registered_agent(spec)
    explanation = explain_other_registration(spec, folder, root)
    if explanation:
        raise UnknownAgentError(explanation)
    hint = did_you_mean(spec, AGENTS)
    how = f'An agent is registered in conftest.py with @evalkit.agent("{spec}"), or named as package.module:attribute'
    advice = "" if hint else f". {how} or instruction.md"
    raise UnknownAgentError(f"unknown agent '{spec}'{hint or '.'} {_list_registered()}{advice}")


_registered_agents: dict[
    str, AgentUnderTest
] = {}  # registered agents by name: what they are is asked once, not for each case


def _get_registered_agent(name: str) -> AgentUnderTest:
    run, options = AGENTS.get(name), AGENTS.get_options(name)
    registered = _registered_agents.get(name)
    if registered is None or registered.run is not run or registered.threads != options.get("threads", 1):
        registered = _registered_agents[name] = _build_agent(name, run, **options)
    return registered


def _build_remote_agent(spec: Mapping[str, Any], root: Path) -> AgentUnderTest:
    """What a mapping describes: ``{command: ...}`` or ``{url: ...}``; the loader has read it more closely."""
    if ("command" in spec) == ("url" in spec):
        raise UnknownAgentError(f"an agent that is a mapping has one of 'command' and 'url', got {dict(spec)!r}")
    if "url" in spec:
        from evalkit.agents.remote.url import build_url_agent

        return build_url_agent(spec)
    from evalkit.agents.remote.command import build_command_agent

    return build_command_agent(spec, root)


def _build_agent(name: str, run: Any, *, threads: int = 1) -> AgentUnderTest:
    opening = find_opening(run)
    if opening is None:
        return build_called_agent(name, run, threads=threads)
    return AgentUnderTest(name, run, opening.is_async, threads, opening=opening)


def find_opening(item: Any) -> Opening | None:
    """How an agent with a set-up and a tear-down is opened; None for one that is called as it is."""
    is_async = _has_async_setup(item)
    if is_async is None:
        return None
    from evalkit.agents.agent_under_test import Opening

    return Opening(item, is_async)


def _has_async_setup(item: Any) -> bool | None:
    """Whether its set-up is awaited; None without one."""
    if inspect.isclass(item):
        is_async = hasattr(item, "__aenter__")
        return is_async if is_async or hasattr(item, "__enter__") else None
    function = _get_wrapped(item) if inspect.isroutine(item) else type(item).__call__
    if inspect.isasyncgenfunction(item) or inspect.isasyncgenfunction(function):
        return True
    if inspect.isgeneratorfunction(item) or inspect.isgeneratorfunction(function):
        return False
    return None


def _get_wrapped(function: Any) -> Any:
    """What `contextlib.contextmanager` has wrapped. Any other decorator makes of a generator what it likes."""
    is_contextlib = getattr(function, "__globals__", {}).get("__name__") == "contextlib"
    return inspect.unwrap(function) if is_contextlib else function


def build_called_agent(name: str, run: Callable[..., Any], *, threads: int = 1) -> AgentUnderTest:
    """The agent that is called as it is."""
    is_async = inspect.iscoroutinefunction(run) or (
        not inspect.isroutine(run) and not inspect.isclass(run) and inspect.iscoroutinefunction(type(run).__call__)
    )
    return AgentUnderTest(name, run, is_async, threads)


def _describe_missing_agent(spec: Any, case: Case) -> str:
    if spec is None or spec == "":
        subject = case.id or "the case"
        return f"{subject} names no agent: write 'agent:' in the case or its suite.yaml. {_list_registered()}"
    return f"'agent' is a name, module:attribute, an instruction file or a mapping, got {spec!r}"


def _list_registered() -> str:
    names = ", ".join(f"'{name}'" for name in AGENTS)
    return f"Registered: {names}" if names else "No agent is registered"


def _import_attribute(spec: str, root: Path) -> Any:
    module_name, _, path = spec.partition(":")
    if not path or not all(part.isidentifier() for part in [*module_name.split("."), *path.split(".")]):
        raise UnknownAgentError(f"agent '{spec}' does not read as package.module:attribute. {_list_registered()}")
    put_first_on_path(root)
    try:
        value: Any = import_module(module_name)
    except Exception as error:
        raise UnknownAgentError(
            f"agent '{spec}': importing {module_name} raised {type(error).__name__}: {error}{_describe_lookup(module_name, root)}"  # noqa: E501
        ) from error
    for part in path.split("."):
        if not hasattr(value, part):
            names = [name for name in vars(value) if not name.startswith("_")] if hasattr(value, "__dict__") else []
            raise UnknownAgentError(f"agent '{spec}': {module_name} has no '{part}'{did_you_mean(part, names)}")
        value = getattr(value, part)
    if not callable(value):
        raise UnknownAgentError(f"agent '{spec}' is a {type(value).__name__}, which can't be called")
    return value


def _describe_lookup(module_name: str, root: Path) -> str:
    expected_file = (root / Path(*module_name.split("."))).with_suffix(".py")
    return (
        ""
        if expected_file.exists()
        else f" (looked for {expected_file.relative_to(root).as_posix()} below the project's root first)"
    )


def put_first_on_path(root: Path) -> None:
    """Put `root` first on ``sys.path``, unless it is on it."""
    entry = str(root.resolve())
    with _path_lock:
        if entry not in sys.path:
            sys.path.insert(0, entry)


def load_case_instruction(case: Case, root: Path) -> Instruction | None:
    """The instruction file that `case` names as its agent; None if its agent is something else."""
    is_instruction = isinstance(case.agent, str) and case.agent.endswith(".md")
    return _find_instruction(case.agent, case, root) if is_instruction else None


def _build_instruction_agent(spec: str, case: Case, root: Path) -> AgentUnderTest:
    instruction = _find_instruction(spec, case, root)

    async def run(task: Task) -> Reply:
        return await task.run_instruction(instruction)

    return AgentUnderTest(spec, run, is_async=True)


def _find_instruction(spec: str, case: Case, root: Path) -> Instruction:
    from evalkit.agents.instruction import load_instruction

    folders = list(dict.fromkeys(_list_folders(case, root)))
    path = next((folder / spec for folder in folders if (folder / spec).is_file()), None)
    if path is None:
        searched = ", ".join(_format_path(folder, root) for folder in folders)
        hint = did_you_mean(Path(spec).name, [file.name for folder in folders for file in folder.glob("*.md")])
        raise UnknownAgentError(f"instruction file '{spec}' is in none of {searched}{hint}")
    return load_instruction(path, shown_as=_format_path(path, root))


def _list_folders(case: Case, root: Path) -> Iterable[Path]:
    if case.path is not None:
        yield (root / case.path).parent
    yield from reversed(case.suite_dirs)
    yield root


def _format_path(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
