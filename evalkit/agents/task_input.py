"""What an agent sees of a case's input, the text of a user's message, and its images and files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.case import list_hidden_inputs
from evalkit.records.parts import PARTS, TEXT, InputPart, list_parts, read_parts


class MessageParts:
    """The texts, images and files of the user's current message, and whether the agent has looked at them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._parts: tuple[InputPart, ...] = ()
        self._are_read = True  # a message without images and files has nothing to miss

    def begin(self, user: object) -> tuple[InputPart, ...]:
        """Begin a message. MockError if a file of it has changed."""
        self._parts = read_parts(user, self._root)
        self._are_read = not self.files
        return self._parts

    @property
    def files(self) -> list[InputPart]:
        """The images and files."""
        return [part for part in self._parts if part.kind != TEXT]

    def read(self) -> tuple[InputPart, ...]:
        """Return the parts, which are read now."""
        self._are_read = True
        return self._parts

    def end(self) -> str:
        """End the message: return a warning if the agent did not look at its images and files."""
        if self._are_read:
            return ""
        self._are_read = True
        names = ", ".join(f"{part.kind} {part.name}" for part in self.files)
        return f"the agent did not read task.parts, so it answered without {names}"


def copy_visible_input(data: JsonObject) -> JsonDict:
    """Copy a case's `input` without the mocks: changes that an agent makes stay in its run."""

    def copy(value: object) -> Any:
        if isinstance(value, Mapping):
            return {key: copy(item) for key, item in value.items()}
        return [copy(item) for item in value] if isinstance(value, (list, tuple)) else value

    hidden = list_hidden_inputs()
    return {key: copy(value) for key, value in data.items() if key not in hidden}


def format_message(user: object) -> str:
    """Format the user's input as text: a string as it is, an email with its headers, the texts of parts, other data as
    JSON."""
    if user is None:
        return ""
    if isinstance(user, str):
        return user
    if not isinstance(user, Mapping):
        return json.dumps(user, ensure_ascii=False, default=str)
    if "body" in user and {"subject", "from"} & set(user):
        return _format_email(user)
    data: dict[str, object] = dict(user)
    texts: list[str] = []
    if isinstance(user.get("message"), str):
        texts.append(str(data.pop("message")))
    if isinstance(user.get("email"), Mapping):
        texts.append(_format_email(user["email"]))
        del data["email"]
    if isinstance(user.get(PARTS), list):
        texts += [str(part[TEXT]) for part in list_parts(user) if TEXT in part]
        del data[PARTS]
    if data:
        texts.append(json.dumps(data, ensure_ascii=False, default=str, indent=2))
    return "\n\n".join(texts)


def _format_email(email: Mapping[str, object]) -> str:
    headers = [f"{key.capitalize()}: {value}" for key, value in email.items() if key != "body" and value is not None]
    return "\n".join([*headers, "", str(email.get("body", "") or "")])
