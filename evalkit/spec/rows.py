"""Rows: one case file, many cases. Each row gives the values of ``{{ row.x }}`` in the case, its suites and its mocks.

`cases` lists rows in the file itself, `matrix` is the product of its lists, `from` names a file beside the case: CSV
(a header, then a row a line), JSON Lines, or YAML (a list). A file is read as a stream, and a row again when its case
is loaded: what stays in memory is its id, its line and where it begins.

The id of a row is its `id`; else its values, joined, where they are short; else its number. A row that can't be read,
and one whose id another has, is a case of its own that fails.
"""

from __future__ import annotations

import csv
import json
import math
import operator
import os
import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from msgspec import Struct

from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import KeyPath, Location, PathProblem, Problem, SpecError, did_you_mean
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, map_strings, parse_strictly
from evalkit.model.template import TemplateError, escape_braces, fill_row
from evalkit.spec.files import MOCKS, OLD_MOCKS, Layer, format_file_path
from evalkit.text.format import describe_type, format_value
from evalkit.yamlfile.events import Limits, read_file
from evalkit.yamlfile.parse import CONSTANTS, NUMBER_STARTS, ListItem, ScalarError, read, read_items, read_number

ROW_SOURCES = ("cases", "matrix", "from")
_CASE_KEYS = ("description", "must_pass", "skip", "xfail", "until")  # of a row, above those of its file
_MAX_LINE = 10_000_000  # bytes
_MAX_ID, _MAX_JOINED_ID = 100, 60  # bytes: recordings bear the id in their names, which systems limit; and characters


class Row(Struct, frozen=True):
    """A row: its id, its values, and its place."""

    id: str
    values: JsonDict
    location: Location


class ScannedRow(NamedTuple):
    """A row as the scan meets it. `key` is what its source reads it by again; `problem` says why it can't."""

    values: JsonDict
    line: int
    key: int
    problem: str = ""


class RowSource(Protocol):
    """A source of rows. Problems of the whole are a SpecError."""

    @property
    def file(self) -> str: ...
    def scan(self) -> Iterator[ScannedRow]: ...
    def read(self, key: int) -> JsonDict: ...


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
            row_id, problem = _build_id(scanned.values, row_id)
        if not problem and row_id in self.ids:
            line = self._lines[self.ids[row_id]]
            problem = f"the row has the id '{row_id}', as line {line} has; give each row an 'id' of its own"
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


def _build_id(values: JsonObject, numbered: str) -> tuple[str, str]:
    """Return a row's id, and what is wrong with it."""
    if values.get("id") not in (None, ""):
        given = values["id"]
        if isinstance(given, bool) or not isinstance(given, (str, int, float)):
            return "", f"the id of a row is a text or a number, got {format_value(given)}"
        row_id = _to_id(given)
        if len(row_id.encode()) > _MAX_ID or not row_id.strip("-."):
            least = f"1 to {_MAX_ID} letters and digits ({_MAX_ID} bytes of UTF-8)"
            return "", f"the id {format_value(given, 40)} can't name a case: it has {least}"
        return row_id, ""
    shown = [value for key, value in values.items() if key not in ("id", "tags", *_CASE_KEYS)]
    if any(isinstance(value, (dict, list)) for value in shown) or sum(len(str(value)) for value in shown) > _MAX_ID:
        return numbered, ""
    joined = "-".join(_to_id(value) for value in shown)
    is_short = len(joined) <= _MAX_JOINED_ID and len(joined.encode()) <= _MAX_ID
    return (joined if joined.strip("-.") and is_short else numbered), ""


