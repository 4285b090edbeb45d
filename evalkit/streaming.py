"""Function calls out of a stream: fragments go in, and a call comes out when nothing of it can still be missing.

A call is complete when its arguments parse, strictly, to a JSON object *and* something came after it: the next call, a
finish reason, or the end (`close`). Until then even ``{}`` may grow. A stream that ends inside a call is an
`IncompleteCall` that shows the fragment; nothing is repaired and nothing is executed early.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from msgspec import Struct

from evalkit.errors import IncompleteCallError
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, join_pieces, parse_arguments
from evalkit.model.transcript import FieldAccess
from evalkit.textcalls import parse_text_calls
from evalkit.textcalls.parsed import ParsedText, Rejected

if TYPE_CHECKING:
    from evalkit.textcalls.names import DeclaredFunction

T = TypeVar("T")
# Text that may follow a call that is not over: closers to come, and a tag that is not whole yet.
_STILL_CLOSING = re.compile(r"[\s}\]`,;]*(?:<[^>]*)?")
# Keys that a delta, or a chunk, has, and a call's delta alone has not.
_DELTA_KEYS = frozenset({"choices", "content", "finish_reason", "function_call", "role", "tool_calls"})
# Finish reasons of a reply that may have been cut off inside its last call.
CUT_OFF = frozenset({"length", "model_length", "max_tokens", "MAX_TOKENS"})
# Without one of these in a new piece of text no further call can have become whole.
_LONG_TEXT = 20_000  # characters
_MAY_CLOSE = re.compile(r"[>})\]]")


class StreamAccumulator:
    """Calls out of the pieces of a streamed reply: feed it, read `completed` at any time, and `close` at the end.

    `functions` are the declarations, as for `parse_text_calls`: with them a name that arrives in pieces is known to be
    whole, and text calls are recognised without an envelope. One accumulator serves one reply.
    """

    def __init__(self, functions: Iterable[DeclaredFunction] | None = None) -> None:
        self._functions = list(functions) if functions is not None else None
        self._names = {_get_name(function) for function in self._functions or ()}
        self._slots = SlotList()
        self._gemini = GeminiCalls()
        self._text: list[str] = []
        self._content: list[str] = []
        self._certain_calls: tuple[int, tuple[StreamCall, ...]] = (0, ())  # up to where the text holds just these calls
        self._last_parse: tuple[int, tuple[StreamCall, ...]] = (0, ())
        self._counts_taken = {"gemini": 0, "text": 0}
        self._closed = False
        self.finish_reason: str | None = None

    # -- OpenAI's chat completions, and those that resemble it

    def feed(self, delta: object) -> None:
        """Add one `delta` (``{"tool_calls": [...]}``), a tool call's delta, a list of them, or a whole chunk: JSON,
        or the objects of a client library, here as for the other wires."""
        if isinstance(delta, list):
            for piece in map(_to_json, delta):
                (self.feed if _DELTA_KEYS & set(piece) else self._add_fragment)(piece)
            return
        delta = _to_json(delta)
        if "choices" in delta:
            for choice in delta["choices"] or ():
                if not choice.get("index"):  # the others are replies of their own
                    piece = dict(choice.get("delta") or choice.get("message") or {})
                    self.feed(piece | ({"finish_reason": reason} if (reason := choice.get("finish_reason")) else {}))
            return
        if isinstance(delta.get("content"), str):
            self._content.append(delta["content"])
        if any((delta.get("function_call") or {}).values()):
            self._add_fragment({"index": "function_call", "function": delta["function_call"]})
        if "function" in delta or ("index" in delta and not _DELTA_KEYS & set(delta)):
            self._add_fragment(delta)
        for piece in delta.get("tool_calls") or ():
            self._add_fragment(piece)
        if delta.get("finish_reason"):
            self.finish(delta["finish_reason"])

    def finish(self, reason: str) -> None:
        """Record the wire's finish reason: every call that began is whole now, or never will be."""
        self.finish_reason = reason
        self._slots.finish(is_cut_off=reason in CUT_OFF)

    def _add_fragment(self, piece: JsonObject) -> None:
        function = piece.get("function") or {}
        name, arguments = function.get("name") or "", function.get("arguments")
        # The call that it belongs to: by index, else by id, else the last; or a new one.
        index, call_id = piece.get("index"), piece.get("id") or ""
        slot = self._slots.find(index, call_id)
        if slot is None or (name and self._is_new_call(slot, call_id, name, bool(arguments))):
            slot = self._slots.add(Slot(index))
        if call_id and slot.id != call_id:
            self._slots.rename(slot, slot.id + call_id)
        if name:
            slot.is_named_late = slot.is_named_late or (not slot.name and slot.has_arguments)
            repeated = name == slot.name and not self._is_split_name(slot, name)
            if not repeated:
                slot.name += name
        if piece.get("extra_content") is not None:
            slot.extra = piece["extra_content"]
        if isinstance(arguments, Mapping):
            slot.arguments_object = dict(arguments)
        elif arguments is not None and arguments != "":
            slot.add(arguments if isinstance(arguments, str) else json.dumps(arguments))

    def _is_new_call(self, slot: Slot, id: str, name: str, has_arguments: bool) -> bool:
        """Some servers give every call index 0: a new id with a name, or a name behind whole arguments, is new."""
        if not slot.name or (slot.is_named_late and not has_arguments):
            return False
        if id and slot.id and slot.id != id:
            is_named = slot.name == name or slot.name in self._names
            return slot.has_arguments or (is_named and not self._is_split_name(slot, name))
        return (not id or name != slot.name) and slot.read_arguments() is not None

    def _is_split_name(self, slot: Slot, name: str) -> bool:
        return slot.name + name in self._names and not slot.fragments

    # -- other wires

    def feed_anthropic(self, event: object) -> None:
        """Add one event of Anthropic's messages stream."""
        event = _to_json(event)
        kind = event.get("type")
        if kind == "message_start":
            # A gateway that retries sends a second one: what came before it belongs to no message.
            self._slots, self._content, self.finish_reason = SlotList(), [], None
            for place, block in enumerate(event.get("message", {}).get("content") or ()):
                self._start_block(("message", place), block)
                self.feed_anthropic({"type": "content_block_stop", "index": ("message", place)})
        elif kind == "content_block_start":
            self._start_block(event["index"], event["content_block"])
        elif kind == "content_block_delta":
            index, block_delta = event["index"], event["delta"]
            if block_delta.get("type") == "text_delta":
                self._content.append(block_delta.get("text") or "")
            if block_delta.get("type") == "input_json_delta" and block_delta.get("partial_json"):
                slot = self._slots.find(index)
                if slot is not None:
                    slot.add(block_delta["partial_json"])
        elif kind == "content_block_stop":
            self._slots.close(event["index"])
        elif kind == "message_delta" and (event.get("delta") or {}).get("stop_reason"):
            self.finish(event["delta"]["stop_reason"])

    def _start_block(self, index: object, block: JsonObject) -> None:
        self._slots.end_all()
        if block.get("type") == "text":
            self._content.append(block.get("text") or "")
        if block.get("type") != "tool_use":
            return
        slot = Slot(index)
        slot.id, slot.name = str(block.get("id") or ""), str(block.get("name") or "")
        slot.arguments_object = dict(block["input"]) if block.get("input") else None
        self._slots.add(slot)

    def feed_gemini(self, part: object) -> None:
        """Add one `part` of Gemini's content, or a whole chunk with `candidates`; camelCase or snake_case."""
        part = _to_json(part)
        if "candidates" in part:
            for candidate in part["candidates"] or ():
                for inner in (candidate.get("content") or {}).get("parts") or ():
                    self.feed_gemini(inner)
                reason = candidate.get("finishReason") or candidate.get("finish_reason")
                self.finish_reason = reason or self.finish_reason
            return
        if isinstance(part.get("text"), str) and not part.get("thought"):
            self._content.append(part["text"])
        self._gemini.add_part(part)

    def feed_text(self, text: str) -> None:
        """Add a piece of model text in which calls may be written; they are complete when their closing tag came."""
        self._text.append(text)

    # -- what came out

    @property
    def text(self) -> str:
        """The prose so far: plain content as it came, and fed text without the calls in it."""
        return join_pieces(self._content) + (self._parse_text().text if self._text else "")

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Pieces of the fed text that look like calls and may not be made, with the reason."""
        return self._parse_text().rejected if self._text else ()

    @property
    def completed(self) -> list[StreamCall]:
        """The calls that are certain by now, in the order in which they began."""
        slots = [slot for slot in self._slots.sort() if slot.is_ended or self._closed]
        calls = [call for slot in slots if (call := slot.to_call()) is not None]
        calls += [StreamCall(*parts) for parts in self._gemini.completed]
        if self._text:
            calls += self._find_text_calls(certain=not self._closed)
        return calls

    def begun(self, *, certain: bool = False) -> list[JsonDict]:
        """List every call that came over OpenAI's wire, as in a reply that comes whole, readable or not; or only
        those that are `certain`."""
        slots = [slot for slot in self._slots.sort() if not slot.is_blank]
        return [slot.to_message() for slot in slots if not certain or (slot.is_ended and slot.to_call() is not None)]

    def take(self) -> list[StreamCall]:
        """Return the calls that have become certain since the last `take`, each of them once: for code that makes
        calls while the stream still runs. After `close`, return whatever is left."""
        calls, waiting = [], []
        for slot in self._slots.waiting:
            call = slot.to_call() if slot.is_ended or self._closed else None
            if call is None:
                waiting.append(slot)
            else:
                calls.append(call)
        self._slots.waiting = waiting
        calls += [StreamCall(*parts) for parts in self._take_new("gemini", self._gemini.completed)]
        return calls + (self._take_new("text", self._find_text_calls(certain=not self._closed)) if self._text else [])

    def _take_new(self, wire: str, calls: list[T]) -> list[T]:
        before, self._counts_taken[wire] = self._counts_taken[wire], max(self._counts_taken[wire], len(calls))
        return calls[before:]

    def close(self) -> list[StreamCall]:
        """End the stream and return all its calls. Raises IncompleteCall when it ended inside one."""
        self._closed = True
        self._slots.drop_blank()
        unfinished: str | None = None
        for slot in self._slots:
            slot.is_finished = slot.is_finished or (slot.is_closed and self.finish_reason is None)
            if slot.to_call() is None:
                unfinished = slot.format_fragment()
                break
        else:
            unfinished = self._gemini.unfinished or self._parse_text().unfinished
        if unfinished is not None:
            raise IncompleteCallError(explain_cut_off(unfinished, self.finish_reason), fragment=unfinished)
        return self.completed

    def _parse_text(self) -> ParsedText:
        self._text = ["".join(self._text)]
        return parse_text_calls(self._text[0], self._functions)

    def _find_text_calls(self, *, certain: bool) -> list[StreamCall]:
        """Find the calls in the text. While the stream runs, only those before other text or a closing tag."""
        text = "".join(self._text)
        length, certain_calls = self._certain_calls
        if certain and length and not _MAY_CLOSE.search(text, length):
            return list(certain_calls)
        parsed_length, parsed_calls = self._last_parse
        if certain and parsed_length > _LONG_TEXT and len(text) < parsed_length * 1.1:
            return list(parsed_calls)  # a long text is parsed again when it has grown by a tenth, for linear time
        parsed = self._parse_text()
        within = len(text) if parsed.open_at is None else parsed.open_at
        calls = []
        may_wait = True  # for more than plain text
        for call in parsed.calls:
            is_closed = call.raw.rstrip().endswith(">") or not _STILL_CLOSING.fullmatch(text, call.end)
            if certain and not (is_closed and call.end <= within):
                may_wait = call.end > within
                break  # what comes behind it waits too: calls are made in their order
            calls.append(StreamCall(call.name, call.arguments, None, call.repairs))
        self._certain_calls = (len(text), tuple(calls)) if certain and may_wait else (0, ())
        self._last_parse = (len(text), tuple(calls)) if certain else (0, ())
        return calls


def _to_json(data: object) -> JsonDict:
    """Convert the object of a client library (openai, google-genai, anthropic) to JSON."""
    dump = getattr(data, "model_dump", None)
    return cast("JsonDict", data if dump is None else dump(mode="json"))


def _get_name(function: DeclaredFunction) -> str:
    if isinstance(function, Mapping):
        inner = function.get("function")
        return str((inner if isinstance(inner, Mapping) else function).get("name", ""))
    return function if isinstance(function, str) else function.name


# -- one call of a stream

_PLACEHOLDER = 4  # fragments in which an empty object may come that is none


class StreamCall(FieldAccess, Struct, frozen=True):
    """A complete call. `id` is the wire's, None where it gave none. Fields are also read by key.

    `extra` is what a server attached to the call and wants to see again, e.g. Gemini's signatures behind OpenAI's API.
    """

    name: str
    arguments: JsonDict
    id: str | None = None
    repairs: tuple[str, ...] = ()
    extra: JsonValue = None


class Slot:
    """A call as far as it has arrived."""

    def __init__(self, index: object = None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.is_named_late = False  # behind arguments
        self.fragments: list[str] = []
        self.arguments_object: JsonDict | None = None  # arguments that came as an object, not as text
        self.extra: JsonValue = None  # `extra_content`
        self.is_closed = False  # the wire said that nothing more belongs to it
        self.is_ended = False  # the wire said so, or something came after it
        self.is_finished = False  # a finish reason came: no arguments at all then means no arguments

    @property
    def text(self) -> str:
        if len(self.fragments) > 1:
            self.fragments = [join_pieces(self.fragments)]
        return self.fragments[0] if self.fragments else ""

    def add(self, fragment: str) -> None:
        """Add a piece of the arguments' text."""
        is_short = len(self.fragments) <= _PLACEHOLDER  # a long text is not joined anew with each piece
        if is_short and fragment.lstrip().startswith("{") and self.text.strip() == "{}":
            self.fragments = []  # the `{}` was a placeholder
        self.fragments.append(fragment)

    @property
    def has_arguments(self) -> bool:
        return bool(self.fragments) or self.arguments_object is not None

    def read_arguments(self) -> JsonDict | None:
        """Return the arguments object, or None while it is not whole."""
        if self.arguments_object is not None:
            return self.arguments_object
        text = self.text
        if not text.strip():
            return {} if self.is_finished else None
        value, why = parse_arguments(text)
        return value if why is None else None

    def to_call(self) -> StreamCall | None:
        arguments = self.read_arguments() if self.name else None
        return None if arguments is None else StreamCall(self.name, arguments, self.id or None, extra=self.extra)

    @property
    def is_blank(self) -> bool:
        """Nothing of a call came: servers send empty places."""
        return not (self.id or self.name or self.fragments or self.arguments_object)

    def to_message(self) -> JsonDict:
        """Build the call as its server would have sent it whole, readable or not."""
        arguments = self.text if self.arguments_object is None else self.arguments_object
        call = {"id": self.id or None, "type": "function", "function": {"name": self.name, "arguments": arguments}}
        return call if self.extra is None else {**call, "extra_content": self.extra}

    def format_fragment(self) -> str:
        return f"{self.name or '(no name yet)'}({self.text})"


