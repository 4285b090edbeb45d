"""What every compiled expectation can do, and what it says where a value does not meet it."""

from __future__ import annotations

import json
import unicodedata
from abc import abstractmethod
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from evalkit.errors import KeyPath, find_nearest, format_path
from evalkit.jsonvalue import ARRAY, BOOLEAN, KINDS, NULL, NUMBER, OBJECT, STRING, get_kind, is_json_equal, to_hashable
from evalkit.model.template import (
    Literal,
    Reference,
    Template,
    TemplateError,
    parse_template,
    render_templates,
    strip_literals,
)
from evalkit.operators.phrases import fold_case
from evalkit.text.format import WINDOW_SIZE, cut, describe_type, find_first_difference, format_value, format_window

if TYPE_CHECKING:
    from evalkit.operators.compile import Compiler


WRONG, MISSING, UNEXPECTED = "wrong", "missing", "unexpected"
MAX_DIFFERENCES = 100  # of one value; more help nobody, and an enormous list has millions

Resolve = Callable[[Reference], Any]


class Mismatch(Struct, frozen=True):
    """One place at which a value is not what was expected. `str()` gives the whole line, path first.

    `code` is `wrong` (a value differs), `missing` (nothing there) or `unexpected` (something there that should not
    be). `message` names the expected and the actual value, without the path. `path` counts the actual list's
    items, but for a missing item, which only the expected list has.
    """

    path: KeyPath
    code: str
    message: str
    expected: Any = None
    actual: Any = None

    def __str__(self) -> str:
        return f"{format_path(self.path)}: {self.message}" if self.path else self.message


class Undecided(Exception):  # noqa: N818 - it says what happened; nobody did anything wrong
    """A value could be judged neither way: a pattern ran out of time, a user's operator raised.

    That is a mismatch with its own reason, under `$not` as well.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Matcher(Struct, frozen=True):
    """An expected value, compiled. Subclasses are frozen dataclasses: picklable, comparable, safe to share.

    `matches`, `explain` and `equals` never raise, whatever the actual value is.
    """

    is_composite = False  # whether `differences` asks other matchers, which then give their own reasons

    @property
    def absence(self) -> bool | None:
        """What it says of an argument that is not sent: accepts it, refuses it, or does not speak of it (None)."""
        return None

    @property
    def accepts_absence(self) -> bool:
        """Whether the argument may be missing."""
        return self.absence is True

    @property
    def has_templates(self) -> bool:
        """Whether `bind` is needed before judging."""
        return False

    @property
    def kinds(self) -> frozenset[str]:
        """The JSON types that a matching value can have; more than that where it is not known."""
        return KINDS

    @abstractmethod
    def evaluate(self, actual: Any) -> bool:
        """Whether `actual` is as expected; raises Undecided where that can't be said."""

    @abstractmethod
    def describe_fully(self) -> str:
        """`describe` at full length."""

    @abstractmethod
    def to_data(self) -> Any:
        """What it wanted, as JSON data in the form of a case file."""

    def describe(self) -> str:
        """What it wanted, for people: ``a number > 5``."""
        return cut(self.describe_fully())

    def bind(self, resolve: Resolve) -> Matcher:
        """The same with every template replaced by what `resolve` gives for it. TemplateError passes through."""
        return self

    def is_match(self, actual: Any) -> bool:
        """Whether `actual` is as expected."""
        try:
            return self.evaluate(actual)
        except Exception:  # Undecided, or an object that raises when it is looked at
            return False

    def is_equal(self, actual: Any) -> bool:
        """Whether `actual` is as expected even without the tolerance of `arguments_contain`."""
        return self.is_match(actual)

    def explain(self, actual: Any, path: KeyPath = ()) -> list[Mismatch]:
        """Every way in which `actual` differs, each with its path; empty if and only if it matches.

        At most `MAX_DIFFERENCES`, and then one more that says so.
        """
        try:
            if self.evaluate(actual):
                return []
            differences = self.find_differences(actual, path)
        except Undecided as undecided:
            differences = self.find_differences(actual, path) if self.is_composite else []
            differences = differences or [Mismatch(path, WRONG, undecided.reason, self.to_data(), actual)]
        except Exception as error:
            reason = f"cannot be judged: {type(error).__name__} on looking at the value"
            differences = [Mismatch(path, WRONG, reason, self.to_data(), actual)]
        if len(differences) > MAX_DIFFERENCES:
            last = Mismatch(path, WRONG, f"differs in more than {MAX_DIFFERENCES} places", self.to_data(), actual)
            return [*differences[:MAX_DIFFERENCES], last]
        return differences or [self.build_mismatch(actual, path)]

    def find_differences(self, actual: Any, path: KeyPath) -> list[Mismatch]:
        """As `explain`, for a value that is known not to match."""
        return [self.build_mismatch(actual, path)]

    def build_mismatch(self, actual: Any, path: KeyPath) -> Mismatch:
        """One `wrong` for the whole value."""
        return Mismatch(path, WRONG, self.describe_mismatch(actual), self.to_data(), actual)

    def describe_mismatch(self, actual: Any) -> str:
        """The message for a value that does not match: ``expected …, got …``."""
        return f"expected {self.describe()}, got {format_value(actual)}{self.build_hint(actual)}"

    def build_hint(self, actual: Any) -> str:
        """What the two values in the message don't show by themselves, in brackets; "" if nothing."""

        return build_kind_hint(actual, self.kinds)


