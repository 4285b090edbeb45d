"""From a value in a case file to a Matcher: what is an operator, what is data, and what is a mistake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from typing import Literal as OneOf

from evalkit.errors import EvalkitError, PathProblem, did_you_mean, nearest, shown_path
from evalkit.model.registry import OPERATORS
from evalkit.model.template import Literal, Template, TemplateError, parse, plain
from evalkit.operators.builtin import BUILTIN, build
from evalkit.operators.equality import ARRAY, NUMBER, OBJECT, STRING, kind
from evalkit.operators.extension import Custom
from evalkit.operators.matcher import Matcher, Path
from evalkit.operators.names import INSTEAD, LITERAL, MODIFIERS
from evalkit.operators.operand import Deferred, Operand, has_template, operand_data
from evalkit.operators.phrases import fold_text
from evalkit.operators.shown import shown, type_shown
from evalkit.operators.structure import Items, Keyed
from evalkit.operators.values import AnyValue, Equal, Pending, Words

Mode = OneOf["equal", "contain", "partial"]
MODES = ("equal", "contain", "partial")
MAX_DEPTH = 100


class OperatorProblems(EvalkitError):  # noqa: N818 - named for what it carries
    """An expected value that can't be compiled. `problems` lists everything that is wrong with it."""

    code = "invalid_case"

    def __init__(self, problems: Sequence[PathProblem]) -> None:
        self.problems: tuple[PathProblem, ...] = tuple(problems)
        super().__init__("\n".join(f"{shown_path(p.path)}: {p.message}" for p in self.problems))

    def __reduce__(self) -> tuple[type[OperatorProblems], tuple[tuple[PathProblem, ...]]]:
        return (type(self), (self.problems,))


def compile_value(value: Any, *, mode: Mode, path: Path = ()) -> Matcher:
    """The Matcher of an expected value. Raises OperatorProblems with every problem, each under `path`.

    Modes: ``equal`` (`arguments`: the same keys, equal values), ``contain`` (`arguments_contain`: listed keys, text
    contained in text, items found in lists), ``partial`` (`result_contains`: listed keys, leaves equal).
    Operators and templates are honoured in all three.
    """
    compiler = Compiler(mode)
    matcher = compiler.value(value, path)
    if compiler.problems:
        raise OperatorProblems(compiler.problems)
    return matcher


def compile_rendered(value: Any, mode: str) -> Matcher:
    """The Matcher of what a template was replaced by: data, never scanned for operators or templates."""
    compiler = Compiler(mode, literal=True)
    matcher = compiler.value(value.value if type(value) is Literal else value, ())
    if compiler.problems:
        raise TemplateError(f"a template was replaced by {shown(value.value)}: {compiler.problems[0].message}")
    return matcher


def build_bound(deferred: Deferred, value: Any, beside: dict[str, Any]) -> Matcher:
    """The matcher of a deferred operator, now that its operand is known. A wrong operand is a TemplateError."""
    compiler = Compiler(deferred.mode)
    if deferred.name not in BUILTIN:
        return Custom(deferred.name[1:], plain(value))
    form = BUILTIN[deferred.name]
    operand = Operand(deferred.name, plain(value) if form.takes == "data" else value, beside, (), compiler)
    matcher = build(operand)
    if compiler.problems:
        raise TemplateError(f"{deferred.describe()}: {compiler.problems[0].message}")
    return matcher


