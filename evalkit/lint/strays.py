"""Entries of dispatch tables that no declaration knows, and aliases that lead nowhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from evalkit.errors import did_you_mean
from evalkit.lint.bynames import ImplementationsByName
from evalkit.lint.dispatches import TablesByFile
from evalkit.lint.facts import CodeFacts, DeclaredFunction, DispatchEntry, DispatchTable
from evalkit.lint.finding import Finding
from evalkit.lint.names import is_alike, is_part, is_related


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