# Operands: what stands behind an operator's name, its templates, and how a wrong one is refused.


class Operand(Struct, frozen=True):
    """One operator as written: its name and operand, the operators beside it, and where it stands."""

    name: str
    value: Any
    siblings: dict[str, Any]
    path: KeyPath
    compiler: Compiler

    def refuse(self, requirement: str, hint: str = "") -> Matcher:
        """Record that the operand should have been something else."""
        return self.compiler.add_problem(
            self.path, f"{self.name} wants {requirement}, got {format_value(strip_literals(self.value))}{hint}"
        )

    def format_advice(self, advice: str) -> str:
        """`advice` as the end of a message; none where the operand came of a template, and so was not written."""
        return f"; {advice}" if advice and self.path else ""

    def compile_items(self, requirement: str, *, in_items: bool | None = None) -> tuple[Matcher, ...]:
        """The operand's items compiled; empty, with a problem recorded, if it is no list or an empty one."""
        literal = type(self.value) is Literal
        value = self.value.value if literal else self.value
        if get_kind(value) != ARRAY or not value:
            self.refuse(requirement)
            return ()
        return tuple(
            self.compiler.compile_nested(item, (*self.path, index), literal=literal, in_items=in_items)
            for index, item in enumerate(value)
        )


def parse_operand(value: Any, path: KeyPath, compiler: Compiler) -> Any:
    """An operand that is data: `$literal` unwrapped, strings with templates parsed into Templates."""
    if type(value) is Literal:
        return value.value
    of_kind = get_kind(value)
    if of_kind == STRING and not isinstance(value, Template):
        try:
            return parse_template(value)
        except TemplateError as error:
            compiler.add_problem(path, str(error))
    elif of_kind == OBJECT:
        if len(value) == 1 and LITERAL in value:
            return value[LITERAL]
        return {key: parse_operand(item, (*path, key), compiler) for key, item in value.items()}
    elif of_kind == ARRAY:
        return [parse_operand(item, (*path, index), compiler) for index, item in enumerate(value)]
    return value


def has_template(value: Any) -> bool:
    """Whether a Template stands anywhere in `value`."""
    if isinstance(value, dict):
        return any(has_template(item) for item in value.values())
    if isinstance(value, list):
        return any(has_template(item) for item in value)
    return isinstance(value, Template)


