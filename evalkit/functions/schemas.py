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

KeyPath = tuple[str | int, ...]
SchemaProblem = tuple[KeyPath, str]  # where in the schema, and what is wrong there


class CompiledSchema:
    """One schema, ready to judge values. Thread-safe; what it needs beyond the quick test is made when first needed."""

    __slots__ = ("_lock", "_quick", "_validator", "schema")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.schema = schema
        self._quick = compile_quick(schema)
        self._validator: Any = None
        self._lock = threading.Lock()

    def is_valid(self, value: Any) -> bool:
        """Whether `value` is valid."""
        if self._quick is not None and self._quick(value):
            return True
        return next(self._iter_errors(value), None) is None

    def find_errors(self, value: Any) -> list[ValidationError]:
        """Every violation, in order of its path in the value; empty iff `value` is valid."""
        if self._quick is not None and self._quick(value):
            return []
        return sorted(self._iter_errors(value), key=lambda error: [str(step) for step in error.absolute_path])

    def _iter_errors(self, value: Any) -> Iterator[ValidationError]:
        from jsonschema.exceptions import ValidationError

        try:
            yield from self._get_validator().iter_errors(value)
        except Exception as error:  # an unresolvable or endless reference behind an `if` that no sample reached
            yield ValidationError(f"could not be checked: {type(error).__name__}: {error}")

    def _get_validator(self) -> Any:
        with self._lock:
            if self._validator is None:
                from jsonschema_specifications import REGISTRY

                # An explicit registry: with the default one jsonschema fetches what it does not know.
                self._validator = get_validator_class(self.schema)(self.schema, registry=REGISTRY)
            return self._validator

    def find_problems(self) -> list[SchemaProblem]:
        """What is wrong with the schema itself."""
        if self._quick is not None:
            return []
        from evalkit.functions.schemaproblems import find_schema_problems

        return find_schema_problems(self.schema) or list(self._find_endless_reference())

    def _find_endless_reference(self) -> Iterator[SchemaProblem]:
        try:
            list(self._get_validator().iter_errors({}))
        except RecursionError:
            yield (), "it refers to itself without end"
        except Exception as error:
            yield (), f"it cannot be used: {type(error).__name__}: {error}"


_COMPILED: dict[str, CompiledSchema] = {}


def compile_schema(schema: Mapping[str, Any]) -> CompiledSchema:
    """The compiled form of `schema`: the same object for every equal schema in this process."""
    key = json.dumps(schema, sort_keys=True, default=repr)
    compiled_schema = _COMPILED.get(key)
    if compiled_schema is None:
        compiled_schema = _COMPILED.setdefault(key, CompiledSchema(schema))
    return compiled_schema


def get_validator_class(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return validator_for(schema, default=Draft202012Validator)
