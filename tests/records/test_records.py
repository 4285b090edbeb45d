"""Records: JSON both ways, versions, the registry, and names that were meant."""

from __future__ import annotations

import json
import pickle
from datetime import date
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from evalkit.errors import (
    Location,
    Problem,
    SpecError,
    UsageError,
    did_you_mean,
    find_misspelled,
    find_nearest,
    format_path,
)
from evalkit.records.case import Declaration
from evalkit.records.registry import Registry
from evalkit.records.run import Run
from evalkit.records.settings import Settings
from evalkit.records.transcript import (
    FunctionCall,
    ModelCall,
    ModelRequest,
    ModelTurn,
    RunFault,
    Timing,
    Transcript,
    Usage,
    Violation,
)
from evalkit.records.verdict import CallVerdict, CheckResult, Reason, Score, Verdict

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
CHECK = Declaration(name="check", description="Looks up", parameters=SCHEMA)
CALL = FunctionCall(
    name="check_warranty",
    arguments={"serial_number": "SN1", "n": [1, 2.5, None, True]},
    outcome="error",
    result={"error": {"type": "timeout", "message": "late"}},
    turn=0,
    channel="native",
    violations=(Violation(path=("n", 0), schema_path=("properties", "n"), message="no"),),
    repairs=("closed a brace",),
)
TRANSCRIPT = Transcript(
    input={"message": "hi"},
    calls=(CALL,),
    turns=(ModelTurn(text="x", calls=(ModelCall(name="a"),), usage=Usage(input_tokens=3), raw={"k": [1]}),),
    response="bye",
    stop_reason="deadline",
    fault=RunFault(code="deadline", message="60 s", measured=True),
    usage=Usage(input_tokens=3),
    timing=Timing(model_ms=1.5, overhead_ms=2.0),
)
VERDICT = Verdict(
    case_id="scenarios/a_1.yaml",
    status="failed",
    reasons=(Reason(code="wrong_argument", message="m", path=("a", 1), expected=1, actual="1", call=0),),
    calls=(CallVerdict(call=CALL, status="failed", results=(CheckResult(check="arguments", status="failed"),)),),
    transcript=TRANSCRIPT,
    score=Score(precision=0.5),
    runs=(Verdict(status="not_run"),),
)


def test_a_verdict_survives_json() -> None:
    assert Verdict.from_json(json.loads(json.dumps(VERDICT.to_json()))) == VERDICT


def test_whatever_an_agent_passed_has_json() -> None:
    """Arguments come from code, too: dates, NaN, cycles. Strict JSON, which `from_json` reads."""
    cycle: dict[str, Any] = {}
    cycle["self"] = cycle
    call = FunctionCall(name="f", arguments={"when": date(2026, 1, 18), "nan": float("nan"), "cycle": cycle, 7: b"x"})
    data = Verdict(case_id="a", transcript=Transcript(calls=(call,)), status="passed").to_json()
    assert json.loads(json.dumps(data, allow_nan=False))["transcript"]["calls"][0]["arguments"] == {
        "when": "datetime.date(2026, 1, 18)",
        "nan": "nan",
        "cycle": {"self": "…"},
        "7": "b'x'",
    }
    assert Verdict.from_json(data).case_id == "a"


@pytest.mark.parametrize("empty", [{}, [], "", 0, False, None])
def test_an_empty_result_is_not_no_result(empty: object) -> None:
    call = FunctionCall(name="check", arguments=empty, result=empty)
    reason = Reason(code="wrong_result", message="", expected=empty, actual=empty)
    verdict = Verdict(reasons=(reason,), transcript=Transcript(input=empty, calls=(call,)), status="passed")
    again = Verdict.from_json(json.loads(json.dumps(verdict.to_json())))
    assert again == verdict
    assert repr(again) == repr(verdict), "and False is not 0"


def test_a_run_survives_json() -> None:
    run = Run(verdicts=(VERDICT,), collected=3, selected=("scenarios/a_1.yaml",))
    assert Run.from_json(json.loads(json.dumps(run.to_json()))) == run


def test_the_json_of_a_verdict_names_every_field_even_at_its_default() -> None:
    """Readers in other languages do not know our defaults."""
    assert Verdict(status="passed").to_json()["status"] == "passed"
    assert Verdict(status="passed").to_json()["reasons"] == []


@pytest.mark.parametrize(("record", "word"), [(Transcript, "transcript"), (Run, "run file")])
def test_a_version_that_is_not_ours_is_refused(record: Any, word: str) -> None:
    with pytest.raises(UsageError, match=f"{word} version 99 is newer than 2, the last that this evalkit reads"):
        record.from_json({"version": 99})


def test_keys_of_a_newer_file_are_ignored() -> None:
    assert Verdict.from_json({"status": "failed", "from_the_future": 1}).status == "failed"


