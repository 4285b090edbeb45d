"""Probes, which read the state of a real system once the agent has ended: `input.state_probe`.

A probe names a Python callable, or a query (or several, by name) against a file of SQLite. The file is opened for
reading, lies inside the project, and a query may do nothing but select.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from evalkit.errors import KeyPath, MockError
from evalkit.fields.reader import FieldReader
from evalkit.functions.targets import (
    ArgumentsRefusedError,
    TargetError,
    bind_arguments,
    check_form,
    find_callable,
    load_callable,
)
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, NotJsonError, to_json
from evalkit.records.case import Permissions
from evalkit.text.format import format_value

if TYPE_CHECKING:
    import sqlite3

_PROBE_EXAMPLE = "shop.database:read_orders"
_SQL_KEYS = ("database", "query", "queries")
_FORM = "{$call: shop.database:read_orders}, or {$sql: {database: shop.sqlite, query: SELECT ...}}"
_MAX_ROWS = 100_000
_MAX_VALUE = 10_000_000  # bytes of a text
_STEPS_BETWEEN_CHECKS = 100_000  # instructions of SQLite's machine between two looks at the clock


class CallProbe(Struct, frozen=True):
    """A Python callable; its parameters `state`, `input` and `task` get the run's."""

    target: str

    def read(self, run: JsonDict, root: Path, limit_s: float) -> object:
        """Return what the callable returns."""
        return bind_arguments(load_callable(self.target), {}, run)()


class SqlProbe(Struct, frozen=True):
    """Queries against a file of SQLite: a list of rows by query, or of the one query alone."""

    database: str
    queries: Mapping[str, str] | str

    def read(self, run: JsonDict, root: Path, limit_s: float) -> JsonValue:
        """Return the rows, each a mapping of columns to values."""
        import sqlite3  # a megabyte of memory that few runs need

        allowed = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}

        def authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
            is_allowed = action in allowed and second not in ("load_extension", "readfile", "writefile")
            return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY

        path = os.path.realpath(root / self.database)
        if not path.startswith(os.path.realpath(root) + os.sep):
            raise MockError(f"database {self.database} lies outside of the project")
        if not os.path.isfile(path):
            raise MockError(f"there is no database {self.database}")
        deadline = time.monotonic() + limit_s
        connection = sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)
        try:
            connection.row_factory = sqlite3.Row
            connection.set_authorizer(authorize)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CHECKS)
            by_name = {"query": self.queries} if isinstance(self.queries, str) else self.queries
            rows: JsonDict = {}
            for name, query in by_name.items():
                try:
                    rows[name] = _select(connection, query)
                except sqlite3.Error as error:
                    if time.monotonic() > deadline:
                        raise
                    shown = f"{type(error).__name__}: {error}; it is {format_value(query, 200)}"
                    raise MockError(f"{name} raised {shown}") from error
            return rows["query"] if isinstance(self.queries, str) else rows
        finally:
            connection.close()


StateProbe = CallProbe | SqlProbe


def _select(connection: sqlite3.Connection, query: str) -> JsonValue:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description or ()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:  # one would hide the other, and what it holds would not be judged
        raise MockError(f"the query gives two columns '{twice}'; name one with AS: {format_value(query, 60)}")
    rows = cursor.fetchmany(_MAX_ROWS + 1)
    if len(rows) > _MAX_ROWS:
        raise MockError(f"the query gives more than {_MAX_ROWS:,} rows: {format_value(query, 60)}")
    return [dict(row) for row in rows]


def read_probe(
    reader: FieldReader,
    path: KeyPath,
    value: object,
    *,
    check_targets: bool = True,
    permissions: Permissions | None = None,
) -> StateProbe | None:
    """Read `input.state_probe`; None, and a problem, for what is none or may not be used."""
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"$call", "$sql"}:
        reader.report_wrong(path, value, _FORM)
        return None
    if "$sql" in value:
        return _read_sql(reader, (*path, "$sql"), value["$sql"])
    target = value["$call"]
    try:
        if not check_targets:
            return CallProbe(check_form(target, _PROBE_EXAMPLE)[0])
        if not callable(find_callable(target, _PROBE_EXAMPLE, permissions)):
            raise TargetError(f"'{target}' is not callable")
        return CallProbe(target)
    except TargetError as error:
        reader.add_problem((*path, "$call"), f"$call: {error}")
        return None


def _read_sql(reader: FieldReader, path: KeyPath, value: object) -> SqlProbe | None:
    if isinstance(value, dict) and not value.keys() <= set(_SQL_KEYS):
        reader.check_keys(path, value, _SQL_KEYS)
        return None
    if not isinstance(value, dict) or not isinstance(value.get("database"), str):
        reader.report_wrong(path, value, "a mapping with 'database', a file inside the project, and 'query'")
        return None
    query, queries = value.get("query"), value.get("queries")
    if isinstance(query, str) and query and queries is None:
        return SqlProbe(value["database"], query)
    if query is None and isinstance(queries, dict) and queries and all(isinstance(q, str) for q in queries.values()):
        return SqlProbe(value["database"], queries)
    place = reader.format_place(path)
    reader.add_problem(path, f"{place} has a 'query', as text, or 'queries', a mapping of names to texts")
    return None


async def read_state(probe: StateProbe, run: JsonObject, root: Path, limit_s: float) -> JsonValue:
    """Read the state by `probe`, in a thread. MockError if it raises, takes longer than `limit_s`, or gives no JSON."""
    name = probe.target if isinstance(probe, CallProbe) else probe.database
    try:
        async with asyncio.timeout(limit_s) as limit:
            value = await asyncio.to_thread(probe.read, dict(run), root, limit_s)
            value = await value if inspect.isawaitable(value) else value
        read: JsonValue = to_json(value)
    except NotJsonError as error:
        raise MockError(f"state_probe {name} gave something else than JSON: {error}") from None
    except (ArgumentsRefusedError, MockError) as error:
        raise MockError(f"state_probe {name}: {error}") from None
    except Exception as error:
        if limit.expired():
            raise MockError(f"state_probe {name} was still running after {limit_s:g} s") from None
        raise MockError(f"state_probe {name} raised {type(error).__name__}: {error}") from error
    if read is None:  # as of a function that lacks its `return`: mocks' own state would be judged in its place
        raise MockError(f"state_probe {name} gave null; what it returns is the state")
    return read
