"""Matchers that combine others, and those of presence and type."""

from __future__ import annotations

from functools import reduce
from typing import Any

from msgspec.structs import replace

from evalkit.operators.equality import ARRAY, KINDS, NUMBER, OBJECT, kind
from evalkit.operators.hints import value_hint
from evalkit.operators.matcher import Matcher, Mismatch, Path, Resolve, Undecided
from evalkit.operators.values import Equal

_NEAREST = 3  # differences of the nearest alternative that its message lists


class Absent(Matcher, frozen=True):
    """Not sent at all."""

    @property
    def absence(self) -> bool | None:
        return True

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset()

    def holds(self, actual: Any) -> bool:
        return False

    def wording(self) -> str:
        return "not to be sent"

    def written(self) -> Any:
        return {"$absent": True}


class OfType(Matcher, frozen=True):
    """A value of one of these JSON types; `integer` is a number without a fraction, 5.0 included."""

    names: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(NUMBER if name == "integer" else name for name in self.names)

    def holds(self, actual: Any) -> bool:
        of_kind = kind(actual)
        if of_kind == NUMBER and NUMBER not in self.names and "integer" in self.names:
            return isinstance(actual, int) or float(actual).is_integer()
        return of_kind in self.names

    def wording(self) -> str:
        articles = {"integer": "an ", "array": "an ", "object": "an ", "null": ""}
        return " or ".join(articles.get(name, "a ") + name for name in self.names)

    def written(self) -> Any:
        return {"$type": self.names[0] if len(self.names) == 1 else list(self.names)}


class OneOf(Matcher, frozen=True):
    """At least one of the alternatives."""

    options: tuple[Matcher, ...]

    @property
    def absence(self) -> bool | None:
        said = [option.absence for option in self.options]
        return True if True in said else False if all(word is False for word in said) else None

    @property
    def has_templates(self) -> bool:
        return any(option.has_templates for option in self.options)

    @property
    def kinds(self) -> frozenset[str]:
        return reduce(frozenset.union, (option.kinds for option in self.options))

    def holds(self, actual: Any) -> bool:
        reason = None
        for option in self.options:
            try:
                if option.holds(actual):
                    return True
            except Undecided as undecided:
                reason = reason or undecided
        if reason is not None:
            raise reason
        return False

    def equals(self, actual: Any) -> bool:
        return any(option.equals(actual) for option in self.options)

    def wording(self) -> str:
        return " or ".join(option.wording() for option in self.options)

    def hint(self, actual: Any) -> str:
        plain = [value_hint(option.value, actual) for option in self.options if isinstance(option, Equal)]
        if kind(actual) not in (ARRAY, OBJECT):
            return next(filter(None, plain), "")
        near = [option.explain(actual) for option in self.options if kind(actual) in option.kinds]
        found = min(near, key=len, default=[])
        if not any(mismatch.path for mismatch in found):
            return ""
        listed = "; ".join(str(mismatch) for mismatch in found[:_NEAREST]) + ("; …" if found[_NEAREST:] else "")
        return f" (nearest is alternative {near.index(found) + 1}: {listed})"

    def written(self) -> Any:
        return {"$one_of": [option.written() for option in self.options]}

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, options=tuple(option.bind(resolve) for option in self.options))


class AllOf(Matcher, frozen=True):
    """All of them. `joined`: written as several operators in one mapping, not as `$all_of`."""

    parts: tuple[Matcher, ...]
    joined: bool = False

    composite = True

    @property
    def absence(self) -> bool | None:
        said = [part.absence for part in self.parts]
        return False if False in said else True if all(said) else None

    @property
    def has_templates(self) -> bool:
        return any(part.has_templates for part in self.parts)

    @property
    def kinds(self) -> frozenset[str]:
        return reduce(frozenset.intersection, (part.kinds for part in self.parts))

    def holds(self, actual: Any) -> bool:
        reason = None
        for part in self.parts:
            try:
                if not part.holds(actual):
                    return False
            except Undecided as undecided:
                reason = reason or undecided
        if reason is not None:
            raise reason
        return True

    def equals(self, actual: Any) -> bool:
        return all(part.equals(actual) for part in self.parts)

    def differences(self, actual: Any, path: Path) -> list[Mismatch]:
        return [found for part in self.parts for found in part.explain(actual, path)]

    def wording(self) -> str:
        return " and ".join(part.wording() for part in self.parts)

    def written(self) -> Any:
        if self.joined:
            return {key: value for part in self.parts for key, value in _as_operator(part).items()}
        return {"$all_of": [part.written() for part in self.parts]}

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, parts=tuple(part.bind(resolve) for part in self.parts))


def _as_operator(part: Matcher) -> dict[str, Any]:
    """`part` as it stands among other operators: a plain value is written `$eq` there."""
    written = part.written()
    is_operator = type(part) is not Equal and isinstance(written, dict) and written and all(map(_has_dollar, written))
    return written if is_operator else {"$eq": written}


def _has_dollar(key: object) -> bool:
    return isinstance(key, str) and key.startswith("$")


class Not(Matcher, frozen=True):
    """Anything else. `name` is how it was written: `$not` or `$ne`."""

    inner: Matcher
    name: str = "$not"

    @property
    def absence(self) -> bool | None:
        # Saying what a value is not does not say that there need not be one: {$not: x} still wants a value,
        # and only {$not: {$any: true}} accepts none.
        return None if self.inner.absence is None else not self.inner.absence

    @property
    def has_templates(self) -> bool:
        return self.inner.has_templates

    @property
    def kinds(self) -> frozenset[str]:
        return KINDS - self.inner.kinds if type(self.inner) is OfType and "integer" not in self.inner.names else KINDS

    def holds(self, actual: Any) -> bool:
        return not self.inner.holds(actual)

    def wording(self) -> str:
        return f"anything but {self.inner.wording()}"

    def written(self) -> Any:
        return {self.name: self.inner.written()}

    def bind(self, resolve: Resolve) -> Matcher:
        return replace(self, inner=self.inner.bind(resolve))