class Deferred(Matcher, frozen=True):
    """An operator whose operand holds templates: compiled once `bind` has put values in their place."""

    name: str
    value: Any  # with Template objects in it
    modifiers: dict[str, Any]
    mode: str

    @property
    def has_templates(self) -> bool:
        return True

    def evaluate(self, actual: Any) -> bool:
        raise Undecided(f"the template in {self.describe()} has no value yet")

    def describe_fully(self) -> str:
        return format_value(self.to_data())

    def to_data(self) -> Any:
        return {self.name: _restore_templates(self.value), **_restore_templates(self.modifiers)}

    def bind(self, resolve: Resolve) -> Matcher:
        from evalkit.operators.compile import build_deferred

        if self.name in ("$regex", "$search"):
            pattern = strip_literals(
                render_templates(self.value, lambda reference: _escape_pattern(resolve(reference)))
            )
            return build_deferred(self, pattern, {})
        modifiers = strip_literals(render_templates(self.modifiers, resolve))
        return build_deferred(self, render_templates(self.value, resolve), modifiers)


def _escape_pattern(value: Any) -> str:
    """What a template in a pattern stands for matches itself: an address's dot is no wildcard."""
    import regex

    return regex.escape(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _restore_templates(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _restore_templates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_restore_templates(item) for item in value]
    return str(value) if isinstance(value, Template) else value


# What is said of two values that differ: both of them, and why where the difference is easy to overlook.
#
# Hints lead with a space and stand in brackets, to be appended to a message; "" where there is nothing to say.

_SCALARS = frozenset({STRING, NUMBER, BOOLEAN})
_PLAIN_NAMES = {ARRAY: "a list", OBJECT: "a mapping", NULL: "null"}


def describe_difference(expected: Any, actual: Any) -> str:
    """``expected …, got …`` for two values that are not JSON-equal; of long texts the part around the difference."""
    if get_kind(expected) == get_kind(actual) == STRING:
        return _describe_text_difference(expected, actual)
    return f"expected {format_value(expected)}, got {format_value(actual)}{build_value_hint(expected, actual)}"


def _describe_text_difference(expected: str, actual: str) -> str:
    hint = build_text_hint(expected, actual)
    if max(len(expected), len(actual)) <= 2 * WINDOW_SIZE:
        return f"expected {format_value(expected)}, got {format_value(actual)}{hint}"
    at = find_first_difference(expected, actual)
    place = hint or f" (first difference at character {at + 1} of {len(actual)})"
    return f"expected {format_window(expected, at, at)}, got {format_window(actual, at, at)}{place}"


def build_value_hint(expected: Any, actual: Any) -> str:
    """Why two values that read alike are not equal: ``("5" is a string, expected the number 5)``."""
    expected_kind, actual_kind = get_kind(expected), get_kind(actual)
    if expected_kind == actual_kind == STRING:
        return build_text_hint(expected, actual)
    alike = {expected_kind, actual_kind} == {NUMBER, BOOLEAN} or _normalize_scalar(
        expected, expected_kind
    ) == _normalize_scalar(actual, actual_kind)
    if expected_kind != actual_kind and alike and expected_kind not in (ARRAY, OBJECT):
        name = {STRING: "the string ", NUMBER: "the number ", BOOLEAN: "the boolean "}.get(expected_kind, "")
        return f" ({format_value(actual)} is {describe_type(actual)}, expected {name}{format_value(expected)})"
    if expected_kind == STRING and actual_kind in (BOOLEAN, NUMBER):
        return _build_scalar_hint(expected, actual_kind)
    return (
        ""
        if actual_kind in _SCALARS and expected_kind in _SCALARS
        else build_kind_hint(actual, frozenset({expected_kind}))
    )


def _build_scalar_hint(expected: str, actual_kind: str) -> str:
    """That `no` and `1e3` are texts in a case file: ``("no" is a string; for the boolean write false)``."""
    from evalkit.fields.reader import suggest_boolean, suggest_number

    advice = suggest_boolean(expected) if actual_kind == BOOLEAN else suggest_number(expected)
    name = "boolean" if actual_kind == BOOLEAN else "number"
    return (
        f" ({format_value(expected)} is a string; for the {name} {advice})" if advice and "digits" not in advice else ""
    )


def build_text_hint(expected: str, actual: str) -> str:
    """Why two texts that look alike differ: Unicode form, whitespace, case."""
    if unicodedata.normalize("NFC", expected) == unicodedata.normalize("NFC", actual):
        return " (they differ only in Unicode normalisation)"
    if "".join(expected.split()) == "".join(actual.split()):
        return " (they differ only in whitespace)"
    if fold_case(expected) == fold_case(actual):
        return " (they differ only in case)"
    return ""


def build_kind_hint(actual: Any, kinds: frozenset[str]) -> str:
    """That a value has another type than the JSON types `wanted`, where the message does not show it clearly."""
    actual_kind = get_kind(actual)
    if not actual_kind:
        return f" (it is {describe_type(actual)})"
    if actual_kind in kinds or actual_kind not in _SCALARS:
        return ""
    if actual_kind == STRING and kinds & {OBJECT, ARRAY}:
        opening = actual.lstrip()[:1]
        holds = (opening == "{" and OBJECT in kinds) or (opening == "[" and ARRAY in kinds)
        return " (it is a string that holds JSON)" if holds else ""
    if not kinds & _SCALARS:
        return ""
    names = " or ".join(_PLAIN_NAMES.get(name, f"a {name}") for name in sorted(kinds, reverse=True))
    return f" (it is {describe_type(actual)}, not {names})"


def _normalize_scalar(value: Any, of_kind: str) -> str:
    """What a value reads as when nobody looks at its type: ``5`` for 5, 5.0, "5" and "5.0"."""
    text = value.strip().casefold() if of_kind == STRING else format_value(value)
    integer, point, fraction = text.partition(".")
    return integer if point and not fraction.strip("0") else {"none": "null"}.get(text, text)


# Where two plain values differ: one mismatch per place, each with its path.

_ALIGNED = 2000  # lists longer than this are compared item by item, not aligned


def find_value_differences(expected: Any, actual: Any, path: KeyPath) -> Iterator[Mismatch]:
    """Every place at which `actual` is not JSON-equal to `expected`, depth first in the order of `expected`."""
    if is_json_equal(expected, actual):
        return
    of_kind = get_kind(expected)
    if of_kind == get_kind(actual) == OBJECT:
        yield from _find_mapping_differences(expected, actual, path)
    elif of_kind == get_kind(actual) == ARRAY:
        yield from _find_list_differences(expected, actual, path)
    else:
        yield Mismatch(path, WRONG, describe_difference(expected, actual), expected, actual)


def _find_mapping_differences(expected: dict[str, Any], actual: dict[Any, Any], path: KeyPath) -> Iterator[Mismatch]:
    for key, value in expected.items():
        if key in actual:
            yield from find_value_differences(value, actual[key], (*path, key))
        else:
            yield build_missing_key((*path, key), value, format_value(value), actual, expected)
    for key, value in actual.items():
        if key not in expected:
            yield build_unexpected_key(path, key, value)


def build_missing_key(
    path: KeyPath, expected_data: Any, description: str, actual: dict[Any, Any], expected: Any
) -> Mismatch:
    """A key that should be there. Names the key of `actual` that was probably meant, if nobody expects that one."""
    spare = [key for key in actual if get_kind(key) == STRING and key not in expected]
    similar_key = find_nearest(path[-1], spare)
    hint = f" (there is a '{similar_key}')" if similar_key is not None else ""
    return Mismatch(path, MISSING, f"missing, expected {description}{hint}", expected_data, None)


def build_unexpected_key(path: KeyPath, key: Any, value: Any) -> Mismatch:
    """A key that should not be there."""
    if get_kind(key) != STRING:
        return Mismatch(
            (*path, format_value(key)), UNEXPECTED, f"not expected: the key is {describe_type(key)}", None, value
        )
    return Mismatch((*path, key), UNEXPECTED, f"not expected, got {format_value(value)}", None, value)


def build_missing_item(path: KeyPath, expected_data: Any, description: str) -> Mismatch:
    """An item that the list should have and has not; its index is that of the expected list."""
    return Mismatch(path, MISSING, f"missing, expected {description}", expected_data, None)


def build_unexpected_item(path: KeyPath, value: Any) -> Mismatch:
    """An item that the list should not have."""
    return Mismatch(path, UNEXPECTED, f"not expected, got {format_value(value)}", None, value)


def _find_list_differences(expected: list[Any], actual: list[Any], path: KeyPath) -> Iterator[Mismatch]:
    """Item by item; where the lengths differ, the items are first aligned, so that one insertion is one difference."""
    for start, end, actual_start, actual_end in _find_blocks(expected, actual):
        common = min(end - start, actual_end - actual_start)
        for offset in range(common):
            at = (*path, actual_start + offset)
            yield from find_value_differences(expected[start + offset], actual[actual_start + offset], at)
        for index in range(start + common, end):
            yield build_missing_item((*path, index), expected[index], format_value(expected[index]))
        for index in range(actual_start + common, actual_end):
            yield build_unexpected_item((*path, index), actual[index])


def _find_blocks(expected: list[Any], actual: list[Any]) -> list[tuple[int, int, int, int]]:
    """The stretches of both lists (from, to, from, to) that stand opposite each other and differ."""
    if len(expected) == len(actual) or max(len(expected), len(actual)) > _ALIGNED:
        return [(0, len(expected), 0, len(actual))]
    keys = [[to_hashable(item) or id(item) for item in items] for items in (expected, actual)]
    opcodes = SequenceMatcher(None, keys[0], keys[1], autojunk=False).get_opcodes()
    return [(i, j, k, m) for tag, i, j, k, m in opcodes if tag != "equal"]


# What people write instead of an operator's name, or of a JSON type's.

LITERAL: Final = "$literal"
MODIFIERS: Final = {"$abs": "$approx", "$rel": "$approx"}
TYPE_NAMES: Final = ("string", "number", "integer", "boolean", "array", "object", "null")

# From MongoDB, JSON Schema, Python and other tools.
INSTEAD: Final = {
    "$gte": "$ge",
    "$lte": "$le",
    "$min": "$ge",
    "$minimum": "$ge",
    "$max": "$le",
    "$maximum": "$le",
    "$range": "$between",
    "$in": "$one_of",
    "$or": "$one_of",
    "$any_of": "$one_of",
    "$and": "$all_of",
    "$all": "$all_of",
    "$nin": "{$not: {$one_of: [...]}}",
    "$nor": "{$not: {$one_of: [...]}}",
    "$equals": "$eq",
    "$neq": "$ne",
    "$exists": "{$any: true} or {$absent: true}",
    "$present": "$any",
    "$missing": "$absent",
    "$optional": "{$one_of: [{$absent: true}, ...]}",
    "$size": "$len",
    "$length": "$len",
    "$count": "$len",
    "$match": "$regex",
    "$matches": "$regex",
    "$pattern": "$regex",
    "$prefix": "$starts_with",
    "$suffix": "$ends_with",
    "$every": "$each",
    "$items": "$each",
    "$set": "$unordered",
    "$multiset": "$unordered",
    "$datetime": "$date",
    "$close_to": "$approx",
    "$near": "$approx",
    "$instance_of": "$type",
    "$includes": "$contains",
    "$has": "$contains",
    "$raw": "$literal",
}

TYPES_INSTEAD: Final = {
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
