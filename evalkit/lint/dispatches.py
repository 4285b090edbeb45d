"""Which dispatch tables are about which file's declarations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from evalkit.lint.facts import Declared, Entry, Table
from evalkit.lint.names import related, words
from evalkit.lint.nearby import closest
from evalkit.lint.pythonfile import closeness


class Dispatches:
    """The tables of each file's functions: those that have most of their names, the nearest of them."""

    def __init__(self, files: Mapping[str, list[Declared]], declared: Collection[str], tables: Sequence[Table]) -> None:
        self._files = files
        self._declared_names = declared
        self._tables = tables
        self._found = self._of_files()

    def of(self, file: str) -> list[Table]:
        """The tables that dispatch what `file` declares."""
        return self._found.get(file, [])

    def _of_files(self) -> dict[str, list[Table]]:
        found: dict[str, list[Table]] = {}
        for table in self._tables:
            for file in self.about(table) if is_dispatch(table, self._declared_names) else ():
                found.setdefault(file, []).append(table)
        for file, tables in found.items():
            own = [table for table in tables if table.place.file == file]
            if 2 * max((self._share(self._files[file], table) for table in own), default=0) >= len(self._files[file]):
                found[file] = own  # what lies elsewhere is another agent's
        return found

    def about(self, table: Table) -> list[str]:
        """The files whose functions `table` dispatches: those with most of its names, the nearest of them.

        Besides, files as near of whose functions it has half: one table may dispatch many small files'.
        """
        shares = {file: self._share(functions, table) for file, functions in self._files.items()}
        most = max(shares.values(), default=0)
        best = [file for file, share in shares.items() if share == most and most]
        best = closest(best, table.place.file, best)
        near = min((closeness(table.place.file, file) for file in best), default=0)
        return [
            file
            for file, share in shares.items()
            if file in best
            or (2 * share >= len(self._files[file]) and closeness(table.place.file, file) >= near and share)
        ]

    def _share(self, functions: list[Declared], table: Table) -> int:
        names = {function.name for function in functions}
        # Code compares many things with a word; two words and an affix are no chance.
        others = [entry.name for entry in table.entries if not table.branches or len(words(entry.name)) > 1]
        return len(names & table.names) + sum(any(related(other, name) for name in names) for other in others)


def is_dispatch(table: Table, declared: Collection[str]) -> bool:
    """Whether a mapping's names are functions': half of them, or several. One of many is there by chance."""
    known = sum(name in declared or any(related(name, other) for other in declared) for name in table.names)
    return known > 2 or 2 * known >= len(table.names)


def main_dispatch(functions: list[Declared], renamed: dict[str, Entry], tables: list[Table]) -> list[Table]:
    """The dispatch of these functions: tables of one file or one registry that have most of them; none without such."""
    groups: dict[str, list[Table]] = {}
    for table in tables:
        groups.setdefault(table.registry or table.place.file, []).append(table)
    best: list[Table] = []
    most = 0
    for group in groups.values():
        names = {name for table in group for name in table.names}
        own = [{it.name, *it.aliases, *([renamed[it.name].name] if it.name in renamed else [])} for it in functions]
        covered = sum(it.bound is not None or bool(names & known) for it, known in zip(functions, own, strict=True))
        best, most = (group, covered) if covered > most else (best, most)
    return best if 2 * most >= len(functions) else []
