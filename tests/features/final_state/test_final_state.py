"""The state at the end of a run: mocks change it by rules or in Python, a probe reads a real one, a case judges it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.errors import FunctionError, SpecError
from evalkit.features.html.page import render_page
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.mocks.reader import parse_mocks
from evalkit.gate.decision import decide
from evalkit.hosts.casecheck.mutants import observe
from evalkit.hosts.casecheck.mutation_score import compute_score
from evalkit.hosts.casecheck.smoke import run_smoke_check
from evalkit.hosts.reports.finished import ReportInput
from evalkit.hosts.reports.trace import render_trace
from evalkit.records.case import Declaration, Permissions
from evalkit.records.run import Policy, Run
from evalkit.records.settings import Settings
from evalkit.records.transcript import ModelCall, Transcript
from evalkit.spec.load import case_from_dict, load_case

ORDERS = {"orders": {"A-1": {"status": "paid", "log": []}, "A-2": {"status": "sent", "log": ["x"]}}}
MOCKS = {
    "cancel": {
        "$match": [
            {
                "when_state": {"orders.{{ arguments.id }}.status": "paid"},
                "$set": {"orders.{{ arguments.id }}.status": "cancelled"},
                "$push": {"orders.{{ arguments.id }}.log": {"by": "{{ arguments.by }}"}},
                "$return": {"now": "{{ state.orders }}"},
            }
        ],
        "$default": {"$error": "not_cancellable"},
    },
    "drop": {"$remove": ["orders.{{ arguments.id }}"], "$return": True},
}


def case(expected: dict[str, Any], **keys: Any) -> evalkit.Case:
    data = {"message": "x", "state": ORDERS, "mock_function_responses": MOCKS, **keys}
    return case_from_dict({"agent": "a", "input": data, "expected_output": expected})


def run(expected: dict[str, Any], *calls: tuple[str, dict[str, Any]], **keys: Any) -> evalkit.Verdict:
    def agent(task: evalkit.Task) -> str:
        assert "state" not in task.input
        for name, arguments in calls:
            try:
                task.call(name, **arguments)
            except FunctionError as error:
                return str(error)
        return "done"

    return evalkit.run_case(case(expected, **keys), agent)


CANCEL = ("cancel", {"id": "A-1", "by": "ana"})
CANCELLED = {"status": "cancelled", "log": [{"by": "ana"}]}


def test_any_way_to_the_right_state_passes() -> None:
    expected = {"state": {"orders": {"A-1": CANCELLED, "A-2": {"status": {"$any": True}, "log": ["x"]}}}}
    verdict = run(expected, CANCEL)
    assert verdict.status == "passed", verdict.reasons
    assert verdict.transcript.state["orders"]["A-1"] == CANCELLED
    assert verdict.transcript.calls[0].result["now"]["A-1"] == CANCELLED
    assert verdict.transcript.calls[0].mock_rule == "$match[0]"
    assert run(expected, CANCEL, CANCEL).status == "passed"
    assert run({"state_contains": {"orders": {"A-1": {"status": "cancelled"}}}}, CANCEL).status == "passed"
    assert run({"state": {"orders": {"A-1": ORDERS["orders"]["A-1"]}}}, ("drop", {"id": "A-2"})).status == "passed"


def test_another_state_fails_and_the_difference_is_shown() -> None:
    verdict = run({"state_contains": {"orders": {"A-1": {"status": "cancelled", "log": {"$len": 1}}}}})
    assert verdict.status == "failed"
    assert [(reason.code, reason.message) for reason in verdict.reasons] == [
        ("state_mismatch", 'state.orders.A-1.status: expected "cancelled", got "paid"'),
        ("state_mismatch", "state.orders.A-1.log: expected a length that is 1, got length 0: []"),
    ]
    trace = render_trace(verdict)
    assert 'the state at the end: {"orders": {"A-1": {"status": "paid"' in trace
    assert Transcript.from_json(json.loads(json.dumps(verdict.transcript.to_json()))).state == ORDERS


def test_the_state_of_one_run_is_not_that_of_the_next() -> None:
    made = case({"state_contains": {"orders": {"A-1": {"log": {"$len": 1}}}}})

    def agent(task: evalkit.Task) -> None:
        task.call("cancel", id="A-1", by="ana")

    assert [evalkit.run_case(made, agent).status for _ in range(2)] == ["passed", "passed"]
    assert made.input["state"] == ORDERS


def test_without_a_state_it_cannot_be_judged() -> None:
    made = case_from_dict({"agent": "a", "input": {"message": "x"}, "expected_output": {"state": {"a": 1}}})
    verdict = evalkit.run_case(made, lambda task: "done")
    assert (verdict.status, verdict.reasons[0].code) == ("error", "not_measured")
    assert "the run has no state; declare input.state, or input.state_probe" in verdict.reasons[0].message
    assert verdict.transcript.state is None
    assert evalkit.judge({"state": {}}, []).status == "error"


def answers(mocks: dict[str, Any], state: dict[str, Any]) -> Callable[..., Any]:
    parsed, problems = parse_mocks(mocks)
    assert problems == []
    dispatcher = FakeDispatcher(parsed, state=state)
    return lambda name, **arguments: dispatcher.call(name, arguments)


@pytest.mark.parametrize(
    ("rule", "arguments", "expected"),
    [
        ({"$set": {"a": 2}}, {}, {"a": 2, "l": [1, 2]}),
        ({"$set": {"new": {"x": "{{ arguments.n }}"}}}, {"n": 5}, {"a": 1, "l": [1, 2], "new": {"x": 5}}),
        ({"$set": {"l[0]": 9}}, {}, {"a": 1, "l": [9, 2]}),
        ({"$set": {"l.{{ arguments.n }}": 9}}, {"n": 1}, {"a": 1, "l": [1, 9]}),
        ({"$set": {"['odd name']": "{{ state.a }}"}}, {}, {"a": 1, "l": [1, 2], "odd name": 1}),
        ({"$set": {"7": "{{ arguments.n }}"}}, {"n": "{{ state.a }}"}, {"a": 1, "l": [1, 2], "7": "{{ state.a }}"}),
        ({"$push": {"l": 3}}, {}, {"a": 1, "l": [1, 2, 3]}),
        ({"$push": {"new": {"$literal": "{{ x }}"}}}, {}, {"a": 1, "l": [1, 2], "new": ["{{ x }}"]}),
        ({"$remove": "a"}, {}, {"l": [1, 2]}),
        ({"$remove": ["a", "l[0]"]}, {}, {"l": [2]}),
        ({"$remove": {"l": {"$gt": 1}}}, {}, {"a": 1, "l": [1]}),
        ({"$remove": {"l": "{{ arguments.n }}"}}, {"n": 2}, {"a": 1, "l": [1]}),
        ({"$set": {"a": 0}, "$push": {"l": "{{ state.a }}"}}, {}, {"a": 0, "l": [1, 2, 0]}),
    ],
)
def test_a_rule_changes_the_state(rule: dict[str, Any], arguments: dict[str, Any], expected: Any) -> None:
    state: dict[str, Any] = {"a": 1, "l": [1, 2]}
    call = answers({"f": {**rule, "$return": "ok"}}, state)
    assert call("f", **arguments) == "ok"
    assert state == expected


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"$set": {"b.c": 1}}, "$set b.c leads nowhere in the state: there is no 'b'; a rule with 'when_state' can"),
        ({"$set": {"item.x": 1}}, "there is no 'item'; did you mean 'items'?; a rule"),
        ({"$push": {"items": 1}}, "$push items: there is a mapping, not a list"),
        ({"$remove": "b"}, "$remove b leads nowhere in the state: there is no 'b'"),
        ({"$set": {"l[5]": 1}}, "$set l[5] leads nowhere in the state: there is no '5'"),
        ({"$set": {"items.{{ state.l }}": 1}}, "{{ state.l }} is [1], and a step of a path is a text or a"),
        ({"$set": {"a": "{{ calls.g.result }}"}}, "template {{ calls.g.result }} leads nowhere: g has not succeeded"),
    ],
)
def test_a_change_that_leads_nowhere_breaks_the_mock(rule: dict[str, Any], message: str) -> None:
    parsed, _ = parse_mocks({"f": {**rule, "$return": 1}, "g": 1})
    dispatcher = FakeDispatcher(parsed, state={"items": {}, "l": [1]})
    with pytest.raises(evalkit.EvalkitError, match="the mock of f can't change the state: ") as raised:
        dispatcher.call("f", {"n": 1.5})
    assert message in str(raised.value)
    assert dispatcher.fault is not None


@pytest.mark.parametrize("value", [True, 1.5, None, [1], {"a": 1}], ids=str)
@pytest.mark.parametrize(
    "rule",
    [{"$set": {"items.{{ arguments.n }}": 1}}, {"$return": "{{ state.items[arguments.n] }}"}],
    ids=["set", "read"],
)
def test_an_argument_that_is_no_step_of_a_path_is_the_agents_mistake(rule: dict[str, Any], value: object) -> None:
    async def agent(task: evalkit.Task) -> str:
        with suppress(FunctionError):
            await task.acall("f", n=value)
        return "done"

    data = {
        "input": {"message": "x", "state": {"items": {}}, "mock_function_responses": {"f": {"$return": 1, **rule}}},
        "expected_output": {"expected_function_calls": ["f"]},
    }
    verdict = evalkit.run_case(evalkit.case_from_dict(data), agent)
    assert (verdict.status, verdict.reasons[0].code) == ("failed", "wrong_outcome")
    assert "f does not take these arguments: " in str(verdict.transcript.calls[0].result)


@pytest.mark.parametrize(
    ("condition", "arguments", "fits"),
    [
        ({"a": 1}, {}, True),
        ({"a": 2}, {}, False),
        ({"o.x": {"y": 1}}, {}, True),
        ({"o": {"x": {"y": {"$gt": 1}}}}, {}, False),
        ({"o.z": {"$absent": True}}, {}, True),
        ({"o.x": {"$absent": True}}, {}, False),
        ({"l[1]": 2, "a": 1}, {}, True),
        ({"l[2]": {"$any": True}}, {}, False),
        ({"o.{{ arguments.k }}.y": 1}, {"k": "x"}, True),
        ({"o.{{ arguments.k }}.y": 1}, {}, False),
        ({"a": "{{ arguments.n }}"}, {"n": 1}, True),
    ],
)
def test_when_state_decides(condition: dict[str, Any], arguments: dict[str, Any], fits: bool) -> None:
    rule = {"when_state": condition, "$return": True}
    call = answers({"f": {"$match": [rule], "$default": False}}, {"a": 1, "o": {"x": {"y": 1, "z": 2}}, "l": [1, 2]})
    assert call("f", **arguments) is fits


def test_a_rule_may_have_both_conditions() -> None:
    rule = {"when": {"n": 1}, "when_state": {"a": 1}, "$set": {"a": 2}, "$return": True}
    call = answers({"f": {"$match": [rule], "$default": False}}, {"a": 1})
    assert [call("f", n=2), call("f", n=1), call("f", n=1)] == [False, True, False]


def test_the_calls_of_one_turn_see_the_changes_of_those_before() -> None:
    mocks = {
        "take": {
            "$match": [{"when_state": {"left": 1}, "$set": {"left": 0}, "$return": "{{ state.left }}"}],
            "$default": {"$error": "empty"},
        },
        "slow": {"$call": f"{__name__}:wait_and_see"},
    }
    parsed, problems = parse_mocks(mocks)
    assert problems == []
    dispatcher = FakeDispatcher(parsed, state={"left": 1})
    calls = [ModelCall(name=name, arguments={}) for name in ("slow", "take", "take")]
    results: list[Any] = [result for _, result in asyncio.run(dispatcher.acall_batch(calls, turn=0))]
    assert results[:2] == ["waited", 0]
    assert results[2]["error"]["type"] == "empty"


async def wait_and_see() -> str:
    await asyncio.sleep(0)
    return "waited"


def add_note(state: dict[str, Any], text: str) -> str:
    state["notes"].append(text)
    return text


def test_python_changes_the_state_too() -> None:
    mocks = {"note": {"$call": f"{__name__}:add_note"}}
    keys = {"state": {"notes": []}, "mock_function_responses": mocks}
    assert run({"state": {"notes": ["hi"]}}, ("note", {"text": "hi"}), **keys).status == "passed"


def add_object(state: dict[str, Any]) -> None:
    state["notes"].append(object())


def test_a_state_that_is_no_json_is_warned_of() -> None:
    keys = {"state": {"notes": []}, "mock_function_responses": {"note": {"$call": f"{__name__}:add_object"}}}
    [warning] = run({"state_contains": {}, "stop_reason": "completed"}, ("note", {}), **keys).warnings
    assert warning.startswith("the state is not JSON: ")


@pytest.mark.parametrize(
    ("mocks", "message"),
    [
        ({"$set": {"a b": 1}, "$return": 1}, 'a path into the state is written as orders.A-17.status, got "a b"'),
        ({"$set": {".a": 1}, "$return": 1}, 'a path into the state is written as orders.A-17.status, got ".a"'),
        (
            {"$set": "a", "$return": 1},
            '$set must be a mapping of paths into the state to values, {orders.A-17.status: paid}, got "a"',
        ),
        ({"$set": {}, "$return": 1}, "$set must be a mapping of paths into the state to values"),
        ({"$set": {"a": "{{ argument.x }}"}, "$return": 1}, "did you mean 'arguments'?"),
        ({"$set": {"a.{{ argument.x }}": 1}, "$return": 1}, "did you mean 'arguments'?"),
        ({"$remove": {"a": {"$gtx": 1}}, "$return": 1}, "$gtx"),
        ({"$remove": 5, "$return": 1}, "a path into the state is written as orders.A-17.status, got 5"),
        ({"$set": {"a": 1}}, "f has no answer beside '$set'; add one of $return"),
        (
            {"$set": {"a": 1}, "$error": "timeout"},
            "a function that fails changes nothing: '$error' and changes exclude",
        ),
        (
            {"$match": [{"when_state": 5, "$return": 1}]},
            "when_state must be a mapping of paths into the state to values, {orders.A-17.status: paid}, got 5",
        ),
        ({"$match": [{"when_stat": {}, "$return": 1}]}, "did you mean 'when_state'?"),
        ({"$sett": {"a": 1}, "$return": 1}, "did you mean '$set'?"),
    ],
)
def test_a_rule_that_is_wrong_is_a_problem_of_the_file(mocks: dict[str, Any], message: str) -> None:
    _, problems = parse_mocks({"f": mocks})
    assert message in problems[0].message


def test_a_user_turn_has_no_state_of_its_own() -> None:
    turns = [{"user": "x", "expected_output": {"state": {}}}]
    data = {"agent": "a", "input": {"turns": turns, "state": {}}, "expected_output": {"state": {}}}
    with pytest.raises(SpecError, match="state is measured over the whole run; write it in the case's own"):
        case_from_dict(data)


def test_smoke_makes_the_expected_calls_and_judges_the_state() -> None:
    calls = [{"function_name": "cancel", "arguments": {"id": "A-1", "by": "ana"}}]
    good = {"expected_function_calls": calls, "state_contains": {"orders": {"A-1": {"status": "cancelled"}}}}
    assert run_smoke_check(case(good), None, {}).findings == ()
    bad = {"expected_function_calls": calls, "state_contains": {"orders": {"A-1": {"status": "lost"}}}}
    (finding,) = run_smoke_check(case(bad), None, {}).findings
    assert finding.code == "state_mismatch"
    alone = run_smoke_check(case({"state": {"orders": {}}}), None, {})
    assert (alone.findings, alone.not_checked) == ((), ("expected_output.state: only a run can tell",))


def test_mutants_are_played_through_the_mocks_to_find_their_state() -> None:
    def agent(task: evalkit.Task) -> None:
        task.call("cancel", id="A-1", by="ana")

    expected = {"state_contains": {"orders": {"A-1": CANCELLED}}, "extra_calls": "allow"}
    score = compute_score(observe(case(expected), agent, Settings()))
    assert "cancel is not called" not in [survivor.description for survivor in score.survivors]
    loose = {"state_contains": {"orders": {"A-2": {"status": "sent"}}}}
    score = compute_score(observe(case(loose), agent, Settings()))
    assert "cancel is not called" in [survivor.description for survivor in score.survivors]


def test_the_html_report_shows_it() -> None:
    verdict = run({"state_contains": {"orders": {"A-1": {"status": "cancelled"}}}}, CANCEL)
    pages = Run(verdicts=(verdict,))
    assert "state at the end" in "".join(render_page(ReportInput(run=pages, decision=decide(pages, Policy()))))


# ---- probes ----


def read_shop(task: evalkit.Task, input: dict[str, Any]) -> Any:
    if task.state.get("raise"):
        raise ValueError("no shop")
    return {"sold": task.state.get("sold", 0), "asked": input["message"]}


async def read_later(task: evalkit.Task) -> Any:
    await asyncio.sleep(0)
    return {"sold": task.state["sold"]}


def read_in_vain() -> Any:
    raise TimeoutError("the shop does not answer")


def read_nothing() -> None:
    """A probe that lacks its `return`."""


ONE_SHOP: dict[str, str] = {}


def open_shop_anew(task: evalkit.Task) -> str:
    ONE_SHOP.clear()
    ONE_SHOP["sold"] = task.message
    return "sold"


async def read_one_shop() -> dict[str, str]:
    await asyncio.sleep(0.01)
    return dict(ONE_SHOP)


def read_slowly() -> Any:
    import time

    time.sleep(1)


def probe(tmp_path: Path, probe: Any, expected: Any, agent: Callable[[evalkit.Task], Any], **settings: Any) -> Any:
    data = {
        "agent": "a",
        "input": {"message": "x", "state_probe": probe},
        "expected_output": {"state": expected},
        "settings": settings,
    }
    return evalkit.run_case(case_from_dict(data, root=tmp_path), agent, Settings(root=tmp_path))


def sell(task: evalkit.Task) -> str:
    task.state["sold"] = 2
    return "sold"


def test_a_callable_reads_the_state_once_the_agent_has_ended(tmp_path: Path) -> None:
    verdict = probe(tmp_path, {"$call": f"{__name__}:read_shop"}, {"sold": 2, "asked": "x"}, sell)
    assert verdict.status == "passed", verdict.reasons
    assert verdict.transcript.state == {"sold": 2, "asked": "x"}
    assert probe(tmp_path, {"$call": f"{__name__}:read_later"}, {"sold": 2}, sell).status == "passed"
    assert probe(tmp_path, {"$call": f"{__name__}:read_later"}, {"sold": 3}, sell).status == "failed"


def test_the_probe_of_a_sync_agent_reads_before_the_next_run_begins(tmp_path: Path) -> None:
    """Sync agents run one at a time, and may share a system: each run sets it up anew."""
    agent = evalkit.agent("clerk-of-one-shop")(open_shop_anew)
    cases = [
        case_from_dict(
            {
                "agent": "a",
                "input": {"message": str(number), "state_probe": {"$call": f"{__name__}:read_one_shop"}},
                "expected_output": {"state": {"sold": str(number)}},
            },
            root=tmp_path,
        )
        for number in range(8)
    ]

    async def run_all() -> list[evalkit.Verdict]:
        return await asyncio.gather(*(evalkit.arun_case(made, agent, Settings(root=tmp_path)) for made in cases))

    assert [verdict.status for verdict in asyncio.run(run_all())] == ["passed"] * 8


def test_a_run_that_broke_off_has_no_state_to_read(tmp_path: Path) -> None:
    def give_up(task: evalkit.Task) -> str:
        raise ValueError("no shop")

    verdict = probe(tmp_path, {"$call": f"{__name__}:read_shop"}, {}, give_up)
    assert [(reason.code, reason.message) for reason in verdict.reasons][1] == (
        "not_measured",
        "state: can't be judged: the run broke off before its state was read",
    )


def test_a_probe_that_raises_or_hangs_is_an_error(tmp_path: Path) -> None:
    def break_shop(task: evalkit.Task) -> None:
        task.state["raise"] = True

    verdict = probe(tmp_path, {"$call": f"{__name__}:read_shop"}, {}, break_shop)
    assert (verdict.status, verdict.reasons[0].message) == (
        "error",
        f"state_probe {__name__}:read_shop raised ValueError: no shop",
    )
    verdict = probe(tmp_path, {"$call": f"{__name__}:read_slowly"}, {}, sell, deadline_s=0.2)
    assert verdict.status == "error"
    assert "read_slowly was still running after 0.2 s" in verdict.reasons[0].message
    verdict = probe(tmp_path, {"$call": f"{__name__}:read_in_vain"}, {}, sell)
    assert "read_in_vain raised TimeoutError: the shop does not answer" in verdict.reasons[0].message
    verdict = probe(tmp_path, {"$call": f"{__name__}:read_nothing"}, {}, sell)
    assert (verdict.status, verdict.reasons[0].code) == ("error", "mock_error")
    assert "read_nothing gave null; what it returns is the state" in verdict.reasons[0].message


@pytest.fixture
def database(tmp_path: Path) -> Path:
    connection = sqlite3.connect(tmp_path / "shop.sqlite")
    connection.execute("CREATE TABLE orders (id TEXT, total REAL)")
    connection.execute("INSERT INTO orders VALUES ('A-1', 5.5), ('A-2', 7)")
    connection.commit()
    connection.close()
    return tmp_path


def test_sql_reads_rows_of_sqlite(database: Path) -> None:
    rows = [{"id": "A-1", "total": 5.5}, {"id": "A-2", "total": 7}]
    query = "SELECT id, total FROM orders ORDER BY id"
    one = {"$sql": {"database": "shop.sqlite", "query": query}}
    assert probe(database, one, rows, sell).status == "passed"
    several = {
        "$sql": {"database": "shop.sqlite", "queries": {"orders": query, "n": "SELECT count(*) AS n FROM orders"}}
    }
    assert probe(database, several, {"orders": {"$len": 2}, "n": [{"n": 2}]}, sell).status == "passed"


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ({"database": "shop.sqlite", "query": "DELETE FROM orders"}, "DatabaseError: not authorized"),
        ({"database": "shop.sqlite", "query": "ATTACH '/tmp/x' AS x"}, "not authorized"),
        ({"database": "shop.sqlite", "query": "SELECT load_extension('x')"}, "not authorized"),
        ({"database": "shop.sqlite", "query": "PRAGMA user_version"}, "not authorized"),
        ({"database": "shop.sqlite", "query": "SELECT * FROM order"}, "query raised OperationalError: near"),
        (
            {"database": "shop.sqlite", "queries": {"n": "SELECT 1 AS one", "ids": "SELECT [98] FROM orders"}},
            'ids raised OperationalError: no such column: 98; it is "SELECT [98] FROM orders"',
        ),
        (
            {"database": "../shop.sqlite", "query": "SELECT 1"},
            "state_probe ../shop.sqlite: database ../shop.sqlite lies outside of the project",
        ),
        ({"database": "none.sqlite", "query": "SELECT 1"}, "state_probe none.sqlite: there is no database none.sqlite"),
        (
            {"database": "shop.sqlite", "query": "SELECT a.id, b.id FROM orders a, orders b"},
            "the query gives two columns 'id'; name one with AS",
        ),
        (
            {"database": "shop.sqlite", "query": "SELECT length(hex(zeroblob(9000000))) AS n"},
            "string or blob too big",
        ),
        (
            {
                "database": "shop.sqlite",
                "query": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n FROM r) SELECT max(n) FROM r",
            },
            "state_probe shop.sqlite",
        ),
    ],
)
def test_a_query_only_selects_inside_the_project(database: Path, sql: dict[str, str], message: str) -> None:
    verdict = probe(database, {"$sql": sql}, [], sell, deadline_s=0.5)
    assert verdict.status == "error"
    assert message in verdict.reasons[0].message


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        (
            "shop:read",
            "state_probe must be {$call: shop.database:read_orders}, or {$sql: {database: shop.sqlite, query: ",
        ),
        ({"$call": "nothing"}, "$call: 'nothing' does not name a Python object"),
        ({"$call": "no_such_module_x:f"}, "$call: there is no module 'no_such_module_x'"),
        (
            {"$sql": {"query": "SELECT 1"}},
            "$sql must be a mapping with 'database', a file inside the project, and 'query'",
        ),
        (
            {"$sql": {"database": "x", "querys": "SELECT 1"}},
            "unknown key 'querys' in input.state_probe.$sql; did you mean 'query'?",
        ),
        ({"$sql": {"db": "x", "query": "SELECT 1"}}, "unknown key 'db' in input.state_probe.$sql; known are"),
        ({"$sql": {"database": "x"}}, "$sql has a 'query', as text, or 'queries', a mapping of names to texts"),
    ],
)
def test_a_probe_that_is_wrong_is_a_problem_of_the_file(probe: Any, message: str) -> None:
    data = {"agent": "a", "input": {"message": "x", "state_probe": probe}, "expected_output": {"state": {}}}
    with pytest.raises(SpecError) as raised:
        case_from_dict(data)
    assert message in str(raised.value)


def test_a_file_may_name_a_probe_only_as_far_as_the_project_allows(tmp_path: Path, monkeypatch: Any) -> None:
    text = "agent: a\ninput: {message: x, state_probe: {$call: 'PROBE'}}\nexpected_output: {state: {}}\n"
    (tmp_path / "shop_probe.py").write_text("def read(): return {}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for target, untrusted, is_refused in (
        ("shop_probe:read", False, False),
        ("shop_probe:read", True, True),
        ("os:getcwd", False, True),
    ):
        (tmp_path / "a_001.yaml").write_text(text.replace("PROBE", target))
        settings = Settings(root=tmp_path, permissions=Permissions(untrusted=untrusted))
        if is_refused:
            with pytest.raises(SpecError, match="is refused"):
                load_case(tmp_path / "a_001.yaml", root=tmp_path, settings=settings)
        else:
            assert load_case(tmp_path / "a_001.yaml", root=tmp_path, settings=settings)
    sys.modules.pop("shop_probe", None)


def test_an_argument_names_a_step_of_a_path_into_the_state() -> None:
    """A rule reads what belongs to the order that the call names, also as a part of a change."""
    mocks = {
        "find": {"total": "{{ state.orders[arguments.order.id].total }}"},
        "item": "{{ state.orders.A-1.items[arguments.n] }}",
        "double": {"$set": {"seen": ["{{ state.orders[arguments.id].total }}"]}, "$return": "{{ state.seen }}"},
    }
    call = answers(mocks, {"orders": {"A-1": {"total": 7, "items": ["a", "b"]}}})
    assert call("find", order={"id": "A-1"}) == {"total": 7}
    assert call("item", n=1) == "b"
    assert call("double", id="A-1") == [7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ input[arguments.x] }}", "an argument can name a step of a path into the state alone"),
        ("{{ state.a[arguments] }}", "does not parse at '[arguments]'"),
        ("{{ state.a[arguments.y] }}", "f has no argument 'y' (known are x)"),
    ],
)
def test_a_step_that_an_argument_names_is_checked_at_load(text: str, message: str) -> None:
    declared = {"f": Declaration(name="f", parameters={"type": "object", "properties": {"x": {}}})}
    problems = parse_mocks({"f": text}, declarations=declared)[1]
    assert [message in problem.message for problem in problems] == [True], problems
