"""An agent that is a command: started once per answer, asked over stdin, and heard on stdout.

What it did wrong shows in its calls and its answer. A process that does not answer as agreed (it exits with another
status than 0, prints half a JSON, or far too much) could not be measured, unless a function of the case had failed
before: going to pieces over that is its own fault.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalkit.agents.process_child import KILL_S, TERM_S, ChildProcess, start_process
from evalkit.agents.process_protocol import MAX_OUTPUT, build_request, read_reply
from evalkit.agents.reply import Reply
from evalkit.agents.resolution import AgentUnderTest
from evalkit.errors import RemoteAgentError, UnknownAgentError

if TYPE_CHECKING:
    from evalkit.agents.http_functions import FunctionUrls
    from evalkit.agents.task import Task

OWN_PYTHON = "python"  # as a command it means the interpreter that runs evalkit
_LOCAL_HOSTS = "127.0.0.1,localhost"
_LONGEST_STDERR = 2_000  # characters of stderr in a message


def build_command_agent(spec: Mapping[str, Any], root: Path) -> AgentUnderTest:
    """The agent that ``{command, cwd?, env?, timeout?}`` describes. `cwd` is relative to `root`, its default."""
    command = spec["command"]
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    name = shlex.join(words)
    short_name = name if len(name) <= 80 else f"{name[:79]}…"
    run = CommandAgent(short_name, words, root, spec.get("cwd") or "", dict(spec.get("env") or {}))
    return AgentUnderTest(run.name, run, is_async=True, timeout_s=spec.get("timeout"), grace_s=TERM_S + KILL_S + 0.2)


@dataclass(frozen=True, eq=False)
class CommandAgent:
    """``await agent(task)`` runs the command once."""

    name: str
    words: tuple[str, ...]
    root: Path
    cwd: str
    env: Mapping[str, str | None]

    @property
    def who(self) -> str:
        return f"agent '{self.name}'"

    async def __call__(self, task: Task) -> Reply:
        async with task.serve() as served:
            child = await self._start(task, served)
            try:
                await child.send_and_wait(build_request(task, served))
            except asyncio.CancelledError:
                if await child.end():
                    problem = f"was still running when its time was up, ignored SIGTERM for {TERM_S:g} s and was killed"
                    task.record_fault(self._make_error("deadline", problem, child))
                raise
            finally:
                await child.end()
        if child.stderr:
            task.log.info("%s, stderr:\n%s", self.who, child.stderr)
        try:
            return self._read_reply(child, task)
        except RemoteAgentError as error:
            raise mark_own_fault(error, task) from None

    async def _start(self, task: Task, served: FunctionUrls) -> ChildProcess:
        folder = self.root / self.cwd
        if not folder.is_dir():
            raise UnknownAgentError(f"{self.who}: its 'cwd' is no folder: {self.cwd or self.root.as_posix()}")
        first, *rest = self.words
        words = [sys.executable if first == OWN_PYTHON else first, *rest]
        try:
            return await start_process(
                words,
                cwd=folder,
                env=build_environment(task, served, self.env),
                limit=MAX_OUTPUT,
                mark=served.functions_url,
            )
        except FileNotFoundError:
            hint = "there is no such file" if os.path.dirname(first) else "no folder of the PATH has it"
            raise UnknownAgentError(f"{self.who}: command not found: '{first}' ({hint})") from None
        except OSError as error:
            raise UnknownAgentError(f"{self.who}: '{first}' can't be executed: {error.strerror}") from None

    def _read_reply(self, child: ChildProcess, task: Task) -> Reply:
        if child.is_flooded:
            problem = f"printed more than {MAX_OUTPUT:,} bytes to stdout and was ended; logs belong on stderr"
            raise self._make_error("output_limit", problem, child)
        if child.returncode:
            raise self._make_error(
                "crashed", f"{_describe_exit(child.returncode)} instead of exiting with status 0", child
            )
        try:
            return read_reply(bytes(child.stdout), self.who, task)
        except RemoteAgentError as error:
            raise RemoteAgentError(f"{error}{_format_stderr(child)}", code=error.code) from None

    def _make_error(self, code: str, problem: str, child: ChildProcess) -> RemoteAgentError:
        return RemoteAgentError(f"{self.who} {problem}{_format_stderr(child)}", code=code)


def build_environment(task: Task, served: FunctionUrls, case_env: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment, the case's `env` over it (None removes), and where the functions are.

    The functions are on this machine, whatever proxy is set.
    """
    task_env = {
        "EVALKIT_FUNCTIONS_URL": served.functions_url,
        "EVALKIT_MCP_URL": served.mcp_url,
        "EVALKIT_MCP_COMMAND": shlex.join(served.mcp_command) if served.mcp_command else None,
        "EVALKIT_MODEL": task.model,
        "EVALKIT_CASE_ID": task.case_id,
    }
    inherited: Mapping[str, str | None] = os.environ  # as any child's; nothing is decided by it
    merged = {**inherited, **case_env, **task_env}
    for name in ("no_proxy", "NO_PROXY"):
        merged[name] = ",".join(filter(None, (merged.get(name), _LOCAL_HOSTS)))
    return {name: value for name, value in merged.items() if value is not None}


def mark_own_fault(error: RemoteAgentError, task: Task) -> RemoteAgentError:
    """`error`, as the agent's own fault if a function had failed or was refused before."""
    failed = next((call for call in task.calls if call.outcome == "error"), None)
    if failed is None:
        return error
    message = f"{error}\nbefore, call {failed.index + 1}, {failed.name}, had failed: an agent must cope with that"
    return RemoteAgentError(message, code=error.code, is_agent_fault=True)


def _describe_exit(returncode: int) -> str:
    if returncode > 0:
        return f"exited with status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


def _format_stderr(child: ChildProcess) -> str:
    text = child.stderr
    if not text:
        return "; it wrote nothing to stderr"
    tail = text if len(text) <= _LONGEST_STDERR else f"…{text[-_LONGEST_STDERR:]}"
    return "; its stderr ends:\n" + "\n".join(f"  {line}" for line in tail.splitlines())
