"""The labelled set of secrets and of strings that are none: what the redactor finds, and what it must leave alone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from evalkit.text.redact import Redactor, find_secrets

ROWS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parent / "secrets.jsonl").read_text("utf-8").splitlines()
]
SECRETS = [row for row in ROWS if "secret" in row]
HARMLESS = [row for row in ROWS if "secret" not in row]
_PART = 8  # so many characters of a secret are a leak


def redact(row: dict[str, Any]) -> str:
    environment = row.get("environment", {})
    text = "".join(f"it prints {value}" for value in environment.values()) or row["text"]
    return Redactor(find_secrets(environment))(text)


def is_hidden(row: dict[str, Any]) -> bool:
    secret, clean = row["secret"], redact(row)
    size = min(_PART, len(secret))
    return not any(secret[start : start + size] in clean for start in range(len(secret) - size + 1))


def test_all_but_one_of_the_secrets_are_hidden() -> None:
    """docs/reports.md has these figures."""
    missed = [row["text"] for row in SECRETS if not is_hidden(row)]

    assert len(SECRETS) == 129
    assert [text.partition(":")[0] for text in missed] == ["credentials"]


def test_nothing_harmless_is_hidden() -> None:
    assert len(HARMLESS) == 155
    assert [row["text"] for row in HARMLESS if redact(row) != row["text"]] == []


def test_what_is_redacted_stays_as_it_is() -> None:
    for row in SECRETS:
        clean = redact(row)
        assert Redactor()(clean) == clean


@pytest.mark.parametrize("unit", ["key-", "xai-", "pul-", "--password=", "login ", "Cookie: a=", "://", "token = "])
def test_beginnings_of_secrets_again_and_again_take_time_in_proportion(unit: str) -> None:
    """`key-` took seconds for 80 kB: from each beginning the text was read to its end."""
    text = unit * (80_000 // len(unit))
    since = time.process_time()

    Redactor()(text)

    assert time.process_time() - since < 5
