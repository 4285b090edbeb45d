"""The JSON Schema of run files, generated from the records themselves. Shipped as run.schema.json, tested current."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from msgspec.structs import fields

from evalkit.model.run import RUN_VERSION, Run
from evalkit.model.verdict import STATUSES

_SCALAR_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def build_run_schema() -> dict[str, Any]:
    """Draft 2020-12. Keys that a later minor version adds are allowed; the version itself is not."""
    definitions: dict[str, Any] = {}
    root = _build_record_schema(Run, definitions)
    definitions["Verdict"]["properties"]["status"] = {"enum": list(STATUSES)}
    definitions["Run"]["properties"]["version"] = {"const": RUN_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "evalkit run file",
        "description": "All verdicts of one run of evalkit, as written by `pytest --evalkit`.",
        **root,
        "$defs": definitions,
    }


def _build_record_schema(cls: type[Struct], definitions: dict[str, Any]) -> dict[str, Any]:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        hints = get_type_hints(cls)
        complete = not cls.__struct_config__.omit_defaults
        definitions[cls.__name__] = {
            "type": "object",
            "description": " ".join((cls.__doc__ or "").split("\n\n")[0].split()),
            "properties": {f.name: _build_schema(hints[f.name], definitions) for f in fields(cls)},
            "required": [f.name for f in fields(cls) if complete],
        }
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _build_schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALAR_TYPES:
        return {"type": _SCALAR_TYPES[hint]}
    if origin in (Union, types.UnionType):
        inner = [_build_schema(argument, definitions) for argument in arguments if argument is not type(None)]
        return {"anyOf": [*inner, {"type": "null"}]}
    if origin is tuple:
        return {"type": "array", "items": _build_schema(arguments[0], definitions)}
    if origin is Mapping:
        return {"type": "object"}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _build_record_schema(hint, definitions)
    return {}
