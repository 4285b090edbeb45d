"""Live models on a Dask cluster: one budget for all its processes, and recordings that come home with their verdicts.

The project lies elsewhere on the workers: in `there`, a copy without cassettes.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import BudgetSpentError
from evalkit.features.cluster.exchange import ClusterBudget, list_cassette_names, write_recordings
from evalkit.features.graders.records import get_gradings
from evalkit.models.providers.budget import Account
from evalkit.spec.load import case_from_dict

pytest.importorskip("distributed", reason="Dask is not installed (extra dask)")
Sandbox = Any
Cluster = Any
SECRET = "correct-horse-battery"

AGENTS = """\
import asyncio, os, pathlib
import evalkit
from evalkit.agents.model_choice import _shared_providers
from evalkit.records.transcript import ModelRequest, ModelTurn, Usage

HERE = pathlib.Path(os.environ["NOTES"])

def note(name, text):
    with open(HERE / name, "a") as file:
        file.write(f"{text}\\n")

class Live:
    name = "live"
    async def turn(self, request):
        note("asked.txt", os.getpid())
        await asyncio.sleep(0.02)
        tokens = 10_000 if self.pays() else 0
        text = f"done, by {os.environ['DESK_TOKEN']}"
        return ModelTurn(text=text, usage=Usage(input_tokens=tokens, total_tokens=tokens), duration_ms=1500.0)
    def pays(self):
        if not (HERE / "only-one.txt").exists():
            return True
        try:
            with open(HERE / "payer.txt", "x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            pass
        return (HERE / "payer.txt").read_text().strip() == str(os.getpid())
    async def aclose(self): ...

_shared_providers["gemini:x"] = Live()

class Judge(Live):
    async def turn(self, request):
        note("asked.txt", os.getpid())
        return ModelTurn(text='{"grades": [{"pass": true, "reason": "so"}]}')

_shared_providers["gemini:judge"] = Judge()

@evalkit.agent("says-done")
def says_done(task):
    return "done"

@evalkit.agent("asks")
async def asks(task):
    reply = await task.turn(ModelRequest(messages=tuple(task.messages)))
    print("answered", task.case_id)
    return reply.text

@evalkit.agent("keeps-asking")
async def keeps_asking(task):
    note("began.txt", os.getpid())
    for _ in range(2000):
        await task.turn(ModelRequest(messages=tuple(task.messages)))
    return "done"

@evalkit.agent("own-client")
def own_client(task):
    import urllib.request
    return urllib.request.urlopen(task.message, timeout=20).read().decode()
"""
SETTINGS = """\
[tool.evalkit]
max_errors = 9
[tool.evalkit.prices.x]
input = 1.0
output = 10.0
"""


class Service(BaseHTTPRequestHandler):
    """What the agent with a client of its own asks."""

    def do_GET(self) -> None:
        body = json.dumps({"answer": "done"}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *given: Any) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where agents write what they do; and a secret that all processes know."""
    folder = tmp_path_factory.mktemp("notes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTES", str(folder))
        patch.setenv("DESK_TOKEN", SECRET)
        yield folder


@pytest.fixture(scope="module")
def cluster(notes: Path, cluster: Cluster) -> Cluster:
    """The cluster, with that environment."""
    return cluster


def case(agent: str, message: str = "go", **keys: Any) -> str:
    given = {"message": message, "mock_function_responses": {}}
    return json.dumps({"agent": agent, "input": given, "expected_output": {"response_contains": "done"}, **keys})


def write_project(box: Sandbox, service: str) -> None:
    box.write("conftest.py", AGENTS)
    box.write("pyproject.toml", SETTINGS)
    for number in range(40):
        box.write(f"scenarios/pays_{number:03}.yaml", case("asks"))
    for number in range(8):
        box.write(f"scenarios/keeps_{number:03}.yaml", case("keeps-asking"))
    for number in range(3):
        box.write(f"scenarios/records_{number:03}.yaml", case("asks", message=f"say {number}"))
    box.write("scenarios/records_twice_001.yaml", case("asks", repeat={"runs": 2, "min_pass": 2}))
    box.write("scenarios/records_http_001.yaml", case("own-client", message=service))
    box.write("scenarios/records_by_hand_001.yaml", case("asks"))
    for number in range(3):
        box.write(f"scenarios/graded_{number:03}.yaml", case("says-done", expected_output={"judge": "It is short."}))


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory, sandbox: Sandbox, service: str) -> Sandbox:
    """The project as the workers have it."""
    box = type(sandbox)(tmp_path_factory.mktemp("there").resolve())
    write_project(box, service)
    return box


