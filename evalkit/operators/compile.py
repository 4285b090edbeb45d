"""From a value in a case file to a Matcher: what is an operator, what is data, and what is a mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import Literal as OneOf

from evalkit.errors import EvalkitError, KeyPath, PathProblem, did_you_mean, find_nearest, format_path
from evalkit.jsonvalue import ARRAY, NUMBER, OBJECT, STRING, get_kind
from evalkit.model.registry import OPERATORS
from evalkit.model.template import Literal, Template, TemplateError, parse_template, strip_literals
from evalkit.operators.base import INSTEAD, LITERAL, MODIFIERS, Deferred, Matcher, Operand, has_template, parse_operand
from evalkit.operators.builtin import BUILTIN_OPERATORS, build_operator
from evalkit.operators.custom import Custom
from evalkit.operators.phrases import fold_text
from evalkit.operators.values import AnyValue, Equal, ListMatcher, MappingMatcher, Pending, Words
from evalkit.text.format import describe_type, format_value

Mode = OneOf["equal", "contain", "partial"]
MODES = ("equal", "contain", "partial")
MAX_DEPTH = 100


class OperatorProblems(EvalkitError):  # noqa: N818 - named for what it carries
    """An expected value that can't be compiled. `problems` lists everything that is wrong with it."""

    code = "invalid_case"

    def __init__(self, problems: Sequence[PathProblem]) -> None:
        self.problems: tuple[PathProblem, ...] = tuple(problems)
        super().__init__("\n".join(f"{format_path(p.path)}: {p.message}" for p in self.problems))

    def __reduce__(self) -> tuple[type[OperatorProblems], tuple[tuple[PathProblem, ...]]]:
        return (type(self), (self.problems,))


def compile_value(value: Any, *, mode: Mode, path: KeyPath = ()) -> Matcher:
    """The Matcher of an expected value. Raises OperatorProblems with every problem, each under `path`.

    Modes: ``equal`` (`arguments`: the same keys, equal values), ``contain`` (`arguments_contain`: listed keys, text
    contained in text, items found in lists), ``partial`` (`result_contains`: listed keys, leaves equal).
    Operators and templates are honoured in all three.
    """
    if mode == "equal" and _is_plain(value, MAX_DEPTH):
        return Equal(value)
    compiler = Compiler(mode)
    matcher = compiler.compile(value, path)
    if compiler.problems:
        raise OperatorProblems(compiler.problems)
    return matcher


def compile_rendered(value: Any, mode: str) -> Matcher:
    """The Matcher of what a template was replaced by: data, never scanned for operators or templates."""
    compiler = Compiler(mode, literal=True)
    matcher = compiler.compile(value.value if type(value) is Literal else value, ())
    if compiler.problems:
        raise TemplateError(f"a template was replaced by {format_value(value.value)}: {compiler.problems[0].message}")
    return matcher


