"""Phrases that a text must or must not contain, folded once when the case is loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.reader import ExpectationReader, format_place_cached
from evalkit.errors import KeyPath
from evalkit.jsonvalue import ARRAY, OBJECT, STRING, get_kind
from evalkit.model.template import Reference, Template, TemplateError, parse_template, render_templates, strip_literals
from evalkit.operators.phrases import fold_text
from evalkit.text.format import format_value

Resolve = Callable[[Reference], Any]


class Phrase(Struct, frozen=True):
    """One phrase as it was written, and as texts are searched for it. `folded` is empty until a template is bound."""

    text: str | Template
    folded: str
    place: str  # in the case

    def bind(self, resolve: Resolve) -> Phrase:
        """The phrase with its template rendered. Raises TemplateError, also if what comes out is no text."""
        if isinstance(self.text, str):
            return self
        value = strip_literals(render_templates(self.text, resolve))
        text = str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
        if not isinstance(text, str):
            raise TemplateError(f"template {self.text} gave {format_value(value)}, which is no text to look for")
        folded = fold_text(text)
        if not folded:
            raise TemplateError(f"template {self.text} gave an empty text, which every text contains")
        return replace(self, text=text, folded=folded)


class Phrases(Struct, frozen=True):
    """All phrases of one key."""

    items: tuple[Phrase, ...]

    @property
    def has_templates(self) -> bool:
        return any(isinstance(phrase.text, Template) for phrase in self.items)

    def bind(self, resolve: Resolve) -> Phrases:
        return Phrases(tuple(phrase.bind(resolve) for phrase in self.items))

    def match_all(self, texts: list[str]) -> bool:
        """Whether each phrase stands in at least one of these folded texts."""
        return all(any(phrase.folded in piece for piece in texts) for phrase in self.items)

    def find_missing(self, texts: list[str]) -> list[Phrase]:
        """Those that stand in none of the texts."""
        return [phrase for phrase in self.items if not any(phrase.folded in piece for piece in texts)]

    def find_present(self, texts: list[str]) -> list[Phrase]:
        """Those that stand in one of the texts."""
        return [phrase for phrase in self.items if any(phrase.folded in piece for piece in texts)]

    def format_list(self) -> str:
        """The phrases as messages show them."""
        return ", ".join(format_value(str(phrase.text)) for phrase in self.items)


def read_phrases(reader: ExpectationReader, path: KeyPath, value: Any) -> Phrases | None:
    """One phrase or a list of phrases. Empty lists, empty phrases and values that are not strings are problems."""
    is_single = isinstance(value, str)
    items = [value] if is_single else value
    if not isinstance(items, list):
        advice = "quote it" if isinstance(value, (int, float)) else ""
        reader.report_wrong(path, value, "a phrase or a list of phrases", advice)
        return None
    if not items:
        reader.add_problem(
            path, f"{reader.format_place(path)} is an empty list, which demands nothing; list a phrase, or leave it out"
        )
        return None
    read = [_read_phrase(reader, path if is_single else (*path, index), item) for index, item in enumerate(items)]
    phrases = tuple(phrase for phrase in read if phrase is not None)
    return Phrases(phrases) if len(phrases) == len(items) else None


def _read_phrase(reader: ExpectationReader, path: KeyPath, value: Any) -> Phrase | None:
    if not isinstance(value, str):
        reader.report_wrong(
            path, value, "a phrase", "quote it" if isinstance(value, (int, float)) or value is None else ""
        )
        return None
    try:
        text = parse_template(value)
    except TemplateError as error:
        reader.add_problem(path, f"{reader.format_place(path)}: {error}")
        return None
    folded = "" if isinstance(text, Template) else fold_text(text)
    if not folded and not isinstance(text, Template):
        reader.add_problem(
            path,
            f"{reader.format_place(path)} is an empty phrase, which every text contains; write the text to look for",
        )
        return None
    return Phrase(text, folded, format_place_cached(path))


def extract_texts(value: Any) -> list[str]:
    """The folded texts of a value: of a string itself, of a list or mapping each key and leaf on its own.

    Null has no text. Numbers and booleans have that of their JSON. Safe for cyclic values.
    """
    pieces: list[str] = []
    pending, visited = [value], set()
    while pending:
        item = pending.pop()
        value_kind = get_kind(item)
        if value_kind in (OBJECT, ARRAY):
            if id(item) not in visited:
                visited.add(id(item))
                pending.extend(reversed(list(item.values()) if value_kind == OBJECT else item))
                if value_kind == OBJECT:
                    pieces.extend(fold_text(key) for key in item if get_kind(key) == STRING)
        elif value_kind == STRING:
            pieces.append(fold_text(item))
        elif item is not None:
            pieces.append(format_value(item))
    return pieces