@pytest.fixture(autouse=True)
def project(sandbox: Sandbox, service: str, there: Sandbox, notes: Path) -> None:
    shutil.rmtree(sandbox.root / "mocks", ignore_errors=True)
    write_project(sandbox, service)
    sandbox.write("mocks/cassettes/scenarios/records_by_hand_001.json", '{"turns": ["done by hand"]}')
    for name in ("asked.txt", "began.txt", "only-one.txt", "payer.txt"):
        (notes / name).unlink(missing_ok=True)


def on(cluster: Cluster, there: Sandbox) -> str:
    return f"--evalkit-executor={cluster.address}?root={there.root}"


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


# Money


def test_a_budget_holds_for_the_whole_cluster_and_the_rest_is_not_run(
    sandbox: Sandbox, there: Sandbox, cluster: Cluster, notes: Path
) -> None:
    """Each case costs a cent. Beyond the tenth go those that were under way, and those of the moment until all know."""
    options = ["--evalkit-model=gemini:x", "--evalkit-max-cost=0.0999", "--evalkit-concurrency=1"]
    output = sandbox.run(on(cluster, there), "-k", "pays", *options, status=6)
    statuses = [verdict.status for verdict in sandbox.loaded().verdicts]
    passed = statuses.count("passed")
    assert statuses.count("not_run") == 40 - passed
    assert 10 <= passed == len(lines(notes / "asked.txt")) < 40
    match = re.search(
        r"evalkit: (\d+) cases were not run: the budget of 0\.0999 USD \(max_cost\) is spent: ([\d.]+) USD", output
    )
    assert match is not None, output
    assert int(match[1]) == 40 - passed
    assert 0.1 <= float(match[2]) <= passed / 100 + 1e-9
    accounting: Any = sandbox.loaded().metadata["accounting"]
    assert accounting["cost_usd"] == pytest.approx(passed / 100)


def test_a_process_stops_asking_when_another_one_has_spent_the_budget(
    sandbox: Sandbox, there: Sandbox, cluster: Cluster, notes: Path
) -> None:
    """What one process asks costs nothing, so that it can only have heard."""
    (notes / "only-one.txt").touch()
    options = ["--evalkit-model=gemini:x", "--evalkit-max-cost=0.2", "--evalkit-concurrency=2"]
    sandbox.run(on(cluster, there), "-k", "keeps", *options, status=6)
    assert len(set(lines(notes / "began.txt"))) == 2
    verdicts = sandbox.loaded().verdicts
    assert {(verdict.status, verdict.reasons[0].code) for verdict in verdicts} == {("not_run", "budget")}


def test_a_budget_is_a_run_s_and_not_the_worker_s(sandbox: Sandbox, there: Sandbox, cluster: Cluster) -> None:
    options = ["--evalkit-model=gemini:x", "--evalkit-max-cost=0.055", "-k", "pays_000 or pays_001 or pays_002"]
    for _ in range(2):
        sandbox.run(on(cluster, there), *options, status=0)


def test_an_account_counts_what_it_hears_and_tells_what_it_spends() -> None:
    told: list[float] = []
    account = Account(1.0, report=told.append)
    account.add(0.25)
    account.record_elsewhere(0.5)
    account.record_elsewhere(0.125)
    account.add(0.25)
    assert (account._compute_total(), told) == (1.0, [0.25, 0.5])
    with pytest.raises(BudgetSpentError, match=r"^the budget of 1 USD \(max_cost\) is spent: 1 USD$"):
        account.enter()


