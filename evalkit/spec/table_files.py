"""Files of rows: CSV, JSON Lines, or a list in JSON or YAML.

They are read as streams, but for lists: what stays in memory of a row is where it begins, and it is read again when its
values are needed.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct

from evalkit.bounds import get_bounds
from evalkit.errors import Location, Problem, SpecError, did_you_mean
from evalkit.jsonvalue import STRICT_DECODER, JsonDict, JsonValue, parse_strictly
from evalkit.text.format import describe_type, format_value
from evalkit.yamlfile.events import Limits, read_file
from evalkit.yamlfile.parse import CONSTANTS, NUMBER_STARTS, ListItem, ScalarError, read_items, read_number

_MAX_LINE = 10_000_000  # bytes
_SEPARATORS = {",": "commas", "\t": "tabs"}
_QUOTES = 'inside quotes, " is written ""'


class ScannedRow(NamedTuple):
    """A row as the scan meets it. `key` is what its source reads it by again; `problem` says why it can't."""

    values: JsonDict
    line: int
    key: int
    problem: str = ""


class FileOptions(Struct, frozen=True):
    """What `from` says: the file, and of its columns which make the id of a row and which hold JSON or text."""

    file: str
    id: tuple[str, ...] = ()
    json: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    separator: str = ""


def explain_no_mapping(value: object) -> str:
    return f"a row is a mapping of names to values, got {describe_type(value)}"


class FileRows:
    """Rows of the file at `path`. `file` is its name in messages."""

    def __init__(self, path: str, file: str, options: FileOptions | None = None) -> None:
        self.path = path
        self.file = file
        self.options = options or FileOptions("")

    @property
    def id_columns(self) -> tuple[str, ...]:
        return self.options.id

    def refuse(self, message: str) -> SpecError:
        """Return the problem of a file that can't be read as a whole."""
        return SpecError([Problem(Location(self.file, 1), message)])

    def read_json_columns(self, values: JsonDict) -> JsonDict:
        """Return the row with what the texts of the columns of `from.json` hold. ValueError where it is no JSON."""
        read = {name: _read_json(name, text) for name in self.options.json if isinstance(text := values.get(name), str)}
        return values | read if read else values


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

    @property
    def separator(self) -> str:
        return self.options.separator or ("\t" if self.path.endswith(".tsv") else ",")

    def scan(self) -> Iterator[ScannedRow]:
        with _Lines(self.path) as lines:
            records = csv.reader(lines, strict=True, delimiter=self.separator)
            try:
                self.columns = self._read_header(next(records, []))
            except (csv.Error, UnicodeDecodeError) as error:
                shown = self._explain_separator() or f"the header can't be read: {_explain_line(error)}"
                raise self.refuse(shown) from None
            while True:
                offset, line = lines.offset, lines.number
                try:
                    cells = next(records)
                    if cells:
                        yield ScannedRow(self._build_row(cells), line, offset)
                except StopIteration:
                    return
                except (ValueError, ScalarError, RecursionError, csv.Error) as error:
                    taken = f"; lines {line} to {lines.number - 1} were read as this row" * (lines.number - 1 > line)
                    yield ScannedRow({}, line, offset, f"the row can't be read: {_explain_line(error)}{taken}")

    def _read_header(self, cells: list[str]) -> tuple[tuple[str, str], ...]:
        problem = "" if cells else "the file is empty; its first line names the columns, for example id,tier,currency"
        if len(cells) == 1:
            problem = self._explain_separator()
        kinds = dict.fromkeys(self.options.text, "text") | dict.fromkeys(self.options.json, "json")
        columns = []
        for cell in cells:
            name, _, kind = cell.strip().rpartition(":")
            if not name or kind not in ("text", "json"):
                name, kind = cell.strip(), ""
            columns.append((name, kinds.get(name, kind)))
        names = [name for name, _ in columns]
        twice = next((name for name in names if names.count(name) > 1), None)
        unknown = next((name for name in (*self.options.id, *kinds) if name not in names), None)
        if not problem and twice is not None:
            problem = f"the header has the column '{twice}' twice" if twice else "the header has columns without a name"
        if not problem and unknown is not None:
            problem = f"the header has no column '{unknown}', which 'from' names{did_you_mean(unknown, names)}"
        if problem:
            raise self.refuse(problem)
        return tuple(columns)

    def _explain_separator(self) -> str:
        """Say what to write if another character separates the cells of the header. "" if none does."""
        with open(self.path, "rb") as opened:
            header = opened.readline(1_000).decode(errors="replace").strip().lstrip("\ufeff")
        other = next((character for character in ";\t|," if character in header), self.separator)
        if other == self.separator or self.separator in header:
            return ""
        shown = f"the header is one column, {format_value(header, 60)}; columns are separated by "
        shown += _SEPARATORS.get(self.separator, repr(self.separator))
        advice = f", or as 'from: {{file: {self.options.file}, separator: {json.dumps(other)}}}' says"
        return shown + advice * bool(self.options.file)

    def _build_row(self, cells: list[str]) -> JsonDict:
        if len(cells) != len(self.columns):
            word = "cell" if len(cells) == 1 else "cells"
            raise ValueError(f"it has {len(cells)} {word}, and the header {len(self.columns)}")
        return {name: _read_cell(name, cell, kind) for (name, kind), cell in zip(self.columns, cells, strict=True)}

    def read(self, key: int) -> JsonDict:
        with _Lines(self.path, key) as lines:
            return self._build_row(next(csv.reader(lines, strict=True, delimiter=self.separator)))


