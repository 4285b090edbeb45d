"""What stands between tags when it is no JSON: child tags, `name: "arg"`, `name(arg=1)`, a name alone."""

from __future__ import annotations

import re
from typing import Any

from evalkit.providers.textcalls_json import NotJsonError, decode
from evalkit.providers.textcalls_names import Names, RefusedError
from evalkit.providers.textcalls_python import NotACallError, read_calls

Found = list[tuple[str, dict[str, Any], list[str]]]

_PARAMETER = re.compile(
    r"<\s*(?:parameter|param|arg)\s*(?:=\s*[\"']?(?P<equals>[\w.-]+)[\"']?|\s+name\s*=\s*[\"'](?P<name>[^\"'<>]+)[\"'])[^<>]*>"
    r"(?P<value>.*?)(?:<\s*/\s*(?:parameter|param|arg)\s*>|(?=<\s*parameter\b)|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_CHILD = re.compile(r"<\s*([A-Za-z_][\w.-]*)\s*>(.*?)<\s*/\s*\1\s*>", re.DOTALL)
_PAIR = re.compile(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", re.DOTALL)
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
        if _PAIR.match(rest):
            return self._pairs(written[1], rest)
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
        try:
            return self.python(body.strip(), explicit=True)
        except NotACallError:
            return []

    def _pythonic_list(self, body: str) -> Found:
        return self._python_or_nothing(body) if body.lstrip().startswith("[") else []

    def _alone(self, written: str) -> Found:
        """A name and nothing else is a call only where it is declared and needs no arguments."""
        if not self.names.declared:
            return []
        repairs: list[str] = []
        name = self.names.resolve(written, repairs, explicit=True)
        return [(name, {}, repairs)]

    def _pairs(self, written: str, rest: str) -> Found:
        repairs: list[str] = []
        name = self.names.resolve(written, repairs, explicit=True)
        given = {key.strip(): self.names.typed(name, key.strip(), text) for key, text in _PAIR.findall(rest)}
        return [(name, given, repairs)]

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
            pass
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
                return self._after_colon(named, body.strip()) if self.names.declared else []
        return [(name, {key: self.names.typed(name, key, _trimmed(text)) for key, text in given.items()}, repairs)]

    def _children(self, name: str, body: str) -> dict[str, str]:
        """Declared arguments as child tags, where nothing but them stands in the envelope."""
        given = dict(_CHILD.findall(body))
        if not given or _CHILD.sub("", body).strip() or not set(given) <= set(self.names.properties(name)):
            return {}
        return given


def _trimmed(text: str) -> str:
    """A value on lines of its own: the line breaks beside the tags belong to them."""
    inner = text.removeprefix("\r").removeprefix("\n")
    return text if inner == text else inner.removesuffix("\n").removesuffix("\r")