def test_the_purse_spreads_the_news_once_and_answers_whoever_spends_on() -> None:
    said: list[Any] = []
    purse = ClusterBudget(1.0, lambda spent, worker: said.append((spent, worker)))
    for process, usd in [("a", 0.5), ("b", 0.25), ("a", 0.75), ("a", 0.5), ("b", 0.375)]:
        purse.handle_event((0.0, {"process": process, "worker": f"tcp://{process}", "usd": usd}))
    assert said == [
        ({"a": 0.75, "b": 0.25}, None),
        ({"a": 0.75, "b": 0.25}, "tcp://a"),
        ({"a": 0.75, "b": 0.375}, "tcp://b"),
    ]


# Recordings


def recorded(box: Sandbox) -> dict[str, str]:
    """The cassettes of a project by name; how long HTTP took is nobody's business."""
    top = box.root / "mocks"
    return {
        path.relative_to(top).as_posix(): re.sub(r"duration_ms: \d+", "", path.read_text())
        for path in sorted(top.rglob("*"))
        if path.is_file()
    }


def told(box: Sandbox) -> list[Any]:
    """What the verdicts say."""
    return [
        (verdict.case_id, verdict.status, [reason.message for reason in verdict.reasons], verdict.transcript.cassette)
        for verdict in box.loaded().verdicts
    ]


def test_what_is_recorded_on_workers_is_what_is_recorded_here(
    sandbox: Sandbox, there: Sandbox, cluster: Cluster
) -> None:
    options = ["--evalkit-model=gemini:x", "--evalkit-record=missing", "-k", "records"]
    sandbox.run(*options, status=0)
    expected, verdicts = recorded(sandbox), told(sandbox)
    shutil.rmtree(sandbox.root / "mocks/cassettes/scenarios")
    sandbox.write("mocks/cassettes/scenarios/records_by_hand_001.json", '{"turns": ["done by hand"]}')
    sandbox.run(on(cluster, there), *options, status=0)
    assert recorded(sandbox) == expected
    assert told(sandbox) == verdicts
    assert len(expected) == 7
    assert not any(SECRET in text for text in expected.values())
    assert "done, by redacted1" in expected["cassettes/scenarios/records_001.yaml"]
    assert not (there.root / "mocks").exists()
    sandbox.run("-k", "records", status=0)


def test_grades_of_workers_come_home_and_are_not_asked_for_again(
    sandbox: Sandbox, there: Sandbox, cluster: Cluster, notes: Path
) -> None:
    options = ["-k", "graded", "--evalkit-grader=gemini:judge", "--evalkit-record=missing"]
    sandbox.run(on(cluster, there), *options, status=0)
    found = {name.removeprefix("cassettes/scenarios/") for name in recorded(sandbox) if "graded" in name}
    sandbox.run(on(cluster, there), *options, status=0)
    sandbox.run("-k", "graded", status=0)
    assert found == {f"graded_{number:03}.judge.yaml" for number in range(3)}
    assert len(lines(notes / "asked.txt")) == 3
    assert [get_gradings(verdict.transcript)[0].cassette for verdict in sandbox.loaded().verdicts] == ["recorded"] * 3


def test_what_is_recorded_here_decides_what_is_missing(
    sandbox: Sandbox, there: Sandbox, cluster: Cluster, notes: Path
) -> None:
    options = ["--evalkit-model=gemini:x", "--evalkit-record=missing", "-k", "records_00 or twice"]
    sandbox.run(on(cluster, there), *options, status=0)
    asked, before = len(lines(notes / "asked.txt")), recorded(sandbox)
    sandbox.run(on(cluster, there), *options, status=0)
    assert (asked, len(lines(notes / "asked.txt"))) == (5, 5)
    assert recorded(sandbox) == before


