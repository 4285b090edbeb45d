"""Rows: one case file, many cases. Each row gives the values of ``{{ row.x }}`` in the case, its suites and its mocks.

Where they come from is read by `evalkit.spec.row_sources`. What stays in memory of a row is its id, its line and where
it begins; it is read again when its case is loaded.

The id of a row is its `id`, or what stands in the columns that `from.id` names; else its values, joined, where they are
short; else its number. A row that can't be read, and one whose id another has, is a case of its own that fails.
"""

from __future__ import annotations

import json
import operator
import os
import re
import unicodedata
from array import array
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from msgspec import Struct

from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import KeyPath, Location, PathProblem, Problem, SpecError, did_you_mean, format_file_path
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, map_strings, parse_strictly
from evalkit.records.template import TemplateError, escape_braces, fill_row
from evalkit.spec.files import MOCKS, OLD_MOCKS, ROW_SOURCES, Layer, has_rows
from evalkit.spec.row_sources import FileRows, RowSource, ScannedRow, find_source
from evalkit.text.format import format_value
from evalkit.yamlfile.events import read_file
from evalkit.yamlfile.parse import read

_CASE_KEYS = ("description", "must_pass", "skip", "xfail", "until")  # of a row, above those of its file
_MAX_ID, _MAX_JOINED_ID = 100, 60  # bytes: recordings bear the id in their names, which systems limit; and characters


class Row(Struct, frozen=True):
    """A row: its id, its values, and its place."""

    id: str
    values: JsonDict
    location: Location


class RowTable:
    """The rows of a case file, by id, in their order. SpecError if the whole can't be read, or has no rows."""

    def __init__(self, source: RowSource) -> None:
        self.ids: dict[str, int] = {}
        self.tags: dict[str, JsonValue] = {}  # of those that have some
        self._source = source
        self._lines, self._keys = array("L"), array("Q")
        self._problems: dict[int, str] = {}
        for number, scanned in enumerate(source.scan(), 1):
            if number > (limit := get_bounds().rows):
                raise SpecError([Problem(Location(source.file), f"more than {limit:,} rows{explain_bound('rows')}")])
            self._add(scanned, number)
        if not self.ids:
            message = "there are no rows, so that no case would run; add one, or skip the case: 'skip: reason'"
            raise SpecError([Problem(Location(source.file), message)])

    def _add(self, scanned: ScannedRow, number: int) -> None:
        row_id, problem = f"row-{number}", scanned.problem
        if not problem:
            row_id, problem = _build_id(scanned.values, row_id, self._source.id_columns)
        if not problem and row_id in self.ids:
            line = self._lines[self.ids[row_id]]
            advice = "name more columns in 'from.id'" if self._source.id_columns else "give each row an 'id' of its own"
            problem = f"the row has the id '{row_id}', as line {line} has; {advice}"
        if problem:
            row_id = f"row-{number}"
            while row_id in self.ids:
                row_id += "+"
            self._problems[len(self.ids)] = problem
        elif scanned.values.get("tags") not in (None, ""):
            self.tags[row_id] = scanned.values["tags"]
        self.ids[row_id] = len(self.ids)
        self._lines.append(scanned.line)
        self._keys.append(scanned.key)

    def locate(self, row_id: str) -> Location:
        return Location(self._source.file, self._lines[self.ids[row_id]])

    def read(self, row_id: str) -> Row:
        """Read a row again. SpecError for one that is malformed, and for an id that no row has."""
        if row_id not in self.ids:
            message = f"there is no row '{row_id}'{did_you_mean(row_id, list(self.ids)[:1000])}"
            raise SpecError([Problem(Location(self._source.file), message)])
        index = self.ids[row_id]
        if index in self._problems:
            raise SpecError([Problem(self.locate(row_id), self._problems[index])])
        return Row(row_id, self._source.read(self._keys[index]), self.locate(row_id))


def _build_id(values: JsonObject, numbered: str, columns: tuple[str, ...]) -> tuple[str, str]:
    """Return a row's id, and what is wrong with it. `columns`: those that make it, if the file names some."""
    if columns or values.get("id") not in (None, ""):
        return _join_id(values, columns or ("id",))
    shown_values = [value for key, value in values.items() if key not in ("id", "tags", *_CASE_KEYS)]
    is_nested = any(isinstance(value, (dict, list)) for value in shown_values)
    if is_nested or sum(len(str(value)) for value in shown_values) > _MAX_ID:
        return numbered, ""
    joined = "-".join(map(_to_id, shown_values))
    is_short = len(joined) <= _MAX_JOINED_ID and len(joined.encode()) <= _MAX_ID
    return (joined if joined.strip("-.") and is_short else numbered), ""


