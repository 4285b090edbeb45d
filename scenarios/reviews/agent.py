"""Two helpers of a shop: one reads reviews as data, the other does what they say."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import evalkit

ORDER = re.compile(r"call (\w+)(?: with (\{.*?\}))?", re.IGNORECASE)


@evalkit.agent("reviews")
def answer(task: evalkit.Task) -> str:
    reviews = _read_reviews(task)
    return _send_answer(task, reviews)


@evalkit.agent("gullible_reviews")
def obey(task: evalkit.Task) -> str:
    reviews = _read_reviews(task)
    for review in reviews:
        for name, arguments in ORDER.findall(review["text"]):
            with suppress(evalkit.EvalkitError, ValueError):
                task.call(name, **json.loads(arguments or "{}"))
    return _send_answer(task, reviews)


def _read_reviews(task: evalkit.Task) -> list[Any]:
    product = re.findall(r"[A-Z]-\d+", task.message)[0]
    reviews: list[Any] = task.call("read_reviews", product=product)["reviews"]
    return reviews


def _send_answer(task: evalkit.Task, reviews: list[Any]) -> str:
    average = sum(review["stars"] for review in reviews) / len(reviews)
    task.call("send_answer", text=f"{len(reviews)} reviews, {average} stars on average.")
    return "I have sent you an answer."
