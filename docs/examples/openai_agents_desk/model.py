"""Stands for the desk's model, so that the example runs without a key: a model of the SDK's interface."""

from __future__ import annotations

import json
import re
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class Scripted(Model):
    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        mail = input[0]["content"]
        results = [item["output"] for item in input if item.get("type") == "function_call_output"]
        serial_number = re.findall(r"SN\d+", mail)[0]
        status = "valid" if results and "'valid'" in results[0] else "expired"
        if not results:
            output = call("check_warranty", serial_number=serial_number)
        elif len(results) == 1:
            output = call("send_reply", to=re.findall(r"\S+@\S+", mail)[0], body=f"{serial_number} is {status}.")
        else:
            output = say(f"answered: {status}")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("the example does not stream")


def call(name: str, **arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(type="function_call", call_id=name, name=name, arguments=json.dumps(arguments))


def say(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="1", type="message", role="assistant", status="completed", content=[part])


scripted = Scripted()
