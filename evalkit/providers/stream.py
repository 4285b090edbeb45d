"""Function calls out of a stream: fragments go in, and a call comes out when nothing of it can still be missing.

A call is complete when its arguments parse, strictly, to a JSON object *and* something came after it: the next call, a
finish reason, or the end (`close`). Until then even ``{}`` may grow. A stream that ends inside a call is an
`IncompleteCall` that shows the fragment; nothing is repaired and nothing is executed early.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from evalkit.errors import IncompleteCallError
from evalkit.providers.stream_gemini import GeminiCalls
from evalkit.providers.stream_slots import Slot as Slot
from evalkit.providers.stream_slots import StreamCall as StreamCall
from evalkit.providers.textcalls import ParsedText, parse_text_calls

# What may follow a call without saying that it is over: closers to come, and a tag that is not whole yet.
_STILL_CLOSING = re.compile(r"[\s}\]`,;]*(?:<[^>]*)?")
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

    def feed(self, delta: Mapping[str, Any] | list[Any]) -> None:
        """One `delta` (``{"tool_calls": [...]}``), its list of tool-call deltas, or a whole chunk with `choices`."""
        if isinstance(delta, list):
            for piece in delta:
                self._feed_call(piece)
            return
        if "choices" in delta:
            for choice in delta["choices"] or ():
                self.feed(choice.get("delta") or choice.get("message") or {})
                if choice.get("finish_reason"):
                    self.finish(choice["finish_reason"])
            return
        if isinstance(delta.get("content"), str):
            self._content.append(delta["content"])
        if delta.get("function_call"):
            self._feed_call({"index": "function_call", "function": delta["function_call"]})
        if "function" in delta:
            self._feed_call(delta)
        for piece in delta.get("tool_calls") or ():
            self._feed_call(piece)
        if delta.get("finish_reason"):
            self.finish(delta["finish_reason"])

    def finish(self, reason: str) -> None:
        """The wire's finish reason: every call begun is whole now, or never will be."""
        self.finish_reason = reason
        for slot in self._slots:
            slot.ended = slot.finished = True

    def _feed_call(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        name, arguments = function.get("name") or "", function.get("arguments")
        slot = self._slot_for(piece.get("index"), piece.get("id") or "", name)
        if piece.get("id") and slot.id != piece["id"]:
            slot.id += piece["id"]
        if name:
            self._extend_name(slot, name)
        if piece.get("extra_content") is not None:
            slot.extra = piece["extra_content"]
        if isinstance(arguments, Mapping):
            slot.whole = dict(arguments)
        elif isinstance(arguments, str) and arguments:
            if slot.text.strip() == "{}" and arguments.lstrip().startswith("{"):
                slot.fragments = []  # the `{}` was a placeholder
            slot.fragments.append(arguments)

    def _slot_for(self, index: object, id: str, name: str) -> Slot:
        """The call that a fragment belongs to: by index, else by id, else the last; or a new one."""
        if index is not None:
            known = [slot for slot in self._slots if slot.index == index]
        elif id:
            known = [slot for slot in self._slots if slot.id == id]
        else:
            known = self._slots[-1:]
        if known and not self._begins_another(known[-1], id, name):
            return known[-1]
        for slot in self._slots:
            slot.ended = True
        self._slots.append(Slot(index))
        return self._slots[-1]

    def _begins_another(self, slot: Slot, id: str, name: str) -> bool:
        """Some servers give every call index 0: a new id with a name, or a name behind whole arguments, is new."""
        if not name:
            return False
        if id and slot.id and slot.id != id:
            return bool(slot.name) and not self._splits_name(slot, name)
        return not id and bool(slot.name) and slot.arguments() is not None

    def _splits_name(self, slot: Slot, name: str) -> bool:
        return slot.name + name in self._names and not slot.fragments

    def _extend_name(self, slot: Slot, name: str) -> None:
        repeated = name == slot.name and not self._splits_name(slot, name)
        if not repeated:
            slot.name += name

    # -- other wires

    def feed_anthropic(self, event: Mapping[str, Any]) -> None:
        """One event of Anthropic's messages stream."""
        kind = event.get("type")
        if kind == "message_start":
            # A gateway that retries sends a second one: what came before it belongs to no message.
            self._slots, self._content = [], []
            for index, block in enumerate(event.get("message", {}).get("content") or ()):
                self._anthropic_start(("message", index), block)
                self.feed_anthropic({"type": "content_block_stop", "index": ("message", index)})
        elif kind == "content_block_start":
            self._anthropic_start(event["index"], event["content_block"])
        elif kind == "content_block_delta":
            self._anthropic_delta(event["index"], event["delta"])
        elif kind == "content_block_stop":
            for slot in self._slots:
                if slot.index == event["index"]:
                    slot.ended = slot.finished = True
        elif kind == "message_delta" and event.get("delta", {}).get("stop_reason"):
            self.finish_reason = event["delta"]["stop_reason"]

    def _anthropic_start(self, index: object, block: Mapping[str, Any]) -> None:
        if block.get("type") == "text":
            self._content.append(block.get("text") or "")
        if block.get("type") != "tool_use":
            return
        slot = Slot(index)
        slot.id, slot.name = block.get("id") or "", block.get("name") or ""
        slot.whole = dict(block["input"]) if block.get("input") else None
        self._slots.append(slot)

    def _anthropic_delta(self, index: int, delta: Mapping[str, Any]) -> None:
        if delta.get("type") == "text_delta":
            self._content.append(delta.get("text") or "")
        if delta.get("type") == "input_json_delta" and delta.get("partial_json"):
            for slot in self._slots:
                if slot.index == index:
                    slot.fragments.append(delta["partial_json"])

    def feed_gemini(self, part: Mapping[str, Any]) -> None:
        """One `part` of Gemini's content, or a whole chunk with `candidates`; camelCase or snake_case."""
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
        calls = [call for slot in self._slots if slot.ended and (call := slot.call()) is not None]
        calls += [StreamCall(*found) for found in self._gemini.completed]
        if self._text:
            calls += self._text_calls(certain=True)
        return calls

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
        calls = []
        for slot in self._slots:
            call = slot.call()
            if call is None:
                raise self._incomplete(slot.shown())
            calls.append(call)
        if self._gemini.open is not None:
            raise self._incomplete(self._gemini.open)
        calls += [StreamCall(*found) for found in self._gemini.completed]
        parsed = self._parsed()
        if parsed.unfinished is not None:
            raise self._incomplete(parsed.unfinished)
        return calls + self._text_calls(certain=False)

    def _incomplete(self, fragment: str) -> IncompleteCallError:
        shown = fragment if len(fragment) <= 200 else fragment[:200] + "…"
        why = f" (finish reason '{self.finish_reason}')" if self.finish_reason else ""
        return IncompleteCallError(
            f"the stream ended inside a function call{why}: {shown}; the call was not made", fragment=fragment
        )

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


def _name_of(function: Any) -> str:
    if isinstance(function, str):
        return function
    if isinstance(function, Mapping):
        inner = function.get("function")
        return str((inner if isinstance(inner, Mapping) else function).get("name", ""))
    return str(function.name)
