"""What an MCP server answers, as the result of a call: held against what the protocol and the tool promise.

An answer that breaks a promise is a BrokenContractError: the case fails, whatever it expects.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import math
from typing import TYPE_CHECKING

from evalkit.errors import FunctionError, format_path
from evalkit.features.mcp.spec import PARSED, WHOLE
from evalkit.functions.call_log import BrokenContractError
from evalkit.functions.declarations import find_return_problems
from evalkit.jsonvalue import JsonDict, JsonObject, parse_strictly, walk_leaves
from evalkit.text.format import format_value, join_names

if TYPE_CHECKING:
    from mcp.types import CallToolResult

_MOST_PROBLEMS = 3  # of an answer, in a message


def read_result(label: str, name: str, result: CallToolResult, form: str, output_schema: JsonObject | None) -> object:
    """Return what the tool `name` answered, in the form that the case asks for. Raises FunctionError where it failed.

    `label` is the server in messages, `output_schema` what the tool has declared of its structured content.
    """
    content = [describe_content(block.model_dump(mode="json", by_alias=True)) for block in result.content]
    texts = [str(block["text"]) for block in content if block["type"] == "text"]
    structured = result.structured_content
    # The JSON reader of `mcp` lets NaN and numbers that are too large through, and a schema takes them for numbers.
    for path, value in walk_leaves(structured):
        if isinstance(value, float) and not math.isfinite(value):
            place = format_path(("structuredContent", *path))
            raise BrokenContractError(
                "invalid_result", f"{label} answered {name} with {place}: {value}, which is not JSON"
            )
    if result.is_error:
        extras: JsonDict = {} if structured is None else {"structured": structured}
        extras |= {"content": content} if form == WHOLE else {}
        raise FunctionError("tool_error", "\n".join(texts) or f"{name} failed and says nothing", **extras)
    if output_schema is not None:
        _check_output(label, name, structured, output_schema)
    if form == WHOLE:
        return {"content": content, "structuredContent": structured, "isError": False}
    if structured is not None:
        return structured
    if len(texts) < len(content):
        return {"content": content}
    text = "\n".join(texts)
    return _parse_text(text) if form == PARSED else text


def _check_output(label: str, name: str, structured: object, output_schema: JsonObject) -> None:
    promise = f"{label} breaks the outputSchema that it declares for {name}"
    if structured is None:
        raise BrokenContractError("invalid_result", f"{promise}: its answer has no structuredContent")
    for path, message in find_return_problems(structured, output_schema):
        place = format_path(("structuredContent", *path))
        raise BrokenContractError("invalid_result", f"{promise}: {place}: {message}")


def _parse_text(text: str) -> object:
    """Return the JSON object or list that a text is, else the text."""
    try:
        value = parse_strictly(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict | list) else text


def describe_content(block: JsonDict) -> JsonDict:
    """Describe a block of a tool's result: texts as they are, images and files by their type, size and hash."""
    described = {key: value for key, value in block.items() if value is not None}
    if isinstance(described.get("resource"), dict):
        described["resource"] = describe_content(described["resource"])
    for key in ("data", "blob"):
        if isinstance(described.get(key), str):
            encoded = described.pop(key)
            try:
                data = base64.b64decode(encoded, validate=True)
            except binascii.Error:
                raise BrokenContractError("invalid_result", f"'{key}' of a tool's result is not base64") from None
            described |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return described


def explain_invalid_answer(error: ValueError) -> str:
    """Word what pydantic says of an answer that is none, of each block only for the type that it names."""
    from pydantic import ValidationError  # comes with `mcp`

    if not isinstance(error, ValidationError):
        return str(error)
    problems = error.errors(include_url=False, include_context=False)
    other_types = {
        problem["loc"][:-1]
        for problem in problems
        if problem["loc"][-1:] == ("type",) and problem["type"] == "literal_error"
    }
    of_its_type = [problem for problem in problems if problem["loc"][:-1] not in other_types]
    if not of_its_type:
        block = problems[0]["loc"][:2]
        kind = next(problem["input"] for problem in problems if problem["loc"][-1] == "type")
        return f"{format_path(block)}: there is no block of the type {format_value(kind)}"
    # Between the parts of a place stands the name of the class that pydantic tried.
    places = [tuple(part for part in each["loc"] if not str(part)[:1].isupper()) for each in of_its_type]
    listed = [f"{format_path(place)}: {each['msg']}" for place, each in zip(places, of_its_type, strict=True)]
    return join_names(listed, _MOST_PROBLEMS, "; ")