class Compiler:
    """One compilation: the mode and literalness in force, and the problems found so far."""

    placeholder: Matcher = AnyValue()  # stands in for what could not be compiled

    def __init__(self, mode: str, *, literal: bool = False, depth: int = MAX_DEPTH) -> None:
        self.mode = mode
        self.literal = literal
        self.depth = depth
        self.in_items = False  # a list's item is always there: $absent can't hold for it
        self.problems: list[PathProblem] = []

    def add_problem(self, path: KeyPath, message: str, *, at_key: bool = False) -> Matcher:
        """Record a problem; the matcher returned stands in for what could not be compiled."""
        self.problems.append(PathProblem(path, message, at_key=at_key))
        return self.placeholder

    def compile(self, value: Any, path: KeyPath) -> Matcher:
        """The matcher of any value under the mode in force."""
        if self.mode == "equal" and _is_plain(value, self.depth):
            return Equal(value)
        if type(value) is Literal:
            return self.compile_nested(value.value, path, literal=True)
        if type(value) is Template:
            return Pending(value, self.mode)
        of_kind = get_kind(value)
        if not self.depth and of_kind in (OBJECT, ARRAY):
            return self.add_problem(path, f"is nested deeper than {MAX_DEPTH} levels")
        if of_kind == OBJECT:
            return self._compile_mapping(value if type(value) is dict else dict(dict.items(value)), path)
        if of_kind == ARRAY:
            return self._compile_list(value, path)
        if of_kind == STRING:
            return self._compile_text(value, path)
        if not of_kind:
            return self.add_problem(path, f"{format_value(value)} is {describe_type(value)}")
        return Equal(value, has_nan=of_kind == NUMBER and value != value)

    def compile_nested(
        self, value: Any, path: KeyPath, *, mode: str | None = None, literal: bool = False, in_items: bool | None = None
    ) -> Matcher:
        """As `value`, one level down and, for this value alone, under another mode, as data, or as a list's item."""
        before = self.mode, self.literal, self.in_items
        self.mode = mode or self.mode
        self.literal = self.literal or literal
        self.in_items = self.in_items if in_items is None else in_items
        self.depth -= 1
        try:
            return self.compile(value, path)
        finally:
            self.depth += 1
            self.mode, self.literal, self.in_items = before

    def _compile_mapping(self, value: dict[Any, Any], path: KeyPath) -> Matcher:
        for key in value:
            if get_kind(key) != STRING:
                return self.add_problem(
                    path, f"the key {format_value(key)} is {describe_type(key)}; keys are strings, so quote it"
                )
        if not self.literal and any(key.startswith("$") for key in value):  # noqa: SIM102
            if is_operator_mapping(self, value, path):
                return compile_operators(self, value, path)
        entries: list[tuple[str, Matcher]] = []
        for key, item in value.items():
            at = (*path, key)
            entries.append(
                (
                    key,
                    self._compile_text(item, at)
                    if type(item) is str
                    else self.compile_nested(item, at, in_items=False),
                )
            )
        items = tuple(entries)
        if self.mode == "equal" and all(type(item) is Equal for _, item in items):
            plain_value = {key: item.value for key, item in items if isinstance(item, Equal)}
            return Equal(plain_value, has_nan=any(isinstance(item, Equal) and item.has_nan for _, item in items))
        return MappingMatcher(items, closed=self.mode == "equal")

    def _compile_list(self, value: list[Any], path: KeyPath) -> Matcher:
        items = tuple(self.compile_nested(item, (*path, index), in_items=True) for index, item in enumerate(value))
        if self.mode == "contain":
            from evalkit.operators.lists import ListContaining

            return ListContaining(items)
        if all(type(item) is Equal for item in items):
            plain_value = [item.value for item in items if isinstance(item, Equal)]
            return Equal(plain_value, has_nan=any(isinstance(item, Equal) and item.has_nan for item in items))
        return ListMatcher(items)

    def _compile_text(self, value: str, path: KeyPath) -> Matcher:
        if not self.literal:
            try:
                parsed = parse_template(value)
            except TemplateError as error:
                return self.add_problem(path, str(error))
            if type(parsed) is Template:
                return Pending(parsed, self.mode)
        if self.mode != "contain":
            return Equal(value)
        folded = fold_text(value)
        if not folded:
            if self.literal:
                return Equal(value)
            return self.add_problem(
                path, 'is empty, and every text contains an empty one; write {$eq: ""} for an empty text'
            )
        return Words(value, folded)


def _is_plain(value: Any, depth: int) -> bool:
    """Whether a value is data through and through: no operator, no template, no NaN, nothing that is not JSON.

    Most expected values are, and need no compiling. "False" only means that a closer look is needed.
    """
    of_type = type(value)
    if of_type is str:
        return "{{" not in value
    if of_type is dict:
        for key, item in value.items() if depth else ():
            if type(key) is not str or key[:1] == "$" or not _is_plain(item, depth - 1):
                return False
        return depth > 0
    if of_type is list:
        return depth > 0 and all(_is_plain(item, depth - 1) for item in value)
    return of_type is int or of_type is bool or value is None or (of_type is float and value == value)


# Operators in an expected value, which are mappings whose keys begin with `$`: what they are built into.
#
# Most values have none; this module and the operators are imported for the first that has one.

ALL_NAMES = frozenset({*BUILTIN_OPERATORS, LITERAL, *MODIFIERS})


