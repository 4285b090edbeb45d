"""From a ModelRequest to what google-genai is given: contents as wire JSON, and the config's fields.

Function parameters go out as ``parameters_json_schema``, which the API takes as plain JSON Schema; the client's own
`parameters` would refuse ``oneOf``, ``const`` and ``$ref``. A model turn goes back as it came, part by part, because
thought signatures and their positions are checked by the service.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from evalkit.errors import UsageError
from evalkit.model.case import Declaration
from evalkit.model.transcript import ModelCall, ModelRequest, ModelTurn

FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
# What the API accepts in place of the signature of a call that another model (or a person) made.
FOREIGN_SIGNATURE = base64.b64encode(b"skip_thought_signature_validator").decode()


def build_contents(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation in the API's form. A reply of which nothing came (blocked, empty) is left out: the API takes no
    content without parts."""
    return [_build_content(message) for message in messages if not _is_empty(message)]


def _is_empty(message: Mapping[str, Any]) -> bool:
    turn = message.get("turn")
    if message.get("role") != "model" or turn is None:
        return False
    parts = turn.content.get("parts") if isinstance(turn.content, Mapping) else None
    return not (parts or turn.text or turn.calls)


def _build_content(message: Mapping[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if role == "user":
        return {"role": "user", "parts": [{"text": message["text"]}]}
    if role == "model":
        return _build_model_content(message["turn"])
    if role == "function":
        return {"role": "user", "parts": [_build_response_part(call, value) for call, value in message["results"]]}
    raise UsageError(f"a message's role is user, model or function, got {role!r}")


def _build_model_content(turn: ModelTurn) -> dict[str, Any]:
    if isinstance(turn.content, Mapping) and turn.content.get("parts"):
        return {**turn.content, "parts": [_clean_part(part) for part in turn.content["parts"]]}
    parts: list[dict[str, Any]] = [{"text": turn.text}] if turn.text else []
    parts += [_build_call_part(call, first=index == 0) for index, call in enumerate(turn.calls)]
    return {"role": "model", "parts": parts}


def _clean_part(part: Any) -> Any:
    """`part` as it came; but arguments that are no object are none, for the API takes no others."""
    call = part.get("functionCall") if isinstance(part, Mapping) else None
    if not isinstance(call, Mapping) or call.get("args") is None or isinstance(call["args"], Mapping):
        return part
    return {**part, "functionCall": {**call, "args": {}}}


def _build_call_part(call: ModelCall, *, first: bool) -> dict[str, Any]:
    arguments = call.arguments if isinstance(call.arguments, Mapping) else {}
    part: dict[str, Any] = {"functionCall": {"name": call.name, "args": dict(arguments)}}
    if call.call_id is not None:
        part["functionCall"]["id"] = call.call_id
    if first:
        part["thoughtSignature"] = FOREIGN_SIGNATURE
    return part


def _build_response_part(call: ModelCall, value: Any) -> dict[str, Any]:
    failed = isinstance(value, Mapping) and set(value) == {"error"}
    response: dict[str, Any] = {"name": call.name, "response": dict(value) if failed else {"output": value}}
    if call.call_id is not None:
        response["id"] = call.call_id
    return {"functionResponse": response}


def build_declarations(functions: Sequence[Declaration]) -> list[dict[str, Any]]:
    """The declarations as keyword arguments of ``types.FunctionDeclaration``. UsageError for a name Gemini refuses."""
    return [_build_declaration(function) for function in functions]


def _build_declaration(function: Declaration) -> dict[str, Any]:
    if FUNCTION_NAME.fullmatch(function.name) is None:
        raise UsageError(
            f"Gemini takes no function named '{function.name}': names begin with a letter or _, go on with letters, "
            "digits and _.:-, and have at most 128 characters"
        )
    declared: dict[str, Any] = {"name": function.name, "description": function.description or None}
    if function.parameters is not None:
        declared["parameters_json_schema"] = dict(function.parameters)
    return declared


def build_config_fields(request: ModelRequest) -> dict[str, Any]:
    """Keyword arguments of ``types.GenerateContentConfig``, tools aside; what the request leaves open is left out."""
    config: dict[str, Any] = {
        "system_instruction": request.system,
        "temperature": request.temperature,
        "seed": request.seed,
        "max_output_tokens": request.max_output_tokens,
    }
    if request.response_schema is not None:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = dict(request.response_schema)
    return {key: value for key, value in config.items() if value is not None}
