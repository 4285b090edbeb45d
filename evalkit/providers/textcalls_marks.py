"""Calls behind marks: Mistral's ``[TOOL_CALLS]``, Llama's ``<|python_tag|>`` and lists in Python's syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from evalkit.providers.textcalls_envelopes import BETWEEN, LIST_OF_CALLS, SPACE, Envelopes
from evalkit.providers.textcalls_names import RejectedCallError
from evalkit.providers.textcalls_python import NotACallError, find_balanced_end

_MISTRAL = re.compile(r"\s*([A-Za-z_][\w.-]*)(?:\[CALL_ID\][\w-]+)?(?:\[ARGS\])?\s*(?=\{)")
_MISTRAL_AGAIN = re.compile(r"\s*+(?:\[TOOL_CALLS\])?(?=\s*[A-Za-z_][\w.-]*(?:\[|\{))")
_PYTHONIC = re.compile(r"\[|[A-Za-z_][\w.]*[ \t]*\(")
_PYTHON_END = re.compile(r"\s*<\|python_end\|>")


class Marks(Envelopes):
    """Readers of calls that a mark begins, and nothing ends."""

    def _read_mistral(self, start: int, position: int) -> int:
        begin = start  # each call is kept as it is read: the next one may be cut off
        while True:
            named = _MISTRAL.match(self.text, position)
            space = SPACE.match(self.text, position)
            first = named.end() if named else space.end() if space else position
            if not self.text.startswith(("{", "["), first):
                return position if begin == start else begin
            value, end, notes = self._decode_json(begin, first, "")
            if value is None:
                return position if begin == start else begin
            try:
                calls = self._read_calls(value, notes, explicit=True, named=named[1] if named else None)
            except RejectedCallError as refused:
                self._refuse(begin, end, str(refused))
                return end
            begin = self._add(begin, end, calls)
            again = _MISTRAL_AGAIN.match(self.text, end)
            if again is None:
                return begin
            position = again.end()

    def _read_python_tag(self, start: int, position: int) -> int:
        space = SPACE.match(self.text, position)
        first = space.end() if space else position
        if not self.text.startswith("{", first):
            return self._read_pythonic(start, first, explicit=True) or position
        begin = start
        for value, end, notes in self._read_json_values(start, first):
            try:
                calls = self._read_calls(value, notes, explicit=True)
            except RejectedCallError as refused:
                self._refuse(begin, end, str(refused))
                return end
            begin = position = self._add(begin, end, calls)
        return position

    def _read_json_values(self, start: int, first: int) -> Iterator[tuple[Any, int, list[str]]]:
        while self.text.startswith("{", first):
            value, end, notes = self._decode_json(start, first, "")
            if value is None:
                return
            yield value, end, notes
            start = end
            between = BETWEEN.match(self.text, end)
            first = between.end() if between else end

    def _read_pythonic(self, start: int, first: int, *, explicit: bool) -> int | None:
        """`[f(a=1), g()]` or `f(a=1)` at `first`."""
        opener = _PYTHONIC.match(self.text, first)
        if opener is None:
            return None
        end, read = find_balanced_end(self.text, opener.end() - 1)
        self._spend(read)
        if end is None:
            if explicit and LIST_OF_CALLS.match(self.text, first):
                self._leave_unfinished(start)
            self._mark_open(start)
            return None
        try:
            calls = self.forms.read_python(self.text[first:end], explicit=explicit)
        except NotACallError:
            return None
        except RejectedCallError as refused:
            if explicit:
                self._refuse(start, end, str(refused))
            return end
        tail = _PYTHON_END.match(self.text, end)
        return self._add(start, tail.end() if tail else end, calls)
