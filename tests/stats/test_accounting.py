"""What a run used: unknown is not zero, and a call is counted as it came, by function and in all."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from evalkit.hosts.reports.summary import format_accounting
from evalkit.records.run import Run
from evalkit.records.transcript import FunctionCall, ModelCall, ModelTurn, Transcript, Usage
from evalkit.records.verdict import ChangedRun, Verdict
from evalkit.stats.accounting import Accounting, Channels, Multiplier, account, cost_multiplier


def call(name: str, channel: str = "native", **more: Any) -> FunctionCall:
    return FunctionCall(name=name, channel=channel, **more)


def verdict(*calls: FunctionCall, turns: Any = (), **transcript: Any) -> Verdict:
    return Verdict(transcript=Transcript(calls=calls, turns=tuple(turns), **transcript), status="passed")


def tokens(count: int) -> Usage:
    return Usage(input_tokens=count, total_tokens=count)


TURN = ModelTurn(duration_ms=100.0)


def test_calls_are_counted_by_channel_for_each_function_and_in_all() -> None:
    found = account(
        [
            verdict(call("a"), call("a", "text", repairs=("closed a brace",)), call("b", "text"), call("c", "direct")),
            verdict(
                call("a", problem="malformed_call", arguments="{"),
                turns=[ModelTurn(finish_reason="malformed_call"), TURN],
            ),
        ]
    )

    assert found.functions == {
        "a": Channels(native=1, text=1, malformed=1, mended=1),
        "b": Channels(text=1),
        "(unreadable)": Channels(malformed=1),
    }
    assert found.calls == Channels(native=1, text=2, malformed=2, mended=1)
    assert (found.calls.native_rate, found.calls.text_rate, found.calls.malformed_rate) == (0.2, 0.4, 0.4)
    assert found.turns_per_call == 0.4


def asking_model(model: str | None, *names: str, **more: Any) -> ModelTurn:
    return ModelTurn(model=model, calls=tuple(ModelCall(name=name, **more) for name in names))


def test_calls_are_counted_by_the_model_of_the_turn_that_made_them() -> None:
    handed_off = verdict(
        call("a", turn=0),
        call("b", "text", turn=1),
        call("c", turn=1),
        call("d", "direct"),
        turns=[
            asking_model("big", "a"),
            asking_model("small", "c"),
            ModelTurn(model="big", finish_reason="malformed_call"),
        ],
    )
    unanswered = verdict(turns=[TURN, asking_model("small", "e"), asking_model("small", "f", malformed="no JSON")])
    found = account([handed_off, unanswered])

    assert found.models == {
        "big": Channels(native=1, malformed=1),
        "small": Channels(native=1, text=1, malformed=1, unanswered=1),
    }
    assert sum(found.models.values(), Channels()) == found.calls
    assert found.to_json()["models"]["big"] == {"native": 1, "text": 0, "malformed": 1, "mended": 0, "unanswered": 0}


@pytest.mark.parametrize(
    ("asked", "name"),
    [("openai:gpt?seed=1", "gpt"), ("gpt", "gpt"), (None, "(unnamed)"), ("http:a:b", "a:b")],
)
def test_a_turn_without_a_model_is_of_the_one_that_was_asked_for(asked: str | None, name: str) -> None:
    calls = call("a", turn=0), call("b"), call("c", turn=7)
    assert account([verdict(*calls, turns=[TURN], model=asked)]).models == {name: Channels(native=3)}


def test_rates_of_nothing_are_unknown() -> None:
    found = account([verdict()])

    assert (found.calls.native_rate, found.turns_per_call, found.compute_latency_ms(0.5)) == (None, None, None)
    assert (found.usage, found.cost_usd) == (None, None)


@pytest.mark.parametrize(
    ("transcripts", "usage", "cost"),
    [
        ([{"usage": tokens(1), "cost_usd": 0.5}, {"usage": tokens(2), "cost_usd": 0.25}], tokens(3), 0.75),
        ([{"usage": tokens(1), "cost_usd": 0.5}, {"usage": tokens(2)}], tokens(3), None),
        ([{"usage": tokens(1), "cost_usd": 0.5}, {}], None, None),
        ([{"usage": tokens(1), "cost_usd": 0.0}], tokens(1), 0.0),
    ],
)
def test_tokens_and_money_are_unknown_as_soon_as_a_part_is(transcripts: Any, usage: Any, cost: Any) -> None:
    found = account([verdict(turns=[TURN], **transcript) for transcript in transcripts])

    assert (found.usage, found.cost_usd) == (usage, cost)


def test_cases_without_a_model_have_nothing_unknown() -> None:
    found = account([verdict(call("a", "direct")), verdict(turns=[TURN], usage=tokens(5), cost_usd=1.0)])

    assert (found.runs, found.usage, found.cost_usd) == (2, tokens(5), 1.0)


def test_repeats_are_counted_each() -> None:
    run = verdict(call("a"), turns=[TURN])
    found = account(Run(verdicts=(Verdict(runs=(run, run, run), status="passed"),)))

    assert (found.runs, found.turns, found.calls.native) == (3, 3, 3)


def test_what_a_live_model_did_in_sweeps_is_counted_apart() -> None:
    """Seventeen payloads for each function cost more than the case; offline runs of a sweep cost nothing."""
    live = Transcript(turns=(TURN, TURN), usage=tokens(7), cost_usd=0.25)
    swept = [
        ChangedRun(feature="injections", place="find", change="x", status="passed", transcript=transcript)
        for transcript in (live, live, replace(live, cassette="recorded"), Transcript())
    ]
    found = account([replace(verdict(turns=[TURN], usage=tokens(5), cost_usd=1.0), changed_runs=tuple(swept))])

    assert (found.turns, found.usage, found.cost_usd) == (1, tokens(5), 1.0)
    assert found.sweeps is not None
    assert (found.sweeps.turns, found.sweeps.usage, found.sweeps.cost_usd) == (4, tokens(14), 0.5)
    assert found.to_json()["sweeps"]["cost_usd"] == 0.5
    assert list(format_accounting(found))[-1] == "sweeps: 4 model turns more, 14 tokens in and 0 out, 0.5 USD"


def test_latencies_are_those_of_turns_by_nearest_rank() -> None:
    found = account([verdict(turns=[ModelTurn(duration_ms=float(ms)) for ms in range(1, 101)])])

    assert [found.compute_latency_ms(share) for share in (0, 0.5, 0.95, 1)] == [1.0, 50.0, 95.0, 100.0]


def test_the_run_file_has_all_of_it() -> None:
    found = account([verdict(call("a"), turns=[TURN], usage=tokens(5))])

    assert found.to_json() == {
        "runs": 1,
        "model_turns": 1,
        "usage": {"input_tokens": 5, "output_tokens": 0, "reasoning_tokens": 0, "cached_tokens": 0, "total_tokens": 5},
        "cost_usd": None,
        "runs_without_usage": 0,
        "runs_without_cost": 1,
        "latency_ms": {"median": 100.0, "p95": 100.0, "max": 100.0},
        "calls": {"native": 1, "text": 0, "malformed": 0, "mended": 0, "unanswered": 0},
        "functions": {"a": {"native": 1, "text": 0, "malformed": 0, "mended": 0, "unanswered": 0}},
        "models": {"(unnamed)": {"native": 1, "text": 0, "malformed": 0, "mended": 0, "unanswered": 0}},
    }


def asking(*names: str, **more: Any) -> ModelTurn:
    return ModelTurn(calls=tuple(ModelCall(name=name, **more) for name in names))


def test_what_no_code_carried_out_is_unanswered() -> None:
    """Asked natively twice in vain, then written as text: what a dispatcher does that knows another name."""
    found = account(
        [verdict(call("search", "text", turn=2), turns=[asking("search"), asking("search"), ModelTurn(text="<TOOL>")])]
    )

    assert found.functions == {"search": Channels(text=1, unanswered=2)}
    assert (found.calls.total, found.calls.text_rate, found.turns_per_call) == (1, 1.0, 3.0)


@pytest.mark.parametrize(
    ("calls", "turns", "expected"),
    [
        ([call("a", turn=0), call("a", turn=0)], [asking("a", "a", "a")], Channels(native=2, unanswered=1)),
        ([call("a", turn=1)], [asking("a"), asking("a")], Channels(native=1, unanswered=1)),
        ([call("a", turn=0, requested_name="b")], [asking("b")], Channels(native=1)),
        ([call("a", "direct")], [asking("a")], Channels()),
        ([call("b", "direct")], [asking("a")], Channels(unanswered=1)),
        ([], [asking("a", malformed="no JSON", arguments="{")], Channels(malformed=1)),
        ([call("a", turn=0, problem="malformed_call")], [asking("a", malformed="no JSON")], Channels(malformed=1)),
    ],
)
def test_a_call_is_answered_once_and_in_its_turn(calls: Any, turns: Any, expected: Channels) -> None:
    """A loop that evalkit does not see into calls the dispatcher itself, and that is an answer."""
    assert account([verdict(*calls, turns=turns)]).calls == expected


def test_the_multiplier_compares_for_each_call() -> None:
    found = Accounting(turns=8, calls=Channels(text=2), usage=Usage(total_tokens=9000))
    repaired = Accounting(turns=9, calls=Channels(native=6), usage=Usage(input_tokens=8000, output_tokens=1000))

    assert cost_multiplier(found, repaired) == Multiplier(turns=4 / 1.5, tokens=3.0)
    assert cost_multiplier(found, Accounting(turns=1)) == Multiplier(turns=None, tokens=None)
    assert cost_multiplier(Accounting(turns=1, calls=Channels(native=1)), repaired).tokens is None
