"""An item of a streamed reply of OpenAI's responses: what came of it in pieces."""

from __future__ import annotations

from evalkit.jsonvalue import JsonDict, JsonObject, join_pieces

# Pieces of arguments: the event, and the key of the item that they are pieces of.
PIECES = {
    "response.function_call_arguments": "arguments",
    "response.mcp_call_arguments": "arguments",
    "response.mcp_call.arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.code_interpreter_call_code": "code",
}


class StreamedItem:
    """An item of a streamed output, as far as it has come."""

    def __init__(self, number: int) -> None:
        self.number = number  # in the order in which they began
        self.is_whole = False
        self._item: JsonDict = {}
        self._pieces: dict[str, list[str]] = {}  # key of the item -> what came of its value
        self._texts: dict[object, list[str]] = {}  # of a message's parts

    def set(self, item: JsonObject, *, is_whole: bool) -> None:
        self._item = dict(item)
        self.is_whole = self.is_whole or is_whole

    def add_piece(self, key: str, event: JsonObject, *, is_whole: bool) -> None:
        if is_whole:
            self._pieces[key] = [str(event.get(key) or "")]
            self.is_whole = True
        else:
            self._pieces.setdefault(key, []).append(str(event.get("delta") or ""))

    def add_text(self, event: JsonObject) -> None:
        self._texts.setdefault(event.get("content_index"), []).append(str(event.get("delta") or ""))

    def build(self) -> JsonDict:
        """Build the item as it would have come whole."""
        item = {**self._item, **{key: join_pieces(pieces) for key, pieces in self._pieces.items()}}
        if self._texts and not item.get("content"):
            parts = [{"type": "output_text", "text": join_pieces(pieces)} for pieces in self._texts.values()]
            item = {"type": "message", "role": "assistant", **item, "content": parts}
        return item
