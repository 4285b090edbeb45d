"""Which code belongs to a declared function: by dispatch tables, else by name; and what is wrong with the names."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from msgspec import Struct, field

from evalkit.errors import did_you_mean, nearest
from evalkit.lint.bynames import ByName
from evalkit.lint.dispatches import Dispatches, main_dispatch
from evalkit.lint.facts import DECORATED, SUITE, Code, Declared, Entry, Implementation, Table
from evalkit.lint.finding import Edit, Finding
from evalkit.lint.names import alike, difference, is_part, relative, words
from evalkit.lint.nearby import closest
from evalkit.lint.strays import stray_aliases, stray_entries


class Matched(Struct):
    """Declared functions with the code that carries them out, and the findings about names."""

    pairs: list[tuple[Declared, Implementation]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class Matcher:
    """Matches the declarations of each file with the dispatch tables and functions that are nearest to it."""

    def __init__(self, declared: Sequence[Declared], code: Code) -> None:
        self._code = code
        self._bound = [function for function in declared if function.form == DECORATED]
        self._declared = [function for function in declared if function.form not in (DECORATED, SUITE)]
        self._files: dict[str, list[Declared]] = {}
        for function in self._declared:
            self._files.setdefault(function.file, []).append(function)
        self._by_name = ByName(declared, self._bound, code)
        self._declared_names = {function.name for function in declared}
        self._dispatches = Dispatches(self._files, self._declared_names, code.tables)

    def match(self) -> Matched:
        matched = Matched()
        for file, functions in self._files.items():
            tables = self._dispatches.of(file)
            if tables:
                self._by_tables(functions, tables, matched)
            else:
                self._without_tables(functions, matched)
        matched.findings += stray_entries(self._files, self._dispatches, self._by_name, self._code)
        matched.findings += stray_aliases(self._by_name.names, self._code)
        return matched

    # With tables

    def _by_tables(self, functions: list[Declared], tables: list[Table], matched: Matched) -> None:
        entries = {entry.name: entry for table in reversed(tables) for entry in table.entries}
        compared = {entry.name for table in tables if table.branches for entry in table.entries}
        names = {function.name for function in functions}
        left = [function for function in functions if not self._is_dispatched(function, entries)]
        free = {
            entry.name: entry
            for table in reversed(tables)
            for entry in (table.entries if self._is_theirs([table], functions[0]) else ())
            if entry.name not in names | self._declared_names
        }
        renamed = {function.name: free[name] for function in left if (name := _partner(function, left, free, compared))}
        main = main_dispatch(functions, renamed, tables)
        for function in functions:
            if function.bound is not None:
                matched.pairs.append((function, function.bound))
                continue
            entry = entries.get(function.name) or entries.get(self._by_name.aliases.get(function.name, ""))
            if function.name in renamed:
                entry = renamed[function.name]
                matched.findings.append(_dispatched_as(function, entry))
            elif function in left and self._is_theirs(main, function) and not any(table.is_open for table in main):
                matched.findings.append(self._no_entry(function, main))
            self._pair(function, entry, matched)

    def _is_theirs(self, tables: list[Table], function: Declared) -> bool:
        """Whether the code that has the tables is used with the declaration: another script may know the names, too."""
        return any(self._by_name.used_together(function.file, table.place.file) for table in tables)

    def _is_dispatched(self, function: Declared, entries: dict[str, Entry]) -> bool:
        if function.bound is not None:
            return True
        names = {function.name, *function.aliases, self._by_name.aliases.get(function.name, function.name)}
        return bool(names & entries.keys()) or any(self._is_seen(name, function.file) for name in names)

    def _is_seen(self, name: str, file: str) -> bool:
        """Whether code speaks of the name elsewhere: a comparison, a registration, a lookup by getattr.

        Where the functions of `file` have a dispatch, only what stands in the same files counts: other agents of the
        project may have functions of the same names.
        """
        near = {table.place.file for table in self._dispatches.of(file)}
        by_name = name in self._code.implementations
        places = [*self._code.compared.get(name, ()), *(self._code.dynamic if by_name else ())]
        return any(not near or place.file in {*near, file} for place in places)

    def _no_entry(self, function: Declared, tables: list[Table]) -> Finding:
        table, names = tables[0], {name for table in tables for name in table.names}
        near = nearest(function.name, [name for name in sorted(names) if name not in self._by_name.names])
        hint = f"; '{near}' is there" if near else ""
        return Finding(
            name="not-dispatched",
            location=function.place,
            message=f"'{function.name}' is declared and has no entry in the dispatch of {table.place.file}{hint}",
            advice="add the entry, or take the declaration away: a call of it fails",
            related=table.place,
        )

    def _pair(self, function: Declared, entry: Entry | None, matched: Matched) -> None:
        if entry is not None and entry.target is not None:
            matched.pairs.append((function, entry.target))
        elif entry is None or not entry.target_name:
            found = self._by_name.implementation(function)
            if found is not None and entry is None:
                matched.pairs.append((function, found))

    # Without tables

    def _without_tables(self, functions: list[Declared], matched: Matched) -> None:
        matched.pairs += [(function, function.bound) for function in functions if function.bound is not None]
        functions = [function for function in functions if function.bound is None]
        exact = {
            function.name: self._by_name.implementation(function)
            for function in functions
            if self._by_name.exists(function)
        }
        renamed = {
            function.name: found
            for function in functions
            if function.name not in exact and (found := self._implemented_as(function)) is not None
        }
        if len(renamed) == 1 and all(len(words(name)) == 1 for name in renamed):
            renamed = {}  # one word with an affix: `search` and `run_search` may be two things
        enough = 2 * (len(exact) + len(renamed)) >= len(functions) and all(
            self._is_usual(it.file) for it in functions[:1]
        )
        for function in functions:
            found = exact.get(function.name)
            entry = self._by_name.entry(function)
            if entry is not None and not entry.target_name:
                found = entry.target  # a branch, which says best what is run
            if found is not None:
                matched.pairs.append((function, found))
            elif function.name in renamed and enough:
                matched.findings.append(_implemented_as(function, renamed[function.name]))
                matched.pairs.append((function, renamed[function.name]))
            elif function.name not in exact and exact and enough and self._should_be_there(function):
                matched.findings.append(self._no_code(function))

    def _is_usual(self, file: str) -> bool:
        """Whether code carries the names of functions that files beside this one declare: half of them, at least.

        In a folder of files with one declaration each, what is true of one file says little.
        """
        folder = file.rpartition("/")[0]
        beside = [it for other, its in self._files.items() if other.rpartition("/")[0] == folder for it in its]
        known = sum(it.bound is not None or self._by_name.exists(it) for it in beside)
        return len(self._files[file]) > 1 or len(beside) < 3 or 2 * known >= len(beside)

    def _implemented_as(self, function: Declared) -> Implementation | None:
        name = relative(
            function.name, [known for known in self._code.implementations if known not in self._by_name.names]
        )
        if name is None or self._is_seen(function.name, function.file):
            return None
        found = self._by_name.implementations(name, function.file)
        near = closest(found, function.file, [it.place.file for it in found])
        return near[0] if near else None

    def _should_be_there(self, function: Declared) -> bool:
        """Whether a Python function could have the name, and no code speaks of it in another way."""
        return function.name.replace("-", "_").isidentifier() and not self._is_seen(function.name, function.file)

    def _no_code(self, function: Declared) -> Finding:
        known = [
            name
            for name in self._code.implementations
            if name not in self._by_name.names
            and self._by_name.implementations(name, function.file)
            and (alike(name, function.name) or is_part(name, function.name))
        ]
        return Finding(
            name="not-implemented",
            location=function.place,
            message=f"'{function.name}' is declared, and no function of that name is in the code"
            f"{did_you_mean(function.name, known)}",
            advice="implement it, or take the declaration away: a call of it fails",
        )


def _partner(function: Declared, left: list[Declared], free: Iterable[str], compared: Container[str]) -> str | None:
    """The entry under another name that `function` was meant to have: each is the other's nearest.

    What code merely compares something with may be no name of a function: a slip of a key is not assumed there.
    """
    names = list(free)
    found = relative(function.name, names)
    if found is not None:
        return found
    near = nearest(function.name, [name for name in names if alike(name, function.name) and name not in compared])
    back = nearest(near, [other.name for other in left]) if near is not None else None
    if back == function.name:
        return near
    parts = [name for name in names if is_part(name, function.name) and name not in compared]
    back_parts = [other.name for other in left if parts and is_part(parts[0], other.name)]
    return parts[0] if len(parts) == 1 and back_parts == [function.name] else None


def _dispatched_as(function: Declared, entry: Entry) -> Finding:
    fix: Edit | None = entry.add(function.name) if entry.add is not None else None
    return Finding(
        name="dispatch-name",
        location=function.place,
        message=f"declared as '{function.name}', dispatched as '{entry.name}' in {entry.place.file}: "
        f"{difference(entry.name, function.name)}",
        advice="give both one name, or let the table know both while the code migrates",
        related=entry.place,
        fix=fix,
    )


def _implemented_as(function: Declared, found: Implementation) -> Finding:
    return Finding(
        name="implementation-name",
        location=function.place,
        message=f"declared as '{function.name}', implemented as '{found.name}' in {found.place.file}: "
        f"{difference(found.name, function.name)}",
        advice="give both one name, or dispatch the declared name to the function",
        related=found.place,
    )
