"""Cases on a Dask cluster of processes: workers that die, runs that are stopped, and projects that are not there."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evalkit import Settings
from evalkit.bounds import Bounds
from evalkit.errors import UsageError
from evalkit.execution.executor import RunRequest
from evalkit.features.cluster.dask_executor import Address, ClusterExecutor, WorkerTasks, parse_address
from evalkit.features.cluster.worker import RunSpec, run_batch, serialize_spec, stop_run
from evalkit.spec.load import case_from_dict

pytest.importorskip("distributed", reason="Dask is not installed (extra dask)")
Sandbox = Any
Cluster = Any

AGENTS = """\
import asyncio, json, os, pathlib, signal
import evalkit

HERE = pathlib.Path(__file__).parent

def note(name, text):
    with open(HERE / name, "a") as file:
        file.write(f"{text}\\n")

@evalkit.agent("worker")
async def worker(task):
    orders = json.loads(task.message)
    note("started.txt", f"{task.case_id} {os.getpid()}")
    try:
        if orders.get("kill") == "always" or (orders.get("kill") == "once" and not (HERE / "killed.txt").exists()):
            await asyncio.sleep(0.3)
            note("killed.txt", os.getpid())
            os.kill(os.getpid(), signal.SIGKILL)
        if "interrupt" in orders:
            raise KeyboardInterrupt
        await asyncio.sleep(orders.get("sleep", 0.05))
    except asyncio.CancelledError:
        note("cancelled.txt", task.case_id)
        raise
    await task.acall("check", id=orders.get("id", "A1"))
    return "done"
