"""`evalkit mutate`: what a case does not notice is listed with the expectation that would, and gates."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.cli.case_commands import mutate
from evalkit.errors import UsageError
from evalkit.hosts.casecheck.mutants import Observation, generate_mutants, list_kinds, observe
from evalkit.hosts.casecheck.mutation_score import compute_score
from evalkit.records.settings import Settings
from evalkit.records.transcript import APPLICATION
from evalkit.spec.load import load_case
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.write import dump
from tests.cli.conftest import Desk

LOOSE = "  expected_function_calls: [check, open]\n"
TIGHT = """\
  expected_function_calls:
    - function_name: check
      arguments: {id: A1}
      result_contains: {ends: "2027-01-20"}
    - function_name: open
      arguments: {id: A1, priority: normal}
      result_contains: {ticket: TKT-7}
  response_contains: [ticket is TKT-7, "2027-01-20"]
"""


def test_a_case_that_demands_everything_catches_every_mutant(desk: Desk) -> None:
    desk.case("tight_001", TIGHT)
    result = desk.run("mutate")
    assert (result.status, result.err) == (0, "")
    assert result.lines == ["mutation score 100.0 % (20 of 20 mutants of 1 case)"]


def answered_by_the_application(observed: Observation) -> Observation:
    transcript = observed.verdict.transcript
    calls = tuple(replace(call, answered_by=APPLICATION) for call in transcript.calls)
    return replace(observed, verdict=replace(observed.verdict, transcript=replace(transcript, calls=calls)))


def test_what_a_mock_returns_is_not_changed(desk: Desk) -> None:
    """It is the case's own doing: no agent can change it. What the application answered itself is another matter."""
    desk.case("loose_001", LOOSE)
    observed = observe(load_case(desk.root / "scenarios" / "loose_001.yaml", root=desk.root))
    assert "change_result" not in {mutant.kind for mutant in generate_mutants(observed)}
    own = answered_by_the_application(observed)
    assert [mutant.kind for mutant in generate_mutants(own)].count("change_result") == 2


def test_arguments_that_a_case_ignores_are_not_changed(desk: Desk) -> None:
    desk.case("loose_001", LOOSE + "  ignored_arguments: [priority, id]\n")
    shown = "\n".join(desk.run("mutate").lines)
    assert "another priority" not in shown
    assert "(change_argument)" not in shown
    assert "(drop_argument)" not in shown


def test_each_survivor_is_told_with_the_expectation_that_would_catch_it(desk: Desk) -> None:
    desk.case("loose_001", LOOSE)
    result = desk.run("mutate", "scenarios/loose_001.yaml")
    assert result.status == 0
    shown = "\n".join(result.lines)
    assert "scenarios/loose_001.yaml: 12 of 20 mutants caught" in shown
    assert (
        """\
  accepted: open gets another priority (change_argument)
    would be caught by, at expected_output.expected_function_calls[1]:
      arguments_contain:
        priority: normal
"""
        in shown
    )
    assert "response_contains:\n        - TKT-7\n" in shown


def test_no_mutant_is_graded_anew_and_that_is_said(desk: Desk) -> None:
    desk.case("loose_001", LOOSE + "  judge: It is polite.\n")
    grades = desk.root / "mocks/cassettes/scenarios/loose_001.judge.yaml"
    grades.parent.mkdir(parents=True)
    grades.write_text("turns:\n  - calls:\n      - grade: {grades: [{pass: true}]}\n")
    result = desk.run("mutate", "scenarios/loose_001.yaml")
    assert result.lines[0] == (
        "scenarios/loose_001.yaml: 12 of 20 mutants caught; "
        "no criterion of judge was graded anew, and none could catch one"
    )
    assert "response_contains:\n        - TKT-7\n" in result.out


def test_the_help_names_every_kind() -> None:
    assert f"Kinds of mutants: {', '.join(list_kinds())}." in " ".join((mutate.help or "").split())


def test_writing_what_is_advised_leaves_no_survivor(desk: Desk) -> None:
    """The advice of a case is applied, all of it, and then nothing survives."""
    path = desk.case("loose_001", LOOSE)
    found = json.loads(desk.run("mutate", "--format", "json").out)
    data: dict[str, Any] = load(path.read_bytes(), "x")
    calls = [{"function_name": name} for name in ("check", "open")]
    expected: dict[str, Any] = {"expected_function_calls": calls}
    from evalkit.hosts.casecheck.mutation_score import add_keys

    for survivor in found["cases"][0]["survivors"]:
        number = survivor["place"].partition("[")[2].rstrip("]")
        if number:
            calls[int(number)] = add_keys(calls[int(number)], survivor["keys"])
        else:
            expected = add_keys(expected, survivor["keys"])
    path.write_text(dump({**data, "expected_output": {**expected, "expected_function_calls": calls}}), "utf-8")
    assert desk.run("mutate").lines == ["mutation score 100.0 % (20 of 20 mutants of 1 case)"]