def _to_id(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if text.isalnum() else re.sub(r"[^\w.+-]+", "-", unicodedata.normalize("NFC", text).strip())


# ---- where rows come from ----


class ListedRows(Struct):
    """Rows in the case file itself: those of `cases`, or the products of `matrix`."""

    layer: Layer
    values: list[object] | dict[str, list[object]]

    @property
    def file(self) -> str:
        return self.layer.file

    def scan(self) -> Iterator[ScannedRow]:
        place = self.layer.find(("matrix",), key=True) or Location(self.file)
        size = math.prod(map(len, self.values.values())) if isinstance(self.values, dict) else len(self.values)
        if size > (limit := get_bounds().rows):
            problem = f"matrix has {size:,} products, more than {limit:,}{explain_bound('rows')}"
            raise SpecError([Problem(place, problem)])
        for index in range(size):
            if isinstance(self.values, dict):
                yield ScannedRow(self.read(index), place.line, index)
                continue
            place = self.layer.find(("cases", index), key=False) or place
            row = self.values[index]
            values, problem = (row, "") if isinstance(row, dict) else ({}, _explain_no_mapping(row))
            yield ScannedRow(values, place.line, index, problem)

    def read(self, key: int) -> JsonDict:
        if isinstance(self.values, dict):
            values = {}
            for name, items in reversed(self.values.items()):
                key, index = divmod(key, len(items))
                values[name] = items[index]
            return dict(reversed(values.items()))
        row = self.values[key]
        return row if isinstance(row, dict) else {}


class FileRows:
    """Rows of a file, one or more lines each. `file` is its name in messages."""

    def __init__(self, path: str, file: str) -> None:
        self.path = path
        self.file = file


class _Lines:
    """The lines of an open file as text, with the offset and the number of the next one."""

    def __init__(self, path: str, offset: int = 0) -> None:
        self._opened = open(path, "rb")  # noqa: SIM115 - `with` closes it
        self._opened.seek(offset)
        self.offset = offset
        self.number = 1

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *exception: object) -> None:
        self._opened.close()

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._opened.readline(_MAX_LINE)
        if not line:
            raise StopIteration
        text_start = 3 if not self.offset and line.startswith(b"\xef\xbb\xbf") else 0
        self.offset += len(line)
        self.number += 1
        return line[text_start:].decode()