"""


def case(**orders: Any) -> str:
    expected = {"expected_function_calls": [{"function_name": "check", "arguments": {"id": "A1"}}]}
    given = {"message": json.dumps(orders), "mock_function_responses": {"check": 1}}
    return json.dumps({"agent": "worker", "input": given, "expected_output": expected})


@pytest.fixture(scope="module", autouse=True)
def project(sandbox: Sandbox) -> None:
    """Cases of several kinds; a test takes some of them with -k."""
    sandbox.write("conftest.py", AGENTS)
    for number in range(10):
        sandbox.write(f"scenarios/quick_{number:03}.yaml", case())
        sandbox.write(f"scenarios/slow_{number:03}.yaml", case(sleep=120))
    sandbox.write("scenarios/fails_001.yaml", case(id="B2"))
    sandbox.write("scenarios/kills_001.yaml", case(kill="always"))
    sandbox.write("scenarios/kills_once_001.yaml", case(kill="once"))
    sandbox.write("scenarios/interrupts_001.yaml", case(interrupt=1))


@pytest.fixture(autouse=True)
def clean(sandbox: Sandbox) -> None:
    for name in ("started.txt", "cancelled.txt", "killed.txt"):
        (sandbox.root / name).unlink(missing_ok=True)


def on(cluster: Cluster) -> str:
    return f"--evalkit-executor={cluster.address}"


def lines(sandbox: Sandbox, name: str) -> list[str]:
    path = sandbox.root / name
    return path.read_text().splitlines() if path.exists() else []


def until(condition: Any, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_cases_are_spread_over_the_processes(sandbox: Sandbox, cluster: Cluster) -> None:
    output = sandbox.run(on(cluster), "-k", "quick", status=0)
    assert re.search(r"evalkit: 2 worker processes at tcp://127\.0\.0\.1:\d+", output)
    started = [line.split() for line in lines(sandbox, "started.txt")]
    assert sorted(name for name, _ in started) == [f"scenarios/quick_{n:03}.yaml" for n in range(10)]
    assert len({process for _, process in started} - {str(os.getpid())}) == 2


def test_workers_keep_to_the_bounds_of_the_project(sandbox: Sandbox, cluster: Cluster) -> None:
    """Only a worker fills the template: here the case is read and nothing more."""
    (sandbox.root / "pyproject.toml").write_text("[tool.evalkit.bounds]\nresult_characters = 3\n")
    given = {"message": "{}", "mock_function_responses": {"check": "{{ arguments.id }} and more"}}
    data = json.loads(case()) | {"input": given}
    sandbox.write("scenarios/large_001.yaml", json.dumps(data))
    try:
        output = sandbox.run(on(cluster), "-k", "large")
    finally:
        (sandbox.root / "pyproject.toml").unlink()
    assert "comes to more than 3 characters" in output


def test_a_worker_that_is_killed_in_the_middle_costs_no_verdict(sandbox: Sandbox, cluster: Cluster) -> None:
    sandbox.run(on(cluster), "-k", "quick or once", status=0)
    assert len(lines(sandbox, "killed.txt")) == 1
    assert {verdict.status for verdict in sandbox.loaded().verdicts} == {"passed"}
    assert len(sandbox.loaded().verdicts) == 11


def test_of_cases_that_overlap_the_one_that_kills_is_named_and_the_others_pass(
    sandbox: Sandbox, cluster: Cluster
) -> None:
    output = sandbox.run(on(cluster), "-k", "quick or kills_001", status=6)
    verdicts = {Path(verdict.case_id).stem: verdict for verdict in sandbox.loaded().verdicts}
    lost = verdicts.pop("kills_001")
    assert (lost.status, lost.reasons[0].code) == ("error", "crashed")
    assert re.fullmatch(
        r"the worker that ran this case died each time: 2 workers died of it, the last was tcp://127\.0\.0\.1:\d+",
        lost.reasons[0].message,
    )
    assert {verdict.status for verdict in verdicts.values()} == {"passed"}
    assert "1 case could not be measured, none may be: scenarios/kills_001.yaml" in output


def test_x_calls_back_what_is_under_way(sandbox: Sandbox, cluster: Cluster) -> None:
    before = time.monotonic()
    output = sandbox.run(on(cluster), "-x", "-k", "fails or slow", status=1)
    assert time.monotonic() - before < 90
    assert "1 failed" in output.splitlines()[-1]
    until(lambda: lines(sandbox, "cancelled.txt"))
    assert set(lines(sandbox, "cancelled.txt")) <= {line.split()[0] for line in lines(sandbox, "started.txt")}


def test_ctrl_c_calls_back_what_is_under_way(sandbox: Sandbox, cluster: Cluster) -> None:
    process = sandbox.start(on(cluster), "-k", "slow")
    until(lambda: lines(sandbox, "started.txt"))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 2, output
    until(lambda: len(lines(sandbox, "cancelled.txt")) == len(lines(sandbox, "started.txt")))


def test_an_agent_s_keyboard_interrupt_stops_the_session_as_it_does_here(sandbox: Sandbox, cluster: Cluster) -> None:
    process = sandbox.start(on(cluster), "-k", "interrupts")
    output, _ = process.communicate(timeout=90)
    assert process.returncode == 2, output


def test_shards_and_resume_work_on_a_cluster(sandbox: Sandbox, cluster: Cluster) -> None:
    for number in (1, 2):
        sandbox.run(on(cluster), "-k", "quick", f"--evalkit-shard={number}/2", f"--evalkit-results=run-{number}.json")
    assert "10 of 10 cases passed" in sandbox.command("merge", "run-1.json", "run-2.json", "-o", "whole.json")


def test_an_agent_that_the_workers_can_t_import_is_told_before_anything_runs(
    sandbox: Sandbox, cluster: Cluster
) -> None:
    """pytest imports the module here, where the working directory is on the path; the workers are elsewhere."""
    (sandbox.root / "scenarios" / "deep").mkdir()
    sandbox.write(
        "scenarios/deep/conftest.py", "import os\nif not os.environ.get('HERE'): raise ValueError('not here')\n"
    )
    sandbox.write("scenarios/deep/quick_100.yaml", case())
    try:
        os.environ["HERE"] = "1"
        output = sandbox.run(on(cluster), "-k", "quick_100", status=4)
    finally:
        del os.environ["HERE"]
        shutil.rmtree(sandbox.root / "scenarios" / "deep")
    assert re.search(
        r"ERROR: evalkit: --evalkit-executor: worker tcp://\S+ can't run the cases( \(2 of 2 workers\))?: importing "
        r"scenarios/deep/conftest\.py raised ValueError: not here",
        output,
    )
    assert not lines(sandbox, "started.txt")


def test_workers_that_imported_other_code_are_refused(sandbox: Sandbox, cluster: Cluster) -> None:
    """A worker lives on after the run, and what Python has imported stays as it was."""
    sandbox.run(on(cluster), "-k", "quick_001", status=0)
    sandbox.write("conftest.py", AGENTS + "\n# changed\n")
    output = sandbox.run(on(cluster), "-k", "quick_001", status=4)
    assert "it imported conftest.py before that file changed; start the workers anew" in output


def test_a_cluster_serves_one_project(sandbox: Sandbox, cluster: Cluster, tmp_path: Path) -> None:
    """Modules of two projects may have the same names."""
    other = type(sandbox)(tmp_path)
    other.write("conftest.py", AGENTS)
    other.write("scenarios/quick_001.yaml", case())
    output = other.run(on(cluster), status=4)
    assert f"it has run another project, {sandbox.root}, whose modules it still has; start it anew" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n2"], "--evalkit-executor and -n exclude each other: the workers of the cluster are the processes"),
        (["--evalkit-executor=ray://x"], "'ray://x' is not the address of a Dask scheduler, such as dask://host:8786"),
    ],
)
def test_what_can_t_be_had_on_a_cluster_is_refused(sandbox: Sandbox, arguments: list[str], message: str) -> None:
    assert message in sandbox.run("--evalkit-executor=dask://127.0.0.1:1", *arguments, status=4)


def test_listing_the_cases_needs_no_cluster(sandbox: Sandbox) -> None:
    sandbox.run("--evalkit-executor=dask://127.0.0.1:1", "--collect-only", "-q", status=0)


@pytest.mark.parametrize(
    ("scheduler", "why"),
    [
        ("tcp://127.0.0.1:1", r"\[Errno \d+\] Connection refused"),
        ("tls://127.0.0.1:1", r"\[Errno \d+\] Connection refused"),
        ("tcp://no-such-host.invalid:8786", r"\[Errno -?\d+\] .+"),
    ],
)
def test_no_scheduler_is_a_usage_error(scheduler: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evalkit.features.cluster.dask_executor._STARTING_S", 0.2)
    with pytest.raises(UsageError, match=rf"^{scheduler}: no Dask scheduler answers there: {why}$"):
        ClusterExecutor(Address(scheduler), 1).connect()


@pytest.mark.parametrize(
    ("greeting", "message"),
    [
        (b"SSH-2.0-x\r\n", "what answers there is no Dask scheduler"),
        (b"", "no Dask scheduler answers there: timed out"),  # it waits to be spoken to, as HTTP's do
    ],
)
def test_a_server_of_another_kind_is_a_usage_error(
    greeting: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalkit.features.cluster.dask_executor._CONNECT_S", 0.2 if not greeting else 20)
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def greet() -> None:
            kept.append(server.accept()[0])
            kept[0].sendall(greeting)

        threading.Thread(target=greet).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(UsageError, match=rf"^{address}: {message}$"):
            ClusterExecutor(Address(address), 1).connect()
        kept[0].close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("dask://host:9000", Address("tcp://host:9000")),
        ("dask://host", Address("tcp://host:8786")),
        ("dask+tls://host/", Address("tls://host:8786")),
        ("dask://[::1]:9000", Address("tcp://[::1]:9000")),
        ("dask://host?root=/srv/shop", Address("tcp://host:8786", "/srv/shop")),
    ],
)
def test_an_address_is_read(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "host:8786", "tcp://host", "dask://", "dask://h:x", "dask://h/path", "dask://h?a=1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^the address of a Dask scheduler, such as dask://host:8786$"):
        parse_address(text)


MOVED = """\
import pickle, sys
from pathlib import Path
from evalkit import Settings, load_case
from evalkit.bounds import Bounds
from evalkit.features.cluster.worker import RunSpec, run_batch, serialize_spec

