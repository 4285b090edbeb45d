"""Operators of texts: patterns under a time limit, parts, beginnings and ends. Case-sensitive unless they say `i`.

A pattern that a case may not hold is found when the case is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any

from evalkit.errors import did_you_mean
from evalkit.jsonvalue import ARRAY, BOOLEAN, NUMBER, STRING, JsonValue, get_kind, is_list, is_number, is_string
from evalkit.lazy import LazyModule
from evalkit.operators.base import LIST, Matcher, Operand, Operator, Undecided
from evalkit.operators.lists import SEARCHED, HasItem
from evalkit.operators.phrases import fold_case
from evalkit.records.template import strip_literals
from evalkit.text.format import TEXT_LIMIT, WINDOW_SIZE, cut, format_value, format_window

if TYPE_CHECKING:
    from evalkit.fields import patterns
else:
    patterns = LazyModule("evalkit.fields.patterns")


class Pattern(Matcher, frozen=True):
    """`$regex`: the whole string matches. `$search`: a part of it does."""

    name: str
    pattern: str
    kinds = frozenset({STRING})

    def evaluate(self, actual: object) -> bool:
        if not is_string(actual):
            return False
        try:
            return patterns.match_pattern(self.pattern, actual, whole=self.name == "$regex")
        except patterns.PatternLimitError as limit:
            raise Undecided(f"{self.name} {_format_pattern(self.pattern)} {limit}") from None

    def describe_fully(self) -> str:
        relation = "that matches" if self.name == "$regex" else "with a part that matches"
        return f"a string {relation} {_format_pattern(self.pattern)}"

    def to_data(self) -> JsonValue:
        return {self.name: self.pattern}

    def build_hint(self, actual: object) -> str:
        if self.name == "$regex" and Pattern("$search", self.pattern).is_match(actual):
            return " (a part of it matches; that is $search, $regex wants the whole string)"
        return Matcher.build_hint(self, actual)


class Contains(Matcher, frozen=True):
    """`$contains`, `$icontains` with a text: a part of a string, or an item of a list."""

    name: str
    part: str
    kinds = frozenset({STRING, ARRAY})

    def evaluate(self, actual: object) -> bool:
        part = self._fold(self.part)
        if is_string(actual):
            return part in self._fold(actual)
        return is_list(actual) and any(is_string(item) and self._fold(item) == part for item in actual)

    def _fold(self, text: str) -> str:
        return fold_case(text) if self.name == "$icontains" else text

    def describe_fully(self) -> str:
        case = ", in any case" if self.name == "$icontains" else ""
        return f"a string or list with {format_value(self.part)} in it{case}"

    def to_data(self) -> JsonValue:
        return {self.name: self.part}

    def build_hint(self, actual: object) -> str:
        if self.name == "$contains" and Contains("$icontains", self.part).evaluate(actual):
            return " (it is there in another case)"
        return Matcher.build_hint(self, actual)


class Edge(Matcher, frozen=True):
    """`$starts_with`, `$ends_with`."""

    name: str
    text: str
    kinds = frozenset({STRING})

    def evaluate(self, actual: object) -> bool:
        return is_string(actual) and self._cut_edge(actual) == self.text

    def _cut_edge(self, actual: str) -> str:
        length = len(self.text)
        return str.__getitem__(actual, slice(length) if self.name == "$starts_with" else slice(-length, None))

    def describe_fully(self) -> str:
        return f"a string that {self.name[1:].replace('_', ' ')} {format_value(self.text)}"

    def to_data(self) -> JsonValue:
        return {self.name: self.text}

    def describe_mismatch(self, actual: object) -> str:
        if not is_string(actual) or len(actual) <= 4 * WINDOW_SIZE:
            return Matcher.describe_mismatch(self, actual)
        end = len(self.text) if self.name == "$starts_with" else len(actual)
        excerpt = format_window(actual, end - len(self.text), end)
        return f"expected {self.describe()}, got {excerpt}{self.build_hint(actual)}"

    def build_hint(self, actual: object) -> str:
        if is_string(actual) and fold_case(self._cut_edge(actual)) == fold_case(self.text):
            return " (it does in another case)"
        return Matcher.build_hint(self, actual)


def _format_pattern(pattern: str) -> str:
    r"""Return the pattern in quotes as it is read, not as JSON writes it: ``"\d+"``."""
    return f'"{cut(pattern, TEXT_LIMIT)}"' if pattern.isprintable() else format_value(pattern)


# ---- how they are built ----


def _build_pattern(operand: Operand) -> Matcher:
    if not is_string(operand.value):
        return operand.refuse("a pattern, which is a string", _suggest_quotes(operand))
    if reason := patterns.find_pattern_problem(operand.value):
        message = f"{operand.name} {_format_pattern(operand.value)} {reason}"
        return operand.compiler.add_problem(operand.path, message)
    if operand.name == "$search" and _matches_everything(operand.value):
        message = f"$search {_format_pattern(operand.value)} matches every text, also an empty one"
        return operand.compiler.add_problem(operand.path, f"{message}; write what must be there")
    return Pattern(operand.name, operand.value)


_LOOKING = re.compile(r"[\^$]|\\[bBAzZGmM]|\(\?[=!<(]")


def _matches_everything(pattern: str) -> bool:
    """Return whether a part of every text matches: the pattern takes no character, and looks at none."""
    return _LOOKING.search(pattern) is None and patterns.match_pattern(pattern, "", whole=True)


def _build_contains(operand: Operand) -> Matcher:
    value = strip_literals(operand.value)
    if value == "":
        return operand.refuse("a part that is not empty", ", which every text contains")
    if is_string(value):
        return Contains(operand.name, value)
    item = operand.compiler.compile_nested(
        operand.value, operand.path, mode="equal", in_items=True, why_not_late=SEARCHED
    )
    return HasItem(item, operand.name)


def _build_edge(operand: Operand) -> Matcher:
    if not is_string(operand.value) or not operand.value:
        return operand.refuse("a string that is not empty", _suggest_quotes(operand))
    return Edge(operand.name, operand.value)


def _suggest_quotes(operand: Operand) -> str:
    return operand.format_advice("quote it") if get_kind(operand.value) in (NUMBER, BOOLEAN) else ""


_TEXT_OPERATORS = (
    Operator(
        name="$regex",
        example={"$regex": "SN[0-9]+"},
        doc="the whole string matches the pattern",
        build=_build_pattern,
        synonyms=("$match", "$matches", "$pattern"),
    ),
    Operator(
        name="$search",
        example={"$search": "SN[0-9]+"},
        doc="the pattern matches anywhere in the string",
        build=_build_pattern,
    ),
    Operator(
        name="$contains",
        example={"$contains": "val"},
        doc="a part of a string, or an item of a list",
        build=_build_contains,
        operand_form=LIST,
        synonyms=("$includes", "$has"),
    ),
    Operator(
        name="$icontains",
        example={"$icontains": "VAL"},
        doc="as `$contains`, upper and lower case alike",
        build=_build_contains,
        operand_form=LIST,
    ),
    Operator(
        name="$starts_with",
        example={"$starts_with": "SN"},
        doc="the string begins so",
        build=_build_edge,
        synonyms=("$prefix",),
    ),
    Operator(
        name="$ends_with",
        example={"$ends_with": ".com"},
        doc="the string ends so",
        build=_build_edge,
        synonyms=("$suffix",),
    ),
)


# ---- IP addresses ----


_VERSIONS = {"v4": 4, "v6": 6, "any": None}
_KEYS = ("version", "in")
_FORMS = 'v4, v6, any, a network such as "10.0.0.0/8" or a list of them, or {version: 4, in: "10.0.0.0/8"}'


class InNetwork(Matcher, frozen=True):
    """`$ip_address`: an address of `version` (4, 6 or None for either), in one of `networks` if there are any."""

    version: int | None
    networks: tuple[str, ...]
    operand: Any  # as it is written
    kinds = frozenset({STRING})

    def evaluate(self, actual: object) -> bool:
        return not self._find_fault(actual)

    def _find_fault(self, actual: object) -> str:
        try:
            address = ip_address(actual if is_string(actual) else "")
        except ValueError:
            return "it is no IP address"
        if self.version not in (None, address.version):
            return f"it is an IPv{address.version} address"
        if self.networks and not any(address in ip_network(network) for network in self.networks):
            return f"it is outside of {' and '.join(self.networks)}"
        return ""

    def describe_fully(self) -> str:
        network = f" in {' or '.join(self.networks)}" if self.networks else ""
        return f"an IP{f'v{self.version}' if self.version else ''} address{network}"

    def to_data(self) -> JsonValue:
        return {"$ip_address": self.operand}

    def build_hint(self, actual: object) -> str:
        return f" ({self._find_fault(actual)})" if is_string(actual) else Matcher.build_hint(self, actual)


def _build_ip_address(operand: Operand) -> Matcher:
    value = operand.value
    if value is True or value in ("v4", "v6", "any"):
        return InNetwork(_VERSIONS.get(value), (), value)
    version, networks = None, value
    if isinstance(value, dict):
        for key in value:
            if key not in _KEYS:
                message = f"$ip_address has no '{key}'; it has version and in{did_you_mean(key, _KEYS)}"
                return operand.compiler.add_problem((*operand.path, key), message, at_key=True)
        version, networks = value.get("version"), value.get("in", [])
        if "version" in value and (not is_number(version) or version not in (4, 6)):
            message = f"version of $ip_address is 4 or 6, got {format_value(version)}"
            return operand.compiler.add_problem((*operand.path, "version"), message)
    listed = networks if is_list(networks) else [networks]
    texts = [text for text in listed if is_string(text)]
    if len(texts) < len(listed) or not (texts or (version and "in" not in value)):
        return operand.refuse(_FORMS)
    for text in texts:
        try:
            network = ip_network(text)
        except ValueError as error:
            return operand.refuse(_FORMS, did_you_mean(text, _VERSIONS) or f"; {error}")
        if version not in (None, network.version):
            return operand.refuse(_FORMS, f"; {text} is an IPv{network.version} network")
    return InNetwork(int(version) if version else None, tuple(texts), value)


def _propose_addresses(operand: object) -> Iterator[str]:
    networks = operand.get("in", []) if isinstance(operand, dict) else operand
    for text in networks if isinstance(networks, list) else [networks]:
        yield str(text).partition("/")[0]
    yield from ("192.0.2.1", "2001:db8::1")  # reserved for documentation


_ADDRESS_OPERATORS = (
    Operator(
        name="$ip_address",
        doc="an IP address: `v4`, `v6` or `any`; in a network, or one of several; both as `{version, in}`",
        example={"$ip_address": {"version": 4, "in": "10.0.0.0/8"}},
        build=_build_ip_address,
        synonyms=("$ip", "$ipv4", "$ipv6", "$cidr"),
        propose=_propose_addresses,
    ),
)
KEYS = (*_TEXT_OPERATORS, *_ADDRESS_OPERATORS)
