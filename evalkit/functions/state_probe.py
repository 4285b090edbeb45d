"""Probes of real systems: what gives the state to judge once an agent of real functions has ended.

`input.state_probe` names a Python callable, or a query (or several, by name) against a file of SQLite. The file is
opened for reading, lies inside the project, and a query may do nothing but select.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from evalkit.errors import KeyPath, MockError, PathProblem, did_you_mean
from evalkit.functions.targets import (
    ArgumentsRefusedError,
    TargetError,
    bind_arguments,
    check_form,
    find_callable,
    load_callable,
)
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, NotJsonError, to_json
from evalkit.model.case import Permissions
from evalkit.text.format import format_value

_EXAMPLE = "shop.database:read_orders"
_SQL_KEYS = ("database", "query", "queries")
_FORM = "{$call: shop.database:read_orders}, or {$sql: {database: shop.sqlite, query: SELECT ...}}"
_MAX_ROWS = 100_000
_MAX_VALUE = 10_000_000  # bytes of a text
_STEPS_BETWEEN_CHECKS = 100_000  # instructions of SQLite's machine between two looks at the clock
_ALLOWED = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


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
        path = os.path.realpath(root / self.database)
        if not path.startswith(os.path.realpath(root) + os.sep):
            raise MockError(f"database {self.database} lies outside of the project")
        if not os.path.isfile(path):
            raise MockError(f"there is no database {self.database}")
        deadline = time.monotonic() + limit_s
        connection = sqlite3.connect(f"{Path(path).as_uri()}?mode=ro", uri=True)
        try:
            connection.row_factory = sqlite3.Row
            connection.set_authorizer(_authorize)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_CHECKS)
            if isinstance(self.queries, str):
                return _select(connection, self.queries)
            return {name: _select(connection, query) for name, query in self.queries.items()}
        finally:
            connection.close()


StateProbe = CallProbe | SqlProbe


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    is_allowed = action in _ALLOWED and second not in ("load_extension", "readfile", "writefile")
    return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY


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
    value: object,
    path: KeyPath,
    problems: list[PathProblem],
    *,
    check_targets: bool = True,
    permissions: Permissions | None = None,
) -> StateProbe | None:
    """Read `input.state_probe`; None, and a problem, for what is none or may not be used."""
    try:
        if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= {"$call", "$sql"}:
            raise TargetError(f"state_probe is {_FORM}; got {format_value(value, 80)}")
        if "$sql" in value:
            return _read_sql(value["$sql"])
        if not check_targets:
            return CallProbe(check_form(value["$call"], _EXAMPLE)[0])
        if not callable(find_callable(value["$call"], _EXAMPLE, permissions)):
            raise TargetError(f"'{value['$call']}' is not callable")
        return CallProbe(value["$call"])
    except TargetError as error:
        key = next(iter(value), "") if isinstance(value, dict) and len(value) == 1 else ""
        problems.append(PathProblem((*path, key) if key else path, f"{key}: {error}" if key == "$call" else str(error)))
        return None


def _read_sql(sql: object) -> SqlProbe:
    """Read `$sql`. TargetError for what names no database and no query."""
    if not isinstance(sql, dict) or not isinstance(sql.get("database"), str):
        raise TargetError(
            f"$sql has a 'database', a file inside the project, and a 'query'; got {format_value(sql, 80)}"
        )
    for key in sql:
        if key not in _SQL_KEYS:
            raise TargetError(f"unknown key '{key}' in $sql{did_you_mean(key, _SQL_KEYS)}")
    query, queries = sql.get("query"), sql.get("queries")
    if isinstance(query, str) and query and queries is None:
        return SqlProbe(sql["database"], query)
    if query is None and isinstance(queries, dict) and queries and all(isinstance(q, str) for q in queries.values()):
        return SqlProbe(sql["database"], queries)
    raise TargetError("$sql has a 'query', as text, or 'queries', a mapping of names to texts")


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
