"""Scheduling over workers that die, with workers that are only told what to run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from evalkit.plugin.splitting import WorkerExchange, allow_replacement
from evalkit.plugin.xdist_scheduling import BatchScheduling

TWO_WORKERS = ("-n2", "--dist=load", "--tx=2*popen")  # the last two follow from the first when pytest begins
TESTS = [f"a_{number:03}.yaml::a_{number:03}" for number in range(16)]


class Worker:
    """A worker that runs nothing."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.shutting_down = False
        self.sent: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += [TESTS[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def config(pytester: pytest.Pytester) -> pytest.Config:
    return pytester.parseconfigure(*TWO_WORKERS)


@pytest.fixture
def scheduling(config: pytest.Config) -> Iterator[BatchScheduling]:
    exchange = WorkerExchange()
    yield BatchScheduling(config, None, exchange, lambda node_id: True)
    exchange.remove()


def begin(scheduling: BatchScheduling, names: str) -> list[Worker]:
    """Start workers that have collected all tests. The first two get the first batches."""
    workers = [Worker(name) for name in names]
    for worker in workers:
        scheduling.add_node(worker)
        scheduling.add_node_collection(worker, TESTS)
    scheduling.schedule()
    return workers


def test_a_worker_that_dies_while_another_one_begins_names_its_culprit(scheduling: BatchScheduling) -> None:
    """The one that begins has not said yet which tests it found. No test is taken for sent to it."""
    first, second = begin(scheduling, "ab")
    scheduling.remove_node(second)
    beginning = Worker("c")
    scheduling.add_node(beginning)
    scheduling.mark_test_complete(first, TESTS.index(first.sent[0]))
    assert scheduling.remove_node(first) == first.sent[1]
    assert (beginning.sent, scheduling.assigned_work[beginning]) == ([], {})
    scheduling.schedule()  # as when another worker has collected
    scheduling.add_node_collection(beginning, TESTS)
    scheduling.schedule()
    assert beginning.sent
    assert not {*beginning.sent} & {*first.sent[:2]}


def test_a_worker_that_finds_other_tests_gets_none_and_ends(scheduling: BatchScheduling) -> None:
    begin(scheduling, "ab")
    odd = Worker("c")
    scheduling.add_node(odd)
    scheduling.add_node_collection(odd, TESTS[1:])
    scheduling.schedule()
    assert (odd.sent, odd.shutting_down) == ([], True)


@pytest.mark.parametrize(("arguments", "allowed"), [([], 9), (["--max-worker-restart=3"], 3)])
def test_a_death_that_brings_the_run_on_is_not_counted(
    pytester: pytest.Pytester, arguments: list[str], allowed: int
) -> None:
    """Unless the user has counted them."""
    config = pytester.parseconfigure(*TWO_WORKERS, *arguments)
    allow_replacement(config)
    assert config.pluginmanager.getplugin("dsession")._max_worker_restart == allowed


def test_a_death_after_which_the_culprit_is_sought_is_not_counted(
    scheduling: BatchScheduling, config: pytest.Config
) -> None:
    first, _ = begin(scheduling, "ab")
    assert scheduling.remove_node(first) is None
    assert config.pluginmanager.getplugin("dsession")._max_worker_restart == 9


def test_folders_of_runs_that_were_killed_are_removed_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yesterday = time.time() - 90_000
    names = {"evalkit-999999999-x": yesterday, "evalkit-999999998-x": None, f"evalkit-{os.getpid()}-x": yesterday}
    for name, changed in names.items():
        (tmp_path / name).mkdir()
        if changed is not None:
            os.utime(tmp_path / name, (changed, changed))
    exchange = WorkerExchange()
    assert exchange.folder.parent == tmp_path
    exchange.remove()
    assert {path.name for path in tmp_path.iterdir()} == {"evalkit-999999998-x", f"evalkit-{os.getpid()}-x"}


def test_a_worker_that_dies_leaves_nothing_in_the_folder_for_temporary_files(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that starts a program has reports of it, which the worker would remove at its end."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    agent = "subprocess.run(['true'])\n    os._exit(1)\n"
    text = f"import evalkit, os, subprocess\n@evalkit.agent('a')\ndef a(task):\n    {agent}"
    pytester.path.joinpath("conftest.py").write_text(text)
    case = "agent: a\ninput: {message: x}\nexpected_output: {response_contains: ok}\n"
    pytester.mkdir("scenarios").joinpath("a_001.yaml").write_text(case)
    assert pytester.runpytest_subprocess("--evalkit", "-n1").ret == 6
    assert list(tmp_path.glob("evalkit-*")) == []
