"""What stands between tags when it is no JSON: child tags, `name: "arg"`, `name(arg=1)`, a name alone."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from evalkit.textcalls.lenient_json import MalformedJsonError, decode
from evalkit.textcalls.names import Names, RejectedCallError
from evalkit.textcalls.python_calls import NotACallError, read_calls

Calls = list[tuple[str, dict[str, Any], list[str]]]

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
        """Whether a call's content has begun here (the envelope's end never came)."""
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
        """The calls in `body`. `named`: the tag gave the function's name."""
        if named is not None:
            return self._read_named(body, named)
        if not body.strip():
            return []
        name_match = _NAME.match(body)
        if name_match is None:
            return self._read_python_list(body)
        rest = body[name_match.end() :]
        if rest.startswith("("):
            return self._try_python(body)
        if not rest.strip():
            return self._read_bare_name(name_match[1])
        pairs = list(_find_pairs(rest))
        if pairs:
            return self._read_pairs(name_match[1], pairs)
        if rest.startswith(":"):
            return self._read_after_colon(name_match[1], rest[1:].strip())
        if rest.startswith("{"):
            return self._read_json_arguments(name_match[1], rest)
        return []

    def read_python(self, source: str, *, explicit: bool) -> Calls:
        """Calls in Python's syntax. Raises NotACallError when it is none."""
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

    def _read_python_list(self, body: str) -> Calls:
        return self._try_python(body) if body.lstrip().startswith("[") else []

    def _read_bare_name(self, written_name: str) -> Calls:
        """A name and nothing else is a call only where it is declared and needs no arguments."""
        if not self.names.has_declarations:
            return []
        repairs: list[str] = []
        name = self.names.resolve(written_name, repairs, explicit=True)
        return [(name, {}, repairs)]

    def _read_pairs(self, written_name: str, pairs: list[tuple[str, str]]) -> Calls:
        repairs: list[str] = []
        name = self.names.resolve(written_name, repairs, explicit=True)
        return [(name, {key: self.names.parse_typed(name, key, text) for key, text in pairs}, repairs)]

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
            arguments = self._read_children(name, body)
            if not arguments:
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

    def _read_children(self, name: str, body: str) -> dict[str, str]:
        """Declared arguments as child tags, where nothing but them stands in the envelope."""
        arguments = dict(_split_children(body) or ())
        return arguments if set(arguments) <= set(self.names.get_properties(name)) else {}


def _split_children(body: str) -> list[tuple[str, str]] | None:
    """Names and contents of the child tags, if nothing else stands in `body`."""
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
    """``<arg_key>...</arg_key><arg_value>...</arg_value>``, one after the other."""
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
    """A value on lines of its own: the line breaks beside the tags belong to them."""
    inner = text.removeprefix("\r").removeprefix("\n")
    return text if inner == text else inner.removesuffix("\n").removesuffix("\r")
