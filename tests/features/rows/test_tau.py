"""Other people's tasks as files of rows with an end state: what their own rule accepts passes, and nothing else.

The corpora hold tasks, expected calls and, for tau-bench, what the real service answered; the databases that these
benchmarks compare are not among them. So the state of each task is made of what there is. For tau-bench it is the
orders that the expected calls touch: as they were before, told from the answers, changed by the rules in
`tau_bench_001.yaml`, which say in YAML what the service's functions do, and compared with the last answer on each
order. What only products, users and balances tell is outside of it. For tau2 the state is the calls that were made,
since its rule is about calls: each expected one is equal to some call, in whatever is sent of its arguments.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice, permutations
from pathlib import Path
from typing import Any

import pytest

import evalkit
from evalkit.errors import FunctionError
from evalkit.spec.expansion import list_case_files
from evalkit.spec.load import load_case
from tests.conftest import CORPORA

Json = dict[str, Any]
Calls = list[Json]


def read_tasks(name: str) -> list[Json]:
    path = CORPORA / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the corpus {path.name} does not lie beside the checkout, in ../shared/corpora")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Suite:
    """A case file with rows in a project of its own, and the verdicts of its rows on calls."""

    def __init__(self, root: Path, name: str, case: str, rows: list[Json]) -> None:
        folder = root / "scenarios"
        folder.mkdir()
        self.file = folder / f"{name}_001.yaml"
        self.file.write_text(case, "utf-8")
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, "utf-8")
        self.root = root
        self.paths = list(list_case_files(str(self.file), str(root)))

    def load(self, number: int) -> Callable[[Calls], str]:
        """Return the function that gives the status of the row's case for calls."""
        case = load_case(self.paths[number], root=self.root)

        def judge(calls: Calls) -> str:
            def agent(task: evalkit.Task) -> str:
                for call in calls:
                    with suppress(FunctionError):  # what the service refuses, the agent is told
                        task.call(call["name"], **call["arguments"])
                return "done"

            return evalkit.run_case(case, agent=agent).status

        return judge


# tau-bench: what the functions of the retail desk do to an order. An order that the task does not know is somebody
# else's: whoever changes it changes the database.

