"""Mistakes of a simulated user: what a rule finds, and what people say that is none."""

from __future__ import annotations

import pytest

from evalkit.features.simulated_users.mistakes import find_mistake
from evalkit.features.simulated_users.user import SimulatedUser, asks_for

USER = SimulatedUser(
    goal="Get 1,200 euros back for order 4711-22, which was paid on 2026-03-01",
    persona="A retired teacher of 68, customer since 2009",
    facts={
        "serial_number": "SN48213",
        "email": "ada@example.com",
        "phone": "+49 (30) 901 820",
        "card": 4111222233334567,
        "insured": True,
    },
)
ASKED = ("My drill is broken.", "What is the serial number? Your request has the number R-55512.")


def find(message: str, *exchanges: tuple[str, str], has_calls: bool = False) -> str | None:
    mistake = find_mistake(message, USER, exchanges or (ASKED,), has_calls=has_calls)
    return None if mistake is None else mistake.code


@pytest.mark.parametrize(
    "message",
    [
        "It says SN48213.",
        "It says sn 48213, I think.",
        "SN-48213",
        "S/N: SN48213",
        "the serial is 48213",
        "Reach me at Ada@Example.com or 030901820, please.",
        "My phone: +49 30 901 820.",
        "I paid on March 1, 2026. 1200 euros!",
        "I paid €1,200.00 on 01.03.2026.",
        "The card ends in 4567.",
        "It is order 4711-22.",
        "You wrote that my number is R-55512.",
        "I have tried it 3 times in 2 weeks, the 2nd time at 10:30.",
        "It weighs 12kg, takes AA3 batteries and has USB-C, MP3 and 4K.",
        "I am 68 and your customer since 2009.",
        "Two thousand years ago I would have waited.",
        "How can you help me?",
        "How can I help you understand that it is broken?",
        'Your page says "How can I help you?", but nobody answers.',
        "As an AI, you should know that.",
        "I am an AI researcher, by the way.",
        "I'm an artist. What can you do for me?",
        "My agent: nobody. I bought it myself.",
        "I need a call of your technician (soon).",
        "The display shows {error} and [E2].",
        "[1]",
    ],
)
def test_what_people_say_is_no_mistake(message: str) -> None:
    assert find(message) is None


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("It says SN99999.", '"sn99999"'),
        ("It says SN48214.", '"sn48214"'),
        ("The number is 123456.", '"123456"'),
        ("My order is 4711-23.", '"4711-23"'),
        ("Write to bob@example.com.", '"bob@example.com"'),
        ("See https://example.com/case.", '"https://example.com/case"'),
        ("I bought it on 3 May 2025.", '"3 may 2025"'),
        ("I want 1,300 euros.", '"1,300"'),
        ("Call me: 030 555 1234.", '"030 555 1234"'),
        ("The ticket is TKT-1207.", '"tkt-1207"'),
    ],
)
def test_an_invented_value_is_named(message: str, shown: str) -> None:
    mistake = find_mistake(message, USER, (ASKED,), has_calls=False)
    assert mistake is not None
    assert mistake.code == "simulator_invented_fact"
    assert f"told {shown}, which is not one of its facts" in mistake.text
    assert message in mistake.text


def test_what_either_side_has_said_is_known() -> None:
    assert find("So TKT-1207 it is?", ASKED, ("SN48213", "I opened TKT-1207.")) is None


@pytest.mark.parametrize(
    "message",
    [
        "How can I help you today?",
        "Hello! I’m here to help with your project.",
        "I'm ready to help. What can I do for you?",
        "I'm an AI language model and have no device.",
        "As an AI assistant, I do not own a drill.",
        "I am just a virtual assistant.",
        "My drill is broken.\nAssistant: What is its number?",
        '{"serial_number": "SN48213"}',
        '```json\n[{"name": "check"}]\n```',
        "What is the serial number? Your request has the number R-55512.",
    ],
)
def test_leaving_the_role_is_found(message: str) -> None:
    assert find(message) == "simulator_left_role"


def test_a_call_is_no_message_of_a_user() -> None:
    assert find("check()", has_calls=True) == "simulator_left_role"


@pytest.mark.parametrize("message", ["", "  \n", "\u200b"])
def test_an_empty_message_is_a_mistake(message: str) -> None:
    assert find(message) == "simulator_silent"


LONG = "I have told you already that my drill does not work any more."


@pytest.mark.parametrize(
    ("said", "replies", "message", "code"),
    [
        (["Yes.", "Yes."], ["Shall I?", "Really?"], "No.", None),
        (["Yes."], ["Shall I?"], "Yes.", None),
        (["Yes.", "Yes."], ["Shall I?", "Really?"], "Yes.", "simulator_repeated_itself"),
        ([LONG], ["I see."], LONG, None),
        (["Hi", LONG], ["What?", "I see."], f" {LONG.upper()}", "simulator_repeated_itself"),
        # The agent says the same again and again: the user may do so too.
        (["Hi", LONG], ["What?", "What?"], LONG, None),
        ([LONG] * 3, ["What?"] * 3, LONG, "simulator_repeated_itself"),
    ],
)
def test_repeating_itself(said: list[str], replies: list[str], message: str, code: str | None) -> None:
    assert find(message, *zip(said, replies, strict=True)) == code


@pytest.mark.parametrize(
    ("reply", "is_asked"),
    [
        ("What is the serial number?", True),
        ("Please tell me your Serial Number", True),
        ("I need the serial-number of it.", True),
        ("Thanks. Your serial number is fine.", False),
        ("Please wait. I look your serial number up.", False),
        ("Which number?", False),
        ("What is the serialnumber?", False),
        ("", False),
    ],
)
def test_an_agent_asks_for_a_fact(reply: str, is_asked: bool) -> None:
    assert asks_for(reply, "serial_number") is is_asked
