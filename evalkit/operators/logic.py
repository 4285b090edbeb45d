"""Operators of equality, presence and type, and those that combine others."""

from __future__ import annotations

from functools import reduce
from typing import Final

from evalkit.errors import KeyPath, find_nearest
from evalkit.fields.reader import guess_boolean, suggest_boolean
from evalkit.jsonvalue import (
    ARRAY,
    KINDS,
    NUMBER,
    OBJECT,
    JsonDict,
    JsonValue,
    get_kind,
    is_list,
    is_mapping,
    is_number,
)
from evalkit.operators.base import (
    LIST,
    VALUE,
    Group,
    Matcher,
    Mismatch,
    Operand,
    Operator,
    Undecided,
    Wrapper,
    build_value_hint,
    name_late,
)
from evalkit.operators.values import AnyValue, Equal
from evalkit.records.template import is_operator

_NEGATED = "under $not; say the criterion the other way round"
_NEAREST = 3  # differences of the nearest alternative that its message lists


class Absent(Matcher, frozen=True):
    """Not sent at all."""

    absence = True
    kinds = frozenset()

    def evaluate(self, actual: object) -> bool:
        return False

    def describe_fully(self) -> str:
        return "not to be sent"

    def to_data(self) -> JsonValue:
        return {"$absent": True}


class Default(Wrapper, frozen=True):
    """This value, or not sent: what a function does without the argument."""

    absence = True

    @property
    def kinds(self) -> frozenset[str]:
        return self.inner.kinds

    def evaluate(self, actual: object) -> bool:
        return self.inner.evaluate(actual)

    def describe_fully(self) -> str:
        return f"{self.inner.describe_fully()}, the default, or nothing"

    def to_data(self) -> JsonValue:
        return {"$default": self.inner.to_data()}


class Partial(Wrapper, frozen=True):
    """A mapping with at least these keys, at any depth."""

    is_composite = True
    kinds = frozenset({OBJECT})

    def evaluate(self, actual: object) -> bool:
        return self.inner.evaluate(actual)

    def find_differences(self, actual: object, path: KeyPath) -> list[Mismatch]:
        return self.inner.find_differences(actual, path)

    def describe_fully(self) -> str:
        return self.inner.describe_fully()

    def to_data(self) -> JsonValue:
        return {"$partial": self.inner.to_data()}


class OfType(Matcher, frozen=True):
    """A value of one of these JSON types; `integer` is a number without a fraction, 5.0 included."""

    names: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(NUMBER if name == "integer" else name for name in self.names)

    def evaluate(self, actual: object) -> bool:
        if is_number(actual) and NUMBER not in self.names and "integer" in self.names:
            return isinstance(actual, int) or float(actual).is_integer()
        return get_kind(actual) in self.names

    def describe_fully(self) -> str:
        articles = {"integer": "an ", "array": "an ", "object": "an ", "null": ""}
        return " or ".join(articles.get(name, "a ") + name for name in self.names)

    def to_data(self) -> JsonValue:
        return {"$type": self.names[0] if len(self.names) == 1 else list(self.names)}


class AnyOf(Group, frozen=True):
    """At least one of the alternatives."""

    @property
    def absence(self) -> bool | None:
        absences = [option.absence for option in self.items]
        return True if True in absences else False if all(word is False for word in absences) else None

    @property
    def kinds(self) -> frozenset[str]:
        return reduce(frozenset.union, (option.kinds for option in self.items))

    def evaluate(self, actual: object) -> bool:
        reason = None
        for option in self.items:
            try:
                if option.evaluate(actual):
                    return True
            except Undecided as undecided:
                reason = reason or undecided
        if reason is not None:
            raise reason
        return False

    def is_equal(self, actual: object) -> bool:
        return any(option.is_equal(actual) for option in self.items)

    def describe_fully(self) -> str:
        return " or ".join(option.describe_fully() for option in self.items)

    def build_hint(self, actual: object) -> str:
        plain = [build_value_hint(option.value, actual) for option in self.items if isinstance(option, Equal)]
        if get_kind(actual) not in (ARRAY, OBJECT):
            return next(filter(None, plain), "")
        explanations = [option.explain(actual) for option in self.items if get_kind(actual) in option.kinds]
        mismatches = min(explanations, key=len, default=[])
        if not any(mismatch.path for mismatch in mismatches):
            return ""
        listed = "; ".join(map(str, mismatches[:_NEAREST])) + ("; …" if mismatches[_NEAREST:] else "")
        return f" (nearest is alternative {explanations.index(mismatches) + 1}: {listed})"

    def to_data(self) -> JsonValue:
        return {"$one_of": [option.to_data() for option in self.items]}


