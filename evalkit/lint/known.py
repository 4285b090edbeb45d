"""Which functions a case may name: its own, its agent's, and those declared around it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from evalkit.lint.casefacts import CaseFacts
from evalkit.lint.facts import SUITE, UNKNOWN, Declared
from evalkit.lint.gathering import Facts
from evalkit.lint.names import related
from evalkit.lint.nearby import Nearby, folders_of


class Known:
    """Declared functions by name and alias. `is_complete`: there are no others that can't be told."""

    def __init__(self, functions: Iterable[Declared], *, is_complete: bool) -> None:
        self.functions = tuple(functions)
        self.is_complete = is_complete
        self._by_name: dict[str, list[Declared]] = {}
        for function in self.functions:
            for name in (function.name, *function.aliases):
                self._by_name.setdefault(name, []).append(function)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def of(self, name: str) -> list[Declared]:
        """The declarations of a name; of several, those that say something of the parameters."""
        found = self._by_name.get(name, [])
        telling = [function for function in found if function.parameters not in (None, UNKNOWN)]
        return telling or found

    def near(self, name: str) -> bool:
        return any(related(name, other) for other in self._by_name)


class KnownOfCases:
    """Finds what each case may name. Cases of one place and agent share the answer."""

    def __init__(self, facts: Facts, nearby: Nearby) -> None:
        self._facts = facts
        self._nearby = nearby
        self._found: dict[object, Known] = {}
        self._suites = {case.file.rpartition("/")[0] for case in facts.cases}
        self._own: dict[str, list[Declared]] = {}
        for function in facts.declared:
            if function.form == SUITE:
                self._own.setdefault(function.file, []).append(function)

    def of(self, case: CaseFacts) -> Known:
        functions = case.examined.data.get("functions")
        agent = case.agent if isinstance(case.agent, str) else ""
        key = (case.file.rpartition("/")[0], agent, id(functions))
        if key not in self._found:
            self._found[key] = self._find(case, agent, functions)
        return self._found[key]

    def _find(self, case: CaseFacts, agent: str, functions: object) -> Known:
        own = list(self._own.get(case.suite_file(functions) or case.file, ())) if functions else []
        if agent.endswith(".md"):
            file = case.instruction_file(agent)
            offered = [function for function in self._facts.declared if function.file == file]
            return Known([*own, *offered], is_complete=bool(own or offered))
        around = [function for function in self._of_agent(case, agent) if not self._is_of_others(function, case)]
        folders = {function.file.rpartition("/")[0] for function in around}
        is_complete = not any(place.file.rpartition("/")[0] in folders for place in self._facts.code.opaque)
        known = [*own, *around]
        return Known([*known, *self._renamed(known)], is_complete=is_complete and bool(known))

    def _is_of_others(self, function: Declared, case: CaseFacts) -> bool:
        """Whether the function is declared inside a folder of cases that is not around this case: another suite's."""
        own = folders_of(case.file)
        return any(folder in self._suites and folder not in own for folder in folders_of(function.file))

    def _renamed(self, functions: list[Declared]) -> list[Declared]:
        """Declared functions under the other names that the code's alias maps give them."""
        by_name = {function.name: function for function in functions}
        pairs = [(it.name, it.target) for it in self._facts.code.aliases]
        return [
            replace(by_name[known], name=other, aliases=())
            for one, two in pairs
            for other, known in ((one, two), (two, one))
            if known in by_name and other not in by_name
        ]

    def _of_agent(self, case: CaseFacts, agent: str) -> tuple[Declared, ...]:
        module, colon, _ = agent.partition(":")
        if colon:
            return self._nearby.around(module.replace(".", "/") + ".py")
        return self._nearby.around(self._facts.code.agents.get(agent, case.file))
