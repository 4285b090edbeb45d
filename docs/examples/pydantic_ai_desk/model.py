"""Stands for the desk's model, so that the example runs without a key: pydantic-ai's own kind of test model."""

from __future__ import annotations

import json
import re

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    mail = str(messages[0].parts[-1].content)
    serial_number = re.findall(r"SN\d+", mail)[0]
    if len(messages) == 1:
        return ModelResponse([ToolCallPart("check_warranty", {"serial_number": serial_number})])
    status = messages[2].parts[0].content["status"]
    if len(messages) == 3:
        customer = re.findall(r"\S+@\S+", mail)[0]
        return ModelResponse(
            [ToolCallPart("send_reply", json.dumps({"to": customer, "body": f"{serial_number} is {status}."}))]
        )
    return ModelResponse([TextPart(f"answered: {status}")])


scripted = FunctionModel(reply)