class SlotList:
    """The calls of a reply in the order in which they began. `waiting` are those that `take` has not handed out."""

    def __init__(self) -> None:
        self.waiting: list[Slot] = []
        self._slots: list[Slot] = []
        self._by_index: dict[str, Slot] = {}  # the latest
        self._by_id: dict[str, Slot] = {}
        self._ended = 0  # as many have ended, from the first
        self._just_closed: list[Slot] = []

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots)

    def find(self, index: object, id: str = "") -> Slot | None:
        """Find the latest call of an index, else of an id, else the last of all."""
        if index is not None:
            return self._by_index.get(repr(index))
        return self._by_id.get(id) if id else self._slots[-1] if self._slots else None

    def add(self, slot: Slot) -> Slot:
        """Add a call: those before it have ended."""
        self.end_all()
        self._slots.append(slot)
        self.waiting.append(slot)
        if slot.index is not None:
            self._by_index[repr(slot.index)] = slot
        if slot.id:
            self._by_id[slot.id] = slot
        return slot

    def rename(self, slot: Slot, id: str) -> None:
        """Give `slot` another id."""
        if self._by_id.get(slot.id) is slot:
            del self._by_id[slot.id]
        slot.id = id
        self._by_id[id] = slot

    def end_all(self) -> None:
        """Record that something came after the calls so far; those that were closed were not cut off."""
        for slot in self._slots[self._ended :]:
            slot.is_ended = True
        self._ended = len(self._slots)
        for slot in self._just_closed:
            slot.is_finished = True
        self._just_closed = []

    def close(self, index: object) -> None:
        """Record that nothing more belongs to the call at `index`."""
        slot = self.find(index)
        if slot is not None:
            slot.is_closed = slot.is_ended = True
            self._just_closed.append(slot)

    def finish(self, *, is_cut_off: bool) -> None:
        """Record that the reply is over: every call is whole, but for the last one of a reply that was cut off."""
        for slot in self._slots:
            slot.is_ended = True
            slot.is_finished = slot.is_finished or not (is_cut_off and slot is self._slots[-1])

    def drop_blank(self) -> None:
        """Forget the empty places that servers send."""
        self._slots = [slot for slot in self._slots if not slot.is_blank]
        self._ended = min(self._ended, len(self._slots))

    def sort(self) -> list[Slot]:
        """Return the calls by the wire's index, which is a call's place in a reply that comes whole; as they began
        where that is no help."""
        indices = [slot.index for slot in self._slots]
        is_sortable = all(isinstance(index, int) for index in indices) and len(set(indices)) == len(indices)
        return sorted(self._slots, key=lambda slot: slot.index) if is_sortable else self._slots  # type: ignore[arg-type,return-value]