def _explain_line(error: Exception) -> str:
    """Say why a line can't be read, and what to do."""
    if isinstance(error, UnicodeDecodeError):
        return f"{error}; save the file as UTF-8"
    text = str(error)
    if isinstance(error, csv.Error) and text == "unexpected end of data":
        return f"a quotation mark opens that nothing closes before the end of the file; {_QUOTES}"
    if isinstance(error, csv.Error) and text.endswith("expected after '\"'"):
        return f"a quotation mark ends a cell, and no {text.split(' expected')[0]} follows; {_QUOTES}"
    if isinstance(error, csv.Error) and text.startswith("new-line character"):
        return "a line ends with a carriage return alone; save the file with the line ends of Unix or Windows"
    if isinstance(error, csv.Error) and text.startswith("field larger"):
        limit = f"a cell has more than {csv.field_size_limit():,} characters"
        return f"{limit}: a quotation mark may open that nothing closes ({_QUOTES}); JSON Lines may hold longer texts"
    return text


def _read_cell(name: str, cell: str, kind: str) -> JsonValue:
    if kind == "json":
        return _read_json(name, cell)
    if kind or not cell:
        return cell
    return read_number(cell) if cell[0] in NUMBER_STARTS else CONSTANTS.get(cell, cell)


def _read_json(name: str, text: str) -> JsonValue:
    try:
        value: JsonValue = parse_strictly(text) if text.strip() else None
    except ValueError as error:
        raise ValueError(f"what stands in '{name}' is no JSON: {error}: {format_value(text, 60)}") from None
    return value


class JsonLinesRows(FileRows):
    """Rows of a file with a JSON object a line. Empty lines are passed over."""

    def scan(self) -> Iterator[ScannedRow]:
        with _Lines(self.path) as lines:
            while True:
                offset, line = lines.offset, lines.number
                try:
                    text = next(lines)
                    if text.strip():
                        yield ScannedRow(*self._read_line(text, line, offset))
                except StopIteration:
                    return
                except (ValueError, RecursionError) as error:
                    yield ScannedRow({}, line, offset, f"the row can't be read: {_explain_line(error)}")

    def _read_line(self, text: str, line: int, offset: int) -> tuple[JsonDict, int, int, str]:
        try:
            values = parse_strictly(text)
        except json.JSONDecodeError as error:
            advice = "; a file that is one list is named .json" if line == 1 and text.lstrip().startswith("[") else ""
            return {}, line, offset, f"the row is not JSON, which stands in one line: {error}{advice}"
        except ValueError as error:
            return {}, line, offset, f"the row is not JSON: {error}"
        if not isinstance(values, dict):
            return {}, line, offset, explain_no_mapping(values)
        return self.read_json_columns(values), line, offset, ""

    def read(self, key: int) -> JsonDict:
        with _Lines(self.path, key) as lines:
            values: JsonDict = parse_strictly(next(lines))
            return self.read_json_columns(values)


