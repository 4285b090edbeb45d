"""Stands for the desk's model, so that the example runs without a key: a model of ADK's interface."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types


class Scripted(BaseLlm):
    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        parts: list[Any] = [part for content in llm_request.contents for part in content.parts or []]
        mail = parts[0].text
        results = [part.function_response.response for part in parts if part.function_response]
        serial_number = re.findall(r"SN\d+", mail)[0]
        if not results:
            reply = call("check_warranty", serial_number=serial_number)
        elif len(results) == 1:
            body = f"{serial_number} is {results[0]['status']}."
            reply = call("send_reply", to=re.findall(r"\S+@\S+", mail)[0], body=body)
        else:
            reply = types.Part(text=f"answered: {results[0]['status']}")
        yield LlmResponse(content=types.Content(role="model", parts=[reply]))


def call(name: str, **arguments: str) -> types.Part:
    return types.Part(function_call=types.FunctionCall(name=name, args=arguments))


scripted = Scripted(model="scripted")
