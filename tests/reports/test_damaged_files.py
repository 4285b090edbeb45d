"""Run files and journals that are damaged, or that somebody made: one message, never a traceback, never half a file."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError
from evalkit.hosts.reports.finished import ReportInput
from evalkit.hosts.reports.run_file import load_run, replace_file
from evalkit.hosts.reports.table import list_reports
from evalkit.records.transcript import Usage

GOLDEN = json.loads((Path(__file__).parent / "golden/run.json").read_text("utf-8"))
WRONG: list[Any] = [None, 1, -1, "x", [], {}, True, 1e308, float("nan"), float("inf"), "\ud800", [[1]], {"a": {"b": 1}}]


def iter_paths(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from iter_paths(value, (*path, key))


def load(tmp_path: Path, text: str, name: str = "run.json") -> Any:
    (tmp_path / name).write_text(text, "utf-8")
    return load_run(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "not a run file of evalkit: it is nested too deeply"),
        ('{"verdicts": [NaN]}', "not a run file of evalkit: NaN is not JSON"),
        ('{"verdicts": [], "verdicts": []}', "not a run file of evalkit: "),
    ],
)
def test_what_is_no_json_that_evalkit_writes_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)

    assert message in str(caught.value)


def test_a_state_or_a_time_that_no_run_has_is_refused(tmp_path: Path) -> None:
    data = copy.deepcopy(GOLDEN)
    data["verdicts"][0]["calls"][0]["status"] = "great"
    with pytest.raises(UsageError, match=r"verdicts.0.: the status 'great' of a call is none of passed"):
        load(tmp_path, json.dumps(data))

    data = copy.deepcopy(GOLDEN)
    data["verdicts"][0]["transcript"]["timing"]["model_ms"] = 1e308
    with pytest.raises(UsageError, match=r"verdicts.0.: 1e\+308 ms is no time that a run can take"):
        load(tmp_path, json.dumps(data))


def test_a_journal_whose_head_is_damaged_is_refused(tmp_path: Path) -> None:
    lines = [{"evalkit_journal": 1, "selected": ["a"], "collected": []}, GOLDEN["verdicts"][0]]

    with pytest.raises(UsageError, match=r"run.jsonl: a damaged journal: .*collected"):
        load(tmp_path, "\n".join(map(json.dumps, lines)), "run.jsonl")


@pytest.mark.parametrize("part", range(13))
def test_a_value_of_another_kind_anywhere_is_a_message_or_a_report(tmp_path: Path, part: int) -> None:
    for index, path in enumerate(iter_paths(GOLDEN)):
        if index % 13 != part:
            continue
        data = copy.deepcopy(GOLDEN)
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = WRONG[(index + part) % len(WRONG)]
        try:
            run = load(tmp_path, json.dumps(data))
        except UsageError:
            continue
        for name in ("markdown", "junit", "github"):
            assert "".join(list_reports()[name].render(ReportInput(run=run))) is not None


@pytest.mark.parametrize("count", [-5, True, 1.5, float("nan"), 10**400, "7", None])
def test_a_number_of_tokens_that_is_none_counts_as_none(count: Any) -> None:
    usage = Usage(input_tokens=count, output_tokens=3)

    assert (usage.input_tokens, usage.output_tokens, usage.count_tokens()) == (0, 3, 3)


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text("old", "utf-8")

    def write() -> None:
        with replace_file(file) as opened:
            opened.write("half of the n")
            raise OSError("no space left on the device")

    with pytest.raises(OSError, match="no space"):
        write()

    assert file.read_text("utf-8") == "old"
    assert list(tmp_path.iterdir()) == [file]
