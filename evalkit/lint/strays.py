"""Entries of dispatch tables that no declaration knows, and aliases that lead nowhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from evalkit.errors import did_you_mean
from evalkit.lint.bynames import ByName
from evalkit.lint.dispatches import Dispatches
from evalkit.lint.facts import Code, Declared, Entry, Table
from evalkit.lint.finding import Finding
from evalkit.lint.names import alike, is_part, related


def stray_entries(
    files: Mapping[str, list[Declared]], dispatches: Dispatches, by_name: ByName, code: Code
) -> Iterator[Finding]:
    """Entries that no model is told of, in tables that are about declared functions."""
    for table in code.tables:
        about = dispatches.about(table)
        share = sum(entry.name in by_name.names for entry in table.entries)
        if table.branches or not about or 2 * share < len(table.entries) or code.opaque:
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


def _has_another_name(entry: Entry, table: Table, names: Collection[str]) -> bool:
    """Whether the table has the same code under a declared name as well: both work while code migrates."""
    others = (it for it in table.entries if it.name in names)
    return bool(entry.target_name) and any(it.target_name == entry.target_name for it in others)


def stray_aliases(names: Collection[str], code: Code) -> Iterator[Finding]:
    """Aliases of functions that do not exist."""
    known = {
        *names,
        *code.implementations,
        *(n for table in code.tables for n in table.names),
    }
    about = {
        alias.listed_in
        for alias in code.aliases
        if any(alike(one, name) or one == name for one in (alias.name, alias.target) for name in names)
    }
    for alias in code.aliases:
        if alias.listed_in in about and not {alias.target, alias.target.rpartition(".")[2]} & known:
            yield Finding(
                name="alias-target",
                location=alias.place,
                message=f"the alias '{alias.name}' leads to '{alias.target}', which does not exist"
                f"{did_you_mean(alias.target, known - {alias.name})}",
                advice="correct the target, or take the alias away",
            )


def _is_partner(name: str, functions: list[str], table: Table) -> bool:
    """Whether the entry is a declared function under another name: beside its own, or instead, which is told there."""
    return any(
        related(name, function)
        if function in table.names
        else alike(name, function) or (is_part(name, function) and _partner_is_free(name, functions, table))
        for function in functions
    )


def _partner_is_free(name: str, functions: list[str], table: Table) -> bool:
    """Whether one function alone could be meant by the part of a name, as `_partner` wants it."""
    return len([it for it in functions if it not in table.names and is_part(name, it)]) == 1
