"""Function calls out of a stream: fragments go in, and a call comes out when nothing of it can still be missing.

A call is complete when its arguments parse, strictly, to a JSON object *and* something came after it: the next call, a
finish reason, or the end (`close`). Until then even ``{}`` may grow. A stream that ends inside a call is an
`IncompleteCall` that shows the fragment; nothing is repaired and nothing is executed early.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.errors import IncompleteCallError
from evalkit.providers.stream_gemini import GeminiCalls
from evalkit.providers.stream_slots import Slot as Slot
from evalkit.providers.stream_slots import StreamCall as StreamCall
from evalkit.providers.stream_slots import ended_inside, in_order
from evalkit.providers.textcalls import parse_text_calls
from evalkit.providers.textcalls_found import ParsedText

# What may follow a call without saying that it is over: closers to come, and a tag that is not whole yet.
_STILL_CLOSING = re.compile(r"[\s}\]`,;]*(?:<[^>]*)?")
# What tells a delta, or a chunk, from a call's delta alone.
_DELTA_KEYS = frozenset({"choices", "content", "finish_reason", "function_call", "role", "tool_calls"})
# Finish reasons of a reply that may have been cut off inside its last call.
CUT_OFF = frozenset({"length", "model_length", "max_tokens", "MAX_TOKENS"})
# Without one of these in a new piece of text no further call can have become whole.
_MAY_CLOSE = re.compile(r"[>})\]]")


class StreamAccumulator:
    """Feed it what the wire brings, in whatever pieces; read `completed` at any time, and `close` at the end.

    `functions` are the declarations, as for `parse_text_calls`: with them a name that arrives in pieces is known to be
    whole, and text calls are recognised without an envelope. One accumulator serves one reply.
    """

    def __init__(self, functions: Iterable[Any] | None = None) -> None:
        self._functions = list(functions) if functions is not None else None
        self._names = {_name_of(function) for function in self._functions or ()}
        self._slots: list[Slot] = []
        self._gemini = GeminiCalls()
        self._text: list[str] = []
        self._content: list[str] = []
        self._settled: tuple[int, tuple[StreamCall, ...]] = (0, ())  # up to where the text holds just these calls
        self._taken = {"gemini": 0, "text": 0}
        self._closed = False
        self.finish_reason: str | None = None

    # -- OpenAI's chat completions, and those that resemble it

    def feed(self, delta: Any) -> None:
        """One `delta` (``{"tool_calls": [...]}``), a tool call's delta, a list of them, or a whole chunk: JSON, or the
        objects of a client library, here as for the other wires."""
        delta = _plain(delta)
        if isinstance(delta, list):
            for piece in map(_plain, delta):
                (self.feed if _DELTA_KEYS & set(piece) else self._feed_call)(piece)
            return
        if "choices" in delta:
            for choice in delta["choices"] or ():
                if not choice.get("index"):  # the others are replies of their own
                    self.feed({**(choice.get("delta") or choice.get("message") or {}), **_end_of(choice)})
            return
        if isinstance(delta.get("content"), str):
            self._content.append(delta["content"])
        if any((delta.get("function_call") or {}).values()):
            self._feed_call({"index": "function_call", "function": delta["function_call"]})
        if "function" in delta or ("index" in delta and not _DELTA_KEYS & set(delta)):
            self._feed_call(delta)
        for piece in delta.get("tool_calls") or ():
            self._feed_call(piece)
        if delta.get("finish_reason"):
            self.finish(delta["finish_reason"])

    def finish(self, reason: str) -> None:
        """The wire's finish reason: every call begun is whole now, or never will be."""
        self.finish_reason = reason
        for slot in self._slots:
            cut = reason in CUT_OFF and slot is self._slots[-1]
            slot.ended, slot.finished = True, slot.finished or not cut

    def _feed_call(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        name, arguments = function.get("name") or "", function.get("arguments")
        slot = self._slot_for(piece.get("index"), piece.get("id") or "", name, bool(arguments))
        if piece.get("id") and slot.id != piece["id"]:
            slot.id += piece["id"]
        if name:
            self._extend_name(slot, name)
        if piece.get("extra_content") is not None:
            slot.extra = piece["extra_content"]
        if isinstance(arguments, Mapping):
            slot.whole = dict(arguments)
        elif arguments is not None and arguments != "":
            slot.add(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def _slot_for(self, index: object, id: str, name: str, has_arguments: bool) -> Slot:
        """The call that a fragment belongs to: by index, else by id, else the last; or a new one."""
        if index is not None:
            known = [slot for slot in self._slots if slot.index == index]
        elif id:
            known = [slot for slot in self._slots if slot.id == id]
        else:
            known = self._slots[-1:]
        if known and not (name and self._begins_another(known[-1], id, name, has_arguments)):
            return known[-1]
        for slot in self._slots:
            slot.ended = True
        self._slots.append(Slot(index))
        return self._slots[-1]

    def _begins_another(self, slot: Slot, id: str, name: str, has_arguments: bool) -> bool:
        """Some servers give every call index 0: a new id with a name, or a name behind whole arguments, is new."""
        if not slot.name or (slot.named_late and not has_arguments):
            return False
        if id and slot.id and slot.id != id:
            return slot.has_arguments or (slot.name in self._names and not self._splits_name(slot, name))
        return (not id or name != slot.name) and slot.arguments() is not None

    def _splits_name(self, slot: Slot, name: str) -> bool:
        return slot.name + name in self._names and not slot.fragments

    def _extend_name(self, slot: Slot, name: str) -> None:
        slot.named_late = slot.named_late or (not slot.name and slot.has_arguments)
        repeated = name == slot.name and not self._splits_name(slot, name)
        if not repeated:
            slot.name += name

    # -- other wires

    def feed_anthropic(self, event: Any) -> None:
        """One event of Anthropic's messages stream."""
        event = _plain(event)
        kind = event.get("type")
        if kind == "message_start":
            # A gateway that retries sends a second one: what came before it belongs to no message.
            self._slots, self._content, self.finish_reason = [], [], None
            for index, block in enumerate(event.get("message", {}).get("content") or ()):
                self._anthropic_start(("message", index), block)
                self.feed_anthropic({"type": "content_block_stop", "index": ("message", index)})
        elif kind == "content_block_start":
            self._anthropic_start(event["index"], event["content_block"])
        elif kind == "content_block_delta":
            self._anthropic_delta(event["index"], event["delta"])
        elif kind == "content_block_stop":
            for slot in self._at(event["index"]):
                slot.closed = slot.ended = True
        elif kind == "message_delta" and (event.get("delta") or {}).get("stop_reason"):
            self.finish(event["delta"]["stop_reason"])

    def _anthropic_start(self, index: object, block: Mapping[str, Any]) -> None:
        for slot in self._slots:
            slot.ended, slot.finished = True, slot.finished or slot.closed  # the model went on: it was not cut off
        if block.get("type") == "text":
            self._content.append(block.get("text") or "")
        if block.get("type") != "tool_use":
            return
        slot = Slot(index)
        slot.id, slot.name = block.get("id") or "", block.get("name") or ""
        slot.whole = dict(block["input"]) if block.get("input") else None
        self._slots.append(slot)

    def _anthropic_delta(self, index: object, delta: Mapping[str, Any]) -> None:
        if delta.get("type") == "text_delta":
            self._content.append(delta.get("text") or "")
        if delta.get("type") == "input_json_delta" and delta.get("partial_json"):
            for slot in self._at(index):
                slot.add(delta["partial_json"])

    def _at(self, index: object) -> list[Slot]:
        """The latest call at `index`, if there is one."""
        return [slot for slot in self._slots if slot.index == index][-1:]

    def feed_gemini(self, part: Any) -> None:
        """One `part` of Gemini's content, or a whole chunk with `candidates`; camelCase or snake_case."""
        part = _plain(part)
        if "candidates" in part:
            for candidate in part["candidates"] or ():
                for inner in (candidate.get("content") or {}).get("parts") or ():
                    self.feed_gemini(inner)
                reason = candidate.get("finishReason") or candidate.get("finish_reason")
                self.finish_reason = reason or self.finish_reason
            return
        if isinstance(part.get("text"), str) and not part.get("thought"):
            self._content.append(part["text"])
        self._gemini.feed(part)

    def feed_text(self, text: str) -> None:
        """A piece of model text in which calls may be written; they are complete when their closing tag came."""
        self._text.append(text)

    # -- what came out

    @property
    def text(self) -> str:
        """The prose so far: plain content as it came, and fed text without the calls in it."""
        return "".join(self._content) + (self._parsed().text if self._text else "")

    @property
    def completed(self) -> list[StreamCall]:
        """The calls that are certain by now, in the order in which they began."""
        slots = [slot for slot in in_order(self._slots) if slot.ended or self._closed]
        calls = [call for slot in slots if (call := slot.call()) is not None]
        calls += [StreamCall(*found) for found in self._gemini.completed]
        if self._text:
            calls += self._text_calls(certain=not self._closed)
        return calls

    def begun(self, *, certain: bool = False) -> list[dict[str, Any]]:
        """Every call that came over OpenAI's wire, as in a reply that comes whole, readable or not; or only those that
        are `certain`."""
        slots = [slot for slot in in_order(self._slots) if not slot.is_blank]
        return [slot.as_written() for slot in slots if not certain or (slot.ended and slot.call() is not None)]

    def take(self) -> list[StreamCall]:
        """The calls that have become certain since it was last asked, each of them once: for code that makes calls
        while the stream still runs. Behind `close`, whatever is left."""
        slots = [slot for slot in self._slots if not slot.taken and (slot.ended or self._closed)]
        calls = []
        for slot in slots:
            if (call := slot.call()) is not None:
                slot.taken = True
                calls.append(call)
        calls += self._left("gemini", [StreamCall(*found) for found in self._gemini.completed])
        return calls + (self._left("text", self._text_calls(certain=not self._closed)) if self._text else [])

    def _left(self, wire: str, calls: list[StreamCall]) -> list[StreamCall]:
        before, self._taken[wire] = self._taken[wire], max(self._taken[wire], len(calls))
        return calls[before:]

    def close(self) -> list[StreamCall]:
        """All calls of the ended stream. Raises IncompleteCall when it ended inside one."""
        self._closed = True
        unfinished = self._unfinished()
        if unfinished is not None:
            raise IncompleteCallError(ended_inside(unfinished, self.finish_reason), fragment=unfinished)
        return self.completed

    def _unfinished(self) -> str | None:
        """What there is of the first call that is not whole."""
        self._slots = [slot for slot in self._slots if not slot.is_blank]
        for slot in self._slots:
            slot.finished = slot.finished or (slot.closed and self.finish_reason is None)
            if slot.call() is None:
                return slot.shown()
        return self._gemini.unfinished or self._parsed().unfinished

    def _parsed(self) -> ParsedText:
        self._text = ["".join(self._text)]
        return parse_text_calls(self._text[0], self._functions)

    def _text_calls(self, *, certain: bool) -> list[StreamCall]:
        """Calls in the fed text. While the stream runs, only those behind which the text has gone on or was closed."""
        whole = "".join(self._text)
        length, known = self._settled
        if certain and length and not _MAY_CLOSE.search(whole, length):
            return list(known)
        parsed = self._parsed()
        within = len(whole) if parsed.open_at is None else parsed.open_at
        calls = []
        for call in parsed.calls:
            is_closed = call.raw.rstrip().endswith(">") or not _STILL_CLOSING.fullmatch(whole, call.end)
            if certain and not (is_closed and call.end <= within):
                break  # what comes behind it waits too: calls are made in their order
            calls.append(StreamCall(call.name, call.arguments, None, call.repairs))
        self._settled = (len(whole), tuple(calls)) if certain and len(calls) == len(parsed.calls) else (0, ())
        return calls


def _plain(data: Any) -> Any:
    """JSON, of what a client library has made an object (openai, google-genai, anthropic)."""
    dump = getattr(data, "model_dump", None)
    return data if dump is None else dump(mode="json")


def _end_of(choice: Mapping[str, Any]) -> dict[str, Any]:
    return {"finish_reason": choice["finish_reason"]} if choice.get("finish_reason") else {}


def _name_of(function: Any) -> str:
    if isinstance(function, str):
        return function
    if isinstance(function, Mapping):
        inner = function.get("function")
        return str((inner if isinstance(inner, Mapping) else function).get("name", ""))
    return str(function.name)