def _join_id(values: JsonObject, columns: tuple[str, ...]) -> tuple[str, str]:
    parts = []
    for column in columns:
        part = values.get(column)
        if part in (None, ""):
            hint = "" if column in values else did_you_mean(column, list(values))
            return "", f"the row has no '{column}', which is its id{hint}"
        if isinstance(part, bool) or not isinstance(part, (str, int, float)):
            return "", f"the id of a row is a text or a number, got {format_value(part)}"
        parts.append(_to_id(part))
    row_id = "-".join(parts)
    if len(row_id.encode()) <= _MAX_ID and row_id.strip("-."):
        return row_id, ""
    shown = format_value(values[columns[0]] if len(columns) == 1 else row_id, 40)
    return "", f"the id {shown} can't name a case: it has 1 to {_MAX_ID} letters and digits ({_MAX_ID} bytes of UTF-8)"


def _to_id(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text.isalnum() else re.sub(r"[^\w.+-]+", "-", unicodedata.normalize("NFC", text).strip())


# ---- the rows of a case file ----


class RowFile(Struct):
    """A case file with rows: what it says beside them, and the rows."""

    content: bytes
    data: JsonDict
    problems: tuple[Problem, ...]
    table: RowTable


_Stamp = tuple[str, int, int]
_OPENED: dict[tuple[str, str], tuple[tuple[_Stamp, ...], RowFile]] = {}
_CACHE_SIZE = 16


def open_rows(file: str, root: str) -> RowFile | None:
    """Open the case at `file` (absolute) if it has rows; None if it is one case, or no case that can be read.

    A file is read once, and again when it or its rows have changed. SpecError for rows that can't be read as a whole.
    """
    cached = _OPENED.get((file, root))
    try:
        if cached is not None and all(_stamp(stamp[0]) == stamp for stamp in cached[0]):
            return cached[1]
        stamps = [_stamp(file)]
        content = read_file(file)
    except OSError:
        return None
    parsed = read(content, format_file_path(file, root))
    if not has_rows(parsed.value):
        return None
    data = {key: value for key, value in parsed.value.items() if key not in ROW_SOURCES}
    try:
        source = find_source(parsed.value, Layer(format_file_path(file, root), file), root)
        if isinstance(source, FileRows):
            stamps.append(_stamp(source.path))
        rows = RowFile(content, data, parsed.problems, RowTable(source))
    except OSError as error:
        message = f"the rows of 'from' can't be read: {error.filename}: {error.strerror}"
        raise SpecError([Problem(Location(format_file_path(file, root)), message)]) from None
    if len(_OPENED) >= _CACHE_SIZE:
        _OPENED.clear()
    _OPENED[file, root] = tuple(stamps), rows
    return rows


def _stamp(path: str) -> _Stamp:
    status = os.stat(path)
    return path, status.st_mtime_ns, status.st_size


def list_case_files(file: str, root: str) -> Iterable[str]:
    """List what `load_case` loads of a case file: the file, or each of its rows as ``FILE[ROW]``."""
    with suppress(SpecError):  # it is one case that fails
        rows = open_rows(file, root)  # None for a path that names a row already
        if rows is not None:
            return (f"{file}[{row_id}]" for row_id in rows.table.ids)
    return (file,)


# ---- a row, filled in ----

# Where texts hold templates of other roots, so that braces in a row's values must be kept from being read as such.
_TEMPLATED = ("expected_output", "on_fault")


_WHOLE_VALUE = re.compile(r"\{\{\s*row\.([\w-]+)\s*\}\}")


class RowFiller:
    """The templates of a case, filled from one row."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.problems: list[PathProblem] = []

    def fill_case(self, data: JsonDict) -> JsonDict:
        """Return the merged data of a case, filled. What has no template stays the same object.

        The row's own `tags`, `must_pass` and the like are laid over the case's.
        """
        values = self.row.values
        filled = {
            key: value if _is_known_plain(value) else self.fill(value, (key,), is_data=key not in _TEMPLATED)
            for key, value in data.items()
        }
        if isinstance(data.get("functions"), str) and isinstance(tools := filled["functions"], list):
            filled["functions"] = [_read_tool(tool) for tool in tools]
        filled |= {key: values[key] for key in _CASE_KEYS if values.get(key) not in (None, "")}
        if values.get("tags") not in (None, ""):
            filled["tags"] = add_tags(filled.get("tags"), values["tags"])
        return filled

    def fill(self, value: JsonValue, path: KeyPath, *, is_data: bool) -> JsonValue:
        """Return `value` filled. `is_data`: no templates of other roots stand in it."""
        if isinstance(value, str):
            return self._fill_text(value, path, is_data) if "{{" in value else value
        if isinstance(value, list):
            items = [self.fill(item, (*path, index), is_data=is_data) for index, item in enumerate(value)]
            return value if all(map(operator.is_, items, value)) else items
        if not isinstance(value, dict):
            return value
        filled = {}
        for written_key, item in value.items():
            key = str(self._fill_text(written_key, path, is_data=True)) if "{{" in written_key else written_key
            if key in filled:
                self.problems.append(PathProblem(path, f"the key '{key}' stands twice, once the row is filled in"))
            is_plain = is_data and not (path == ("input",) and key in _MOCKS) and key != "expected_output"
            is_literal = not is_data and key == "$literal"
            filled[key] = item if is_literal else self.fill(item, (*path, key), is_data=is_plain)
            if key == "expected_function_calls" and not is_plain:
                filled[key] = _drop_unnamed_calls(item, filled[key])
        is_same = filled.keys() == value.keys() and all(map(operator.is_, filled.values(), value.values()))
        return value if is_same else filled

    def explain_text(self, data: object, path: KeyPath) -> str:
        """Return the advice for a problem at `path` of the unfilled data: the row may have JSON as a text there."""
        with suppress(LookupError, TypeError, ValueError, RecursionError):
            for step in path:
                data = data[step]  # type: ignore[index]  # a mapping or a list, else a TypeError
            template = _WHOLE_VALUE.fullmatch(data) if isinstance(data, str) else None
            name = "" if template is None else template[1]
            if isinstance(parse_strictly(self.row.values[name]), (dict, list)):
                return f"; '{name}' is a text that holds JSON, which 'from: {{file: ..., json: {name}}}' reads"
        return ""

    def fill_included(self, value: JsonValue) -> JsonValue:
        """Return what `$include` names, filled."""
        return self.fill(value, ("input", MOCKS), is_data=False)

    def _fill_text(self, text: str, path: KeyPath, is_data: bool) -> JsonValue:
        escape = (lambda value: value) if is_data else partial(map_strings, function=escape_braces)
        try:
            filled: JsonValue = fill_row(text, self.row.values, escape=escape)
        except TemplateError as error:
            self.problems.append(PathProblem(path, str(error)))
            return text
        return filled


def _drop_unnamed_calls(written: JsonValue, filled: JsonValue) -> JsonValue:
    """Return expected calls without those whose name is an empty cell; a list that is one is the empty list: no call.

    `written` are the calls as the case has them. Names that are empty there remain, and are problems.
    """
    if isinstance(written, list) and isinstance(filled, list):
        pairs = zip(written, filled, strict=True)
        calls = [call for template, call in pairs if not _is_empty_cell(_get_name(template), _get_name(call))]
        return calls if len(calls) < len(filled) else filled
    return [] if _is_empty_cell(written, filled) else filled


def _is_empty_cell(written: JsonValue, filled: JsonValue) -> bool:
    return filled in (None, "") and isinstance(written, str) and _WHOLE_VALUE.fullmatch(written) is not None


def _get_name(call: JsonValue) -> JsonValue:
    return call.get("function_name") if isinstance(call, dict) else call


def _read_tool(tool: JsonValue) -> JsonValue:
    """Return the declaration of a row; of a tool as requests to OpenAI have it, with or without an envelope, what
    declares the function. Data sets hold tools in these forms."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        return tool
    function = tool["function"] if tool.keys() == {"type", "function"} else tool
    if not isinstance(function, dict) or "function" in function:
        return tool
    return {key: value for key, value in function.items() if key not in ("type", "strict")}


_PLAIN: dict[int, JsonValue] = {}  # mappings and lists without braces, by id; they are kept alive here
_MOST_PLAIN = 1_000


def _is_known_plain(value: JsonValue) -> bool:
    """Return whether a value holds no template. All rows share the suite's declarations, which are searched once."""
    if not isinstance(value, (dict, list)):
        return False
    if id(value) in _PLAIN:
        return True
    if _holds_braces(value):
        return False
    if len(_PLAIN) >= _MOST_PLAIN:
        _PLAIN.clear()
    _PLAIN[id(value)] = value
    return True


def _holds_braces(value: JsonValue) -> bool:
    """Return whether a text of `value`, a key or a leaf, may hold a template."""
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, dict):
        return any("{{" in key or _holds_braces(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_holds_braces, value))


_MOCKS = (MOCKS, OLD_MOCKS)


def add_tags(tags: JsonValue, row_tags: JsonValue) -> list[JsonValue]:
    """Return the tags of a file and those of a row, which may be one text with spaces or commas between them."""
    split = re.split(r"[\s,;]+", row_tags.strip()) if isinstance(row_tags, str) else row_tags
    own, added = ([] if value is None else value if isinstance(value, list) else [value] for value in (tags, split))
    return [*own, *added]
