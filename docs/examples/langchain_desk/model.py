"""Stands for the desk's model, so that the example runs without a key: a chat model of LangChain's interface."""

from __future__ import annotations

import json
import re
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult


class Scripted(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        mail = next(str(message.text) for message in messages if message.type == "human")
        results = [json.loads(message.text) for message in messages if message.type == "tool"]
        serial_number = re.findall(r"SN\d+", mail)[0]
        if not results:
            reply = call("check_warranty", serial_number=serial_number)
        elif len(results) == 1:
            body = f"{serial_number} is {results[0]['status']}."
            reply = call("send_reply", to=re.findall(r"\S+@\S+", mail)[0], body=body)
        else:
            reply = AIMessage(f"answered: {results[0]['status']}")
        return ChatResult(generations=[ChatGeneration(message=reply)])


def call(name: str, **arguments: str) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": name}])


scripted = Scripted()