here, there = sys.argv[1:]
spec = RunSpec(
    run_id="r", root=there, origin=here, python_path=(), commit=None, settings=Settings(root=Path(here)), concurrency=2,
    parts={}, secret_keys=(), bounds=Bounds(),
)
case = load_case(Path(here, "scenarios", "moved_001.yaml"), root=here)
Path(here).rename(here + "-gone")

batch = (serialize_spec(spec), (here + "/scenarios",), {}, pickle.dumps([(case, None, {})]))
((line, _, _, _),) = run_batch(pickle.dumps(batch))
print(line)
"""


def test_a_project_may_lie_elsewhere_on_the_workers(tmp_path: Path) -> None:
    """dask://host?root=FOLDER: instructions, cassettes, conftest.py and places in messages are found there."""
    for folder in ("here", "there"):
        box = tmp_path / folder / "scenarios"
        (tmp_path / folder / "mocks" / "cassettes" / "scenarios").mkdir(parents=True)
        box.mkdir()
        (box / "desk.md").write_text("---\nname: desk\ntrigger: x\nversion: 1\navailable_functions: []\n---\nHelp.\n")
        asked = {"input": {"message": "x"}, "expected_output": {"response_contains": "other"}, "agent": "desk.md"}
        (box / "moved_001.yaml").write_text(json.dumps(asked, indent=1))
        cassette = tmp_path / folder / "mocks" / "cassettes" / "scenarios" / "moved_001.yaml"
        cassette.write_text("turns: [{text: It is done.}]\n")
    command = [sys.executable, "-c", MOVED, str(tmp_path / "here"), str(tmp_path / "there")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    verdict = json.loads(done.stdout or "{}")
    assert (verdict.get("status"), verdict["reasons"][0]["code"]) == ("failed", "text_missing"), done.stderr
    assert verdict["reasons"][0]["location"] == "scenarios/moved_001.yaml:6:24"


def test_a_batch_that_arrives_after_its_run_was_stopped_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distributed.get_worker", lambda: SimpleNamespace(address="tcp://w"))
    folder = str(tmp_path)
    run = RunSpec(
        run_id="late",
        root=folder,
        origin=folder,
        python_path=(),
        commit=None,
        settings=Settings(root=tmp_path),
        concurrency=1,
        parts={},
        secret_keys=(),
        bounds=Bounds(),
    )
    stop_run(serialize_spec(run))
    answer = run_batch(pickle.dumps((serialize_spec(run), (), {}, b"")))
    assert answer == "worker tcp://w can't run this case: the run was stopped"


class Client:
    """A cluster whose workers are gone, or that is gone itself."""

    def __init__(self, threads: dict[str, int] | Exception) -> None:
        self._threads = threads

    def nthreads(self) -> dict[str, int]:
        if isinstance(self._threads, Exception):
            raise self._threads
        return self._threads

    def submit(self, *given: Any, **options: Any) -> Any:
        return self

    def add_done_callback(self, function: Any) -> None:
        """Nothing is ever done."""


@pytest.mark.parametrize(
    ("threads", "message"),
    [
        ({}, "the cluster has had no worker for 0.1 s"),
        (OSError("closed"), "the cluster is gone: OSError: closed"),
    ],
)
def test_without_a_cluster_the_rest_is_not_measured(
    threads: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evalkit.features.cluster.dask_executor._LOOK_S", 0.05)
    executor = ClusterExecutor(Address("tcp://x:1"), 4, patience_s=0.1)
    executor.client = Client(threads)
    nothing: Any = lambda *given: None  # noqa: E731  # for what is never called here
    executor._work = WorkerTasks(b"", b"", repr, lambda jobs: b"", nothing, nothing, nothing, nothing)
    executor._last_worker_seen = time.monotonic()
    jobs = [RunRequest(case_from_dict({**json.loads(case()), "scenario_id": f"lost_{n:03}"})) for n in range(3)]
    verdicts = [executor.run(job, jobs[place + 1 :]) for place, job in enumerate(jobs)]
    assert [(verdict.status, verdict.reasons[0].code) for verdict in verdicts] == [("error", "crashed")] * 3
    assert {verdict.reasons[0].message for verdict in verdicts} == {message}
