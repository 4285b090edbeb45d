"""A project of cases of every outcome, a cluster of two processes, and pytest in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from evalkit.hosts.reports.run_file import load_run
from evalkit.records.run import Run
from tests.conftest import PLUGINS_TO_LEAVE

CLUSTER = """\
import sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster:
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@dataclass(frozen=True)
class Sandbox:
    """A project's folder."""

    root: Path

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """pytest --evalkit, not waited for."""
        command = [sys.executable, "-W", "error", "-m", "pytest", "--evalkit", *arguments]
        return subprocess.Popen(
            command, cwd=self.root, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, *arguments: str, status: int | None = None) -> str:
        """What pytest --evalkit prints; it must end with `status`."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=240)
        assert status is None or process.returncode == status, output
        return output

    def command(self, *arguments: str) -> str:
        """What the `evalkit` command prints."""
        command = [sys.executable, "-c", "from evalkit.cli import main; main()", *arguments]
        done = subprocess.run(
            command, cwd=self.root, env=environment(), capture_output=True, encoding="utf-8", check=False
        )
        return done.stdout + done.stderr

    def loaded(self, name: str = ".evalkit/last-run.json") -> Run:
        return load_run(self.root / name)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GITHUB_"))}
    return {**kept, "COLUMNS": "120", "PYTHONIOENCODING": "utf-8", "PYTEST_ADDOPTS": PLUGINS_TO_LEAVE}


@dataclass(frozen=True)
class LocalCluster:
    """Two worker processes with two threads each. A process that dies is started anew."""

    address: str  # as --evalkit-executor takes it


def clustered(folder: Path) -> Iterator[LocalCluster]:
    """A cluster in a process of its own: nothing of it is imported here."""
    pytest.importorskip("distributed", reason="Dask is not installed (extra dask)")
    script = folder / "cluster.py"
    script.write_text(CLUSTER, "utf-8")
    # A case that kills is given up after two workers, instead of four.
    settings = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}
    with (folder / "cluster.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(script)],
            cwd=folder,
            env={**environment(), **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        yield LocalCluster(address.replace("tcp://", "dask://"))
        process.communicate(timeout=30)  # the end of its input ends it


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    yield from clustered(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Sandbox:
    return Sandbox(tmp_path_factory.mktemp("project").resolve())
