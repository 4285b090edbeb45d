"""What is written, or advised to be written, into the cases of this repository: right, and nothing is lost by it."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from evalkit.checks.expectation import get_expectation, judge_conversation
from evalkit.errors import parse_path
from evalkit.hosts.casecheck.mutants import Observation, generate_mutants, observe
from evalkit.hosts.casecheck.mutation_score import add_keys, compute_score
from evalkit.hosts.casecheck.update import build_update
from evalkit.project import Project
from evalkit.records.verdict import FAILED, PASSED
from evalkit.spec.files import find_cases
from evalkit.spec.load import case_from_dict
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.write import YamlEditor

ROOT = Path(__file__).parents[2]
FILES = [found.path for found in find_cases(["scenarios"], ROOT)]
EVERY = 6  # cases are alike; all of them take long


@pytest.fixture(scope="module")
def passing() -> list[Observation]:
    with pytest.MonkeyPatch.context() as patching:
        patching.chdir(ROOT)
        return [one for one in _observed() if one.verdict.status == PASSED]


def _observed() -> Iterator[Observation]:
    project = Project(Path.cwd())
    for number, loaded in enumerate(project.load_cases([])):
        is_row = loaded.id.endswith("]")  # one of many cases of a file, whose data is not this case's
        if number % EVERY == 0 and loaded.case is not None and not is_row:
            agent = project.agent if loaded.case.agent is None else None
            yield observe(loaded.case, agent, project.settings)


def test_what_is_not_edited_stays_byte_for_byte() -> None:
    texts = {path: path.read_bytes().decode("utf-8") for path in FILES[::3]}
    assert [path for path, text in texts.items() if YamlEditor(text).to_text() != text] == []


def test_the_advice_of_mutate_catches_the_mutant_and_keeps_what_happened(passing: list[Observation]) -> None:
    """Written into the file, the case still loads, passes the run and refuses the mutant."""
    tried = 0
    for observed in passing:
        by_what = {mutant.description: mutant for mutant in generate_mutants(observed)}
        for survivor in compute_score(observed).survivors:
            path = parse_path(survivor.place)
            assert observed.case.path is not None
            data = load(observed.case.path.read_bytes(), observed.case.id)
            if survivor.keys is None or not YamlEditor(observed.case.path.read_text("utf-8")).has(path):
                continue
            holder = data
            for step in path[:-1]:
                holder = holder[step]
            node = holder[path[-1]]
            holder[path[-1]] = add_keys({"function_name": node} if isinstance(node, str) else node, survivor.keys)
            case = case_from_dict(data, observed.case.path, root=ROOT)
            turns = [get_expectation(turn) for turn in case.turns]
            for transcript, status in (
                (observed.verdict.transcript, PASSED),
                (by_what[survivor.description].transcript, FAILED),
            ):
                judged = judge_conversation(transcript, get_expectation(case), turns, input=case.input)
                assert judged.status == status, (case.id, survivor)
            tried += 1
    assert tried > 30


def test_an_update_loses_no_comment_and_touches_little(passing: list[Observation]) -> None:
    """Each rewritten file keeps all above its expectations, every comment, and most of its lines."""
    written = 0
    for number, observed in enumerate(passing):
        for mutant in [*generate_mutants(observed)][number % 3 :: 5]:
            turns = [get_expectation(turn) for turn in observed.case.turns]
            judged = judge_conversation(
                mutant.transcript, get_expectation(observed.case), turns, input=observed.case.input
            )
            verdict = replace(
                observed.verdict, status=judged.status, transcript=mutant.transcript, reasons=judged.reasons,
                calls=judged.calls, checks=judged.checks,
            )  # fmt: skip
            update = build_update(verdict, ROOT)
            if update is None or update.refusal:
                continue
            written += 1
            assert update.new.startswith(update.old.partition("expected_output:")[0])
            comments = [line.partition("#")[2].strip() for line in update.old.splitlines() if " #" in line]
            assert [comment for comment in comments if comment not in update.new] == []
            changes = [
                line
                for line in difflib.ndiff(update.old.splitlines(), update.new.splitlines())
                if line.startswith(("- ", "+ "))
            ]
            assert len(changes) <= 20, "".join(changes)
            assert YamlEditor(update.new).to_text() == update.new
    assert written > 30
