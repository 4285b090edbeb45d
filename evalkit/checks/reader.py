"""Reading values of `expected_output`: what is wrong with one is collected, never raised, and says what to write."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from evalkit.errors import KeyPath, did_you_mean, format_path
from evalkit.fields.reader import FieldReader, suggest_key
from evalkit.model.case import Declaration
from evalkit.model.template import has_braces
from evalkit.operators.base import Matcher
from evalkit.operators.compile import Mode, OperatorProblems, compile_value

# What people write for a key, where no similarity of letters leads to the right one.
SYNONYMS = {
    "args": "arguments",
    "params": "arguments",
    "parameters": "arguments",
    "input": "arguments",
    "tool": "function_name",
    "tool_name": "function_name",
    "function": "function_name",
    "count": "times",
    "calls": "expected_function_calls",
    "function_calls": "expected_function_calls",
    "tool_calls": "expected_function_calls",
    "forbidden": "forbidden_function_calls",
    "order": "call_order",
    "steps": "expected_function_calls",
    "status": "outcome",
    "result": "result_contains",
    "result_excludes": "result_contains",
    "returns": "result_contains",
    "sequence": "in_order",
    "unordered": "any_order",
    "parallel": "in_parallel",
    "instruction": "scenario_instruction_used",
}


# Where something stands in the case file, as reasons write it. The calls of all cases stand at the same few paths.
format_place_cached = lru_cache(maxsize=512)(format_path)


def suggest(key: str, names: list[str]) -> str:
    """End a message with the key that was probably meant; with all keys where they are few and none is near."""
    return suggest_key(key, names, SYNONYMS)


class ExpectationReader(FieldReader):
    """Typed values of `expected_output`: functions and their arguments, matchers, references."""

    def __init__(self, root: KeyPath, declarations: Mapping[str, Declaration], case_input: Any = None) -> None:
        super().__init__(root, synonyms=SYNONYMS)
        self.case_input = case_input  # the case's input, where it is known
        self.declarations = declarations
        self._canonical = {name: name for name in declarations}
        self.aliases: dict[str, str] = {}  # each to the name of its function
        for name, declaration in declarations.items():
            self.aliases.update(dict.fromkeys(declaration.aliases, name))
        self._canonical.update(self.aliases)

    def read_arguments(self, path: KeyPath, value: object) -> dict[str, Any] | None:
        """Read a mapping of arguments; null means that there are none."""
        return {} if value is None else self.read_mapping(path, value, "a mapping of argument names to values")

    def read_matcher(self, path: KeyPath, value: Any, mode: Mode) -> Matcher | None:
        """`value` compiled by the operators' rules; their problems become problems of the case."""
        try:
            return compile_value(value, mode=mode, path=path)
        except OperatorProblems as error:
            self.problems.extend(error.problems)
            return None

    def read_function(self, path: KeyPath, value: Any) -> str | None:
        """A function's name, in its canonical form where it is an alias; unknown if functions are declared."""
        name = self.read_name(path, value, "the name of a function")
        if name is None or not self.declarations:
            return name
        if name not in self._canonical:
            known = ", ".join(sorted(self.declarations))
            hint = did_you_mean(name, self._canonical) or f"; declared are: {known}"
            self.add_problem(
                path, f"{self.format_place(path)}: no function '{name}' is declared{hint}", "unknown_function"
            )
            return None
        return self._canonical[name]

    def find_canonical(self, name: str) -> str | None:
        """The declared name that `name` is or is an alias of; None if nothing of that name is declared."""
        return self._canonical.get(name)

    def check_argument(self, path: KeyPath, function: str | None, argument: str, *, at_key: bool = False) -> None:
        """Report `argument` if the declaration of `function` rules it out."""
        declaration = self.declarations.get(function or "")
        if declaration is None or declaration.parameters is None or _has_property(declaration.parameters, argument):
            return
        known = find_declared_arguments(declaration)
        if known is not None and argument not in known:
            has = ", ".join(sorted(known)) or "no arguments"
            hint = did_you_mean(argument, known) or f"; it has: {has}"
            message = f"function '{function}' has no argument '{argument}'{hint}"
            self.add_problem(path, message, "unknown_argument", at_key=at_key)

    def check_references(self, path: KeyPath, value: Any, *, in_call: bool = False) -> bool:
        """`references.check_references`, for values that may hold any."""
        if not has_braces(value):
            return False
        from evalkit.checks.evidence import check_references

        return check_references(self, path, value, in_call=in_call)


def _has_property(schema: Mapping[str, Any], argument: str) -> bool:
    """Whether the schema itself says that there is such an argument: then it is known, whatever else it says."""
    properties = schema.get("properties") if type(schema) is dict else None
    return type(properties) is dict and argument in properties


_OPEN_KEYWORDS = frozenset(
    ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")
)


def find_declared_arguments(declaration: Declaration | None) -> frozenset[str] | None:
    """The names that a function's schema allows; None where it does not say (or says so elsewhere in the schema)."""
    if declaration is None or declaration.parameters is None:
        return None
    schema = declaration.parameters
    if not isinstance(schema, Mapping) or not _OPEN_KEYWORDS.isdisjoint(schema) or schema.get("additionalProperties"):
        return None
    properties = schema.get("properties")
    return frozenset(properties) if isinstance(properties, Mapping) else frozenset()
