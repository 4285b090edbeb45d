"""The code that is meant by a name alone, where no dispatch says it: near enough, and not plainly something else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from evalkit.lint.facts.python_files import measure_closeness
from evalkit.lint.facts.records import CodeFacts, DeclaredFunction, DispatchEntry, DispatchTable, Implementation
from evalkit.lint.names import is_alike, is_related, split_words
from evalkit.lint.rules.parameters import read_types
from evalkit.lint.scope import is_beside, is_near, select_closest


class ImplementationsByName:
    """Looks implementations up for declared functions. `aliases`: what the code's own alias maps say."""

    def __init__(
        self, declared: Sequence[DeclaredFunction], decorated: Sequence[DeclaredFunction], code: CodeFacts
    ) -> None:
        self._decorated = decorated
        self._code = code
        # The code's own; an `alias` in YAML is for evalkit's dispatcher, and of no help where the code runs.
        self.aliases = {alias.name: alias.target for alias in code.aliases}
        self.names = {name for function in declared for name in (function.name, *function.aliases)}

    def list_spellings(self, name: str) -> set[str]:
        """The name, what the code's alias map makes of it, and how getattr spells it: ``do_search``."""
        affixed = {f"{before}{name}{after}" for before, after in self._code.affixes}
        return {name, self.aliases.get(name, name), *affixed}

    def has_name(self, function: DeclaredFunction) -> bool:
        """Whether the code knows the name at all."""
        names = {*function.aliases, *self.list_spellings(function.name)}
        return any(
            self.find_implementations(name, function.file)
            or any(decorated.name == name for decorated in self._decorated)
            for name in names
        ) or any(function.name in table.names for table in self._code.tables)

    def find_implementations(self, name: str, file: str) -> list[Implementation]:
        """The functions of that name that lie near enough to be meant: other agents have functions as well."""
        return [
            implementation
            for implementation in self._code.implementations.get(name, ())
            if self._is_near(file, implementation.place.file)
        ]

    def _is_near(self, file: str, code_file: str) -> bool:
        return is_beside(file, code_file) or (is_near(file, code_file) and self.is_used_with(file, code_file))

    def is_used_with(self, file: str, code_file: str) -> bool:
        """Whether the files lie in one folder or some file imports both; of files that are no code nothing is known."""
        if file.rpartition("/")[0] == code_file.rpartition("/")[0] or not file.endswith(".py"):
            return True
        return self._code.is_used_with is None or self._code.is_used_with(file, code_file)

    def find_implementation(self, function: DeclaredFunction) -> Implementation | None:
        """The function of that name that is nearest; None where several are, or there is none."""
        names = self.list_spellings(function.name)
        decorated = [
            declaration.implementation
            for declaration in self._decorated
            if declaration.name == function.name and declaration.implementation is not None
        ]
        candidates = decorated or [
            implementation for name in names for implementation in self.find_implementations(name, function.file)
        ]
        nearby = select_closest(candidates, function.file, [implementation.place.file for implementation in candidates])
        only = nearby[0] if len(nearby) == 1 else None
        if only is None or decorated or not is_namesake(function, only):
            return only
        by_getattr = any(place.file in (function.file, only.place.file) for place in self._code.dynamic_lookups)
        return only if by_getattr else None

    def find_entry(self, function: DeclaredFunction) -> DispatchEntry | None:
        """The entry for the function in the nearest table; that table is about another file's functions, too."""
        tables = (table for table in self._code.tables if function.name in table.names)
        about = (table for table in tables if is_dispatch(table, self.names))
        entries = [entry for table in about for entry in table.entries if entry.name == function.name]
        nearby = select_closest(entries, function.file, [entry.place.file for entry in entries])
        return nearby[0] if nearby else None


def find_patched(
    declared: Sequence[DeclaredFunction], code: CodeFacts
) -> Iterator[tuple[DeclaredFunction, Implementation]]:
    """Functions of cases with the real ones that they swap: ``patch: shop.clients:Client.check``."""
    for function in declared:
        module, _, name = function.patch.partition(":")
        path = module.replace(".", "/")
        candidates = [
            implementation
            for implementation in code.implementations.get(name.rpartition(".")[2], ())
            if f"/{implementation.place.file}".endswith((f"/{path}.py", f"/{path}/__init__.py"))
            and implementation.is_method == ("." in name)
        ]
        if module and len(candidates) == 1:
            yield function, candidates[0]


def is_namesake(function: DeclaredFunction, code: Implementation) -> bool:
    """Whether a function has the declared name by chance: code that asks the model is often called like the answer.

    Of two declared parameters or more it takes none; of one, it takes another one of another type.
    """
    properties = function.properties
    if not properties or code.takes_any or not code.is_comparable:
        return False
    parameters = [parameter for parameter in code.parameters if not parameter.name.startswith("_")]
    if any(parameter.name == name or is_alike(parameter.name, name) for parameter in parameters for name in properties):
        return False
    if len(properties) > 1:
        return not parameters or len(parameters) != len(properties)
    declared = read_types(next(iter(properties.values())))
    only = parameters[0].types if len(parameters) == 1 else None
    return only is not None and bool(declared) and not declared & only


# Which dispatch tables are about which file's declarations.


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
