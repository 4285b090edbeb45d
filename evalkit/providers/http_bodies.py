"""Bodies of HTTP messages as readable data, and back to bytes.

JSON is data, forms are a mapping, other text is text, and the rest is base64. Compressed bodies are unpacked first.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping
from email.message import Message
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

FORMS = ("json", "form", "text", "base64")
MAX_READABLE = 200_000  # JSON beyond this (embeddings, files) stays one line of text
MAX_DEPTH = 60
_BOUNDARY = "multipart-boundary"
_UNREADABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


class Body(Struct, frozen=True):
    """A body as it stands in a cassette: under the key `form` (one of FORMS) the data `value`. None: no body."""

    form: str = "text"
    value: Any = None


def read_body(content: bytes, content_type: str) -> Body:
    """`content` in the most readable form that loses nothing but the white space of JSON."""
    if not content:
        return Body()
    kind, charset = _parse_content_type(content_type)
    if kind == "application/x-www-form-urlencoded" and (fields := _parse_form(content)) is not None:
        return Body("form", fields)
    if kind.startswith("multipart/"):
        content = _replace_boundary(content, content_type)
    try:
        text = content.decode(charset)
    except (UnicodeDecodeError, LookupError):
        return _encode_binary(content)
    if ("json" in kind or text.lstrip()[:1] in ("{", "[")) and (data := _parse_json(text)) is not None:
        return Body("json", data)
    if _UNREADABLE.search(text) or text.encode(charset) != content:
        return _encode_binary(content)
    return Body("text", text)


def encode_body(body: Body, content_type: str) -> bytes:
    """The bytes that `read_body` read, but for the white space of JSON."""
    if body.value is None and body.form != "json":
        return b""
    if body.form == "base64":
        return base64.b64decode(body.value)
    if body.form == "json":
        return json.dumps(body.value, ensure_ascii=False, separators=(",", ":")).encode()
    return str(body.value).encode(_parse_content_type(content_type)[1])


def unpack_content(content: bytes, encoding: str) -> bytes | None:
    """`content` without its ``Content-Encoding``; None for an encoding that the standard library does not know."""
    for name in reversed([part.strip().lower() for part in encoding.split(",") if part.strip()]):
        if name in ("gzip", "x-gzip", "deflate"):
            try:
                content = zlib.decompress(content, wbits=zlib.MAX_WBITS | 32)
            except zlib.error:
                try:
                    content = zlib.decompress(content, wbits=-zlib.MAX_WBITS)
                except zlib.error:
                    return None
        elif name != "identity":
            return None
    return content


def _parse_content_type(value: str) -> tuple[str, str]:
    """The media type, in lower case, and the charset."""
    message = Message()
    message["content-type"] = value or "application/octet-stream"
    return message.get_content_type().lower(), message.get_content_charset("utf-8")


def _parse_form(content: bytes) -> dict[str, Any] | None:
    try:
        pairs = parse_qsl(content.decode(), keep_blank_values=True, strict_parsing=True)
    except ValueError:
        return None
    fields: dict[str, Any] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _replace_boundary(content: bytes, content_type: str) -> bytes:
    """Clients draw the boundary by lot for each request."""
    message = Message()
    message["content-type"] = content_type
    boundary = message.get_boundary("")
    return content.replace(boundary.encode(), _BOUNDARY.encode()) if boundary else content


def _parse_json(text: str) -> Any:
    """The data, or None for what is no JSON or would not come back as it was."""
    if len(text) > MAX_READABLE:
        return None
    try:
        data = json.loads(text, object_pairs_hook=_build_unique_object, parse_constant=_refuse_constant)
        text.encode()
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, (dict, list)) and not _is_unwritable(data, 0) else None


def _build_unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a key stands twice")
    return fields


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _is_unwritable(data: Any, depth: int) -> bool:
    """Whether YAML could not hold it: nested too deeply, or with half a surrogate pair."""
    if isinstance(data, str):
        return any("\ud800" <= char <= "\udfff" for char in data) if not data.isascii() else False
    if isinstance(data, Mapping):
        return depth > MAX_DEPTH or any(
            _is_unwritable(key, depth) or _is_unwritable(item, depth + 1) for key, item in data.items()
        )
    return isinstance(data, list) and (depth > MAX_DEPTH or any(_is_unwritable(item, depth + 1) for item in data))


def _encode_binary(content: bytes) -> Body:
    return Body("base64", base64.b64encode(content).decode())
