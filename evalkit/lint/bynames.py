"""The code that is meant by a name alone, where no dispatch says it: near enough, and not plainly something else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalkit.lint.dispatches import is_dispatch
from evalkit.lint.facts import CodeFacts, DeclaredFunction, DispatchEntry, Implementation
from evalkit.lint.names import is_alike
from evalkit.lint.nearby import is_beside, is_near, select_closest
from evalkit.lint.parameters import read_types


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
