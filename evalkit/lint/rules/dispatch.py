"""Which code belongs to a declared function: by dispatch tables, else by name; and what is wrong with the names."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from evalkit.errors import did_you_mean, find_nearest
from evalkit.lint.facts.records import (
    DECORATED,
    SUITE,
    CodeFacts,
    DeclaredFunction,
    DispatchEntry,
    DispatchTable,
    Implementation,
)
from evalkit.lint.finding import Edit, Finding
from evalkit.lint.names import describe_difference, find_relative, is_alike, is_part, is_related, split_words
from evalkit.lint.rules.by_name import ImplementationsByName, TablesByFile, find_main_dispatch
from evalkit.lint.scope import select_closest


class MatchResult(Struct):
    """Declared functions with the code that carries them out, and the findings about names."""

    pairs: list[tuple[DeclaredFunction, Implementation]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


class DispatchMatcher:
    """Matches the declarations of each file with the dispatch tables and functions that are nearest to it."""

    def __init__(self, declared: Sequence[DeclaredFunction], code: CodeFacts) -> None:
        self._code = code
        self._decorated = [function for function in declared if function.form == DECORATED]
        self._declarations = [function for function in declared if function.form not in (DECORATED, SUITE)]
        self._files: dict[str, list[DeclaredFunction]] = {}
        for function in self._declarations:
            self._files.setdefault(function.file, []).append(function)
        self._by_name = ImplementationsByName(declared, self._decorated, code)
        self._declared_names = {function.name for function in declared}
        self._tables_by_file = TablesByFile(self._files, self._declared_names, code.tables)

    def match(self) -> MatchResult:
        matched = MatchResult()
        for file, functions in self._files.items():
            tables = self._tables_by_file.find_tables(file)
            if tables:
                self._match_by_tables(functions, tables, matched)
            else:
                self._match_by_name(functions, matched)
        matched.findings += check_undeclared_entries(self._files, self._tables_by_file, self._by_name, self._code)
        matched.findings += check_aliases(self._by_name.names, self._code)
        return matched

    # With tables

    def _match_by_tables(
        self, functions: list[DeclaredFunction], tables: list[DispatchTable], matched: MatchResult
    ) -> None:
        entries = {entry.name: entry for table in reversed(tables) for entry in table.entries}
        compared = {entry.name for table in tables if table.is_chain for entry in table.entries}
        names = {function.name for function in functions}
        undispatched = [function for function in functions if not self._is_dispatched(function, entries)]
        free = {
            entry.name: entry
            for table in reversed(tables)
            for entry in (table.entries if self._is_used_with([table], functions[0]) else ())
            if entry.name not in names | self._declared_names
        }
        renamed = {
            function.name: free[name]
            for function in undispatched
            if (name := _find_partner(function, undispatched, free, compared))
        }
        main = find_main_dispatch(functions, renamed, tables)
        for function in functions:
            if function.implementation is not None:
                matched.pairs.append((function, function.implementation))
                continue
            entry = entries.get(function.name) or entries.get(self._by_name.aliases.get(function.name, ""))
            if function.name in renamed:
                entry = renamed[function.name]
                matched.findings.append(_report_dispatch_name(function, entry))
            elif (
                function in undispatched
                and self._is_used_with(main, function)
                and not any(table.is_open for table in main)
            ):
                matched.findings.append(self._report_no_entry(function, main))
            self._record_pair(function, entry, matched)

    def _is_used_with(self, tables: list[DispatchTable], function: DeclaredFunction) -> bool:
        """Whether the code that has the tables is used with the declaration: another script may know the names, too."""
        return any(self._by_name.is_used_with(function.file, table.place.file) for table in tables)

    def _is_dispatched(self, function: DeclaredFunction, entries: dict[str, DispatchEntry]) -> bool:
        if function.implementation is not None:
            return True
        names = {function.name, *function.aliases, self._by_name.aliases.get(function.name, function.name)}
        return bool(names & entries.keys()) or any(self._is_mentioned(name, function.file) for name in names)

    def _is_mentioned(self, name: str, file: str) -> bool:
        """Whether code speaks of the name elsewhere: a comparison, a registration, a lookup by getattr.

        Where the functions of `file` have a dispatch, only what stands in the same files counts: other agents of the
        project may have functions of the same names.
        """
        table_files = {table.place.file for table in self._tables_by_file.find_tables(file)}
        by_name = name in self._code.implementations
        places = [*self._code.compared_texts.get(name, ()), *(self._code.dynamic_lookups if by_name else ())]
        return any(not table_files or place.file in {*table_files, file} for place in places)

    def _report_no_entry(self, function: DeclaredFunction, tables: list[DispatchTable]) -> Finding:
        table, names = tables[0], {name for table in tables for name in table.names}
        similar = find_nearest(function.name, [name for name in sorted(names) if name not in self._by_name.names])
        hint = f"; '{similar}' is there" if similar else ""
        return Finding(
            name="not-dispatched",
            location=function.place,
            message=f"'{function.name}' is declared and has no entry in the dispatch of {table.place.file}{hint}",
            advice="add the entry, or take the declaration away: a call of it fails",
            related=table.place,
        )

    def _record_pair(self, function: DeclaredFunction, entry: DispatchEntry | None, matched: MatchResult) -> None:
        if entry is not None and entry.target is not None:
            matched.pairs.append((function, entry.target))
        elif entry is None or not entry.target_name:
            implementation = self._by_name.find_implementation(function)
            if implementation is not None and entry is None:
                matched.pairs.append((function, implementation))

    # Without tables

    def _match_by_name(self, functions: list[DeclaredFunction], matched: MatchResult) -> None:
        matched.pairs += [
            (function, function.implementation) for function in functions if function.implementation is not None
        ]
        functions = [function for function in functions if function.implementation is None]
        exact = {
            function.name: self._by_name.find_implementation(function)
            for function in functions
            if self._by_name.has_name(function)
        }
        renamed = {
            function.name: implementation
            for function in functions
            if function.name not in exact and (implementation := self._find_renamed(function)) is not None
        }
        if len(renamed) == 1 and all(len(split_words(name)) == 1 for name in renamed):
            renamed = {}  # one word with an affix: `search` and `run_search` may be two things
        enough = 2 * (len(exact) + len(renamed)) >= len(functions) and all(
            self._is_conventional(function.file) for function in functions[:1]
        )
        for function in functions:
            implementation = exact.get(function.name)
            entry = self._by_name.find_entry(function)
            if entry is not None and not entry.target_name:
                implementation = entry.target  # a branch, which says best what is run
            if implementation is not None:
                matched.pairs.append((function, implementation))
            elif function.name in renamed and enough:
                matched.findings.append(_report_implementation_name(function, renamed[function.name]))
                matched.pairs.append((function, renamed[function.name]))
            elif function.name not in exact and exact and enough and self._is_expected(function):
                matched.findings.append(self._report_no_code(function))

    def _is_conventional(self, file: str) -> bool:
        """Whether code carries the names of functions that files beside this one declare: half of them, at least.

        In a folder of files with one declaration each, what is true of one file says little.
        """
        folder = file.rpartition("/")[0]
        neighbours = [
            function
            for neighbour_file, functions in self._files.items()
            if neighbour_file.rpartition("/")[0] == folder
            for function in functions
        ]
        known_count = sum(
            function.implementation is not None or self._by_name.has_name(function) for function in neighbours
        )
        return len(self._files[file]) > 1 or len(neighbours) < 3 or 2 * known_count >= len(neighbours)

    def _find_renamed(self, function: DeclaredFunction) -> Implementation | None:
        name = find_relative(
            function.name,
            [candidate for candidate in self._code.implementations if candidate not in self._by_name.names],
        )
        if name is None or self._is_mentioned(function.name, function.file):
            return None
        implementations = self._by_name.find_implementations(name, function.file)
        nearby = select_closest(
            implementations, function.file, [implementation.place.file for implementation in implementations]
        )
        return nearby[0] if nearby else None

    def _is_expected(self, function: DeclaredFunction) -> bool:
        """Whether a Python function could have the name, and no code speaks of it in another way."""
        return function.name.replace("-", "_").isidentifier() and not self._is_mentioned(function.name, function.file)

    def _report_no_code(self, function: DeclaredFunction) -> Finding:
        similar_names = [
            name
            for name in self._code.implementations
            if name not in self._by_name.names
            and self._by_name.find_implementations(name, function.file)
            and (is_alike(name, function.name) or is_part(name, function.name))
        ]
        return Finding(
            name="not-implemented",
            location=function.place,
            message=f"'{function.name}' is declared, and no function of that name is in the code"
            f"{did_you_mean(function.name, similar_names)}",
            advice="implement it, or take the declaration away: a call of it fails",
        )


def _find_partner(
    function: DeclaredFunction, undispatched: list[DeclaredFunction], free: Iterable[str], compared: Container[str]
) -> str | None:
    """The entry under another name that `function` was meant to have: each is the other's nearest.

    What code merely compares something with may be no name of a function: a slip of a key is not assumed there.
    """
    names = list(free)
    match = find_relative(function.name, names)
    if match is not None:
        return match
    similar = find_nearest(
        function.name, [name for name in names if is_alike(name, function.name) and name not in compared]
    )
    back = find_nearest(similar, [candidate.name for candidate in undispatched]) if similar is not None else None
    if back == function.name:
        return similar
    parts = [name for name in names if is_part(name, function.name) and name not in compared]
    back_parts = [candidate.name for candidate in undispatched if parts and is_part(parts[0], candidate.name)]
    return parts[0] if len(parts) == 1 and back_parts == [function.name] else None


def _report_dispatch_name(function: DeclaredFunction, entry: DispatchEntry) -> Finding:
    fix: Edit | None = entry.add(function.name) if entry.add is not None else None
    return Finding(
        name="dispatch-name",
        location=function.place,
        message=f"declared as '{function.name}', dispatched as '{entry.name}' in {entry.place.file}: "
        f"{describe_difference(entry.name, function.name)}",
        advice="give both one name, or let the table know both while the code migrates",
        related=entry.place,
        fix=fix,
    )


def _report_implementation_name(function: DeclaredFunction, implementation: Implementation) -> Finding:
    return Finding(
        name="implementation-name",
        location=function.place,
        message=f"declared as '{function.name}', implemented as '{implementation.name}' in {implementation.place.file}: "  # noqa: E501
        f"{describe_difference(implementation.name, function.name)}",
        advice="give both one name, or dispatch the declared name to the function",
        related=implementation.place,
    )


# Entries of dispatch tables that no declaration knows, and aliases that lead nowhere.


def check_undeclared_entries(
    files: Mapping[str, list[DeclaredFunction]],
    tables_by_file: TablesByFile,
    by_name: ImplementationsByName,
    code: CodeFacts,
) -> Iterator[Finding]:
    """Entries that no model is told of, in tables that are about declared functions."""
    for table in code.tables:
        about = tables_by_file.find_files(table)
        share = sum(entry.name in by_name.names for entry in table.entries)
        if table.is_chain or not about or 2 * share < len(table.entries) or code.opaque_places:
            continue
        functions = [function.name for file in about for function in files[file]]
        for entry in table.entries:
            aliased = entry.name in by_name.aliases.values() or by_name.aliases.get(entry.name, "") in by_name.names
            if (
                entry.name not in by_name.names
                and not aliased
                and not _is_partner(entry.name, functions, table)
                and not _has_another_name(entry, table, by_name.names)
            ):
                yield Finding(
                    name="undeclared-dispatch",
                    location=entry.place,
                    message=f"'{entry.name}' is dispatched, and no model is told of it",
                    advice="declare it, or take the entry away",
                )


def _has_another_name(entry: DispatchEntry, table: DispatchTable, names: Collection[str]) -> bool:
    """Whether the table has the same code under a declared name as well: both work while code migrates."""
    declared_entries = (candidate for candidate in table.entries if candidate.name in names)
    return bool(entry.target_name) and any(candidate.target_name == entry.target_name for candidate in declared_entries)


def check_aliases(names: Collection[str], code: CodeFacts) -> Iterator[Finding]:
    """Aliases of functions that do not exist."""
    known_names = {
        *names,
        *code.implementations,
        *(n for table in code.tables for n in table.names),
    }
    about = {
        alias.map_place
        for alias in code.aliases
        if any(
            is_alike(alias_part, name) or alias_part == name
            for alias_part in (alias.name, alias.target)
            for name in names
        )
    }
    for alias in code.aliases:
        if alias.map_place in about and not {alias.target, alias.target.rpartition(".")[2]} & known_names:
            yield Finding(
                name="alias-target",
                location=alias.place,
                message=f"the alias '{alias.name}' leads to '{alias.target}', which does not exist"
                f"{did_you_mean(alias.target, known_names - {alias.name})}",
                advice="correct the target, or take the alias away",
            )


def _is_partner(name: str, functions: list[str], table: DispatchTable) -> bool:
    """Whether the entry is a declared function under another name: beside its own, or instead, which is told there."""
    return any(
        is_related(name, function)
        if function in table.names
        else is_alike(name, function) or (is_part(name, function) and _has_free_partner(name, functions, table))
        for function in functions
    )


def _has_free_partner(name: str, functions: list[str], table: DispatchTable) -> bool:
    """Whether one function alone could be meant by the part of a name, as `_partner` wants it."""
    return len([function for function in functions if function not in table.names and is_part(name, function)]) == 1
