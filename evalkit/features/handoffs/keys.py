"""`expected_handoffs` and `expected_delegations`: how a run of several agents passed from one to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.absence import AbsenceDemand
from evalkit.checks.call_origin import explain_unknown_agents
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_key import ExpectationDraft, ExpectedKey, FailedCheck, RunChange
from evalkit.checks.key_schemas import NAME, make_ref
from evalkit.checks.reader import ExpectationReader
from evalkit.checks.reasons import build_failure, build_pass, build_unmeasured
from evalkit.checks.updates import Editor, require_own
from evalkit.errors import KeyPath, format_path
from evalkit.features.handoffs.records import DELEGATION, HANDOFF, Handoff, get_handoffs, put_handoffs
from evalkit.jsonvalue import JsonObject, JsonValue
from evalkit.records.transcript import Transcript
from evalkit.records.verdict import CheckResult
from evalkit.text.format import format_count

ARROW = "->"
_SOMEBODY_ELSE = "somebody_else"
HANDOFF_WORDS = {HANDOFF: "hand-off", DELEGATION: "delegation"}


class ExpectedHandoff(NamedTuple):
    """``source -> target``; without a source it may come from any agent."""

    source: str | None
    target: str

    def __str__(self) -> str:
        return self.target if self.source is None else f"{self.source} {ARROW} {self.target}"

    def is_met_by(self, handoff: Handoff) -> bool:
        return handoff.target == self.target and self.source in (None, handoff.source)


class HandoffsCheck(AbsenceDemand, Struct, frozen=True):
    """The expected hand-offs, or delegations, in their order."""

    key: str
    kind: str
    expected: tuple[ExpectedHandoff, ...]
    path: KeyPath

    def judge(self, evidence: Evidence) -> CheckResult:
        """Compare the lists."""
        word, place = HANDOFF_WORDS[self.kind], format_path(self.path)
        actual = get_handoffs(evidence.transcript, self.kind)
        if not evidence.agents:
            message = "can't be judged: no agent of this run has a name (with task.act_as(...), or in its framework)"
            return build_unmeasured(self.key, message, place, evidence.mode)
        if not actual and evidence.mode == "judge":
            return build_unmeasured(self.key, f"not judged: calls alone do not tell of {word}s", "", "judge")
        pairs = list(zip(self.expected, actual, strict=False))
        matches = [wish.is_met_by(handoff) for wish, handoff in pairs]
        same = matches.index(False) if False in matches else len(matches)
        if same == len(self.expected) == len(actual):
            count = format_count(same, word) if same else f"no {word}"
            return build_pass(self.key, f"{count}, as expected")
        actual_line = ", ".join(map(str, actual)) or "none"
        expected_text = ", ".join(map(str, self.expected)) or "none"
        if same >= len(actual):
            message = f"{word} {self.expected[same]} is missing"
        elif same >= len(self.expected):
            message = f"{word} {actual[same]} is not expected"
        else:
            message = f"{word} {same + 1} is {actual[same]}, expected {self.expected[same]}"
        names = [name for want in self.expected for name in want if name]
        message = f"{message}; there were: {actual_line}{explain_unknown_agents(names, evidence.agents)}"
        return build_failure(
            self.key,
            "wrong_handoffs",
            message,
            place,
            expected=expected_text.split(", "),
            actual=actual_line.split(", "),
        )


def read_expected(reader: ExpectationReader, path: KeyPath, value: object) -> tuple[ExpectedHandoff, ...] | None:
    """Read ``a -> b``, a chain ``a -> b -> c``, the name of a target alone, or a list of these."""
    items = [((*path, index), item) for index, item in enumerate(value)] if isinstance(value, list) else [(path, value)]
    expected: list[ExpectedHandoff] = []
    before = len(reader.problems)
    for item_path, item in items:
        text = reader.read_name(item_path, item, "a hand-off such as 'triage -> billing'")
        names = [name.strip() for name in (text or "").split(ARROW)]
        if text is None:
            continue
        if not all(names):
            message = f"{reader.format_place(item_path)} names an agent on each side of '{ARROW}', got '{text}'"
            reader.add_problem(item_path, message)
        elif len(names) == 1:
            expected.append(ExpectedHandoff(None, names[0]))
        else:
            expected += [ExpectedHandoff(*pair) for pair in pairwise(names)]
    return tuple(expected) if len(reader.problems) == before else None


class HandoffsKey(ExpectedKey):
    """`expected_handoffs` or `expected_delegations`: those of one kind."""

    schema = make_ref("handoffs")
    definitions: Mapping[str, JsonObject] = {
        "handoffs": {
            "oneOf": [NAME, {"type": "array", "items": NAME}],
            "description": "`triage -> billing`, a chain of several, or the name of the target alone.",
        }
    }

    mistakes: Mapping[str, str] = {
        "change_handoff": "the run is handed over, or a part of it delegated, to another agent",
        "drop_handoff": "a hand-off or a delegation is left out",
    }

    def __init__(self, name: str, kind: str, doc: str) -> None:
        self.name, self.kind, self.doc = name, kind, doc
        self.synonyms = (name.removeprefix("expected_"),)

    def get_actual(self, transcript: Transcript) -> list[JsonValue]:
        actual = get_handoffs(transcript, self.kind)
        return [handoff.target if handoff.source is None else str(handoff) for handoff in actual]

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> HandoffsCheck | None:
        expected = read_expected(draft.reader, path, value)
        return None if expected is None else HandoffsCheck(self.name, self.kind, expected, path)

    def list_agents(self, value: Any) -> list[str]:
        listed = value if isinstance(value, list) else [value]
        names = (name.strip() for item in listed if isinstance(item, str) for name in item.split(ARROW))
        return [name for name in names if name]

    def update(self, editor: Editor, path: KeyPath, failed: FailedCheck) -> None:
        """Write the hand-offs, or the delegations; entries that still hold stay."""
        require_own(editor, path)
        actual = get_handoffs(failed.transcript, self.kind)
        names = self.get_actual(failed.transcript)
        item = editor.get(path)
        if not isinstance(item, list) or not names:
            editor.set(path, names)
            return
        items: list[object] = []
        start = 0
        for handoff, name in zip(actual, names, strict=True):
            number = next((n for n in range(start, len(item)) if item[n] in (handoff.target, str(handoff))), None)
            start = start if number is None else number + 1
            items.append(name if number is None else number)
        editor.set_items(path, items)

    def mutate(self, transcript: Transcript) -> Iterator[RunChange]:
        """Yield a hand-off to another agent, and one less; what its target called is the other agent's then."""
        handoffs = get_handoffs(transcript)
        for place, handoff in enumerate(handoffs):
            if handoff.kind != self.kind:
                continue
            before, after = handoffs[:place], handoffs[place + 1 :]
            agents = (*transcript.agents, _SOMEBODY_ELSE)
            target = next(name for name in agents if name not in (handoff.source, handoff.target))
            since = -1 if handoff.call is None else handoff.call
            for kind, agent, kept, what in (
                ("change_handoff", target, (replace(handoff, target=target),), f"goes to {target}"),
                ("drop_handoff", handoff.source, (), "is left out"),
            ):
                calls = tuple(
                    replace(call, agent=agent) if call.agent == handoff.target and call.index > since else call
                    for call in transcript.calls
                )
                features = put_handoffs(transcript, (*before, *kept, *after))
                changed = replace(transcript, calls=calls, features=features)
                description = f"the {HANDOFF_WORDS[self.kind]} {handoff} {what}"
                yield RunChange(kind, description, changed, self.get_actual(transcript))


HANDOFF_KEYS = (
    HandoffsKey(
        "expected_handoffs",
        HANDOFF,
        "The hand-offs from agent to agent, all of them in their order: `[triage -> billing]`; `[]` means none.",
    ),
    HandoffsKey(
        "expected_delegations",
        DELEGATION,
        "The agents that agents have asked, as a tool or inside one, all of them in their order: `[desk -> expert]`.",
    ),
)
