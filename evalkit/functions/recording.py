"""Mocks out of calls of the real function: what it returned, as the answer that a mock file holds, and its schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evalkit.errors import UsageError
from evalkit.functions.callables import wait_for
from evalkit.functions.jsondata import NotJsonError, as_json
from evalkit.functions.targets import TargetError, find
from evalkit.operators.shown import shown

_EXAMPLE = "shop.clients:WarrantyClient.check"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of the real function, and what it returned, as JSON data."""

    arguments: Mapping[str, Any]
    result: Any


def real_function(target: str) -> Callable[..., Any]:
    """What `target` (``module:function``, ``module:Class.method``) names, ready to be called.

    A method is that of an instance made without arguments. Raises UsageError where there is nothing to call.
    """
    try:
        found = find(target, _EXAMPLE)
    except TargetError as error:
        raise UsageError(f"{target}: {error}") from None
    function: Any = found.value
    if isinstance(found.owner, type) and inspect.isfunction(inspect.getattr_static(found.owner, found.name)):
        try:
            function = getattr(found.owner(), found.name)
        except Exception as error:
            why = f"{found.owner.__name__}() raised {type(error).__name__}: {error}"
            raise UsageError(f"{target}: {why}; name a function that makes the call") from error
    if not callable(function):
        raise UsageError(f"{target}: it is not callable")
    return function  # type: ignore[no-any-return]


def record(target: str, calls: Iterable[Mapping[str, Any]]) -> list[RecordedCall]:
    """Call `target` with each mapping of arguments by name. UsageError if one raises or returns something not JSON."""
    function = real_function(target)
    made = []
    for arguments in calls:
        what = f"{target}({', '.join(f'{name}={shown(value, 40)}' for name, value in arguments.items())})"
        try:
            result = function(**arguments)
            result = wait_for(result) if inspect.isawaitable(result) else result
        except Exception as error:
            raise UsageError(f"{what} raised {type(error).__name__}: {error}; nothing was written") from error
        try:
            made.append(RecordedCall(dict(arguments), as_json(result)))
        except NotJsonError as error:
            raise UsageError(f"{what} returned something else than JSON: {error}; nothing was written") from None
    return made


def answer_of(calls: Sequence[RecordedCall]) -> Any:
    """The mock of these calls: the result of the only one, else a rule by arguments for each."""
    if len(calls) == 1:
        return as_data(calls[0].result)
    for call in calls:
        if has_syntax(call.arguments):
            raise UsageError(
                f"{shown(dict(call.arguments), 60)} holds '$' keys or '{{{{', which mean something in 'when'"
            )
    rules = {repr(call.arguments): call for call in calls}  # the same call made twice: its last result
    return {"$match": [{"when": dict(one.arguments), "$return": as_data(one.result)} for one in rules.values()]}


def as_data(result: Any) -> Any:
    """`result` as a mock returns it unchanged, whatever mocks understand by its keys and braces."""
    return {"$literal": result} if has_syntax(result) else result


def has_syntax(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, Mapping):
        return any(key.startswith("$") or has_syntax(item) for key, item in value.items())
    return isinstance(value, list) and any(map(has_syntax, value))


def returns_schema(results: Iterable[Any], known: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A JSON Schema that all `results` fit, and all that fit `known`, an earlier schema of this function."""
    from genson import SchemaBuilder

    builder = SchemaBuilder(schema_uri=_DIALECT)
    if known:
        builder.add_schema({key: value for key, value in known.items() if key != "$schema"})
    for result in results:
        builder.add_object(result)
    return dict(builder.to_schema())
