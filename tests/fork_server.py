"""A process that has imported pytest and evalkit, and nothing of a test, and forks one for each command of a test.

Such a command costs a quarter of what it costs with an interpreter of its own, and shares nothing with the tests or
the commands before it. What is about a process itself (what it imports, a kill, a terminal) starts one as users do.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest


class ForkServer:
    """The tests' side."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, module: str, *arguments: str, folder: Path, output: Path, errors: Path) -> int:
        """Return the exit status of ``python -m module arguments``, run in `folder` with the environment of now."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        paths = {"folder": str(folder), "output": str(output), "errors": str(errors)}
        command = {"module": module, "arguments": arguments, "environment": dict(os.environ), **paths}
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the server."""
        self._process.communicate(timeout=30)


def import_everything() -> None:
    """Import what a command may need: plugins by pytest, which would complain of those that it did not load itself."""
    os.environ.pop("PYTEST_ADDOPTS", None)  # which leaves anyio's plugin out; the clients import anyio
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"])
    for client in ("mcp.server", "openai"):  # which take longer than all else of a command
        with contextlib.suppress(ImportError):
            importlib.import_module(client)
    import evalkit

    for module in pkgutil.walk_packages(evalkit.__path__, "evalkit."):
        if not module.name.startswith(("evalkit.adapters.", "evalkit.__main__")):  # adapters need their frameworks
            importlib.import_module(module.name)


def become(command: dict[str, Any]) -> None:
    """Turn this process, just forked, into one that was started for `command`."""
    for stream, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, command["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, command["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        file = os.open(name, flags)
        os.dup2(file, stream)
        os.close(file)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.argv = [command["module"], *command["arguments"]]
    sys.path[:1] = [command["folder"], *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def serve() -> dict[str, Any] | None:
    """Fork a process for each command on standard input; return the command in the new one, and nothing at the end."""
    while line := sys.stdin.readline():
        process = os.fork()
        if not process:
            command: dict[str, Any] = json.loads(line)
            return command
        _, status = os.waitpid(process, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    return None


if __name__ == "__main__":
    import_everything()
    gc.collect()
    gc.freeze()
    command = serve()
    if command is not None:
        become(command)
        runpy.run_module(command["module"], run_name="__main__", alter_sys=True)
