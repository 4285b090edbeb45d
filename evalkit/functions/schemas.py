"""JSON Schemas, compiled once per distinct schema and process.

jsonschema is imported only for schemas beyond the everyday part, and for values that do not fit: those need words.
References are resolved inside the schema alone; nothing is ever fetched.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from evalkit.functions.quickschema import compile_quick

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

Path = tuple[str | int, ...]
Found = tuple[Path, str]  # where in the schema, and what is wrong there


class CompiledSchema:
    """One schema, ready to judge values. Thread-safe; what it needs beyond the quick test is made when first needed."""

    __slots__ = ("_lock", "_quick", "_validator", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._quick = compile_quick(schema)
        self._validator: Any = None
        self._lock = threading.Lock()

    def fits(self, value: Any) -> bool:
        """Whether `value` is valid."""
        if self._quick is not None and self._quick(value):
            return True
        return next(self._errors(value), None) is None

    def errors(self, value: Any) -> list[ValidationError]:
        """Every violation, in order of its path in the value; empty iff `value` is valid."""
        if self._quick is not None and self._quick(value):
            return []
        return sorted(self._errors(value), key=lambda error: [str(step) for step in error.absolute_path])

    def _errors(self, value: Any) -> Iterator[ValidationError]:
        from jsonschema.exceptions import ValidationError

        try:
            yield from self._full().iter_errors(value)
        except Exception as error:  # an unresolvable or endless reference behind an `if` that no sample reached
            yield ValidationError(f"could not be checked: {type(error).__name__}: {error}")

    def _full(self) -> Any:
        with self._lock:
            if self._validator is None:
                from jsonschema_specifications import REGISTRY

                # An explicit registry: with the default one jsonschema fetches what it does not know.
                self._validator = validator_class(self.schema)(self.schema, registry=REGISTRY)
            return self._validator

    def problems(self) -> list[Found]:
        """What is wrong with the schema itself."""
        if self._quick is not None:
            return []
        from evalkit.functions.schemaproblems import problems_of

        return problems_of(self.schema) or list(self._endless())

    def _endless(self) -> Iterator[Found]:
        try:
            list(self._full().iter_errors({}))
        except RecursionError:
            yield (), "it refers to itself without end"
        except Exception as error:
            yield (), f"it cannot be used: {type(error).__name__}: {error}"


_COMPILED: dict[str, CompiledSchema] = {}


def compiled(schema: Mapping[str, Any]) -> CompiledSchema:
    """The compiled form of `schema`: the same object for every equal schema in this process."""
    key = json.dumps(schema, sort_keys=True, default=repr)
    found = _COMPILED.get(key)
    if found is None:
        found = _COMPILED.setdefault(key, CompiledSchema(schema))
    return found


def validator_class(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)