TAU_BENCH = """\
description: "{{ row.id }}"
from: tau_bench.jsonl
input:
  message: "{{ row.message }}"
  state: {orders: "{{ row.orders }}", elsewhere: []}
  mock_function_responses:
    get_order_details: "{{ state.orders }}"
    cancel_pending_order:
      $match:
        - when_state: {"orders.{{ arguments.order_id }}.status": pending}
          $set:
            "orders.{{ arguments.order_id }}.status": cancelled
            "orders.{{ arguments.order_id }}.reason": "{{ arguments.reason }}"
          $return: cancelled
        - {when_state: {"orders.{{ arguments.order_id }}": {$any: true}}, $error: not_pending}
      $default: {$push: {elsewhere: "{{ arguments }}"}, $return: cancelled}
    modify_pending_order_address:
      $match:
        - when_state: {"orders.{{ arguments.order_id }}.status": pending}
          $set:
            "orders.{{ arguments.order_id }}.address":
              address1: "{{ arguments.address1 }}"
              address2: "{{ arguments.address2 }}"
              city: "{{ arguments.city }}"
              state: "{{ arguments.state }}"
              country: "{{ arguments.country }}"
              zip: "{{ arguments.zip }}"
          $return: modified
        - {when_state: {"orders.{{ arguments.order_id }}": {$any: true}}, $error: not_pending}
      $default: {$push: {elsewhere: "{{ arguments }}"}, $return: modified}
    modify_pending_order_payment:
      $match:
        - when_state: {"orders.{{ arguments.order_id }}.refused": {$contains: "{{ arguments }}"}}
          $error: insufficient_balance
        - when_state: {"orders.{{ arguments.order_id }}.payments[0]": "{{ arguments.payment_method_id }}"}
          $error: same_method
        - when_state:
            "orders.{{ arguments.order_id }}.status": pending
            "orders.{{ arguments.order_id }}.payments": {$len: 1}
          $set:
            "orders.{{ arguments.order_id }}.payments":
              - "{{ state.orders[arguments.order_id].payments[0] }}"
              - "{{ arguments.payment_method_id }}"
              - "{{ state.orders[arguments.order_id].payments[0] }}"
          $return: modified
        - {when_state: {"orders.{{ arguments.order_id }}": {$any: true}}, $error: not_pending}
      $default: {$push: {elsewhere: "{{ arguments }}"}, $return: modified}
    modify_pending_order_items:
      $match:
        - when_state: {"orders.{{ arguments.order_id }}.refused": {$contains: "{{ arguments }}"}}
          $error: insufficient_balance
        - when_state: {"orders.{{ arguments.order_id }}.status": pending}
          $set:
            "orders.{{ arguments.order_id }}.status": pending (item modified)
            "orders.{{ arguments.order_id }}.items":
              old: "{{ arguments.item_ids }}"
              new: "{{ arguments.new_item_ids }}"
          $push: {"orders.{{ arguments.order_id }}.payments": "{{ arguments.payment_method_id }}"}
          $return: modified
        - {when_state: {"orders.{{ arguments.order_id }}": {$any: true}}, $error: not_pending}
      $default: {$push: {elsewhere: "{{ arguments }}"}, $return: modified}
    exchange_delivered_order_items:
      $match:
        - when_state: {"orders.{{ arguments.order_id }}.refused": {$contains: "{{ arguments }}"}}
          $error: insufficient_balance
        - when_state: {"orders.{{ arguments.order_id }}.status": delivered}
          $set:
            "orders.{{ arguments.order_id }}.status": exchange requested
            "orders.{{ arguments.order_id }}.items":
              old: "{{ arguments.item_ids }}"
              new: "{{ arguments.new_item_ids }}"
            "orders.{{ arguments.order_id }}.method": "{{ arguments.payment_method_id }}"
          $return: exchanged
        - {when_state: {"orders.{{ arguments.order_id }}": {$any: true}}, $error: not_delivered}
      $default: {$push: {elsewhere: "{{ arguments }}"}, $return: exchanged}
    return_delivered_order_items:
      $match:
        - when_state: {"orders.{{ arguments.order_id }}.status": delivered}
          $set:
            "orders.{{ arguments.order_id }}.status": return requested
            "orders.{{ arguments.order_id }}.items": "{{ arguments.item_ids }}"
            "orders.{{ arguments.order_id }}.method": "{{ arguments.payment_method_id }}"
          $return: returned
        - {when_state: {"orders.{{ arguments.order_id }}": {$any: true}}, $error: not_delivered}
      $default: {$push: {elsewhere: "{{ arguments }}"}, $return: returned}
settings: {strict_mocks: false}
expected_output:
  state: {orders: "{{ row.expected }}", elsewhere: []}
"""


class Desk:
    """The same rules in Python, by which a perturbed list of calls is judged: does it lead to the same orders?"""

    def __init__(self, orders: Json) -> None:
        self.orders = json.loads(json.dumps(orders))
        self.elsewhere: Calls = []

    def call(self, name: str, arguments: Json) -> None:
        order = self.orders.get(arguments.get("order_id"))
        if name == "get_order_details":
            return
        if order is None:
            self.elsewhere.append(arguments)
        elif arguments not in order["refused"] and order["status"] == STATUS_BEFORE.get(name, "pending"):
            getattr(self, f"_{name}")(order, {key: value for key, value in arguments.items() if key != "order_id"})

    def _cancel_pending_order(self, order: Json, arguments: Json) -> None:
        order |= {"status": "cancelled", **arguments}

    def _modify_pending_order_address(self, order: Json, arguments: Json) -> None:
        order["address"] = arguments

    def _modify_pending_order_payment(self, order: Json, arguments: Json) -> None:
        method = arguments["payment_method_id"]
        if len(order["payments"]) == 1 and order["payments"][0] != method:
            order["payments"] = [order["payments"][0], method, order["payments"][0]]

    def _modify_pending_order_items(self, order: Json, arguments: Json) -> None:
        swaps = sorted(zip(arguments["item_ids"], arguments["new_item_ids"], strict=True))
        order |= {"status": "pending (item modified)", "swaps": swaps}
        order["payments"].append(arguments["payment_method_id"])

    def _exchange_delivered_order_items(self, order: Json, arguments: Json) -> None:
        swaps = sorted(zip(arguments["item_ids"], arguments["new_item_ids"], strict=True))
        order |= {"status": "exchange requested", "swaps": swaps, "method": arguments["payment_method_id"]}

    def _return_delivered_order_items(self, order: Json, arguments: Json) -> None:
        items = sorted(arguments["item_ids"])
        order |= {"status": "return requested", "items": items, "method": arguments["payment_method_id"]}