def test_a_recording_that_no_longer_fits_is_told_and_recorded_as_here(
    sandbox: Sandbox, there: Sandbox, cluster: Cluster
) -> None:
    model = ["--evalkit-model=gemini:x", "-k", "records_001"]
    sandbox.run(*model, "--evalkit-record=all", status=0)
    fits = recorded(sandbox)
    path = sandbox.root / "mocks/cassettes/scenarios/records_001.yaml"
    path.write_text(path.read_text().replace("say 1", "say 7").replace("fingerprint: ", "fingerprint: 0"))
    output = sandbox.run(on(cluster, there), *model, "--evalkit-record=missing")
    assert "mocks/cassettes/scenarios/records_001.yaml, turn 1, was recorded for another request" in output
    assert "evalkit-recorded-" not in output
    sandbox.run(on(cluster, there), *model, "--evalkit-record=stale", status=0)
    assert recorded(sandbox) == fits


def test_recording_never_overwrites_a_hand_written_cassette(sandbox: Sandbox, there: Sandbox, cluster: Cluster) -> None:
    before = recorded(sandbox)
    options = ["--evalkit-model=gemini:x", "--evalkit-record=all", "-k", "by_hand"]
    output = sandbox.run(on(cluster, there), *options)
    assert "mocks/cassettes/scenarios/records_by_hand_001.yaml is hand-written, and recording would overwrite" in output
    assert recorded(sandbox) == before


def test_a_recording_that_can_t_be_written_is_an_error_of_its_case(
    sandbox: Sandbox, there: Sandbox, cluster: Cluster
) -> None:
    shutil.rmtree(sandbox.root / "mocks/cassettes/scenarios")
    sandbox.write("mocks/cassettes/scenarios", "a file where the folder should be")
    options = ["--evalkit-model=gemini:x", "--evalkit-record=all", "-k", "records_001"]
    output = sandbox.run(on(cluster, there), *options)
    assert "its recording scenarios/records_001.yaml was not written: " in output
    assert sandbox.loaded().verdicts[0].status == "error"


SENT = case_from_dict({**json.loads(case("asks")), "scenario_id": "sent_001"})


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("sent_001.yaml", "turns: [{text: it is done}]\n", None),
        ("../evil.yaml", "x", "the worker sent a recording '../evil.yaml', which does not belong to this case"),
        (
            "sent_001.yaml",
            "turns:\n  - text: horse-\\\n      battery\n  - text: it is horse-battery\n",
            "its recording sent_001.yaml was not written: it holds the value of a secret variable of this machine, "
            "which the worker does not have; set the same variables there",
        ),
    ],
)
def test_only_what_would_be_recorded_here_is_written(
    tmp_path: Path, name: str, content: str, problem: str | None
) -> None:
    assert write_recordings(tmp_path / "mocks", SENT, {name: content.encode()}, ("horse-battery",)) == problem
    found = [path.name for path in tmp_path.rglob("*") if path.is_file()]
    assert found == ([] if problem else ["sent_001.yaml"])


def test_the_files_of_a_case_are_known() -> None:
    repeated = case_from_dict(
        {**json.loads(case("asks")), "scenario_id": "sent_001", "repeat": {"runs": 2, "min_pass": 1}}
    )
    assert list_cassette_names(repeated) == (
        "sent_001.yaml",
        "sent_001.yml",
        "sent_001.json",
        "sent_001.http.yaml",
        "sent_001.http.yml",
        "sent_001.http.json",
        "sent_001.judge.yaml",
        "sent_001.judge.yml",
        "sent_001.judge.json",
        "sent_001.user.yaml",
        "sent_001.user.yml",
        "sent_001.user.json",
        "sent_001.run-2.yaml",
        "sent_001.run-2.yml",
        "sent_001.run-2.json",
        "sent_001.run-2.http.yaml",
        "sent_001.run-2.http.yml",
        "sent_001.run-2.http.json",
        "sent_001.run-2.judge.yaml",
        "sent_001.run-2.judge.yml",
        "sent_001.run-2.judge.json",
        "sent_001.run-2.user.yaml",
        "sent_001.run-2.user.yml",
        "sent_001.run-2.user.json",
    )