class AllOf(Group, frozen=True):
    """`$all_of`. `in_one_mapping`: written as several operators in one mapping."""

    in_one_mapping: bool = False
    is_composite = True

    @property
    def absence(self) -> bool | None:
        absences = [part.absence for part in self.items]
        return False if False in absences else True if all(absences) else None

    @property
    def kinds(self) -> frozenset[str]:
        return reduce(frozenset.intersection, (part.kinds for part in self.items))

    def evaluate(self, actual: object) -> bool:
        reason = None
        for part in self.items:
            try:
                if not part.evaluate(actual):
                    return False
            except Undecided as undecided:
                reason = reason or undecided
        if reason is not None:
            raise reason
        return True

    def is_equal(self, actual: object) -> bool:
        return all(part.is_equal(actual) for part in self.items)

    def find_differences(self, actual: object, path: KeyPath) -> list[Mismatch]:
        return [mismatch for part in self.items for mismatch in part.explain(actual, path)]

    def describe_fully(self) -> str:
        return " and ".join(part.describe_fully() for part in self.items)

    def to_data(self) -> JsonValue:
        if self.in_one_mapping:
            return {key: value for part in self.items for key, value in _to_operator(part).items()}
        return {"$all_of": [part.to_data() for part in self.items]}


def _to_operator(part: Matcher) -> JsonDict:
    """Write `part` as it stands among other operators: a plain value is `$eq` there."""
    data = part.to_data()
    if type(part) is not Equal and is_operator(data):
        return dict(data)
    return {"$eq": data}


class Not(Wrapper, frozen=True):
    """Anything else. `name` is how it was written: `$not` or `$ne`."""

    name: str = "$not"

    @property
    def absence(self) -> bool | None:
        # Saying what a value is not does not say that there need not be one: {$not: x} still wants a value,
        # and only {$not: {$any: true}} accepts none.
        return None if self.inner.absence is None else not self.inner.absence

    @property
    def kinds(self) -> frozenset[str]:
        return KINDS - self.inner.kinds if type(self.inner) is OfType and "integer" not in self.inner.names else KINDS

    def evaluate(self, actual: object) -> bool:
        return not self.inner.evaluate(actual)

    def describe_fully(self) -> str:
        return f"anything but {self.inner.describe_fully()}"

    def to_data(self) -> JsonValue:
        return {self.name: self.inner.to_data()}


# ---- how they are built ----

TYPE_NAMES: Final = ("string", "number", "integer", "boolean", "array", "object", "null")
_TYPES_INSTEAD: Final = {
    "str": "string",
    "text": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "tuple": "array",
    "dict": "object",
    "mapping": "object",
    "map": "object",
    "none": "null",
    "nonetype": "null",
}


def _build_partial(operand: Operand) -> Matcher:
    if not is_mapping(operand.value) or not operand.value:
        return operand.refuse("a mapping of the keys that must be there")
    return Partial(operand.compiler.compile_nested(operand.value, operand.path, mode="partial"))


def _build_any(operand: Operand) -> Matcher:
    if operand.value is True:
        return AnyValue()
    return operand.refuse("true", _suggest_true(operand) or "; to forbid an argument write {$absent: true}")


def _build_absent(operand: Operand) -> Matcher:
    if operand.compiler.in_items:
        return operand.compiler.add_problem(operand.path, "$absent is about a key; an item of a list is always there")
    if operand.value is True:
        return Absent()
    return operand.refuse("true", _suggest_true(operand) or "; to demand an argument write {$any: true}")


