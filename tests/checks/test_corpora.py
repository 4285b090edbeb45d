"""Labels of other people's checkers, written as evalkit cases: where evalkit differs, it is for a known reason.

The tables at the end of each test are the report: how many rows agree, and how many differ for which reason.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from evalkit.checks.compile import compile_expectation
from evalkit.checks.expectation import Expectation
from evalkit.records.transcript import FunctionCall, Transcript
from tests.conftest import CORPORA

Mend = Callable[[Any], Any]
Row = dict[str, Any]


@cache
def rows(name: str) -> list[Row]:
    path = CORPORA / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"the corpus {path.name} does not lie beside the checkout, in ../shared/corpora")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def passes(expectation: Expectation, calls: list[Row], mend: Mend = lambda value: value) -> bool:
    made = tuple(
        FunctionCall(name=call["name"], arguments=mend(call["arguments"]), index=i) for i, call in enumerate(calls)
    )
    return expectation.judge(Transcript(calls=made), mode="judge").status == "passed"


def compiled(expected: Row) -> Expectation | None:
    """The expectation, or None where evalkit refuses it."""
    expectation, problems = compile_expectation(expected)
    return None if problems else expectation


# The Berkeley Function-Calling Leaderboard: per argument a list of alternatives, "" among them for "may be omitted".


def bfcl_value(value: Any, mend: Mend, outermost: bool) -> Any:
    """Alternatives go one level into mappings, and into mappings in lists; below that values are plain."""
    if isinstance(value, dict) and outermost:
        return {
            key: bfcl_alternatives(item, mend, outermost=False) if isinstance(item, list) else {"$literal": mend(item)}
            for key, item in value.items()
        }
    if isinstance(value, list) and outermost:
        return [bfcl_value(item, mend, isinstance(item, dict)) for item in value]
    return {"$literal": mend(value)}


def bfcl_alternatives(options: list[Any], mend: Mend, *, outermost: bool = True, required: bool = False) -> Row:
    alternatives = [bfcl_value(option, mend, outermost) for option in options]
    return {"$one_of": alternatives + ([{"$absent": True}] if "" in options and not required else [])}


def bfcl_case(row: Row, mend: Mend = lambda value: value) -> Row:
    """`expected_output` of a row: the calls of the ground truth in any order, or none, or at least some."""
    truth = row["ground_truth"]
    if truth is None and row["category"] != "live_relevance":
        return {"expected_function_calls": []}
    if truth is None:
        some = [{"function_name": tool["name"], "times": {"min": 1}} for tool in row["tools"]]
        return {"expected_function_calls": [{"one_of": some}], "extra_calls": "allow"}
    required = {tool["name"]: tool["parameters"].get("required", ()) for tool in row["tools"]}
    calls = [
        {
            "function_name": name,
            "arguments": {
                argument: bfcl_alternatives(options, mend, required=argument in required.get(name, ()))
                for argument, options in arguments.items()
            },
        }
        for call in truth
        for name, arguments in call.items()
    ]
    return {"expected_function_calls": calls, "call_order": "any"}


def walk_scalars(value: Any, change: Mend) -> Any:
    if isinstance(value, list):
        return [walk_scalars(item, change) for item in value]
    if isinstance(value, dict):
        return {key: walk_scalars(item, change) for key, item in value.items()}
    return change(value)


def fold_like_bfcl(value: Any) -> Any:
    """Strings without case, punctuation and spaces, as the leaderboard compares them."""
    return walk_scalars(
        value,
        lambda item: re.sub(r"[ ,./\-_*^]", "", item).lower().replace("'", '"') if isinstance(item, str) else item,
    )


def mark_floats(value: Any) -> Any:
    """Floats as another type than integers, as the leaderboard sees them."""
    return walk_scalars(value, lambda item: f"float {item}" if isinstance(item, float) else item)


def without_empty_lists(calls: list[Row]) -> list[Row]:
    return [{**call, "arguments": {k: v for k, v in call["arguments"].items() if v != []}} for call in calls]


def bfcl_reasons(row: Row) -> Iterator[str]:
    """For each candidate `agree`, or why evalkit and the leaderboard differ about it."""

    @cache
    def mended(mend: Mend) -> Expectation:
        expectation = compiled(bfcl_case(row, mend))
        assert expectation is not None
        return expectation

    expectation = compiled(bfcl_case(row))
    own = [candidate["label"] for candidate in row["candidates"] if candidate["how"] == "gold-first-alternative"]
    for candidate in row["candidates"]:
        label, calls = candidate["label"], candidate["calls"]
        if expectation is None:
            yield "the ground truth lists no alternative for an argument: evalkit refuses such a case"
        elif passes(expectation, calls) == label:
            yield "agree"
        elif own == [False]:
            yield "the leaderboard rejects its own answer: its type is not the declared one"
        elif label and passes(mended(fold_like_bfcl), calls, fold_like_bfcl):
            yield "the leaderboard folds case, punctuation and spaces of strings"
        elif not label and not passes(mended(mark_floats), calls, mark_floats):
            yield "to the leaderboard 5.0 is not 5"
        elif label and passes(expectation, without_empty_lists(calls)):
            yield "to the leaderboard an empty list is as good as no argument"
        else:
            yield f"NOT EXPLAINED: {row['id']} {candidate['how']}"


def test_every_disagreement_with_the_bfcl_is_explained() -> None:
    found = Counter(reason for row in rows("bfcl_labelled") for reason in bfcl_reasons(row))
    assert found == {
        "agree": 21993,
        "the leaderboard folds case, punctuation and spaces of strings": 2714,
        "to the leaderboard 5.0 is not 5": 470,
        "the ground truth lists no alternative for an argument: evalkit refuses such a case": 24,
        "the leaderboard rejects its own answer: its type is not the declared one": 10,
        "to the leaderboard an empty list is as good as no argument": 6,
    }


def test_parallel_calls_are_matched_optimally_where_the_bfcl_is_greedy() -> None:
    found: Counter[str] = Counter()
    for row in rows("bfcl_random_alternatives"):
        expectation = compiled(bfcl_case({**row, "category": "parallel"}))
        assert expectation is not None
        ours = passes(expectation, row["calls"])
        found[f"optimum {'agrees' if ours == row['optimal_label'] else 'DISAGREES'}"] += 1
        if ours != row["bfcl_label"]:
            greedy = not row["bfcl_label"] and row["optimal_label"]
            found["the leaderboard's greedy pairing gets stuck" if greedy else "NOT EXPLAINED"] += 1
    assert found == {"optimum agrees": 783, "the leaderboard's greedy pairing gets stuck": 88}


# The peers' own unit tests of trajectory matching, and random trajectories with their brute-force verdicts.

ORDERS = {  # mode -> call_order, extra_calls, every call optional
    "EXACT": ("strict", "forbid", False),
    "IN_ORDER": ("strict", "allow", False),
    "ANY_ORDER": ("any", "allow", False),
    "strict": ("strict", "forbid", False),
    "in_order": ("strict", "allow", False),
    "any_order": ("any", "allow", False),
    "unordered": ("any", "forbid", False),
    "superset": ("any", "allow", False),
    "subset": ("any", "forbid", True),
    "ToolCallAccuracy": ("strict", "forbid", False),
    "ToolCallF1": ("any", "forbid", False),
}
ARGUMENTS: dict[str, Callable[[Row], Row]] = {
    "exact": lambda arguments: {"arguments": arguments},
    "ignore": lambda arguments: {},
    "superset": lambda arguments: (
        {"arguments_contain": {k: {"$eq": v} for k, v in arguments.items()}} if arguments else {}
    ),
    "subset": lambda arguments: {
        "arguments": {k: {"$one_of": [{"$eq": v}, {"$absent": True}]} for k, v in arguments.items()}
    },
}


def peer_case(mode: str, arguments: str, expected: list[Row], overrides: Row | None = None) -> Row:
    order, extras, optional = ORDERS[mode]
    calls = []
    for call in expected:
        override = (overrides or {}).get(call["name"])
        compare = ARGUMENTS["ignore" if override == "ignore" else arguments]
        demands = compare(call["arguments"])
        if isinstance(override, list):  # the paths of the parts that alone are compared
            demands = {"arguments_contain": merged(part(call["arguments"], path.split(".")) for path in override)}
        calls.append({"function_name": call["name"], **demands, **({"optional": True} if optional else {})})
    return {"expected_function_calls": calls, "call_order": order, "extra_calls": extras}


def part(value: Row, steps: list[str]) -> Row:
    first, *rest = steps
    return {first: part(value[first], rest) if rest else {"$eq": value[first]}}


def merged(parts: Iterator[Row]) -> Row:
    found: Row = {}
    for item in parts:
        found |= item
    return found


def peer_rows(row: Row) -> Iterator[tuple[Row, list[Row], bool]]:
    """A peer's test as cases: what is expected, what was called, and whether the peer passes it."""
    mode, _, arguments = row["mode"].partition("/args=")
    if row["source"] == "google-adk":
        for expected, actual, score in zip(row["expected"], row["actual"], row["turn_scores"], strict=True):
            yield peer_case(mode, arguments, expected), actual, score == 1.0
    elif row["source"] == "agentevals":
        yield peer_case(mode, arguments, row["expected"], row["overrides"]), row["actual"], row["score"] in (True, 1.0)
    elif row["source"] == "ragas":
        yield peer_case(row["mode"].partition("/")[0], "exact", row["expected"]), row["actual"], row["score"] == 1.0
    else:
        options = json.loads(row["mode"])
        mode = (
            "EXACT"
            if options["should_exact_match"]
            else "IN_ORDER"
            if options["should_consider_ordering"]
            else "ANY_ORDER"
        )
        yield peer_case(mode, "ignore", row["expected"]), row["actual"], row["score"] == 1.0