def test_a_spec_error_lists_every_problem_and_survives_pickling() -> None:
    error = SpecError([Problem(Location("a.yaml", 3, 5), "one"), Problem(Location("a.yaml"), "two", "no_expectation")])
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "a.yaml:3:5: one\na.yaml: two"
    assert copy.problems == error.problems
    assert copy.code == "invalid_case"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("argument_contain", "arguments_contain"),
        ("Arguments-Contain", "arguments_contain"),
        ("tool_search", "search"),
        ("zzz", None),
        ("", None),
        (5, None),
    ],
)
def test_the_nearest_name_is_the_one_that_was_meant(name: object, found: str | None) -> None:
    assert find_nearest(name, ["arguments", "arguments_contain", "search"]) == found
    assert did_you_mean(name, ["arguments", "arguments_contain", "search"]) == (
        f"; did you mean '{found}'?" if found else ""
    )


@pytest.mark.parametrize(
    ("name", "found"), [("wrong_arg", "wrong_argument"), ("wrong_agen", "wrong_agent"), ("agent_wrong", None)]
)
def test_shortened_words_are_near(name: str, found: str | None) -> None:
    assert find_nearest(name, ["wrong_agent", "wrong_argument"]) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        *(
            ("delete_acount", "delete_account"),
            ("delte_account", "delete_account"),
            ("Delete_Accuont", "delete_account"),
        ),
        *(("get_user", None), ("set_users", None), ("delete_accounts", None), ("delete_my_account", None)),
        *(("step1_a", None), ("delete", None)),
    ],
)
def test_a_misspelled_name_differs_in_letters_of_one_word(name: str, found: str | None) -> None:
    assert find_misspelled(name, ["delete_account", "get_users", "step2_a"]) == found


def test_a_path_is_shown_as_people_write_it() -> None:
    assert format_path(("calls", 1, "arguments", "odd name", "$eq")) == "calls[1].arguments['odd name'].$eq"


def first() -> None: ...


def second() -> None: ...


def test_the_same_function_registers_again_and_another_is_refused_with_both_places() -> None:
    table = Registry("agent")
    table.build_decorator("a", threads=2)(first)
    table.add("a", first, threads=3)
    found = table.find("a")
    assert found is not None
    assert found.options == {"threads": 3}
    with pytest.raises(UsageError) as caught:
        table.add("a", second)
    message = str(caught.value)
    assert message.startswith("agent 'a' is registered twice: ")
    assert ":first (" in message
    assert ":second (" in message
    assert message.endswith("; rename one of them")


def test_a_name_is_required() -> None:
    with pytest.raises(UsageError, match=r"evalkit.check\(...\) needs a name, got None"):
        Registry("check").build_decorator(None)(first)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"deadline_s": "5"}, "Settings(deadline_s=...) is a number of seconds above 0, got '5'"),
        ({"deadline_s": 0}, "Settings(deadline_s=...) is a number of seconds above 0, got 0"),
        ({"deadline_s": float("nan")}, "Settings(deadline_s=...) is a number of seconds above 0, got nan"),
        ({"max_iterations": 0}, "Settings(max_iterations=...) is a whole number from 1, got 0"),
        ({"max_iterations": 2.5}, "Settings(max_iterations=...) is a whole number from 1, got 2.5"),
    ],
)
def test_settings_that_make_no_sense_are_a_usage_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Settings(**given)
    assert str(caught.value) == message


def test_folders_in_settings_may_be_texts() -> None:
    settings = Settings(**cast("Any", {"root": "project", "mocks": "m", "cassettes": "c"}))
    assert (settings.root, settings.mocks, settings.cassettes) == (Path("project"), Path("m"), Path("c"))


@pytest.mark.parametrize(
    "written",
    [
        CHECK,
        {"name": "check", "description": "Looks up", "parameters": SCHEMA},
        {"type": "function", "function": {"name": "check", "description": "Looks up", "parameters": SCHEMA}},
    ],
    ids=["declaration", "mapping", "tool"],
)
def test_a_request_takes_functions_as_people_write_them(written: Any) -> None:
    request = ModelRequest("Be brief.", ({"role": "user", "text": "Hi"},), [written])  # type: ignore[arg-type]
    assert request.functions == (CHECK,)
    assert request.system == "Be brief."
    assert replace(request, seed=1).functions == (CHECK,)
    assert ModelRequest(functions=["now"]).functions == (Declaration(name="now"),)  # type: ignore[arg-type]


@pytest.mark.parametrize("written", [5, None, {}, {"name": 5}, {"function": {"name": None}}])
def test_what_declares_no_function_is_a_usage_error(written: Any) -> None:
    with pytest.raises(UsageError) as caught:
        ModelRequest(functions=(written,))
    assert str(caught.value) == f"a function is declared as {{name, description, parameters}}, got {written!r}"


def test_a_call_is_read_by_key_too() -> None:
    call = ModelCall(name="check", arguments={"n": 1})
    assert (call["name"], call["arguments"], call["call_id"]) == ("check", {"n": 1}, None)
    assert ("name" in call, "nmae" in call, call.get("channel"), call.get("nmae", 5)) == (True, False, "native", 5)
    assert list(call) == list(call.keys())
    assert dict(call)["arguments"] == {"n": 1}
    with pytest.raises(KeyError):
        call["nmae"]
