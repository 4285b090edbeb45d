"""What stands between tags when it is no JSON: child tags, `name: "arg"`, `name(arg=1)`, a name alone."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from evalkit.providers.textcalls_json import decode
from evalkit.providers.textcalls_lenient import NotJsonError
from evalkit.providers.textcalls_names import Names, RefusedError
from evalkit.providers.textcalls_python import NotACallError, read_calls

Found = list[tuple[str, dict[str, Any], list[str]]]

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

    def begins(self, text: str, position: int, named: str | None) -> bool:
        """Whether a call's content has begun here (the envelope's end never came)."""
        rest = text[position : position + 200].lstrip()
        if named is not None:
            return rest.startswith("<") or not rest
        written = _NAME.match(rest)
        return bool(
            written and self.names.declared and self.names.knows(written[1]) and rest[written.end() :][:1] in ":({<"
        )

    def read(self, body: str, named: str | None) -> Found:
        """The calls in `body`. `named`: the tag gave the function's name."""
        if named is not None:
            return self._named(body, named)
        if not body.strip():
            return []
        written = _NAME.match(body)
        if written is None:
            return self._pythonic_list(body)
        rest = body[written.end() :]
        if rest.startswith("("):
            return self._python_or_nothing(body)
        if not rest.strip():
            return self._alone(written[1])
        pairs = list(_pairs(rest))
        if pairs:
            return self._typed_pairs(written[1], pairs)
        if rest.startswith(":"):
            return self._after_colon(written[1], rest[1:].strip())
        if rest.startswith("{"):
            return self._json_arguments(written[1], rest)
        return []

    def python(self, source: str, *, explicit: bool) -> Found:
        """Calls in Python's syntax. Raises NotACallError when it is none."""
        found: Found = []
        for written, positional, given, notes in read_calls(source):
            repairs = list(notes)
            name = self.names.resolve(written.removesuffix(".call"), repairs, explicit=explicit)
            by_position = self.names.positional(name, positional, repairs)
            if set(by_position) & set(given):
                raise RefusedError(f"'{name}' was given an argument twice")
            found.append((name, by_position | given, repairs))
        return found

    def _python_or_nothing(self, body: str) -> Found:
        source = body.strip()
        try:
            return self.python(source, explicit=True)
        except NotACallError:
            pass
        # The envelope was closed, so that nothing is missing: the model wrote the bracket of another language.
        opened, closing = source[:1] == "[", source[-1:]
        if closing not in ("}", "]", ">") or (opened and closing == "]"):
            return []
        return self._mended(f"{source[:-1]}{']' if opened else ')'}")

    def _mended(self, source: str) -> Found:
        try:
            found = self.python(source, explicit=True)
        except NotACallError:
            return []
        for _, _, repairs in found:
            repairs.append("the wrong closing bracket")
        return found

    def _pythonic_list(self, body: str) -> Found:
        return self._python_or_nothing(body) if body.lstrip().startswith("[") else []

    def _alone(self, written: str) -> Found:
        """A name and nothing else is a call only where it is declared and needs no arguments."""
        if not self.names.declared:
            return []
        repairs: list[str] = []
        name = self.names.resolve(written, repairs, explicit=True)
        return [(name, {}, repairs)]

    def _typed_pairs(self, written: str, pairs: list[tuple[str, str]]) -> Found:
        repairs: list[str] = []
        name = self.names.resolve(written, repairs, explicit=True)
        return [(name, {key: self.names.typed(name, key, text) for key, text in pairs}, repairs)]

    def _json_arguments(self, written: str, rest: str) -> Found:
        repairs: list[str] = []
        name = self.names.resolve(written, repairs, explicit=True)
        try:
            decoded = decode(rest, 0, len(rest), closed=True)
        except NotJsonError as error:
            raise RefusedError(f"malformed: {error}") from None
        if not isinstance(decoded.value, dict) or rest[decoded.end :].strip():
            raise RefusedError("the arguments are no JSON object")
        return [(name, decoded.value, repairs + decoded.repairs)]

    def _after_colon(self, written: str, rest: str) -> Found:
        if rest.startswith("{"):
            return self._json_arguments(written, rest)
        try:
            return self.python(f"{written}({rest})", explicit=True)
        except NotACallError:
            mended = self._mended(f"{written}({rest[:-1]})") if rest[-1:] in ("}", "]", ">", ")") else []
        if mended:
            return mended
        repairs: list[str] = []
        name = self.names.resolve(written, repairs, explicit=True)
        if len(self.names.properties(name)) != 1 or not rest:
            raise RefusedError(f"the arguments of '{name}' could not be read: {rest[:80]!r}")
        repairs.append("quotes around the argument were missing")
        return [(name, self.names.positional(name, [rest], repairs), repairs)]

    def _named(self, body: str, named: str) -> Found:
        repairs: list[str] = []
        name = self.names.resolve(named, repairs, explicit=True)
        given = {(match["equals"] or match["name"]).strip(): match["value"] for match in _PARAMETER.finditer(body)}
        if not given and body.strip():
            given = self._children(name, body)
            if not given:
                if _CHILD_END.search(body):
                    raise RefusedError(f"the arguments of '{name}' could not be read: {body.strip()[:80]!r}")
                return self._after_colon(named, body.strip()) if self.names.declared else []
        return [(name, {key: self.names.typed(name, key, _trimmed(text)) for key, text in given.items()}, repairs)]

    def _children(self, name: str, body: str) -> dict[str, str]:
        """Declared arguments as child tags, where nothing but them stands in the envelope."""
        given = dict(_children(body) or ())
        return given if set(given) <= set(self.names.properties(name)) else {}


def _children(body: str) -> list[tuple[str, str]] | None:
    """Names and contents of the child tags, if nothing else stands in `body`."""
    ends: dict[str, list[tuple[int, int]]] = {}
    for end in _CHILD_END.finditer(body):
        ends.setdefault(end[1], []).append(end.span())
    found, position = [], 0
    while (opened := _CHILD.match(body, position)) is not None:
        known = ends.get(opened[1], [])
        place = bisect_left(known, (opened.end(), 0))
        if place == len(known):
            return None
        found.append((opened[1], body[opened.end() : known[place][0]]))
        position = known[place][1]
    return None if body[position:].strip() else found


def _pairs(rest: str) -> Iterator[tuple[str, str]]:
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


def _trimmed(text: str) -> str:
    """A value on lines of its own: the line breaks beside the tags belong to them."""
    inner = text.removeprefix("\r").removeprefix("\n")
    return text if inner == text else inner.removesuffix("\n").removesuffix("\r")
