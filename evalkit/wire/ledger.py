"""The double entry of a run: what requests say has happened, held against what replies were seen to ask for.

A call in the history of a request that no reply was seen to make proves that a reply was not read. Calls that were
there before the run's first reply of that conversation (examples in a prompt, an older conversation) are given, and
prove nothing. Agents change their histories; calls are matched by id and name, else by name and arguments, else by name
alone, as often as replies have asked for it.
"""

from __future__ import annotations

import json
import re
from time import perf_counter

from msgspec import Struct

from evalkit.locks import create_lock
from evalkit.records.transcript import ModelCall, ModelRequest, ModelTurn
from evalkit.wire.records import CLIENT, Answer, Call, Failure, Item, Reply, Request, Text

UNSEEN_CALL, UNSEEN_ANSWER, UNSEEN_REPLY = "unseen_call", "unseen_answer", "unseen_reply"


_Entry = tuple[str | None, str, str]  # a call: id, name, arguments


class Discrepancy(Struct, frozen=True):
    """What a request says has happened, and no reply was seen to ask for."""

    kind: str
    call: Call | None = None
    answer: Answer | None = None
    detail: str = ""


class Ledger:
    """Both entries of one run. Thread-safe."""

    def __init__(self) -> None:
        self._lock = create_lock()
        self._seen: list[Call] = []
        self._ids: dict[str, set[str]] = {}  # call id -> names, of calls that replies made
        self._texts: list[str] = []  # of replies, in which calls may be written
        self._conversations: dict[str, str] = {}  # id of a reply -> its conversation
        self._begun: set[str] = set()  # conversations
        self._given: set[_Entry] = set()
        self._given_ids: set[str] = set()
        self._found: set[_Entry] = set()
        self._foreign: set[str] = set()  # ids of replies from before the run
        self._failures: dict[str, Failure] = {}  # by conversation: the last request's, which no later one made good
        self._answer_times: dict[str, float] = {}  # by conversation: when it was answered last
        self._has_reply = False

    def find_conversation(self, request: Request) -> str:
        """Return what tells the conversation of a request from others: its first item that is no instruction, or the
        reply that it goes on from."""
        return self._conversations.get(request.continues or "") or _find_opening(request)

    def add_reply(self, reply: Reply, request: Request | None = None) -> None:
        """Add what a reply, to `request`, asks for."""
        with self._lock:
            self._has_reply = True
            if reply.reply_id:
                self._conversations[reply.reply_id] = "" if request is None else self.find_conversation(request)
            self._seen += reply.calls
            for call in reply.calls:
                if call.call_id:
                    self._ids.setdefault(call.call_id, set()).add(call.name)
            if reply.text:
                self._texts.append(reply.text)

    def add_turn(self, turn: ModelTurn) -> None:
        """Add what a turn asks for that came another way: by the task's own model, or from a framework."""
        calls = (Call(name=call.name, arguments=call.arguments, call_id=call.call_id) for call in turn.calls)
        self.add_reply(Reply(items=(*([Text(turn.text)] if turn.text else ()), *calls)))

    def add_outcome(self, request: Request, failure: Failure | None, waited_s: float = 0.0) -> None:
        """Add how a request ended, that has just waited for `waited_s`: by an answer, which makes good an earlier
        failure in its conversation, or by a failure, unless an answer has come since the request was sent."""
        conversation, end = self.find_conversation(request), perf_counter()
        with self._lock:
            if failure is None:
                for key in (conversation, ""):  # "": of a request that failed before its body was known
                    self._failures.pop(key, None)
                self._answer_times[conversation] = end
            elif self._answer_times.get(conversation, 0.0) <= end - waited_s:
                self._failures.pop(conversation, None)  # it is the latest now
                self._failures[conversation] = failure

    def find_failure(self) -> Failure | None:
        """Return the failure of a service that no later request of the same conversation made good."""
        with self._lock:
            return next(reversed(self._failures.values()), None)

    def add_request(self, request: Request) -> list[Discrepancy]:
        """Hold the history of a request against the replies so far. Return what is new and unexplained."""
        with self._lock:
            return [*self._check_reply_id(request), *self._check_history(request)]

    def is_explained(self, finding: Discrepancy) -> bool:
        """Return whether a reply that was seen since explains a finding: a stream may end after the next request."""
        with self._lock:
            if finding.kind == UNSEEN_REPLY:
                return finding.detail in self._conversations
            if finding.call is not None:
                return self._has_id(finding.call)
            return finding.answer is not None and finding.answer.call_id in self._ids

    def _check_reply_id(self, request: Request) -> list[Discrepancy]:
        """Find a reply that a request goes on from, and that was not seen."""
        name = request.continues
        if not name or name in self._conversations or name in self._foreign:
            return []
        self._foreign.add(name)
        # A conversation that the service keeps has a name too, which is of no reply.
        return [Discrepancy(UNSEEN_REPLY, detail=name)] if self._has_reply and name.startswith("resp") else []

    def _check_history(self, request: Request) -> list[Discrepancy]:
        """Find the calls and answers of a history that no reply was seen to make or to ask for."""
        conversation = self.find_conversation(request)
        is_opening = conversation not in self._begun and request.continues not in self._conversations
        self._begun.add(conversation)
        calls = [item for item in request.items if isinstance(item, Call)]
        answers = [item for item in request.items if isinstance(item, Answer)]
        findings: list[Discrepancy] = []
        for call in self._find_unmatched(calls):
            entry = (call.call_id, call.name, _dump(call.arguments))
            if entry in self._given or entry in self._found:
                continue
            if is_opening:
                self._given.add(entry)
                self._given_ids.update({call.call_id} if call.call_id else ())
                continue
            self._found.add(entry)
            findings.append(
                Discrepancy(UNSEEN_CALL, call, next((a for a in answers if a.call_id == call.call_id), None))
            )
        known = {call.call_id for call in calls} | self._ids.keys() | self._given_ids
        for other in answers:
            if other.carrier != CLIENT or other.call_id is None or other.call_id in known:
                continue
            known.add(other.call_id)
            self._given_ids.add(other.call_id)
            if not is_opening:
                findings.append(Discrepancy(UNSEEN_ANSWER, answer=other))
        return findings

    def _has_id(self, call: Call) -> bool:
        """Return whether a reply made a call of this id. Frameworks rename functions (``mcp__shop__find``)."""
        names = self._ids.get(call.call_id or "")
        return names is not None and (call.name in names or len(call.call_id or "") >= _LONG_ID)

    def _find_unmatched(self, calls: list[Call]) -> list[Call]:
        """Return the calls of a history that no reply was seen to make."""
        unmatched = [call for call in calls if not self._has_id(call)]
        if not unmatched:
            return []
        # By name and arguments, and then by name alone: as often as replies have asked, less those that ids explain.
        taken = {_identify(call) for call in calls if self._has_id(call)}
        left = [call for call in self._seen if not (call.call_id and _identify(call) in taken)]
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


def _identify(call: Call) -> tuple[str | None, str]:
    """Return what tells a call from others that replies made: its id, if that is no counter's, else with its name."""
    return call.call_id, "" if len(call.call_id or "") >= _LONG_ID else call.name


def _find_opening(request: Request) -> str:
    """Return the first item of a history that is no instruction, as a text."""
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


def read_model_request(request: ModelRequest) -> Request:
    """Read the history of a request to the task's own model."""
    items: list[Item] = []
    for message in request.messages:
        turn = message.get("turn")
        if isinstance(turn, ModelTurn):
            items += [Text(turn.text)] if turn.text else []
            items += [Call(name=call.name, arguments=call.arguments, call_id=call.call_id) for call in turn.calls]
        elif "results" in message:
            items += [
                Answer(value=value, call_id=call.call_id, name=call.name)
                for call, value in message["results"]
                if isinstance(call, ModelCall)
            ]
        else:
            items.append(Text(str(message.get("text", "")), role=str(message.get("role"))))
    return Request(items=tuple(items))