class Compiler:
    """One compilation: the mode and literalness in force, and the problems found so far."""

    def __init__(self, mode: str, *, literal: bool = False, depth: int = MAX_DEPTH) -> None:
        self.mode = mode
        self.literal = literal
        self.depth = depth
        self.in_items = False  # a list's item is always there: $absent can't hold for it
        self.problems: list[PathProblem] = []
        self.nothing: Matcher = AnyValue()  # stands in for what could not be compiled

    def problem(self, path: Path, message: str, *, at_key: bool = False) -> Matcher:
        """Record a problem; the matcher returned stands in for what could not be compiled."""
        self.problems.append(PathProblem(path, message, at_key=at_key))
        return self.nothing

    def value(self, value: Any, path: Path) -> Matcher:
        """The matcher of any value under the mode in force."""
        if self.mode == "equal" and _is_plain(value, self.depth):
            return Equal(value)
        if type(value) is Literal:
            return self.under(value.value, path, literal=True)
        if type(value) is Template:
            return Pending(value, self.mode)
        of_kind = kind(value)
        if not self.depth and of_kind in (OBJECT, ARRAY):
            return self.problem(path, f"is nested deeper than {MAX_DEPTH} levels")
        if of_kind == OBJECT:
            return self._mapping(value if type(value) is dict else dict(dict.items(value)), path)
        if of_kind == ARRAY:
            return self._list(value, path)
        if of_kind == STRING:
            return self._text(value, path)
        if not of_kind:
            return self.problem(path, f"{shown(value)} is {type_shown(value)}")
        return Equal(value, has_nan=of_kind == NUMBER and value != value)

    def under(
        self, value: Any, path: Path, *, mode: str | None = None, literal: bool = False, in_items: bool | None = None
    ) -> Matcher:
        """As `value`, one level down and, for this value alone, under another mode, as data, or as a list's item."""
        before = self.mode, self.literal, self.in_items
        self.mode = mode or self.mode
        self.literal = self.literal or literal
        self.in_items = self.in_items if in_items is None else in_items
        self.depth -= 1
        try:
            return self.value(value, path)
        finally:
            self.depth += 1
            self.mode, self.literal, self.in_items = before

    def _mapping(self, value: dict[Any, Any], path: Path) -> Matcher:
        for key in value:
            if kind(key) != STRING:
                return self.problem(path, f"the key {shown(key)} is {type_shown(key)}; keys are strings, so quote it")
        if not self.literal and self._is_operator(value, path):
            return self._operator(value, path)
        items = tuple(
            (
                key,
                self._text(item, (*path, key)) if type(item) is str else self.under(item, (*path, key), in_items=False),
            )
            for key, item in value.items()
        )
        if self.mode == "equal" and all(type(item) is Equal for _, item in items):
            plain_value = {key: item.value for key, item in items if isinstance(item, Equal)}
            return Equal(plain_value, has_nan=any(isinstance(item, Equal) and item.has_nan for _, item in items))
        return Keyed(items, closed=self.mode == "equal")

    def _list(self, value: list[Any], path: Path) -> Matcher:
        items = tuple(self.under(item, (*path, index), in_items=True) for index, item in enumerate(value))
        if self.mode == "contain":
            from evalkit.operators.lists import Found

            return Found(items)
        if all(type(item) is Equal for item in items):
            plain_value = [item.value for item in items if isinstance(item, Equal)]
            return Equal(plain_value, has_nan=any(isinstance(item, Equal) and item.has_nan for item in items))
        return Items(items)

    def _text(self, value: str, path: Path) -> Matcher:
        if not self.literal:
            try:
                parsed = parse(value)
            except TemplateError as error:
                return self.problem(path, str(error))
            if type(parsed) is Template:
                return Pending(parsed, self.mode)
        if self.mode != "contain":
            return Equal(value)
        folded = fold_text(value)
        if not folded:
            if self.literal:
                return Equal(value)
            return self.problem(
                path, 'is empty, and every text contains an empty one; write {$eq: ""} for an empty text'
            )
        return Words(value, folded)

    def _is_operator(self, value: dict[str, Any], path: Path) -> bool:
        """Whether a mapping is an operator. A known operator among plain keys is a problem."""
        dollar = [key for key in value if key.startswith("$")]
        if not dollar or len(dollar) == len(value):
            return bool(dollar)
        meant = next((key for key in dollar if _is_meant(key)), None)
        if meant is not None:
            plain_key = next(key for key in value if not key.startswith("$"))
            self.problem((*path, meant), _beside(meant, plain_key), at_key=True)
        return False

    def _operator(self, value: dict[str, Any], path: Path) -> Matcher:
        """The matcher of a mapping whose keys all begin with `$`. Several operators must all hold."""
        if LITERAL in value:
            if len(value) > 1:
                message = f"{LITERAL} stands alone: what is in it is data, and nothing can stand beside data"
                return self.problem((*path, LITERAL), message, at_key=True)
            return self.under(value[LITERAL], (*path, LITERAL), literal=True)
        parts = []
        for name in value:
            if name not in MODIFIERS:
                parts.append(self._one_operator(name, value, (*path, name)))
            elif MODIFIERS[name] not in value:
                self.problem((*path, name), f"'{name}' goes with {MODIFIERS[name]}, which is not here", at_key=True)
        if len(parts) < 2:
            return parts[0] if parts else self.nothing
        from evalkit.operators.builders import joined

        return joined(Operand("", value, value, path, self), tuple(parts), one_mapping=True)

    def _one_operator(self, name: str, beside: dict[str, Any], path: Path) -> Matcher:
        value = beside[name]
        form = BUILTIN.get(name)
        if form is None and name[1:] not in OPERATORS:
            return self.problem(path, f"unknown operator '{name}'{_instead(name)}", at_key=True)
        if form is not None and (form.takes == "value" or (form.takes == "list" and kind(value) != STRING)):
            return build(Operand(name, value, beside, path, self))
        data = operand_data(value, path, self)
        modifiers = {key: operand_data(beside[key], (*path[:-1], key), self) for key in MODIFIERS if key in beside}
        if has_template(data) or has_template(modifiers):
            return Deferred(name, data, modifiers, self.mode)
        if form is None:
            return Custom(name[1:], plain(data))
        return build(Operand(name, plain(data), {**beside, **plain(modifiers)}, path, self))


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


ALL_NAMES = frozenset({*BUILTIN, LITERAL, *MODIFIERS})


def known_operators() -> list[str]:
    """Every operator that an expected value may use, with its `$`: the built-in ones, then users' own."""
    return [*BUILTIN, LITERAL, *(f"${name}" for name in OPERATORS)]


def _is_meant(key: str) -> bool:
    """Whether a key was written as an operator: it is one, or what people write instead, or nearly one."""
    return key in ALL_NAMES or key in INSTEAD or nearest(key, known_operators()) is not None


def _beside(operator: str, plain_key: str) -> str:
    if operator not in ALL_NAMES and operator[1:] not in OPERATORS:
        return f"unknown operator '{operator}' beside the plain key '{plain_key}'{_instead(operator)}"
    return (
        f"the operator '{operator}' stands beside the plain key '{plain_key}'; "
        "take one of them out, or write {$literal: {...}} if both are data"
    )


def _instead(name: str) -> str:
    if name in INSTEAD:
        return f"; did you mean {INSTEAD[name]}?"
    near = did_you_mean(name, [*known_operators(), *MODIFIERS])
    return near or f"; known are {', '.join(known_operators())}; {{$literal: ...}} makes it data"