def explain_cut_off(fragment: str, reason: str | None, source: str = "stream") -> str:
    """Explain that a stream or reply ended before its call was whole."""
    excerpt = fragment if len(fragment) <= 200 else fragment[:200] + "…"
    why = f" (finish reason '{reason}')" if reason else ""
    return f"the {source} ended inside a function call{why}: {excerpt}; the call was not made"


# -- Gemini's calls: whole ones, and those whose arguments come as `partialArgs` (Vertex)

_PATH_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]|\[(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")\]")
_SNAKE = re.compile(r"_([a-z])")
_WIDEST_GAP = 10_000  # items of a list that may still be to come; more would only fill the memory


class CallParts:
    """Whole parts out of those that hold calls in pieces. `open_part` is the part of a call whose arguments are still
    arriving, `lost_part` one that another call followed before it was whole."""

    def __init__(self) -> None:
        self.open_part: JsonDict | None = None
        self.lost_part: JsonDict | None = None

    def add(self, part: JsonObject, call: JsonObject) -> JsonDict | None:
        """Add `part`, which holds `call`. Return the part that is whole with it, if one is."""
        if self.open_part is not None:
            name, id, open_call = call.get("name"), call.get("id"), self.open_part["functionCall"]
            is_other_id = id and open_call.get("id") and id != open_call["id"]
            if name and (name != open_call["name"] or is_other_id):
                self.lost_part, self.open_part = self.lost_part or self.open_part, None
        partial = call.get("partialArgs")
        if self.open_part is None:
            if not call.get("name"):
                return None  # a stray end marker
            if not partial and not call.get("willContinue"):
                return dict(part)
            fields = {key: value for key, value in call.items() if key not in ("partialArgs", "willContinue")}
            arguments = call.get("args")
            fields["args"] = dict(arguments) if isinstance(arguments, Mapping) else {}
            self.open_part = {**part, "functionCall": fields}
        if "thoughtSignature" in part:
            self.open_part.setdefault("thoughtSignature", part["thoughtSignature"])
        for piece in partial if isinstance(partial, list) else ():
            _set_value(self.open_part["functionCall"]["args"], piece)
        if call.get("willContinue"):
            return None
        complete_part, self.open_part = self.open_part, None
        return complete_part

    @property
    def unfinished(self) -> str | None:
        """The description of a call that is not whole."""
        part = self.lost_part or self.open_part
        return None if part is None else format_call(part["functionCall"])


def format_call(call: JsonObject) -> str:
    """Format a call for a message."""
    return f"{call.get('name')}({call.get('args')})"


class GeminiCalls:
    """Collected calls. `completed`: (name, arguments, id); `unfinished`: the description of one that is no call, or not
    yet."""

    def __init__(self) -> None:
        self.completed: list[tuple[str, JsonDict, str | None]] = []
        self._parts = CallParts()
        self._unreadable: str | None = None

    @property
    def unfinished(self) -> str | None:
        return self._unreadable or self._parts.unfinished

    def add_part(self, part: JsonObject) -> None:
        part = to_wire_keys(part)
        call = part.get("functionCall")
        complete_part = self._parts.add(part, call) if isinstance(call, Mapping) else None
        if complete_part is None:
            return
        complete_call = complete_part["functionCall"]
        arguments = complete_call.get("args")
        if arguments is None or isinstance(arguments, Mapping):
            self.completed.append((complete_call["name"], dict(arguments or {}), complete_call.get("id")))
        else:
            self._unreadable = self._unreadable or format_call(complete_call)


_DATA = frozenset({"args", "response", "parameters", "parameters_json_schema", "parametersJsonSchema"})  # no API's keys


def to_wire_keys(data: T) -> T:
    """JSON of the API with the keys that the wire has, where Python's client spells them in its own way."""
    converted: object = data
    if isinstance(data, list):
        converted = [to_wire_keys(item) for item in data]
    elif isinstance(data, Mapping):
        converted = {
            _SNAKE.sub(lambda match: match[1].upper(), key): value if key in _DATA else to_wire_keys(value)
            for key, value in data.items()
        }
    return cast("T", converted)


def _set_value(arguments: JsonDict, piece: object) -> None:
    """Set the value that a `partialArgs` piece brings; chunks of a string append to it."""
    if not isinstance(piece, Mapping):
        return
    kinds = ("stringValue", "numberValue", "boolValue")
    value = next((piece[kind] for kind in kinds if piece.get(kind) is not None), None)
    steps: list[Any] = [
        int(match[2]) if match[2] else match[1] or match[3] or match[4] or ""
        for match in _PATH_STEP.finditer(str(piece.get("jsonPath", "")))
    ]
    target: Any = arguments
    for step, following in zip(steps, [*steps[1:], None], strict=False):  # without steps there is nothing to set
        if isinstance(target, list) and isinstance(step, int):
            if step > len(target) + _WIDEST_GAP:
                return
            target.extend([None] * (step + 1 - len(target)))
            old = target[step]
        elif isinstance(target, dict) and isinstance(step, str):
            old = target.get(step)
        else:
            return
        if following is None:
            target[step] = old + value if isinstance(old, str) and isinstance(value, str) else value
        else:
            target[step] = old if isinstance(old, (dict, list)) else [] if isinstance(following, int) else {}
            target = target[step]
