"""Which functions a case may name: its own, its agent's, and those declared around it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from evalkit.lint.casefacts import CaseFacts
from evalkit.lint.facts import SUITE, UNKNOWN, DeclaredFunction
from evalkit.lint.gathering import ProjectFacts
from evalkit.lint.names import is_related
from evalkit.lint.nearby import DeclarationScope, list_folders


class KnownFunctions:
    """Declared functions by name and alias. `is_complete`: there are no others that can't be told."""

    def __init__(self, functions: Iterable[DeclaredFunction], *, is_complete: bool) -> None:
        self.functions = tuple(functions)
        self.is_complete = is_complete
        self._by_name: dict[str, list[DeclaredFunction]] = {}
        for function in self.functions:
            for name in (function.name, *function.aliases):
                self._by_name.setdefault(name, []).append(function)

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def find_declarations(self, name: str) -> list[DeclaredFunction]:
        """The declarations of a name; of several, those that say something of the parameters."""
        declarations = self._by_name.get(name, [])
        described = [function for function in declarations if function.parameters not in (None, UNKNOWN)]
        return described or declarations

    def has_similar(self, name: str) -> bool:
        return any(is_related(name, known_name) for known_name in self._by_name)


class KnownFunctionsFinder:
    """Finds what each case may name. Cases of one place and agent share the answer."""

    def __init__(self, facts: ProjectFacts, scope: DeclarationScope) -> None:
        self._facts = facts
        self._scope = scope
        self._by_key: dict[object, KnownFunctions] = {}
        self._suites = {case.file.rpartition("/")[0] for case in facts.cases}
        self._suite_functions: dict[str, list[DeclaredFunction]] = {}
        for function in facts.declarations:
            if function.form == SUITE:
                self._suite_functions.setdefault(function.file, []).append(function)

    def find_known(self, case: CaseFacts) -> KnownFunctions:
        functions = case.examined.data.get("functions")
        agent = case.agent if isinstance(case.agent, str) else ""
        key = (case.file.rpartition("/")[0], agent, id(functions))
        if key not in self._by_key:
            self._by_key[key] = self._find(case, agent, functions)
        return self._by_key[key]

    def _find(self, case: CaseFacts, agent: str, functions: object) -> KnownFunctions:
        own_functions = (
            list(self._suite_functions.get(case.find_suite_file(functions) or case.file, ())) if functions else []
        )
        if agent.endswith(".md"):
            file = case.find_instruction_file(agent)
            instruction_functions = [function for function in self._facts.declarations if function.file == file]
            return KnownFunctions(
                [*own_functions, *instruction_functions], is_complete=bool(own_functions or instruction_functions)
            )
        surrounding = [
            function
            for function in self._find_agent_functions(case, agent)
            if not self._is_of_other_suite(function, case)
        ]
        folders = {function.file.rpartition("/")[0] for function in surrounding}
        is_complete = not any(place.file.rpartition("/")[0] in folders for place in self._facts.code.opaque_places)
        candidates = [*own_functions, *surrounding]
        return KnownFunctions(
            [*candidates, *self._apply_aliases(candidates)], is_complete=is_complete and bool(candidates)
        )

    def _is_of_other_suite(self, function: DeclaredFunction, case: CaseFacts) -> bool:
        """Whether the function is declared inside a folder of cases that is not around this case: another suite's."""
        folders = list_folders(case.file)
        return any(folder in self._suites and folder not in folders for folder in list_folders(function.file))

    def _apply_aliases(self, functions: list[DeclaredFunction]) -> list[DeclaredFunction]:
        """Declared functions under the other names that the code's alias maps give them."""
        by_name = {function.name: function for function in functions}
        pairs = [(alias.name, alias.target) for alias in self._facts.code.aliases]
        return [
            replace(by_name[known_name], name=new_name, aliases=())
            for alias_name, target in pairs
            for new_name, known_name in ((alias_name, target), (target, alias_name))
            if known_name in by_name and new_name not in by_name
        ]

    def _find_agent_functions(self, case: CaseFacts, agent: str) -> tuple[DeclaredFunction, ...]:
        module, colon, _ = agent.partition(":")
        if colon:
            return self._scope.find_around(module.replace(".", "/") + ".py")
        return self._scope.find_around(self._facts.code.agents.get(agent, case.file))