def _suggest_true(operand: Operand) -> str:
    return operand.format_advice(suggest_boolean(operand.value)) if guess_boolean(operand.value) else ""


def _build_type(operand: Operand) -> Matcher:
    names = operand.value if is_list(operand.value) else [operand.value]
    unknown = [name for name in names if name not in TYPE_NAMES]
    if names and not unknown:
        return OfType(tuple(map(str, names)))
    hint = ""
    if unknown:
        name = unknown[0]
        known = "null" if name is None else _TYPES_INSTEAD.get(str(name).casefold()) or find_nearest(name, TYPE_NAMES)
        hint = f'; did you mean "{known}"?' if known else ""
    return operand.refuse(f"one of {', '.join(TYPE_NAMES)}", hint)


def _build_one_of(operand: Operand) -> Matcher:
    options = operand.compile_items("a list of alternatives")
    if not options:
        return operand.compiler.placeholder
    # What needs nobody is tried first: nobody is asked where it matches.
    return AnyOf(tuple(sorted(options, key=lambda option: name_late(option.to_data()) is not None)))


def _build_all_of(operand: Operand) -> Matcher:
    parts = operand.compile_items("a list of values that must all hold")
    return join_parts(operand, parts) if parts else operand.compiler.placeholder


def join_parts(operand: Operand, parts: tuple[Matcher, ...], *, in_one_mapping: bool = False) -> Matcher:
    """Build the matcher of values that must all hold, which must be able to hold together."""
    if not operand.compiler.problems and (reason := operand.compiler.find_contradiction(*parts)):
        return operand.compiler.add_problem(operand.path, reason)
    return AllOf(parts, in_one_mapping)


KEYS = (
    Operator(
        name="$eq",
        example={"$eq": 5},
        doc="the same JSON value; in `arguments_contain` it turns the substring rule off",
        build=lambda operand: operand.compiler.compile_nested(operand.value, operand.path, mode="equal"),
        operand_form=VALUE,
        synonyms=("$equals",),
    ),
    Operator(
        name="$ne",
        example={"$ne": "x"},
        doc="any other JSON value",
        build=lambda operand: Not(
            operand.compiler.compile_nested(operand.value, operand.path, mode="equal", why_not_late=_NEGATED), "$ne"
        ),
        operand_form=VALUE,
        synonyms=("$neq",),
    ),
    Operator(
        name="$any", example={"$any": True}, doc="present, with any value", build=_build_any, synonyms=("$present",)
    ),
    Operator(name="$absent", example={"$absent": True}, doc="not sent", build=_build_absent, synonyms=("$missing",)),
    Operator(
        name="$default",
        example={"$default": "en"},
        doc="this JSON value, or not sent",
        build=lambda operand: Default(operand.compiler.compile_nested(operand.value, operand.path, mode="equal")),
        operand_form=VALUE,
        synonyms=("$or_absent",),
    ),
    Operator(
        name="$partial",
        example={"$partial": {"a": 1}},
        doc="a mapping with at least these keys, at any depth",
        build=_build_partial,
        operand_form=VALUE,
        synonyms=("$superset", "$subset", "$object_containing"),
    ),
    Operator(
        name="$type",
        example={"$type": "integer"},
        doc=f"a value of a JSON type: {', '.join(TYPE_NAMES)}; 5.0 is an integer",
        build=_build_type,
        synonyms=("$instance_of",),
    ),
    Operator(
        name="$one_of",
        example={"$one_of": ["a", {"$gt": 5}]},
        doc="at least one of these values or operators",
        build=_build_one_of,
        operand_form=LIST,
        synonyms=("$in", "$or", "$any_of"),
    ),
    Operator(
        name="$all_of",
        example={"$all_of": [{"$search": "a"}, {"$search": "b"}]},
        doc="all of these values or operators",
        build=_build_all_of,
        operand_form=LIST,
        synonyms=("$and", "$all"),
    ),
    Operator(
        name="$not",
        example={"$not": {"$search": "a"}},
        doc="anything but this value or operator",
        build=lambda operand: Not(operand.compiler.compile_nested(operand.value, operand.path, why_not_late=_NEGATED)),
        operand_form=VALUE,
    ),
)
