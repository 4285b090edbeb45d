"""Reading values of `expected_output`: what is wrong with one is collected, never raised, and says what to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from evalkit.errors import PathProblem, did_you_mean, format_path
from evalkit.model.case import Declaration
from evalkit.model.template import has_braces
from evalkit.operators.base import Matcher
from evalkit.operators.compile import Mode, OperatorProblems, compile_value
from evalkit.text.format import describe_type, format_value

KeyPath = tuple[str | int, ...]

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

_MAX_LISTED = 6  # names that a message can list


def suggest(key: str, names: list[str]) -> str:
    """The key that was probably meant, as the end of a message; all keys where they are few and none is near."""
    synonym = SYNONYMS.get(key.lower())
    if synonym in names:
        return f"; did you mean '{synonym}'?"
    return did_you_mean(key, names) or (f"; known are: {', '.join(names)}" if len(names) <= _MAX_LISTED else "")


class ExpectationReader:
    """Reads typed values and gathers every problem, each with its path and the next step."""

    def __init__(self, root: KeyPath, declarations: Mapping[str, Declaration], case_input: Any = None) -> None:
        self.root = root
        self.case_input = case_input  # the case's input, where it is known
        self.declarations = declarations
        self.problems: list[PathProblem] = []
        self._canonical = {name: name for name in declarations}
        self.aliases: dict[str, str] = {}  # each to the name of its function
        for name, declaration in declarations.items():
            self.aliases.update(dict.fromkeys(declaration.aliases, name))
        self._canonical.update(self.aliases)

    def add_problem(self, path: KeyPath, message: str, code: str = "invalid_case", *, at_key: bool = False) -> None:
        self.problems.append(PathProblem(path, message, code, at_key))

    def format_place(self, path: KeyPath) -> str:
        """`path` as messages write it: from below `expected_output`, whose own name stands for the root."""
        inside = path[len(self.root) :]
        return format_path(inside) if inside else format_path(self.root)

    def report_unknown_key(self, path: KeyPath, key: object, known_keys: Iterable[str], hint: str = "") -> None:
        """Report `key`, which `path` may not hold; `hint` replaces the nearest name."""
        if not isinstance(key, str):
            self.add_problem(
                path,
                f"key {format_value(key)} in {self.format_place(path)} is {describe_type(key)}; keys are names, quote it",
            )
            return
        text = f"unknown key '{key}' in {self.format_place(path)}{hint or suggest(key, list(known_keys))}"
        self.add_problem((*path, key), text, at_key=True)

    def report_wrong(self, path: KeyPath, value: Any, expected: str, advice: str = "") -> None:
        """Report a value of the wrong kind: the place, what was expected, what is there, what to write."""
        actual = format_value(value) if isinstance(value, (str, int, float)) or value is None else describe_type(value)
        if isinstance(value, (list, dict)) and not value:
            actual = "an empty list" if isinstance(value, list) else "an empty mapping"
        self.add_problem(path, f"{self.format_place(path)} must be {expected}, got {actual}{advice and f'; {advice}'}")

    def report_wrong_number(self, path: KeyPath, value: Any, expected: str, default_advice: str = "") -> None:
        """`wrong`, with the digits to write where a text stands for a number."""
        from evalkit.fields.reader import suggest_number

        self.report_wrong(path, value, expected, suggest_number(value) or default_advice)

    def read_mapping(self, path: KeyPath, value: Any) -> dict[str, Any] | None:
        """A mapping of arguments; null means that there are none."""
        if value is None:
            return {}
        if isinstance(value, dict):
            return value
        self.report_wrong(path, value, "a mapping of argument names to values")
        return None

    def read_boolean(self, path: KeyPath, value: Any) -> bool | None:
        if isinstance(value, bool):
            return value
        from evalkit.fields.reader import suggest_boolean

        self.report_wrong(path, value, "true or false", suggest_boolean(value))
        return None

    def read_number(self, path: KeyPath, value: Any, *, is_whole: bool, minimum: int = 0) -> float | None:
        """A number from `least` on; `whole`: without a fraction."""
        kind = f"a whole number from {minimum}" if is_whole else f"a number from {minimum}"
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not minimum <= value < float("inf"):
            self.report_wrong_number(path, value, kind)
            return None
        if is_whole and value != int(value):
            self.report_wrong(path, value, kind)
            return None
        return value

    def read_choice(self, path: KeyPath, value: Any, choices: tuple[str, ...]) -> str | None:
        if isinstance(value, str) and value in choices:
            return value
        listed = ", ".join(f"'{choice}'" for choice in choices[:-1]) + f" or '{choices[-1]}'"
        self.add_problem(
            path, f"{self.format_place(path)} must be {listed}, got {format_value(value)}{did_you_mean(value, choices)}"
        )
        return None

    def read_name(self, path: KeyPath, value: Any, expected: str = "a name") -> str | None:
        if isinstance(value, str) and value.strip():
            return value
        self.report_wrong(path, value, expected, "quote it" if isinstance(value, (int, float)) else "")
        return None

    def read_names(self, path: KeyPath, value: Any) -> tuple[str, ...] | None:
        """One name, or a list of names without repetition."""
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not value:
            self.report_wrong(path, value, "a name or a list of names")
            return None
        read = [self.read_name((*path, index), item) for index, item in enumerate(value)]
        valid_names = [name for name in read if name is not None]
        return tuple(dict.fromkeys(valid_names)) if len(valid_names) == len(read) else None

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
