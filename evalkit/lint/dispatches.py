"""Which dispatch tables are about which file's declarations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from evalkit.lint.facts import DeclaredFunction, DispatchEntry, DispatchTable
from evalkit.lint.names import is_related, split_words
from evalkit.lint.nearby import select_closest
from evalkit.lint.pythonfile import measure_closeness


class TablesByFile:
    """The tables of each file's functions: those that have most of their names, the nearest of them."""

    def __init__(
        self, files: Mapping[str, list[DeclaredFunction]], declared: Collection[str], tables: Sequence[DispatchTable]
    ) -> None:
        self._files = files
        self._declared_names = declared
        self._tables = tables
        self._assigned = self._map_tables()

    def find_tables(self, file: str) -> list[DispatchTable]:
        """The tables that dispatch what `file` declares."""
        return self._assigned.get(file, [])

    def _map_tables(self) -> dict[str, list[DispatchTable]]:
        assigned: dict[str, list[DispatchTable]] = {}
        for table in self._tables:
            for file in self.find_files(table) if is_dispatch(table, self._declared_names) else ():
                assigned.setdefault(file, []).append(table)
        for file, tables in assigned.items():
            own_tables = [table for table in tables if table.place.file == file]
            if 2 * max((self._count_shared_names(self._files[file], table) for table in own_tables), default=0) >= len(
                self._files[file]
            ):
                assigned[file] = own_tables  # what lies elsewhere is another agent's
        return assigned

    def find_files(self, table: DispatchTable) -> list[str]:
        """The files whose functions `table` dispatches: those with most of its names, the nearest of them.

        Besides, files as near of whose functions it has half: one table may dispatch many small files'.
        """
        shares = {file: self._count_shared_names(functions, table) for file, functions in self._files.items()}
        largest_share = max(shares.values(), default=0)
        best = [file for file, share in shares.items() if share == largest_share and largest_share]
        best = select_closest(best, table.place.file, best)
        threshold = min((measure_closeness(table.place.file, file) for file in best), default=0)
        return [
            file
            for file, share in shares.items()
            if file in best
            or (
                2 * share >= len(self._files[file]) and measure_closeness(table.place.file, file) >= threshold and share
            )
        ]

    def _count_shared_names(self, functions: list[DeclaredFunction], table: DispatchTable) -> int:
        names = {function.name for function in functions}
        # Code compares many things with a word; two words and an affix are no chance.
        other_names = [entry.name for entry in table.entries if not table.is_chain or len(split_words(entry.name)) > 1]
        return len(names & table.names) + sum(
            any(is_related(other_name, name) for name in names) for other_name in other_names
        )


def is_dispatch(table: DispatchTable, declared: Collection[str]) -> bool:
    """Whether a mapping's names are functions': half of them, or several. One of many is there by chance."""
    known_count = sum(
        name in declared or any(is_related(name, declared_name) for declared_name in declared) for name in table.names
    )
    return known_count > 2 or 2 * known_count >= len(table.names)


def find_main_dispatch(
    functions: list[DeclaredFunction], renamed: dict[str, DispatchEntry], tables: list[DispatchTable]
) -> list[DispatchTable]:
    """The dispatch of these functions: tables of one file or one registry that have most of them; none without such."""
    groups: dict[str, list[DispatchTable]] = {}
    for table in tables:
        groups.setdefault(table.registry or table.place.file, []).append(table)
    best: list[DispatchTable] = []
    best_count = 0
    for group in groups.values():
        names = {name for table in group for name in table.names}
        names_by_function = [
            {function.name, *function.aliases, *([renamed[function.name].name] if function.name in renamed else [])}
            for function in functions
        ]
        covered = sum(
            function.implementation is not None or bool(names & function_names)
            for function, function_names in zip(functions, names_by_function, strict=True)
        )
        best, best_count = (group, covered) if covered > best_count else (best, best_count)
    return best if 2 * best_count >= len(functions) else []
