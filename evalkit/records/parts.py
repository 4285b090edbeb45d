"""Parts of a user's message: texts, images and files, as the case lists them under `parts`.

The loader adds to each image and file what identifies its content: `path` from the project's root, `mime_type`, `bytes`
and `sha256`. Run files, reports and cassettes hold these, and never the content.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from evalkit.errors import MockError
from evalkit.jsonvalue import JsonDict, JsonObject, filter_mappings, walk_leaves

TEXT, IMAGE, FILE = PART_KINDS = ("text", "image", "file")
PARTS = "parts"
USER_KEYS = ("message", "email", PARTS)  # what the user says in an input, beside data that comes with it


class InputPart(Struct, frozen=True, kw_only=True):
    """A part of a message. `kind`: ``text``, with `text`; ``image`` or ``file``, with `content`, its bytes.

    `name` is that in the case, `path` the absolute path of the file.
    """

    kind: str
    text: str = ""
    name: str = ""
    path: str = ""
    mime_type: str = ""
    sha256: str = ""
    content: bytes = b""

    @property
    def is_text_file(self) -> bool:
        """True if the content is text for people or programs: ``text/*``, JSON, YAML, XML."""
        return self.mime_type.startswith("text/") or self.mime_type in _TEXT_TYPES

    def encode_base64(self) -> str:
        """Encode the content as base64."""
        return base64.b64encode(self.content).decode()

    def build_data_url(self) -> str:
        """Build ``data:image/png;base64,...``, as model services take content."""
        return f"data:{self.mime_type};base64,{self.encode_base64()}"

    def describe(self) -> JsonDict:
        """Describe the part as JSON data without its content."""
        if self.kind == TEXT:
            return {TEXT: self.text}
        return {self.kind: self.name, "mime_type": self.mime_type, "sha256": self.sha256}


_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})


def list_parts(user: object) -> Sequence[JsonObject]:
    """List the parts of a user's message, ``{parts: [...]}``; none for a message of another form."""
    parts = user.get(PARTS) if isinstance(user, Mapping) else None
    return list(filter_mappings(parts))


def list_user_texts(user: object) -> list[str]:
    """List the texts in the user's own words: a message, an email's subject and body, the texts of parts.

    Headers of emails, and names and types of files, come from programs. Input of another form is all the user's.
    """
    if not isinstance(user, Mapping) or not any(key in user for key in USER_KEYS):
        words = user
    else:
        email = user.get("email")
        words = [
            user.get("message"),
            [email.get(key) for key in ("subject", "body")] if isinstance(email, Mapping) else email,
            [part.get(TEXT) for part in list_parts(user)],
        ]
    return [leaf for _, leaf in walk_leaves(words) if isinstance(leaf, str)]


def read_parts(user: object, root: Path) -> tuple[InputPart, ...]:
    """Read the parts of a message with the content of their files, below `root`. MockError if a file has changed since
    the case was loaded, or can't be read.
    """
    return tuple(_read_part(part, root) for part in list_parts(user))


def _read_part(data: JsonObject, root: Path) -> InputPart:
    if TEXT in data:
        return InputPart(kind=TEXT, text=str(data[TEXT]))
    kind = IMAGE if IMAGE in data else FILE
    path = root / str(data["path"])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MockError(f"{kind} {data[kind]} of the input can't be read: {error.strerror}") from None
    if hash_content(content) != data["sha256"]:
        raise MockError(f"{kind} {data[kind]} of the input has changed since the case was loaded; run the case again")
    return InputPart(
        kind=kind,
        name=str(data[kind]),
        path=str(path),
        mime_type=str(data["mime_type"]),
        sha256=str(data["sha256"]),
        content=content,
    )


def drop_part_facts(user: object) -> object:
    """Copy a user's message without what the loader has added to its parts."""
    if not isinstance(user, Mapping) or not list_parts(user):
        return user
    parts = [{kind: part[kind] for kind in PART_KINDS if kind in part} for part in list_parts(user)]
    return {**user, PARTS: parts}


def build_user_message(text: str, parts: Sequence[InputPart]) -> JsonDict:
    """Build the message of a conversation in which the user says `text`, with `parts` where it has images or files."""
    message: JsonDict = {"role": "user", "text": text}
    if any(part.kind != TEXT for part in parts):
        message[PARTS] = tuple(parts)
    return message


def hash_content(content: bytes) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def replace_content(body: bytes, files: Sequence[InputPart]) -> bytes:
    """Replace the content of `files` in the body of a request, in either alphabet of base64, by its hash."""
    for part in files:
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            body = body.replace(encode(part.content), f"sha256:{part.sha256}".encode())
    return body


def format_part(data: JsonObject) -> str:
    """Format a part of a run file in a line: ``image photo.jpg (image/jpeg, 48,112 bytes, sha256 1a2b3c4d)``."""
    if TEXT in data:
        return str(data[TEXT])
    kind = IMAGE if IMAGE in data else FILE
    size = data.get("bytes")
    facts = [str(data["mime_type"])] if "mime_type" in data else []
    facts += [f"{size:,} bytes"] if isinstance(size, int) else []
    facts += [f"sha256 {str(data['sha256'])[:8]}"] if "sha256" in data else []
    return f"{kind} {data.get(kind)}" + (f" ({', '.join(facts)})" if facts else "")
