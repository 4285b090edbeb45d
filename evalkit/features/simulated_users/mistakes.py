"""Mistakes of a simulated user that a rule finds. They are not the agent's: a run with one can't be measured.

A user leaves its role if it calls functions, writes JSON, speaks as the assistant, or repeats what the agent has just
said. It invents a fact if it tells a number or an identifier of three digits or more, a date, an e-mail address or a
link that stands in none of its goal, persona and facts, and that neither side has said before. Number words, names and
shorter numbers are not looked at: people say them without meaning a fact of the case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evalkit.checks.grounding import KnowledgeSource, find_dates, is_known
from evalkit.features.simulated_users.user import SimulatedUser
from evalkit.operators.phrases import fold_text
from evalkit.text.format import format_value

LEFT_ROLE = "simulator_left_role"
INVENTED_FACT = "simulator_invented_fact"
STOPPED_EARLY = "simulator_stopped_early"
REPEATED = "simulator_repeated_itself"
SILENT = "simulator_silent"

_LONG = 40  # characters; shorter messages are repeated by people too: "Yes, please."
_MOST_EQUAL = 3  # messages in a row, however short
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»")
_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)\n?```", re.DOTALL)
_AI = (
    r"an? (?:ai|artificial intelligence|(?:large )?language model|virtual assistant)"
    r"(?: (?:language )?model| assistant| chatbot)?"
)
_AI_END = r"\s*(?=[,.;:!?]|$|and\b|so\b|that\b|designed|trained|created|here\b)"
_ASSISTANT = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), what)
    for pattern, what in (
        (r"^\s*(?:assistant|ai assistant|agent|support agent|chatbot|system)\s*:\s", "it writes the other's part"),
        (r"\bhow (?:can|may) i (?:help|assist) you(?! (?:understand|see)\b)", "it offers help"),
        (r"\bi(?:'m| am) (?:here|ready) to (?:help|assist)\b|\bwhat can i do for you\b", "it offers help"),
        (rf"\b(?:i'm|i am) (?:just |only )?{_AI}{_AI_END}", "it says that it is an AI"),
        (rf"\bas {_AI},? i\b", "it says that it is an AI"),
    )
)
_EMAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_LINK = r"https?://[^\s<>\"']+"
_TELEPHONE = r"\+?\d[\d ()-]{5,}\d"
_WORD = r"[^\W_][\w-]*(?:[.,]\d+)*"
_VALUE = re.compile(rf"({_EMAIL})|({_LINK})|({_TELEPHONE})|({_WORD})")
_MIN_DIGITS = 3
_BEFORE = re.compile(r"([^\W\d_]{1,6})[ #:.-]*$")  # "SN 12345" is SN12345


class Mistake(NamedTuple):
    """A mistake: its code, and what the user did."""

    code: str
    text: str


def find_mistake(
    message: str, user: SimulatedUser, exchanges: Sequence[tuple[str, str]], *, has_calls: bool
) -> Mistake | None:
    """Find the first mistake in a message that a model or a callable wrote.

    `exchanges` are the messages before it, each with the agent's reply; `has_calls`: it calls functions, or writes
    calls.
    """
    if not fold_text(message):
        return Mistake(SILENT, "said nothing")
    if has_calls:
        return Mistake(LEFT_ROLE, f"called a function, which users do not do: {_show(message)}")
    reason = _find_role_change(message, exchanges)
    if reason:
        return Mistake(LEFT_ROLE, f"left its role and {reason}: {_show(message)}")
    if _is_repeated(message, exchanges):
        return Mistake(REPEATED, f"said the same again, though the agent did not: {_show(message)}")
    invented = next(_find_invented(message, user, exchanges), None)
    if invented is not None:
        said = f"told {format_value(invented)}, which is not one of its facts and was not said before"
        return Mistake(INVENTED_FACT, f"{said}: {_show(message)}")
    return None


def _show(message: str) -> str:
    return format_value(message, 160)


def _find_role_change(message: str, exchanges: Sequence[tuple[str, str]]) -> str:
    if _is_json(message):
        return "wrote JSON"
    if exchanges and len(message) > _LONG / 2 and fold_text(message) == fold_text(exchanges[-1][1]):
        return "repeated the agent's words"
    plain = _QUOTED.sub("", message.replace("’", "'"))
    return next((f"spoke as the assistant ({why})" for pattern, why in _ASSISTANT if pattern.search(plain)), "")


def _is_json(message: str) -> bool:
    fenced = _FENCE.fullmatch(message.strip())
    try:
        data = json.loads(fenced[1] if fenced else message)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) or (isinstance(data, list) and any(isinstance(item, dict) for item in data))


def _is_repeated(message: str, exchanges: Sequence[tuple[str, str]]) -> bool:
    """Return whether the user goes round in circles alone: a user may say again what it is asked again."""
    said, replies = zip(*exchanges, strict=True) if exchanges else ((), ())
    count = next((n for n, earlier in enumerate(reversed(said)) if fold_text(earlier) != fold_text(message)), len(said))
    if count < (1 if len(message) > _LONG else _MOST_EQUAL - 1):
        return False
    answers = {fold_text(reply) for reply in replies[-count - 1 :]}
    return len(answers) > 1 or count >= _MOST_EQUAL


def _find_invented(message: str, user: SimulatedUser, exchanges: Sequence[tuple[str, str]]) -> Iterator[str]:
    own = [user.goal, user.persona, dict(user.facts), user.fill_facts(user.opening or "")]
    sources = [KnowledgeSource(own), *(KnowledgeSource(list(exchange)) for exchange in exchanges)]
    text = fold_text(message)
    for date in find_dates(text):
        written = text[slice(*date.span)]
        if not is_known(written, sources):
            yield written
        text = f"{text[: date.span[0]]}{' ' * len(written)}{text[date.span[1] :]}"
    for match in _VALUE.finditer(text):
        value = match[0].rstrip(".,")
        is_plain = match[1] is None and match[2] is None
        if is_plain and sum(character.isdigit() for character in value) < _MIN_DIGITS:
            continue
        before = _BEFORE.search(text[: match.start()])
        joined = f"{before[1]} {value}" if before else value
        if not is_known(value, sources) and not is_known(joined, sources) and not _is_part(value, user):
            yield value


def _is_part(value: str, user: SimulatedUser) -> bool:
    """Return whether `value` is the beginning or the end of a fact, as of a card whose last digits are asked for, or of
    a telephone number without the code of the country."""
    digits = re.sub(r"[\W_]", "", value).lstrip("0")
    wholes = [re.sub(r"[\W_]", "", fold_text(str(fact))) for fact in user.facts.values()]
    return len(digits) >= _MIN_DIGITS and any(whole.startswith(digits) or whole.endswith(digits) for whole in wholes)
