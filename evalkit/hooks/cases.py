"""Files that hold several cases: what a feature is told of one, and what it returns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from msgspec import Struct

from evalkit.hooks.base import Hooks

if TYPE_CHECKING:
    from evalkit.errors import KeyPath, Location, PathProblem
    from evalkit.jsonvalue import JsonDict, JsonValue
    from evalkit.spec.files import Layer, Stamp


class CaseFileData(Struct, frozen=True, kw_only=True):
    """What a case file with an expanding key says. `layer` finds the line of a path in it."""

    data: JsonDict
    layer: Layer
    root: str


class FileCase(Hooks):
    """One of the cases of a file: its id there, and its place. `problems` are those of filling its data in."""

    def __init__(self, case_id: str, place: Location | None) -> None:
        self.id = case_id
        self.place = place
        self.problems: list[PathProblem] = []

    def dump(self) -> bytes:
        """Return what it adds to the file as text, in which Python code may be named."""
        return b""

    def fill(self, data: JsonDict) -> JsonDict:
        """Return the data of the case: `data` is that of the file, merged with its suites, before it is validated."""
        return data

    def fill_included(self, value: JsonValue) -> JsonValue:
        """Return the mocks of the case; `value` is what `$include` names."""
        return value

    def explain(self, data: JsonDict, path: KeyPath) -> str:
        """Return what is added to each problem; this one is at `path`, and `data` is what `fill` got."""
        return ""


WHOLE_FILE = FileCase("", None)  # a file that is one case


class FileCases(Hooks):
    """The cases of a file, by what stands in brackets in their ids.

    `files` are those that were read besides: once one changes, the cases are listed again.
    """

    ids: Collection[str]

    def __init__(self, files: tuple[Stamp, ...] = ()) -> None:
        self.files = files

    def list_tags(self, tags: JsonValue) -> Iterator[tuple[str, JsonValue]]:
        """Yield the id and the tags of each case. `tags` are those of the file; return this very object for them."""
        return ((case_id, tags) for case_id in self.ids)

    def locate(self, case_id: str) -> Location:
        """Return the place of a case."""
        raise NotImplementedError

    def read(self, case_id: str) -> FileCase:
        """Read a case. SpecError for one that is malformed, and for an id that no case has."""
        raise NotImplementedError
