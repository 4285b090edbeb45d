"""Calls in tags: envelopes, the content of tags that is no JSON, and what all readers of envelopes share."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct, field

from evalkit.jsonvalue import JsonDict
from evalkit.model.transcript import FieldAccess
from evalkit.textcalls.lenient_json import IncompleteJsonError, MalformedJsonError, decode
from evalkit.textcalls.names import Names, NotACallError, RejectedCallError, read_calls


class TextCall(FieldAccess, Struct, frozen=True):
    """A recovered call. Fields are also read by key: ``call["name"]``."""

    name: str
    arguments: JsonDict
    raw: str
    repairs: tuple[str, ...] = ()
    start: int = 0
    end: int = 0

    @property
    def standard(self) -> str:
        """The call in the standard form, for the conversation's history."""
        body = json.dumps({"name": self.name, "parameters": self.arguments}, ensure_ascii=False)
        return f"<function>{body}</function>"


class Rejected(Struct, frozen=True):
    """A text that looks like a call and may not be made, with the reason."""

    raw: str
    reason: str


# -- tags

_ENVELOPE = re.compile(r"(?:[\w-]+[_:])?(?:function|tool)_?calls?|function|tool|tool_code|invoke", re.IGNORECASE)
_OPEN_TAG = re.compile(
    r"<\s*(?P<tag>[A-Za-z_][\w.:-]*)(?:\s*=\s*[\"']?(?P<value>[\w.:-]+)[\"']?)?"
    r"(?P<attributes>(?:\s+[\w-]+\s*=\s*(?:\"[^\"<>]*\"|'[^'<>]*'))*)\s*(?P<empty>/?)>"
)
_ATTRIBUTE = re.compile(r"([\w-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_CLOSE_TAG = re.compile(r"<\s*/\s*([A-Za-z_][\w.:-]*)\s*>")
_WRAPPED = re.compile(r"\s*<\s*(?:function|invoke|tool_call)\b", re.IGNORECASE)
_INNER = re.compile(_WRAPPED.pattern.removeprefix(r"\s*"), re.IGNORECASE)
_FENCE_OPEN = re.compile(r"\s*```[\w+-]*[ \t]*\n?")
_FENCE_CLOSE = re.compile(r"\s*```")
_EXTRA_CLOSERS = re.compile(r"[\s}\],;]*")
BETWEEN = re.compile(r"[\s;,]*")
SPACE = re.compile(r"\s*")
LIST_OF_CALLS = re.compile(r"\[\s*[A-Za-z_][\w.]*\s*\(")
_BUDGET_FACTOR = 4
_BUDGET_BASE = 50_000


class _Span(Struct):
    """A piece of the text that is no prose: calls and what wraps them."""

    start: int
    end: int
    calls: list[TextCall] = field(default_factory=list)


class StopError(Exception):
    """The rest of the text belongs to a call that is not finished, or the budget is spent."""


class Envelopes:
    """The text under search, what was found in it so far, and the readers of explicit envelopes."""

    def __init__(self, text: str, names: Names) -> None:
        self.text = text
        self.names = names
        self.forms = Forms(names)
        self.spans: list[_Span] = []
        self.rejected: list[Rejected] = []
        self.unfinished: str | None = None
        self.open_at: int | None = (
            None  # where something begins that is no call, and may become one or hold what is none
        )
        self.budget = _BUDGET_FACTOR * len(text) + _BUDGET_BASE
        self._closers: list[tuple[int, int, str]] | None = None

    def _spend(self, cost: int) -> None:
        self.budget -= cost
        if self.budget < 0:
            self.rejected.append(Rejected("", "too tangled: the search for calls was given up"))
            raise StopError

    def _add(self, start: int, end: int, entries: Iterable[tuple[str, JsonDict, list[str]]]) -> int:
        raw = self.text[start:end]
        calls = [TextCall(name, arguments, raw, tuple(notes), start, end) for name, arguments, notes in entries]
        self.spans.append(_Span(start, end, calls))
        return end

    def _refuse(self, start: int, end: int, reason: str) -> None:
        self.rejected.append(Rejected(self.text[start : min(end, start + 500)], reason))

    def _leave_unfinished(self, start: int) -> None:
        self.unfinished = self.text[start:]
        raise StopError

    def _mark_open(self, start: int) -> None:
        self.open_at = start if self.open_at is None else self.open_at

    # -- explicit envelopes

    def _read_tag(self, start: int) -> int | None:
        opened = _OPEN_TAG.match(self.text, start)
        if opened is None:
            return None
        tag = opened["tag"].lower()
        attributes = {key.lower(): double or single for key, double, single in _ATTRIBUTE.findall(opened["attributes"])}
        is_known = self.names.has_declarations and self.names.is_known(opened["tag"])
        if not _ENVELOPE.fullmatch(tag) and not is_known:
            return None
        named = (
            opened["tag"] if is_known and not _ENVELOPE.fullmatch(tag) else opened["value"] or attributes.get("name")
        )
        if opened["empty"]:
            if named is None:
                return None
            notes = ["arguments as attributes"] if set(attributes) - {"name"} else []
            try:
                name = self.names.resolve(named, notes, explicit=True)
            except RejectedCallError as refused:
                self._refuse(start, opened.end(), str(refused))
                return opened.end()
            typed = {key: self.names.parse_typed(name, key, text) for key, text in attributes.items() if key != "name"}
            return self._add(start, opened.end(), [(name, typed, notes)])
        content = opened.end()
        space = SPACE.match(self.text, content)
        first = space.end() if space else content
        fence = _FENCE_OPEN.match(self.text, first)
        first = fence.end() if fence else first
        if self.text.startswith(("{", "["), first) and not LIST_OF_CALLS.match(self.text, first):
            return self._read_json_envelope(start, first, tag, named)
        return self._read_text_envelope(start, content, tag, named)

    def _read_json_envelope(self, start: int, first: int, tag: str, named: str | None) -> int | None:
        begin, position = start, first  # each object is kept as it is read: the next one may be cut off
        while True:
            value, position, notes = self.decode_json(begin, position, tag)
            if value is None:
                return begin if begin > start else None
            try:
                calls = self.read_calls(value, notes, explicit=True, named=named)
            except RejectedCallError as refused:
                position, _ = self._close_envelope(position, tag, named)
                self._refuse(begin, position, str(refused))
                return position
            between = BETWEEN.match(self.text, position)
            following = between.end() if between else position
            if not self.text.startswith("{", following):
                break
            begin, position = self._add(begin, position, calls), following
        end, note = self._close_envelope(position, tag, named or calls[-1][0])
        if note:
            calls[-1][2].append(note)
        return self._add(begin, end, calls)

    def decode_json(self, start: int, first: int, tag: str) -> tuple[Any, int, list[str]]:
        """Read (value, end, repairs) of JSON in an envelope; the value is None when there is none."""
        closer = self._find_next_closer(first, tag)
        for end, closed in (
            ((len(self.text), False), (closer, True)) if closer is not None else ((len(self.text), False),)
        ):
            try:
                decoded = decode(self.text, first, end, closed=closed)
            except IncompleteJsonError as error:
                self._spend(error.work)
                if closer is None:
                    self._leave_unfinished(start)
                self._mark_open(start)
            except MalformedJsonError as error:
                self._spend(200 + error.work)
                if closed or closer is None:
                    self._refuse(start, self._close_envelope(end, tag, None)[0], f"malformed: {error}")
            else:
                if closed or closer is None or not (isinstance(decoded.value, str) and "<function" in decoded.value):
                    return decoded.value, decoded.end, decoded.repairs
        return None, first, []

    def _close_envelope(self, position: int, tag: str, named: str | None) -> tuple[int, str | None]:
        """Find the end of the envelope whose content ended at `position`, and describe what is odd about it."""
        fence = _FENCE_CLOSE.match(self.text, position)
        position = fence.end() if fence else position
        extra = _EXTRA_CLOSERS.match(self.text, position)
        here = extra.end() if extra else position
        closing = _CLOSE_TAG.match(self.text, here)
        closing_tag = closing[1].lower() if closing else ""
        can_close = closing_tag in (tag, (named or tag).lower()) or _ENVELOPE.fullmatch(closing_tag)
        if closing is None or not can_close:
            return position, "the closing tag was missing"
        skipped = self.text[position:here].strip()
        if skipped:
            return closing.end(), "extra closing braces"
        if closing_tag != tag:
            return closing.end(), f"closed by </{closing[1]}>"
        return closing.end(), None

    def _find_next_closer(self, position: int, tag: str) -> int | None:
        """Find the position of the next closing tag that may close a `tag`."""
        if self._closers is None:
            self._closers = [(m.start(), m.end(), m[1].lower()) for m in _CLOSE_TAG.finditer(self.text)]
        for index in range(bisect_left(self._closers, (position, 0, "")), len(self._closers)):
            self._spend(1)
            if self._closers[index][2] == tag or _ENVELOPE.fullmatch(self._closers[index][2]):
                return self._closers[index][0]
        return None

    def _read_text_envelope(self, start: int, content: int, tag: str, named: str | None) -> int | None:
        """Read an envelope whose content is no JSON: child tags, `name: "arg"`, `name(...)`, or other envelopes."""
        closer = self.find_own_closer(content, named or "" if not _ENVELOPE.fullmatch(tag) else tag)
        if closer is None:
            if self.forms.is_call_start(self.text, content, named):
                self._leave_unfinished(start)
            self._mark_open(start)
            return None
        if named is None and _WRAPPED.match(self.text, content, closer[0]):
            # A mere wrapper: its content is searched, and its tags are no prose.
            self.spans += [_Span(start, content), _Span(*closer)]
            return content
        self._spend(closer[0] - content)
        try:
            calls = self.forms.read(self.text[content : closer[0]], named)
        except RejectedCallError as refused:
            if named is None and _INNER.search(self.text, content, closer[0]):
                return None  # prose that mentions the tag, before the envelope that the closing tag belongs to
            self._refuse(start, closer[1], str(refused))
            return closer[1]
        return self._add(start, closer[1], calls) if calls else None

    def find_own_closer(self, position: int, tag: str) -> tuple[int, int] | None:
        """Find the start and the end of the next closing tag of `tag` itself."""
        if self._find_next_closer(position, tag) is None and self._closers == []:
            return None
        closers = self._closers or []
        for index in range(bisect_left(closers, (position, 0, "")), len(closers)):
            self._spend(1)
            if closers[index][2] == tag.lower():
                return closers[index][0], closers[index][1]
        return None

    def read_calls(
        self, value: object, notes: list[str], *, explicit: bool, named: str | None = None
    ) -> list[tuple[str, JsonDict, list[str]]]:
        """Read the calls of a JSON value: an object, a list of them, or `{"tool_calls": [...]}`."""
        if isinstance(value, dict) and isinstance(value.get("tool_calls"), list):
            value = value["tool_calls"]
        if isinstance(value, list) and not value:
            raise RejectedCallError("an empty list of calls")
        calls = []
        for item in value if isinstance(value, list) else [value]:
            repairs = list(notes)
            name, arguments = self.names.read_call(item, repairs, explicit=explicit, named=named)
            calls.append((name, arguments, repairs))
        return calls


# -- content of tags that is no JSON: child tags, `name: "arg"`, `name(arg=1)`, a name alone

Calls = list[tuple[str, JsonDict, list[str]]]

_PARAMETER = re.compile(
    r"<\s*(?:parameter|param|arg)(?:\s*=\s*[\"']?(?P<equals>[\w.-]+)[\"']?|\s+name\s*=\s*[\"'](?P<name>[^\"'<>]+)[\"'])[^<>]*>"
    r"(?P<value>.*?)(?:<\s*/\s*(?:parameter|param|arg)\s*>|(?=<\s*parameter\b)|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_CHILD = re.compile(r"\s*<\s*([A-Za-z_][\w.-]*)\s*>")
_CHILD_END = re.compile(r"<\s*/\s*([A-Za-z_][\w.-]*)\s*>")
_PAIR_PART = re.compile(r"\s*<arg_(key|value)>")
_NAME = re.compile(r"\s*([A-Za-z_][\w.-]*)\s*")


class Forms:
    """Readers of an envelope's content. Each gives the calls, or nothing, or refuses with a reason."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def is_call_start(self, text: str, position: int, named: str | None) -> bool:
        """Tell whether a call's content has begun here (the envelope's end never came)."""
        rest = text[position : position + 200].lstrip()
        if named is not None:
            return rest.startswith("<") or not rest
        name_match = _NAME.match(rest)
        return bool(
            name_match
            and self.names.has_declarations
            and self.names.is_known(name_match[1])
            and rest[name_match.end() :][:1] in ":({<"
        )

    def read(self, body: str, named: str | None) -> Calls:
        """Read the calls in `body`. `named`: the tag gave the function's name."""
        if named is not None:
            return self._read_named(body, named)
        if not body.strip():
            return []
        name_match = _NAME.match(body)
        if name_match is None:
            return self._try_python(body) if body.lstrip().startswith("[") else []
        rest = body[name_match.end() :]
        if rest.startswith("("):
            return self._try_python(body)
        if not rest.strip():
            written_name = name_match[1]
            if not self.names.has_declarations:
                return []
            repairs: list[str] = []
            name = self.names.resolve(written_name, repairs, explicit=True)
            return [(name, {}, repairs)]
        pairs = list(_find_pairs(rest))
        if pairs:
            notes: list[str] = []
            name = self.names.resolve(name_match[1], notes, explicit=True)
            return [(name, {key: self.names.parse_typed(name, key, text) for key, text in pairs}, notes)]
        if rest.startswith(":"):
            return self._read_after_colon(name_match[1], rest[1:].strip())
        if rest.startswith("{"):
            return self._read_json_arguments(name_match[1], rest)
        return []

    def read_python(self, source: str, *, explicit: bool) -> Calls:
        """Read calls in Python's syntax. Raises NotACallError when it is none."""
        calls: Calls = []
        for written_name, positional, keywords, notes in read_calls(source):
            repairs = list(notes)
            name = self.names.resolve(written_name.removesuffix(".call"), repairs, explicit=explicit)
            by_position = self.names.bind_positional(name, positional, repairs)
            if set(by_position) & set(keywords):
                raise RejectedCallError(f"'{name}' was given an argument twice")
            calls.append((name, by_position | keywords, repairs))
        return calls

    def _try_python(self, body: str) -> Calls:
        source = body.strip()
        try:
            return self.read_python(source, explicit=True)
        except NotACallError:
            pass
        # The envelope was closed, so that nothing is missing: the model wrote the bracket of another language.
        opened, closing = source[:1] == "[", source[-1:]
        if closing not in ("}", "]", ">") or (opened and closing == "]"):
            return []
        return self._read_repaired(f"{source[:-1]}{']' if opened else ')'}")

    def _read_repaired(self, source: str) -> Calls:
        try:
            calls = self.read_python(source, explicit=True)
        except NotACallError:
            return []
        for _, _, repairs in calls:
            repairs.append("the wrong closing bracket")
        return calls

    def _read_json_arguments(self, written_name: str, rest: str) -> Calls:
        repairs: list[str] = []
        name = self.names.resolve(written_name, repairs, explicit=True)
        try:
            decoded = decode(rest, 0, len(rest), closed=True)
        except MalformedJsonError as error:
            raise RejectedCallError(f"malformed: {error}") from None
        if not isinstance(decoded.value, dict) or rest[decoded.end :].strip():
            raise RejectedCallError("the arguments are no JSON object")
        return [(name, decoded.value, repairs + decoded.repairs)]

    def _read_after_colon(self, written_name: str, rest: str) -> Calls:
        if rest.startswith("{"):
            return self._read_json_arguments(written_name, rest)
        try:
            return self.read_python(f"{written_name}({rest})", explicit=True)
        except NotACallError:
            mended = self._read_repaired(f"{written_name}({rest[:-1]})") if rest[-1:] in ("}", "]", ">", ")") else []
        if mended:
            return mended
        repairs: list[str] = []
        name = self.names.resolve(written_name, repairs, explicit=True)
        if len(self.names.get_properties(name)) != 1 or not rest:
            raise RejectedCallError(f"the arguments of '{name}' could not be read: {rest[:80]!r}")
        repairs.append("quotes around the argument were missing")
        return [(name, self.names.bind_positional(name, [rest], repairs), repairs)]

    def _read_named(self, body: str, named: str) -> Calls:
        repairs: list[str] = []
        name = self.names.resolve(named, repairs, explicit=True)
        arguments = {(match["equals"] or match["name"]).strip(): match["value"] for match in _PARAMETER.finditer(body)}
        if not arguments and body.strip():
            arguments = dict(_split_children(body) or ())
            if not arguments or not set(arguments) <= set(self.names.get_properties(name)):
                if _CHILD_END.search(body):
                    raise RejectedCallError(f"the arguments of '{name}' could not be read: {body.strip()[:80]!r}")
                return self._read_after_colon(named, body.strip()) if self.names.has_declarations else []
        return [
            (
                name,
                {key: self.names.parse_typed(name, key, _trim_lines(text)) for key, text in arguments.items()},
                repairs,
            )
        ]


def _split_children(body: str) -> list[tuple[str, str]] | None:
    """Split `body` into names and contents of child tags; None if anything else stands in it."""
    ends: dict[str, list[tuple[int, int]]] = {}
    for end in _CHILD_END.finditer(body):
        ends.setdefault(end[1], []).append(end.span())
    children, position = [], 0
    while (opened := _CHILD.match(body, position)) is not None:
        spans = ends.get(opened[1], [])
        place = bisect_left(spans, (opened.end(), 0))
        if place == len(spans):
            return None
        children.append((opened[1], body[opened.end() : spans[place][0]]))
        position = spans[place][1]
    return None if body[position:].strip() else children


def _find_pairs(rest: str) -> Iterator[tuple[str, str]]:
    """Find ``<arg_key>...</arg_key><arg_value>...</arg_value>``, one after the other."""
    position, key = 0, None
    while (opened := _PAIR_PART.match(rest, position)) is not None:
        end = rest.find(f"</arg_{opened[1]}>", opened.end())
        if end < 0:
            return
        text = rest[opened.end() : end]
        position = end + len(f"</arg_{opened[1]}>")
        if opened[1] == "key":
            key = text.strip()
        elif key is not None:
            yield key, text
            key = None


def _trim_lines(text: str) -> str:
    """Trim a value on lines of its own: the line breaks beside the tags belong to them."""
    inner = text.removeprefix("\r").removeprefix("\n")
    return text if inner == text else inner.removesuffix("\n").removesuffix("\r")
