"""Files that the input of a case names: images and files among the `parts` of a user's message, and those of features,
by keys that name a file.

A path counts from the folder of the file that names it. It leads to a file of the project, or to where `allow_paths`
leads; hidden files, which hold keys, are sent to no model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from mimetypes import MimeTypes
from pathlib import Path, PurePath

from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import KeyPath, PathProblem, did_you_mean
from evalkit.fields.reader import FieldReader
from evalkit.functions.permissions import explain_path
from evalkit.hooks import INPUT, find_key, find_owner
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.case import Permissions
from evalkit.records.parts import IMAGE, PART_KINDS, PARTS, TEXT, hash_content
from evalkit.spec.files import Source

_MORE_TYPES = {
    ".webp": "image/webp",
    ".heic": "image/heic",
    ".md": "text/markdown",
    ".jsonl": "application/json",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


@cache
def _build_mime_types() -> MimeTypes:
    """Build a table that is the same on every machine: cassettes hold the type. Few cases have files."""
    types = MimeTypes(filenames=())
    for ending, mime_type in _MORE_TYPES.items():
        types.add_type(mime_type, ending)
    return types


def attach_files(
    data: JsonDict, source: Source, root: str, permissions: Permissions | None
) -> tuple[JsonDict, list[PathProblem]]:
    """Copy the merged `data` of a case, with what identifies the content of each file that its input names.

    Return the problems, too. Data that names no file is returned as it is.
    """
    case_input = data["input"]
    keys = [key for key in case_input if find_owner(INPUT, key) is not None and find_key(INPUT, key).names_file]
    places = list(_find_parts(case_input))
    if not places and not keys:
        return data, []
    reader = _FileReader(source, root, permissions)
    case_input = dict(case_input)
    for key in keys:
        case_input[key] = reader.read_file(key, case_input[key])
    for path, parts in places:
        read = reader.read_parts(path, parts)
        if len(path) == 2:
            case_input[PARTS] = read
        else:
            turns = case_input["turns"] = list(case_input["turns"])
            index = int(path[2])
            user = turns[index]["user"]
            if extra := next((key for key in user if key != PARTS), None):
                problem = f"'{extra}' stands beside 'parts'; write it as a part: {{text: ...}}"
                reader.add_problem((*path[:-1], extra), problem, at_key=True)
            turns[index] = {**turns[index], "user": {**user, PARTS: read}}
    return {**data, "input": case_input}, reader.problems


def _find_parts(case_input: JsonObject) -> Iterator[tuple[KeyPath, object]]:
    if PARTS in case_input:
        yield ("input", PARTS), case_input[PARTS]
    turns = case_input.get("turns")
    for index, turn in enumerate(turns if isinstance(turns, list) else ()):
        user = turn.get("user") if isinstance(turn, Mapping) else None
        if isinstance(user, Mapping) and PARTS in user:
            yield ("input", "turns", index, "user", PARTS), user[PARTS]


class _FileReader(FieldReader):
    def __init__(self, source: Source, root: str, permissions: Permissions | None) -> None:
        super().__init__(subject="the case")
        self._source = source
        self._root = root
        self._permissions = permissions

    def read_file(self, key: str, value: object) -> object:
        """Read a key of a feature that names a file, which is sent to no model."""
        path = ("input", key)
        name = self.read_text(path, value, "the path of a file", empty=False)
        if name is None:
            return value
        file, problem = self._find_file(path, key, name)
        if problem:
            self.add_problem(path, problem)
            return value
        return {"file": name, "path": self._format_path(file), "sha256": hash_content(file.read_bytes())}

    def read_parts(self, path: KeyPath, parts: object) -> list[object]:
        advice = "write parts: [{text: ...}]" if isinstance(parts, str) else ""
        items = self.read_list(path, parts, "a list of parts: [{text: ...}, {image: photo.jpg}]", advice)
        return [self._read_part((*path, index), part) for index, part in enumerate(items)]

    def _read_part(self, path: KeyPath, part: object) -> object:
        if not isinstance(part, dict):
            advice = "write {text: ...}" if isinstance(part, str) else ""
            self.report_wrong(path, part, "a part: {text: ...}, {image: photo.jpg} or {file: invoice.pdf}", advice)
            return part
        self.check_keys(path, part, (*PART_KINDS, "mime_type"))
        kinds = [kind for kind in PART_KINDS if kind in part]
        if len(kinds) != 1:
            kinds_given = f"'{kinds[0]}' and '{kinds[1]}'" if kinds else "none of them"
            self.add_problem(
                path, f"{self.format_place(path)} has one of 'text', 'image' and 'file'; it has {kinds_given}"
            )
            return part
        kind = kinds[0]
        value = self.read_text((*path, kind), part[kind], empty=kind == TEXT)
        if kind == TEXT or value is None:
            return part
        file, problem = self._find_file((*path, kind), kind, value)
        mime_type = part.get("mime_type") or _build_mime_types().guess_type(value)[0]
        if not problem and not isinstance(mime_type, str):
            problem = f"the type of {kind} '{value}' can't be told by its name; write it: 'mime_type: image/png'"
        if not problem and kind == IMAGE and not str(mime_type).startswith("image/"):
            problem = f"'{value}' is {mime_type}, no image; write {{file: {value}}}"
        if problem:
            self.add_problem((*path, kind), problem)
            return part
        content = file.read_bytes()
        facts = {"mime_type": mime_type, "bytes": len(content), "sha256": hash_content(content)}
        return {kind: value, "path": self._format_path(file), **facts}

    def _find_file(self, path: KeyPath, kind: str, name: str) -> tuple[Path, str]:
        """Find the file `name`, part of a message or named by the key `kind`, and what is wrong with it."""
        folder = Path(self._root, self._source.locate(path).file).parent
        file, is_sent = folder / name, kind in PART_KINDS
        if is_sent and "://" in name:
            return file, f"{kind} '{name}' is a URL; evalkit sends files of the project: save it beside the case"
        if reason := explain_path(file, self._permissions):
            return file, f"{kind} '{name}' is refused: {reason}"
        real = os.path.relpath(os.path.realpath(file), os.path.realpath(self._root))
        if is_sent and any(part.startswith(".") and part != ".." for part in PurePath(real).parts):
            return file, f"{kind} '{name}' is refused: hidden files may hold keys, and are sent to no model"
        if not file.exists():
            names = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
            hint = did_you_mean(file.name, names)
            place = "the project's root" if (place := self._format_path(folder)) == "." else place
            return file, f"there is no {kind} '{name}' in {place}{hint}"
        if not file.is_file():
            return file, f"{kind} '{name}' is no file"
        size, bounds, bound = file.stat().st_size, get_bounds(), "part_bytes" if is_sent else "recording_bytes"
        if is_sent and not size:
            return file, f"{kind} '{name}' is empty"
        if size > (limit := bounds.part_bytes if is_sent else bounds.recording_bytes):
            return file, f"{kind} '{name}' has {size:,} bytes, more than {limit:,}{explain_bound(bound)}"
        return (file, "") if os.access(file, os.R_OK) else (file, f"{kind} '{name}' may not be read")

    def _format_path(self, path: Path) -> str:
        return Path(os.path.relpath(path, self._root)).as_posix()