STATUS_BEFORE = dict.fromkeys(("exchange_delivered_order_items", "return_delivered_order_items"), "delivered")
PERTURBED = 4  # of so many tasks one is perturbed; of all of them, gold passes
CALLS_WITH_LISTS = ("modify_pending_order_items", "exchange_delivered_order_items")


def build_tau_bench_row(task: Json) -> Json:
    """The orders of a task before its calls, told from the answers, and as the service's last answer has them."""
    orders: Json = {}
    expected: Json = {}
    for call in task["expected"]:
        name, arguments, answer = call["name"], call["arguments"], call["response"]
        order_id = arguments["order_id"]
        status = STATUS_BEFORE.get(name, "pending")
        order = orders.setdefault(order_id, {"status": status, "payments": [], "refused": []})
        if not call["changes_state"]:
            order["refused"].append(arguments)
            continue
        history = [payment["payment_method_id"] for payment in answer["payment_history"]]
        added = {"modify_pending_order_payment": 2, "modify_pending_order_items": 1}.get(name, 0)
        if name == "cancel_pending_order":
            added = len(history) // 2
        order["payments"] = order["payments"] or history[: len(history) - added]
        final = expected.setdefault(order_id, {})
        final["status"] = answer["status"]
        if name == "cancel_pending_order":
            final["reason"] = answer["cancel_reason"]
        else:
            final["payments"] = history
        if name == "modify_pending_order_address":
            final["address"] = answer["address"]
        if name in STATUS_BEFORE:
            final["method"] = answer.get("return_payment_method_id") or answer["exchange_payment_method_id"]
        if name == "return_delivered_order_items":
            final["items"] = {"$unordered": answer["return_items"]}
        if name in CALLS_WITH_LISTS:  # pairs of an old item and a new one, in any order of the pairs
            pairs = list(zip(arguments["item_ids"], arguments["new_item_ids"], strict=True))
            named = {item["item_id"] for item in answer["items"]} | set(answer.get("exchange_new_items", ()))
            assert {new for _, new in pairs} <= named
            final["items"] = {
                "$one_of": [
                    {"old": [old for old, _ in order], "new": [new for _, new in order]}
                    for order in permutations(pairs)
                ]
            }
    for order_id, order in orders.items():
        final = expected.setdefault(order_id, {})
        expected[order_id] = {**order, **final}
    return {
        "id": task["id"].replace("tau-bench/retail/", ""),
        "message": task["user_instruction"],
        "orders": orders,
        "expected": expected,
    }


def perturb(calls: Calls) -> Iterator[tuple[str, Calls]]:
    """Yield the calls, and every way in which they are made a little differently."""
    yield "gold", calls
    yield "reversed", calls[::-1]
    yield "a look at an order", [{"name": "get_order_details", "arguments": {"order_id": "#W1"}}, *calls]
    foreign = {"name": "cancel_pending_order", "arguments": {"order_id": "#W1", "reason": "no longer needed"}}
    yield "an order of somebody else", [*calls, foreign]
    for index, call in enumerate(calls):
        yield "dropped call", calls[:index] + calls[index + 1 :]
        yield "call made twice", calls[: index + 1] + calls[index:]
        changes: list[tuple[str, Json]] = []
        lists = {name: value for name, value in call["arguments"].items() if isinstance(value, list)}
        if any(len(value) > 1 for value in lists.values()):
            changes.append(("lists reversed", {name: value[::-1] for name, value in lists.items()}))
            if len(lists) > 1:
                changes.append(("one list reversed", {"item_ids": lists["item_ids"][::-1]}))
        for name, value in call["arguments"].items():
            changed = [*value[:-1], f"{value[-1]}0"] if isinstance(value, list) else f"{value}0"
            changes.append(("wrong value", {name: changed}))
        for how, values in changes:
            other = {**call, "arguments": {**call["arguments"], **values}}
            yield how, [*calls[:index], other, *calls[index + 1 :]]