@pytest.mark.parametrize(
    ("least", "status", "says"), [("40", 0, "met: at least 40 %"), ("61", 1, "MISSED: at least 61 %")]
)
def test_the_score_gates(desk: Desk, least: str, status: int, says: str) -> None:
    desk.case("loose_001", LOOSE)
    result = desk.run("mutate", "--min-score", least)
    assert result.status == status
    assert result.lines[-1] == f"mutation score 60.0 % (12 of 20 mutants of 1 case), {says}"


def test_cases_that_fail_are_not_probed_and_nothing_measured_is_told_apart(desk: Desk) -> None:
    desk.case("failing_001", "  expected_function_calls: []\n")
    desk.case("broken_001", "  expected_calls: []\n")
    result = desk.run("mutate")
    assert result.status == 6
    assert [line.partition(";")[0] for line in result.lines] == [
        "scenarios/broken_001.yaml: not probed",
        "scenarios/failing_001.yaml: not probed",
        "mutation score NOT MEASURED: no case passed, so that nothing could be perturbed",
    ]


def test_kinds_can_be_left_out(desk: Desk) -> None:
    desk.case("loose_001", LOOSE)
    kinds = ("change_argument", "drop_argument", "add_argument", "change_response", "lose_fact")
    result = desk.run("mutate", *(word for kind in kinds for word in ("--without", kind)))
    assert result.lines == ["mutation score 100.0 % (9 of 9 mutants of 1 case)"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ("--without", "swap_call"),
            "evalkit: --without swap_call: no such kind of mutant; did you mean 'swap_calls'?",
        ),
        (("--min-score", "0.9"), "evalkit: --min-score: 0.9 is in percent, and 0.9 % is hardly meant; write 90"),
        (("nowhere",), "evalkit: nowhere: no such file or folder"),
    ],
)
def test_usage_errors_exit_with_4(desk: Desk, arguments: tuple[str, ...], says: str) -> None:
    result = desk.run("mutate", *arguments)
    assert (result.status, result.err.strip()) == (4, says)


def test_every_kind_of_mutant_is_made(desk: Desk) -> None:
    """The table of kinds, which the command line checks against, is the list of what there is."""
    path = desk.case("loose_001", LOOSE + "  forbidden_function_calls: [other]\n")
    head = path.read_text("utf-8").replace("open: {", "other: {x: 1}\n    open: {")
    path.write_text(head, "utf-8")
    observed = observe(load_case(path, root=desk.root), settings=Settings(root=desk.root))
    observed = answered_by_the_application(observed)
    transcript = observed.verdict.transcript
    approved = replace(transcript.calls[0], features={"approvals": {"answer": "approved"}})
    of_agents = replace(
        transcript,
        calls=(approved, *transcript.calls[1:]),
        features={"handoffs": [{"source": "desk", "target": "billing"}]},
    )
    observed = replace(observed, verdict=replace(observed.verdict, transcript=of_agents))
    assert {mutant.kind for mutant in generate_mutants(observed)} == set(list_kinds())


@pytest.mark.parametrize(
    ("forbidden", "made"),
    [
        ("[drop, {function_name: open, arguments_contain: {priority: {$starts_with: hi}}}]", 2),
        ("{function_name: wipe, arguments_contain: {what: {all: true}}}", 1),
        ("[{function_name: mail, arguments_contain: {to: '{{ calls.check.result.ends }}'}}]", 0),
    ],
)
def test_what_a_case_forbids_is_tried_and_caught(desk: Desk, forbidden: str, made: int) -> None:
    """Also where other calls are allowed; arguments that only the run knows are left out."""
    (desk.root / "scenarios" / "suite.yaml").unlink()  # nothing is declared, so that any name may be forbidden
    path = desk.case("loose_001", LOOSE + f"  extra_calls: allow\n  forbidden_function_calls: {forbidden}\n")
    observed = observe(load_case(path, root=desk.root), settings=Settings(root=desk.root))
    tried = [mutant for mutant in generate_mutants(observed) if mutant.kind == "forbidden_call"]
    assert (observed.verdict.status, len(tried)) == ("passed", made)
    assert "forbidden_call" not in {survivor.kind for survivor in compute_score(observed).survivors}


def test_a_case_that_does_not_judge_calls_is_told_to_list_them(desk: Desk) -> None:
    path = desk.case("silent_001", "  response_contains: TKT-7\n")
    found = compute_score(observe(load_case(path, root=desk.root), settings=Settings(root=desk.root)))
    dropped = next(survivor for survivor in found.survivors if survivor.kind == "drop_call")
    assert (dropped.place, dropped.keys) == ("expected_output", {"expected_function_calls": ["check", "open"]})


def test_usage_errors_are_of_their_class() -> None:
    from evalkit.cli.case_checks import score_cases

    with pytest.raises(UsageError):
        score_cases((), ("nothing",))
