"""The simulated user of a case, compiled: a goal, a persona and facts, who plays it, and when the conversation ends."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct, field

from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.operators.base import Matcher
from evalkit.operators.phrases import find_words, fold_text

ROLE = "the simulated user"
END_MARK = "[DONE]"  # what a model says to end the conversation, unless `stop_when` is a phrase
DEFAULT_MAX_TURNS = 10
FACT = re.compile(r"\{\{\s*facts\.([^\W\d][\w-]*)\s*\}\}")
_SENTENCE = re.compile(r"[^.!?;\n]*[.!?;\n]?")
# Words with which a sentence asks for something without a question mark.
_ASKING = re.compile(
    r"\b(please|provide|give|tell|send|share|enter|specify|need|needs|require|required|what|which|may i|could you)\b"
)


class UserCondition(Struct, frozen=True):
    """What must hold of the agent's turns, all of it. `text` is how messages describe it."""

    text: str
    calls: tuple[ExpectedCall, ...] = ()  # one of them was made
    agent_says: Matcher | None = None
    state: Matcher | None = None
    facts: tuple[str, ...] = ()  # the agent asks for one of them

    def holds(self, evidence: Evidence) -> bool:
        """Return whether it holds of the calls, the response and the state in `evidence`. Raises TemplateError."""
        reply = evidence.transcript.response
        if self.facts and not any(asks_for(reply, fact) for fact in self.facts):
            return False
        if self.calls and not any(entry.is_met_by(call, evidence) for entry in self.calls for call in evidence.calls):
            return False
        return all(
            matcher.bind(evidence.resolve).is_match(value)
            for matcher, value in ((self.agent_says, reply), (self.state, evidence.transcript.state))
            if matcher is not None
        )


class Branch(Struct, frozen=True):
    """A branch of a script. `condition` None: it always fits."""

    say: str
    condition: UserCondition | None = None
    is_end: bool = False
    times: int | None = None


class SimulatedUser(Struct, frozen=True):
    """The user of a case, compiled. `script` and `call` say who plays it; without them a model does."""

    goal: str
    persona: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    opening: str | None = None
    phrase: str = END_MARK
    end: UserCondition | None = None
    max_turns: int = DEFAULT_MAX_TURNS
    max_turns_ok: bool = False
    max_tokens: int | None = None
    max_cost_usd: float | None = None
    model: str | None = None
    script: tuple[Branch, ...] = ()
    call: str | None = None

    @property
    def player(self) -> str:
        """Who plays the user: ``model``, ``script`` or ``call``."""
        return "script" if self.script else "call" if self.call is not None else "model"

    @property
    def is_open_to_model(self) -> bool:
        """True if a model alone says when the conversation ends."""
        return self.player == "model" and self.end is None

    def says_end(self, message: str) -> bool:
        """Return whether a message of the user ends the conversation."""
        return find_words(fold_text(message), fold_text(self.phrase)) >= 0

    def list_words(self) -> list[str]:
        """Return what the user may say, as far as the case knows it: its facts, and the words of its script."""
        written = (self.opening or "", *(branch.say for branch in self.script))
        return [self.goal, *map(format_fact, self.facts.values()), *filter(None, map(self.fill_facts, written))]

    def fill_facts(self, text: str) -> str:
        """Return `text` with the facts in place of ``{{ facts.name }}``."""
        return FACT.sub(lambda match: format_fact(self.facts[match[1]]), text)


def format_fact(value: object) -> str:
    """Return a fact as a person would say it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def asks_for(reply: str, fact: str) -> bool:
    """Return whether a sentence of `reply` asks, and has all the words of the fact's name."""
    words = fold_text(re.sub(r"[_-]+", " ", fact)).split()
    for sentence in _SENTENCE.findall(fold_text(reply)):
        is_asking = sentence.endswith("?") or _ASKING.search(sentence) is not None
        if is_asking and all(find_words(sentence, word) >= 0 for word in words):
            return True
    return False