def test_tau_bench_tasks_end_in_the_state_of_their_gold_calls(tmp_path: Path) -> None:
    """Gold passes; what was changed passes where it leads to the same orders, and fails everywhere else."""
    tasks = read_tasks("taubench_cases")
    rows = [build_tau_bench_row(task) for task in tasks]
    suite = Suite(tmp_path, "tau_bench", TAU_BENCH, rows)
    assert len(suite.paths) == len(tasks)
    counts: Counter[tuple[str, str]] = Counter()
    wrong = []
    for number, (task, row) in enumerate(zip(tasks, rows, strict=True)):
        judge = suite.load(number)
        wanted = None
        candidates = perturb(task["expected"])
        for how, calls in candidates if number % PERTURBED == 0 else islice(candidates, 1):
            desk = Desk(row["orders"])
            for call in calls:
                desk.call(call["name"], call["arguments"])
            end = desk.orders, desk.elsewhere
            wanted = wanted or end
            status = judge(calls)
            counts[how, status] += 1
            if (status == "passed") != (end == wanted):
                wrong.append((row["id"], how, status))
    assert wrong == []
    assert counts == {
        ("gold", "passed"): 520,
        ("a look at an order", "passed"): 130,
        ("an order of somebody else", "failed"): 130,
        ("call made twice", "passed"): 198,  # the second is refused, or changes nothing
        ("dropped call", "failed"): 193,
        ("dropped call", "passed"): 5,  # calls that the service refuses
        ("lists reversed", "failed"): 2,  # of a refused call: what it would do then, no answer tells
        ("lists reversed", "passed"): 46,
        ("one list reversed", "failed"): 31,
        ("reversed", "failed"): 13,
        ("reversed", "passed"): 117,
        ("wrong value", "failed"): 672,
    }


# tau2: every expected call is equal to some call, in the arguments that were sent, or those that `compare_args` names.

TAU2 = """\
description: "{{ row.id }}"
from: tau2.jsonl
input:
  message: "{{ row.message }}"
  state: {made: {}}
  mock_function_responses: MOCKS
settings: {strict_mocks: false}
expected_output:
  state_contains: "{{ row.expected }}"
  valid_arguments: false
"""


def build_tau2_row(task: Json) -> Json:
    """The expected calls of a task as demands on lists of arguments. An argument that was not sent is not compared."""
    demands: dict[str, list[Json]] = {}
    for call in task["expected"]:
        sent: Json = {
            name: {"$one_of": [{"$eq": value}, {"$absent": True}]} for name, value in call["arguments"].items()
        }
        demand = {"$contains": sent}
        if call["compare_args"] is not None:
            compared = {name: sent.get(name, {"$absent": True}) for name in call["compare_args"]}
            compared = {name: {"$eq": call["arguments"][name]} if name in sent else compared[name] for name in compared}
            demand = {"$contains": {"$partial": compared}} if compared else {"$len": {"$ge": 1}}
        demands.setdefault(call["name"], []).append(demand)
    made = {name: {"$all_of": items} for name, items in demands.items()}
    return {
        "id": task["id"].removeprefix("tau2/"),
        "message": json.dumps(task["user_scenario"]),
        "expected": {"made": made or {"$any": True}},
    }


def test_tau2_tasks_pass_as_their_own_rule_says(tmp_path: Path) -> None:
    """Gold passes, and so does what the rule accepts; where it does not, the reason is known."""
    tasks = read_tasks("tau2_cases")
    rows = [build_tau2_row(task) for task in tasks]
    names = {call["name"] for task in tasks for call in task["expected"]} | {"unrelated_tool"}
    mocks = {name: {"$push": {f"made.{name}": "{{ arguments }}"}, "$return": "ok"} for name in sorted(names)}
    suite = Suite(tmp_path, "tau2", TAU2.replace("MOCKS", json.dumps(mocks)), rows)
    counts: Counter[str] = Counter()
    for number, task in enumerate(tasks):
        judge = suite.load(number)
        for candidate in [*task["candidates"], {"calls": task["expected"], "label": True, "how": "gold"}]:
            label = "accepted" if candidate["label"] else "refused"
            passed = judge(candidate["calls"]) == "passed"
            if passed == candidate["label"]:
                counts[label] += 1
            elif any(call["name"] not in names for call in candidate["calls"]):
                counts["the rule passes over calls that nothing answers"] += 1
            else:
                counts[f"NOT EXPLAINED: {task['id']} {candidate['how']}"] += 1
    assert counts == {
        "accepted": 1095,
        "refused": 990,
        "the rule passes over calls that nothing answers": 4,
    }