def is_operator_mapping(compiler: Compiler, value: dict[str, Any], path: KeyPath) -> bool:
    """Whether a mapping is an operator. A known operator among plain keys is a problem."""
    operator_keys = [key for key in value if key.startswith("$")]
    if not operator_keys or len(operator_keys) == len(value):
        return bool(operator_keys)
    operator_key = next((key for key in operator_keys if _is_probable_operator(key)), None)
    if operator_key is not None:
        plain_key = next(key for key in value if not key.startswith("$"))
        compiler.add_problem((*path, operator_key), _explain_mixed_keys(operator_key, plain_key), at_key=True)
    return False


def compile_operators(compiler: Compiler, value: dict[str, Any], path: KeyPath) -> Matcher:
    """The matcher of a mapping whose keys all begin with `$`. Several operators must all hold."""
    if LITERAL in value:
        if len(value) > 1:
            message = f"{LITERAL} stands alone: what is in it is data, and nothing can stand beside data"
            return compiler.add_problem((*path, LITERAL), message, at_key=True)
        return compiler.compile_nested(value[LITERAL], (*path, LITERAL), literal=True)
    parts = []
    for name in value:
        if name not in MODIFIERS:
            parts.append(_compile_operator(compiler, name, value, (*path, name)))
        elif MODIFIERS[name] not in value:
            compiler.add_problem((*path, name), f"'{name}' goes with {MODIFIERS[name]}, which is not here", at_key=True)
    if len(parts) < 2:
        return parts[0] if parts else compiler.placeholder
    from evalkit.operators.builtin import join_parts

    return join_parts(Operand("", value, value, path, compiler), tuple(parts), one_mapping=True)


def _compile_operator(compiler: Compiler, name: str, siblings: dict[str, Any], path: KeyPath) -> Matcher:
    value = siblings[name]
    form = BUILTIN_OPERATORS.get(name)
    if form is None and name[1:] not in OPERATORS:
        return compiler.add_problem(path, f"unknown operator '{name}'{_suggest_operator(name)}", at_key=True)
    if form is not None and (form.takes == "value" or (form.takes == "list" and get_kind(value) != STRING)):
        return build_operator(Operand(name, value, siblings, path, compiler))
    data = parse_operand(value, path, compiler)
    modifiers = {key: parse_operand(siblings[key], (*path[:-1], key), compiler) for key in MODIFIERS if key in siblings}
    if has_template(data) or has_template(modifiers):
        return Deferred(name, data, modifiers, compiler.mode)
    if form is None:
        return Custom(name[1:], strip_literals(data))
    return build_operator(
        Operand(name, strip_literals(data), {**siblings, **strip_literals(modifiers)}, path, compiler)
    )


def build_deferred(deferred: Deferred, value: Any, modifiers: dict[str, Any]) -> Matcher:
    """The matcher of a deferred operator, now that its operand is known. A wrong operand is a TemplateError."""

    compiler = Compiler(deferred.mode)
    if deferred.name not in BUILTIN_OPERATORS:
        return Custom(deferred.name[1:], strip_literals(value))
    form = BUILTIN_OPERATORS[deferred.name]
    operand = Operand(deferred.name, strip_literals(value) if form.takes == "data" else value, modifiers, (), compiler)
    matcher = build_operator(operand)
    if compiler.problems:
        raise TemplateError(f"{deferred.describe()}: {compiler.problems[0].message}")
    return matcher


def list_operators() -> list[str]:
    """Every operator that an expected value may use, with its `$`: the built-in ones, then users' own."""
    return [*BUILTIN_OPERATORS, LITERAL, *(f"${name}" for name in OPERATORS)]


def _is_probable_operator(key: str) -> bool:
    """Whether a key was written as an operator: it is one, or what people write instead, or nearly one."""
    return key in ALL_NAMES or key in INSTEAD or find_nearest(key, list_operators()) is not None


def _explain_mixed_keys(operator: str, plain_key: str) -> str:
    if operator not in ALL_NAMES and operator[1:] not in OPERATORS:
        return f"unknown operator '{operator}' beside the plain key '{plain_key}'{_suggest_operator(operator)}"
    return (
        f"the operator '{operator}' stands beside the plain key '{plain_key}'; "
        "take one of them out, or write {$literal: {...}} if both are data"
    )


def _suggest_operator(name: str) -> str:
    if name in INSTEAD:
        return f"; did you mean {INSTEAD[name]}?"
    hint = did_you_mean(name, [*list_operators(), *MODIFIERS])
    return hint or f"; known are {', '.join(list_operators())}; {{$literal: ...}} makes it data"
