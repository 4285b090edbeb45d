"""ScriptedProvider: turns given in code."""

from __future__ import annotations

import asyncio

import pytest

from evalkit.errors import MissingCassetteError, UsageError
from evalkit.models.providers.base import Provider
from evalkit.models.providers.table import list_kinds, open_provider
from evalkit.models.providers.turns import ScriptedProvider
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn

KINDS = ", ".join(f"{name}:MODEL" for name in list_kinds())


def test_turns_come_in_order_whatever_form_they_are_written_in() -> None:
    provider = ScriptedProvider([ModelTurn(text="a"), {"calls": [{"f": {"x": 1}}]}, "b"])

    turns = [asyncio.run(provider.turn(ModelRequest(system=str(n)))) for n in range(3)]

    assert turns == [
        ModelTurn(text="a"),
        ModelTurn(calls=(ModelCall(name="f", arguments={"x": 1}),), finish_reason="tool_calls"),
        ModelTurn(text="b"),
    ]
    assert [request.system for request in provider.requests] == ["0", "1", "2"]
    assert isinstance(provider, Provider)


def test_a_script_that_is_over_says_which_turn_was_asked_for() -> None:
    with pytest.raises(MissingCassetteError) as caught:
        asyncio.run(ScriptedProvider([]).turn(ModelRequest()))

    assert str(caught.value) == (
        "the script has 0 turns, and the agent asked for turn 1; add it to ScriptedProvider([...])"
    )


def test_every_mistake_in_a_script_is_named_with_its_place() -> None:
    with pytest.raises(UsageError) as caught:
        ScriptedProvider([{"call": []}, {"text": 5}])

    assert str(caught.value) == (
        "turns[0].call: unknown key 'call' in turns[0]; did you mean 'calls'?\n"
        "turns[0]: turns[0] says nothing; write 'calls:' or 'text:' (text: \"\" is an answer)\n"
        "turns[1].text: turns[1].text must be text, got 5; quote it: '5'"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("gemni:x", f"unknown model 'gemni:x'; did you mean 'gemini'? A model is one of {KINDS}"),
        ("zzz:x", f"unknown model 'zzz:x'; a model is one of {KINDS}"),
        (
            "gemini-9",
            f"unknown model 'gemini-9'; did you mean 'gemini:gemini-9'? A model is one of {KINDS}",
        ),
        ("gemini:", "'gemini:' names no model; write gemini:MODEL"),
        ("gemini:m?stream", "the options of 'gemini:m?stream' are not name=value&name=value"),
        ("", "a model is written kind:model, e.g. gemini:MODEL, got ''"),
    ],
)
def test_a_model_that_makes_no_sense_is_a_usage_error(spec: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_provider(spec)

    assert str(caught.value) == message
