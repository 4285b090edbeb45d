"""Streams of thousands of calls take time in proportion to their length."""

from __future__ import annotations

import time

import evalkit


def test_thousands_of_calls_as_text_are_taken_in_time_in_proportion() -> None:
    piece = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>\n'
    accumulator = evalkit.StreamAccumulator()
    since = time.process_time()
    count = 0
    for _ in range(3000):
        accumulator.feed_text(piece)
        count += len(accumulator.take())
    accumulator.close()

    assert count + len(accumulator.take()) == 3000
    assert time.process_time() - since < 20
