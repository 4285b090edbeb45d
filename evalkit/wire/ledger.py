"""The double entry of a run: what requests say has happened, held against what replies were seen to ask for.

A call in the history of a request that no reply was seen to make proves that a reply was not read. Calls that were
there before the run's first reply of that conversation (examples in a prompt, an older conversation) are given, and
prove nothing. Agents change their histories; calls are matched by id and name, else by name and arguments, else by name
alone, as often as replies have asked for it.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter

from msgspec import Struct

from evalkit.model.transcript import ModelTurn
from evalkit.wire.records import CLIENT, Answer, Call, Reply, Request, Text

UNSEEN_CALL, UNSEEN_ANSWER, UNSEEN_REPLY = "unseen_call", "unseen_answer", "unseen_reply"


class Finding(Struct, frozen=True):
    """What a request says has happened, and no reply was seen to ask for."""

    kind: str
    call: Call | None = None
    answer: Answer | None = None
    detail: str = ""


class Ledger:
    """Both entries of one run. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: list[Call] = []
        self._ids: dict[str, str] = {}  # call id -> name, of calls that replies made
        self._texts: list[str] = []  # of replies, in which calls may be written
        self._replies: set[str] = set()  # ids
        self._given: set[tuple[str | None, str, str]] = set()
        self._given_ids: set[str] = set()
        self._found: set[tuple[str | None, str, str]] = set()
        self._conversations: set[str] = set()
        self._foreign: set[str] = set()  # ids of replies from before the run
        self._has_reply = False

    def add_reply(self, reply: Reply) -> None:
        """Add what a reply asks for."""
        with self._lock:
            self._has_reply = True
            if reply.reply_id:
                self._replies.add(reply.reply_id)
            self._seen += reply.calls
            self._ids.update({call.call_id: call.name for call in reply.calls if call.call_id})
            if reply.text:
                self._texts.append(reply.text)

    def add_turn(self, turn: ModelTurn) -> None:
        """Add what a turn asks for that came another way: by the task's own model, or from a framework."""
        calls = (Call(name=call.name, arguments=call.arguments, call_id=call.call_id) for call in turn.calls)
        self.add_reply(Reply(items=(*([Text(turn.text)] if turn.text else ()), *calls)))

    def add_request(self, request: Request) -> list[Finding]:
        """Hold the history of a request against the replies so far. Return what is new and unexplained."""
        with self._lock:
            return self._check(request)

    def _check(self, request: Request) -> list[Finding]:
        key = _find_conversation(request)
        is_opening = key not in self._conversations and not (request.continues and request.continues in self._replies)
        self._conversations.add(key)
        findings: list[Finding] = []
        if request.continues and request.continues not in self._replies | self._foreign:
            if self._has_reply and request.continues.startswith("resp"):
                findings.append(Finding(UNSEEN_REPLY, detail=request.continues))
            self._foreign.add(request.continues)
            is_opening = True
        calls = [item for item in request.items if isinstance(item, Call)]
        for call in self._find_unmatched(calls):
            entry = (call.call_id, call.name, _dump(call.arguments))
            if entry in self._given or entry in self._found:
                continue
            if is_opening:
                self._given.add(entry)
                self._given_ids.update({call.call_id} if call.call_id else ())
                continue
            self._found.add(entry)
            answer = next((i for i in request.items if isinstance(i, Answer) and i.call_id == call.call_id), None)
            findings.append(Finding(UNSEEN_CALL, call, answer))
        history_ids = {call.call_id for call in calls}
        for answer in (item for item in request.items if isinstance(item, Answer)):
            known = history_ids | self._ids.keys() | self._given_ids
            if answer.carrier != CLIENT or answer.call_id is None or answer.call_id in known:
                continue
            entry = (answer.call_id, answer.name or "", _dump(answer.value))
            if entry not in self._found and not is_opening:
                self._found.add(entry)
                findings.append(Finding(UNSEEN_ANSWER, answer=answer))
            self._given_ids.add(answer.call_id)
        return findings

    def _has_id(self, call: Call) -> bool:
        """Return whether a reply made a call of this id. Frameworks rename functions (``mcp__shop__find``)."""
        name = None if call.call_id is None else self._ids.get(call.call_id)
        return name is not None and (name == call.name or len(call.call_id or "") >= _LONG_ID)

    def _find_unmatched(self, calls: list[Call]) -> list[Call]:
        """Return the calls of a history that no reply was seen to make."""
        unmatched = [call for call in calls if not self._has_id(call)]
        if not unmatched:
            return []
        # By name and arguments, and then by name alone: as often as replies have asked, less those that ids explain.
        taken = Counter(call.call_id for call in calls if self._has_id(call))
        left = [call for call in self._seen if not (call.call_id and call.call_id in taken)]
        rest: list[Call] = []
        for call in unmatched:
            same = next((seen for seen in left if seen.name == call.name and seen.arguments == call.arguments), None)
            if same is None:
                rest.append(call)
            else:
                left.remove(same)
        still: list[Call] = []
        for call in rest:
            same = next((seen for seen in left if seen.name == call.name), None)
            if same is not None:
                left.remove(same)
            elif not any(re.search(rf"(?<![\w-]){re.escape(call.name)}(?![\w-])", text) for text in self._texts):
                still.append(call)
        return still


_LONG_ID = 8  # characters: shorter ids are counters, which several replies share


def _find_conversation(request: Request) -> str:
    """Return what tells conversations apart: the first thing that is no instruction."""
    for item in request.items:
        if isinstance(item, Text) and item.role in ("system", "developer"):
            continue
        if isinstance(item, Text):
            return f"{item.role}: {item.text}"
        if isinstance(item, Call):
            return f"call: {item.name} {_dump(item.arguments)}"
        if isinstance(item, Answer):
            return f"answer: {_dump(item.value)}" if request.continues is None else f"continues {request.continues}"
    return ""


def _dump(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=repr)