class ListRows(FileRows):
    """Rows of a file that is a list. They are kept as JSON."""

    _rows: list[str]

    def read(self, key: int) -> JsonDict:
        values: JsonDict = json.loads(self._rows[key])
        return self.read_json_columns(values)

    def keep(self, value: object, text: str) -> str:
        """Keep a row, which is `text` as JSON, and return what is wrong with it."""
        if not isinstance(value, dict):
            self._rows.append("{}")
            return explain_no_mapping(value)
        self._rows.append(text)
        try:
            self.read_json_columns(value)
        except ValueError as error:
            return f"the row can't be read: {error}"
        return ""


class YamlRows(ListRows):
    """Rows of a YAML file that is a list of mappings. An anchor may stand in another row."""

    def scan(self) -> Iterator[ScannedRow]:
        places: list[tuple[int, str]] = []
        self._rows = []

        def add(item: ListItem) -> None:
            problems = [f"{problem.message} (line {problem.location.line})" for problem in item.problems]
            problem = self.keep({} if problems else item.value, "{}" if problems else json.dumps(item.value))
            places.append((item.line, "; ".join(problems) or problem))

        limits = Limits(max_bytes=get_bounds().recording_bytes)
        problems = read_items(read_file(self.path, "recording_bytes"), self.file, limits, add)
        if problems and not places:
            raise SpecError(problems)
        for key, (line, problem) in enumerate(places):
            yield ScannedRow({} if problem else self.read(key), line, key, problem)
        for broken in problems:
            yield ScannedRow({}, broken.location.line, 0, f"the rest of the file can't be read: {broken.message}")


class JsonRows(ListRows):
    """Rows of a JSON file that is a list of objects."""

    def scan(self) -> Iterator[ScannedRow]:
        self._rows = []
        try:
            text = read_file(self.path, "recording_bytes").decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self.refuse(f"the file can't be read: {_explain_line(error)}") from None
        if not text.lstrip().startswith("["):
            raise self.refuse("the file is no list; rows are a list of objects, [{...}, ...]")
        items, line, counted = _split_list(text), 1, 0
        while True:
            try:
                value, start, end = next(items)
            except StopIteration:
                return
            except (ValueError, RecursionError) as error:
                place = error.lineno if isinstance(error, json.JSONDecodeError) else line
                yield ScannedRow({}, place, 0, f"the rest of the file can't be read: {error}")
                return
            line, counted = line + text.count("\n", counted, start), start
            problem, key = self.keep(value, text[start:end]), len(self._rows) - 1
            yield ScannedRow({} if problem else self.read(key), line, key, problem)


def _split_list(text: str) -> Iterator[tuple[object, int, int]]:
    """Yield the items of a JSON list, each with where it begins and ends. ValueError for text that is not one."""
    position = _skip_blanks(text, text.index("[") + 1)
    if text.startswith("]", position):
        return
    while True:
        value, end = STRICT_DECODER.raw_decode(text, position)
        yield value, position, end
        position = _skip_blanks(text, end)
        if not text.startswith((",", "]"), position):
            raise json.JSONDecodeError("Expecting ',' or ']'", text, position)
        is_last = text.startswith("]", position)
        position = _skip_blanks(text, position + 1)
        if is_last:
            if position < len(text):
                raise json.JSONDecodeError("Extra data", text, position)
            return


def _skip_blanks(text: str, position: int) -> int:
    while text[position : position + 1] in (" ", "\t", "\n", "\r"):
        position += 1
    return position


OPENERS: dict[str, type[CsvRows | JsonLinesRows | JsonRows | YamlRows]] = {
    ".csv": CsvRows,
    ".tsv": CsvRows,
    ".jsonl": JsonLinesRows,
    ".ndjson": JsonLinesRows,
    ".json": JsonRows,
    ".yaml": YamlRows,
    ".yml": YamlRows,
}