class CsvRows(FileRows):
    """Rows of a CSV file. A cell is read as YAML reads a plain value; a column `x:text` holds text, `x:json` JSON."""

    columns: tuple[tuple[str, str], ...] = ()

    def scan(self) -> Iterator[ScannedRow]:
        with _Lines(self.path) as lines:
            records = csv.reader(lines, strict=True)
            try:
                self.columns = self._read_header(next(records, []))
            except (csv.Error, UnicodeDecodeError) as error:
                raise SpecError([Problem(Location(self.file, 1), f"the header can't be read: {error}")]) from None
            while True:
                offset, line = lines.offset, lines.number
                try:
                    cells = next(records)
                    if cells:
                        yield ScannedRow(self._build_row(cells), line, offset)
                except StopIteration:
                    return
                except (ValueError, ScalarError, RecursionError, csv.Error) as error:
                    yield ScannedRow({}, line, offset, f"the row can't be read: {error}")

    def _read_header(self, cells: list[str]) -> tuple[tuple[str, str], ...]:
        problem = "" if cells else "the file is empty; its first line names the columns, for example id,tier,currency"
        if len(cells) == 1 and ";" in cells[0]:
            problem = f"the header is one column, '{cells[0][:60]}'; columns are separated by commas"
        columns = []
        for cell in cells:
            name, _, kind = cell.strip().rpartition(":")
            columns.append((name, kind) if name and kind in ("text", "json") else (cell.strip(), ""))
        names = [name for name, _ in columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if not problem and twice is not None:
            problem = f"the header has the column '{twice}' twice" if twice else "the header has columns without a name"
        if problem:
            raise SpecError([Problem(Location(self.file, 1), problem)])
        return tuple(columns)

    def _build_row(self, cells: list[str]) -> JsonDict:
        if len(cells) != len(self.columns):
            raise ValueError(f"it has {len(cells)} cells, and the header {len(self.columns)}")
        return {name: _read_cell(cell, kind) for (name, kind), cell in zip(self.columns, cells, strict=True)}

    def read(self, key: int) -> JsonDict:
        with _Lines(self.path, key) as lines:
            return self._build_row(next(csv.reader(lines, strict=True)))


def _read_cell(cell: str, kind: str) -> JsonValue:
    if kind == "json":
        return parse_strictly(cell) if cell.strip() else None
    if kind or not cell:
        return cell
    return read_number(cell) if cell[0] in NUMBER_STARTS else CONSTANTS.get(cell, cell)


class JsonLinesRows(FileRows):
    """Rows of a file with a JSON object a line. Empty lines are passed over."""

    def scan(self) -> Iterator[ScannedRow]:
        with _Lines(self.path) as lines:
            while True:
                offset, line = lines.offset, lines.number
                try:
                    text = next(lines)
                    if text.strip():
                        values = parse_strictly(text)
                        problem = "" if isinstance(values, dict) else _explain_no_mapping(values)
                        yield ScannedRow({} if problem else values, line, offset, problem)
                except StopIteration:
                    return
                except (ValueError, RecursionError) as error:
                    yield ScannedRow({}, line, offset, f"the row is not JSON: {error}")

    def read(self, key: int) -> JsonDict:
        with _Lines(self.path, key) as lines:
            values: JsonDict = parse_strictly(next(lines))
            return values


class YamlRows(FileRows):
    """Rows of a YAML file that is a list of mappings. They are kept as JSON: an anchor may stand in another row."""

    _rows: list[str]

    def scan(self) -> Iterator[ScannedRow]:
        places: list[tuple[int, str]] = []
        self._rows = []

        def add(item: ListItem) -> None:
            problems = [f"{problem.message} (line {problem.location.line})" for problem in item.problems]
            problem = "; ".join(problems) or ("" if isinstance(item.value, dict) else _explain_no_mapping(item.value))
            places.append((item.line, problem))
            self._rows.append("{}" if problem else json.dumps(item.value))

        limits = Limits(max_bytes=get_bounds().recording_bytes)
        problems = read_items(read_file(self.path, "recording_bytes"), self.file, limits, add)
        if problems and not places:
            raise SpecError(problems)
        for key, (line, problem) in enumerate(places):
            yield ScannedRow(self.read(key), line, key, problem)
        for broken in problems:
            yield ScannedRow({}, broken.location.line, 0, f"the rest of the file can't be read: {broken.message}")

    def read(self, key: int) -> JsonDict:
        values: JsonDict = json.loads(self._rows[key])
        return values


def _explain_no_mapping(value: object) -> str:
    return f"a row is a mapping of names to values, got {describe_type(value)}"


# ---- the rows of a case file ----

_OPENERS: dict[str, Callable[[str, str], RowSource]] = {
    ".csv": CsvRows,
    ".jsonl": JsonLinesRows,
    ".ndjson": JsonLinesRows,
    ".yaml": YamlRows,
    ".yml": YamlRows,
}


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
        source = _find_source(parsed.value, Layer(format_file_path(file, root), file), root)
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


def has_rows(data: object) -> bool:
    """Tell whether the data of a case file gives rows."""
    return isinstance(data, dict) and any(key in data for key in ROW_SOURCES)


def list_case_files(file: str, root: str) -> Iterable[str]:
    """List what `load_case` loads of a case file: the file, or each of its rows as ``FILE[ROW]``."""
    with suppress(SpecError):  # it is one case that fails
        rows = open_rows(file, root)  # None for a path that names a row already
        if rows is not None:
            return (f"{file}[{row_id}]" for row_id in rows.table.ids)
    return (file,)


def _find_source(data: JsonObject, layer: Layer, root: str) -> RowSource:
    keys = [key for key in ROW_SOURCES if key in data]
    location = layer.find((keys[-1],), key=True) or Location(layer.file)
    value = data[keys[-1]]

    def refuse(message: str) -> SpecError:
        return SpecError([Problem(location, message)])

    if len(keys) > 1:
        raise refuse(f"'{keys[0]}' and '{keys[1]}' both give rows; keep one")
    if keys == ["cases"]:
        if not isinstance(value, list):
            raise refuse(f"'cases' is a list of rows, [{{tier: gold}}, ...], got {describe_type(value)}")
        return ListedRows(layer, value)
    if keys == ["matrix"]:
        if not isinstance(value, dict) or not all(isinstance(items, list) for items in value.values()):
            raise refuse(
                f"'matrix' is a mapping of names to lists, {{tier: [gold, basic]}}, got {format_value(value, 60)}"
            )
        return ListedRows(layer, value if value else [])
    if not isinstance(value, str) or os.path.splitext(value)[1] not in _OPENERS or "\0" in value:
        raise refuse(f"'from' names a file of rows ({', '.join(_OPENERS)}), got {format_value(value, 60)}")
    folder = os.path.dirname(layer.path or root)
    path = os.path.normpath(os.path.join(folder, value))
    if not os.path.realpath(path).startswith(os.path.realpath(root) + os.sep):
        raise refuse(f"'from' names {value}, which lies outside of the project")
    if not os.path.isfile(path):
        names = [name for name in os.listdir(folder) if name.endswith(tuple(_OPENERS))]
        if os.path.lexists(path):
            raise refuse(f"'from' names {value}, which is {_describe_entry(path)}, and no file of rows")
        raise refuse(f"'from' names {value}, and there is no such file{did_you_mean(value, names)}")
    return _OPENERS[os.path.splitext(value)[1]](path, format_file_path(path, root))


def _describe_entry(path: str) -> str:
    """Describe what stands at `path`, where a file is expected."""
    if os.path.isdir(path):
        return "a folder"
    if not os.path.islink(path):
        return "a pipe or a device"
    return (
        "a link in a circle"
        if os.path.lexists(os.path.realpath(path))
        else f"a link to {os.readlink(path)}, where nothing is"
    )


# ---- a row, filled in ----

# Where texts hold templates of other roots, so that braces in a row's values must be kept from being read as such.
_TEMPLATED = ("expected_output", "on_fault")


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
        is_same = filled.keys() == value.keys() and all(map(operator.is_, filled.values(), value.values()))
        return value if is_same else filled

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