def peer_reason(row: Row, actual: list[Row]) -> str:
    overrides = (row.get("overrides") or {}).values()
    if any(isinstance(override, dict) for override in overrides):
        return "the peer compares with a Python function"
    if row["source"] == "agentevals" and row["mode"].startswith("strict") and len(actual) > 1:
        return "to the peer the calls of one message have no order (in a case: any_order or in_parallel)"
    if row["source"] == "deepeval" and any(call.get("type") == "MCP" for call in actual):
        return "the peer compares where a function comes from, of which a case knows nothing"
    return f"NOT EXPLAINED: {row['test']} {row['mode']}"


def test_every_disagreement_with_the_peers_own_tests_is_explained() -> None:
    found: Counter[str] = Counter()
    for row in rows("peers_tests"):
        for expected, actual, passed in peer_rows(row):
            expectation = compiled(expected)
            assert expectation is not None
            found["agree" if passes(expectation, actual) == passed else peer_reason(row, actual)] += 1
    assert found == {
        "agree": 223,
        "the peer compares with a Python function": 5,
        "to the peer the calls of one message have no order (in a case: any_order or in_parallel)": 1,
        "the peer compares where a function comes from, of which a case knows nothing": 4,
    }


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("mode", ["strict", "in_order", "any_order", "unordered", "subset"])
def test_random_trajectories_written_as_cases_get_their_optimal_verdict(mode: str, arguments: str) -> None:
    """`[]` means no call at all in every mode, where the brute force lets anything go."""
    wrong = []
    for row in rows("peers_random"):
        expectation = compiled(peer_case(mode, arguments, row["expected"]))
        assert expectation is not None
        by_rule = not row["expected"] and row["actual"] and mode in ("in_order", "any_order")
        if passes(expectation, row["actual"]) != row["optimal"][f"{mode}/args={arguments}"] and not by_rule:
            wrong.append(row["id"])
    assert wrong == []


def test_counts_forbidden_and_single_calls_of_random_trajectories_get_their_verdict() -> None:
    wrong = []
    for row in rows("peers_random"):
        checks = row["checks"]
        count, one = checks["count"], checks.get("one")
        times = {"function_name": count["name"], "times": {"min": count["min"], "max": count["max"]}}
        never = {"forbidden_function_calls": count["name"]}  # `times: 0` is refused, and points there
        cases = {
            "count": {"expected_function_calls": [times], "extra_calls": "allow"} if count["max"] else never,
            "forbidden": {"forbidden_function_calls": checks["forbidden"]},
        }
        if one is not None:
            some = [{"name": one["name"], "arguments": one["args"]}]
            cases["some_call/args=exact"] = peer_case("any_order", "exact", some)
            cases["some_call/args=partial"] = peer_case("any_order", "superset", some)
        for name, expected in cases.items():
            expectation = compiled(expected)
            if expectation is None or passes(expectation, row["actual"]) != row["optimal"][name]:
                wrong.append((row["id"], name))
    assert wrong == []
