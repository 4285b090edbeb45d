"""The code that is meant by a name alone, where no dispatch says it: near enough, and not plainly something else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalkit.lint.dispatches import is_dispatch
from evalkit.lint.facts import Code, Declared, Entry, Implementation
from evalkit.lint.names import alike
from evalkit.lint.nearby import closest, is_beside, is_near
from evalkit.lint.parameters import types_of


class ByName:
    """Looks implementations up for declared functions. `aliases`: what the code's own alias maps say."""

    def __init__(self, declared: Sequence[Declared], bound: Sequence[Declared], code: Code) -> None:
        self._bound = bound
        self._code = code
        # The code's own; an `alias` in YAML is for evalkit's dispatcher, and of no help where the code runs.
        self.aliases = {alias.name: alias.target for alias in code.aliases}
        self.names = {name for function in declared for name in (function.name, *function.aliases)}

    def written(self, name: str) -> set[str]:
        """The name, what the code's alias map makes of it, and how getattr spells it: ``do_search``."""
        around = {f"{before}{name}{after}" for before, after in self._code.affixes}
        return {name, self.aliases.get(name, name), *around}

    def exists(self, function: Declared) -> bool:
        """Whether the code knows the name at all."""
        names = {*function.aliases, *self.written(function.name)}
        return any(
            self.implementations(name, function.file) or any(bound.name == name for bound in self._bound)
            for name in names
        ) or any(function.name in table.names for table in self._code.tables)

    def implementations(self, name: str, file: str) -> list[Implementation]:
        """The functions of that name that lie near enough to be meant: other agents have functions as well."""
        return [found for found in self._code.implementations.get(name, ()) if self._is_near(file, found.place.file)]

    def _is_near(self, file: str, other: str) -> bool:
        return is_beside(file, other) or (is_near(file, other) and self.used_together(file, other))

    def used_together(self, file: str, other: str) -> bool:
        """Whether the files lie in one folder or some file imports both; of files that are no code nothing is known."""
        if file.rpartition("/")[0] == other.rpartition("/")[0] or not file.endswith(".py"):
            return True
        return self._code.used_together is None or self._code.used_together(file, other)

    def implementation(self, function: Declared) -> Implementation | None:
        """The function of that name that is nearest; None where several are, or there is none."""
        names = self.written(function.name)
        bound = [other.bound for other in self._bound if other.name == function.name and other.bound is not None]
        found = bound or [it for known in names for it in self.implementations(known, function.file)]
        near = closest(found, function.file, [it.place.file for it in found])
        only = near[0] if len(near) == 1 else None
        if only is None or bound or not is_something_else(function, only):
            return only
        by_getattr = any(place.file in (function.file, only.place.file) for place in self._code.dynamic)
        return only if by_getattr else None

    def entry(self, function: Declared) -> Entry | None:
        """The entry for the function in the nearest table; that table is about another file's functions, too."""
        tables = (table for table in self._code.tables if function.name in table.names)
        about = (table for table in tables if is_dispatch(table, self.names))
        found = [entry for table in about for entry in table.entries if entry.name == function.name]
        near = closest(found, function.file, [entry.place.file for entry in found])
        return near[0] if near else None


def patched(declared: Sequence[Declared], code: Code) -> Iterator[tuple[Declared, Implementation]]:
    """Functions of cases with the real ones that they swap: ``patch: shop.clients:Client.check``."""
    for function in declared:
        module, _, name = function.patch.partition(":")
        path = module.replace(".", "/")
        found = [
            it
            for it in code.implementations.get(name.rpartition(".")[2], ())
            if f"/{it.place.file}".endswith((f"/{path}.py", f"/{path}/__init__.py")) and it.is_method == ("." in name)
        ]
        if module and len(found) == 1:
            yield function, found[0]


def is_something_else(function: Declared, code: Implementation) -> bool:
    """Whether a function has the declared name by chance: code that asks the model is often called like the answer.

    Of two declared parameters or more it takes none; of one, it takes another one of another type.
    """
    properties = function.properties
    if not properties or code.takes_any or not code.comparable:
        return False
    taken = [parameter for parameter in code.parameters if not parameter.name.startswith("_")]
    if any(it.name == name or alike(it.name, name) for it in taken for name in properties):
        return False
    if len(properties) > 1:
        return not taken or len(taken) != len(properties)
    declared = types_of(next(iter(properties.values())))
    only = taken[0].types if len(taken) == 1 else None
    return only is not None and bool(declared) and not declared & only
