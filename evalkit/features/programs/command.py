"""An agent that is a command: a program that is started once per answer, with the request on stdin."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from evalkit.agents.child_guard import start_as
from evalkit.agents.contract import AgentUnderTest, Reply
from evalkit.agents.remote.child_process import (
    KILL_S,
    ChildProcess,
    describe_exit,
    find_executable,
    format_stderr,
    start_process,
)
from evalkit.agents.remote.model_services import build_model_environment
from evalkit.agents.remote.reaper import TERM_S
from evalkit.agents.remote.server import FunctionUrls
from evalkit.agents.task import Task
from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import IncompleteTraceError, RemoteAgentError, UnknownAgentError
from evalkit.features.programs.protocol import build_request, mark_own_fault, read_reply
from evalkit.features.programs.spans import PATH, SpanReceiver, build_span_environment
from evalkit.hooks import AgentRequest
from evalkit.hosts.traces.api import record_exported_run
from evalkit.records.case import Case
from evalkit.records.unobserved import PROGRAM
from evalkit.text.format import shorten
from evalkit.text.redact import build_redactor

_LOCAL_HOSTS = "127.0.0.1,localhost"


def build_command_agent(request: AgentRequest) -> AgentUnderTest:
    """Build the agent that ``{command, cwd?, env?, timeout?, spans?}`` describes. `cwd` is relative to the root, its
    default.
    """
    form = request.form
    command = form["command"]
    words = tuple(shlex.split(command) if isinstance(command, str) else command)
    name = shlex.join(words)
    traced_case = request.case if form.get("spans") else None
    env = dict(form.get("env") or {})
    run = CommandAgent(shorten(name, 80), words, request.root, form.get("cwd") or "", env, traced_case)
    return AgentUnderTest(run.name, run, is_async=True, timeout_s=form.get("timeout"), grace_s=TERM_S + KILL_S + 0.2)


class CommandAgent(Struct, frozen=True, eq=False):
    """``await agent(task)`` runs the command once."""

    name: str
    words: tuple[str, ...]
    root: Path
    cwd: str
    env: Mapping[str, str | None]
    traced_case: Case | None = None  # the case, if it is judged by the spans that the agent exports

    @property
    def label(self) -> str:
        return f"agent '{self.name}'"

    async def __call__(self, task: Task) -> Reply:
        spans = None if self.traced_case is None else SpanReceiver()
        endpoints = {} if spans is None else {PATH: spans}
        async with task.serve(model_urls={**os.environ, **self.env}, endpoints=endpoints) as served:
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
            task.log.info("%s, stderr:\n%s", self.label, child.stderr)
        try:
            reply = self._read_reply(child, task)
        except RemoteAgentError as error:
            raise mark_own_fault(error, task) from None
        if spans is not None and self.traced_case is not None:
            if spans.problems:
                raise IncompleteTraceError(f"{self.label} exported spans that can't be read: {spans.problems[0]}")
            reply = record_exported_run(task, self.traced_case, spans.exports, reply)
        if not reply.text and not task.calls:
            task.warnings.append(f"{self.label} printed no answer and called nothing{format_stderr(child)}")
        return reply

    async def _start(self, task: Task, served: FunctionUrls) -> ChildProcess:
        folder = self.root / self.cwd
        if not folder.is_dir():
            raise UnknownAgentError(f"{self.label}: its 'cwd' is no folder: {self.cwd or self.root.as_posix()}")
        first, *rest = self.words
        if build_redactor(()).redact_data(list(self.words)) != list(self.words):
            task.warnings.append(
                f"{self.label}: an argument of its command looks like a secret, and any user of the machine can read "
                "the arguments of a process; hand it over in 'env'"
            )
        try:
            with start_as(PROGRAM if self.traced_case is None else None):
                return await start_process(
                    [find_executable(first), *rest],
                    ChildProcess,
                    cwd=folder,
                    env=build_environment(task, served, self.env, is_traced=self.traced_case is not None),
                    limit=get_bounds().agent_reply_bytes,
                    mark=served.functions_url,
                )
        except FileNotFoundError:
            hint = "there is no such file" if os.path.dirname(first) else "no folder of the PATH has it"
            raise UnknownAgentError(f"{self.label}: command not found: '{first}' ({hint})") from None
        except OSError as error:
            raise UnknownAgentError(f"{self.label}: '{first}' can't be executed: {error.strerror}") from None

    def _read_reply(self, child: ChildProcess, task: Task) -> Reply:
        if child.is_flooded:
            limit, more = get_bounds().agent_reply_bytes, explain_bound("agent_reply_bytes")
            problem = f"printed more than {limit:,} bytes to stdout and was ended; logs belong on stderr{more}"
            raise self._make_error("output_limit", problem, child)
        if status := child.returncode:
            raise self._make_error("crashed", f"{describe_exit(status)} instead of exiting with status 0", child)
        try:
            return read_reply(bytes(child.stdout), self.label, task)
        except RemoteAgentError as error:
            raise RemoteAgentError(f"{error}{format_stderr(child)}", code=error.code) from None

    def _make_error(self, code: str, problem: str, child: ChildProcess) -> RemoteAgentError:
        return RemoteAgentError(f"{self.label} {problem}{format_stderr(child)}", code=code)


def build_environment(
    task: Task, served: FunctionUrls, case_env: Mapping[str, str | None], *, is_traced: bool = False
) -> dict[str, str]:
    """This process's environment, the case's `env` over it (None removes), and where functions and models are.

    They are on this machine, whatever proxy is set.
    """
    task_env = {
        "EVALKIT_FUNCTIONS_URL": served.functions_url,
        **{f"EVALKIT_{name.upper()}_URL": url for name, url in served.urls.items()},
        **{
            f"EVALKIT_{name.upper()}_COMMAND": shlex.join(words) if words else None
            for name, words in served.commands.items()
        },
        "EVALKIT_MODEL": task.model,
        "EVALKIT_CASE_ID": task.case_id,
        "EVALKIT_VARIANT": json.dumps(dict(task.variant)) if task.variant else None,
    }
    inherited: Mapping[str, str | None] = os.environ  # as any child's; nothing is decided by it
    model_env = build_model_environment(task, served.functions_url, inherited, case_env)
    merged = {**inherited, **case_env, **model_env, **task_env}
    if is_traced:
        merged |= build_span_environment(task.case_id, served.functions_url, merged)
    for name in ("no_proxy", "NO_PROXY"):
        merged[name] = ",".join(filter(None, (merged.get(name), _LOCAL_HOSTS)))
    return {name: value for name, value in merged.items() if value is not None}
