"""The examples of docs/cassettes.md are read by the code that they describe."""

from __future__ import annotations

import re
from pathlib import Path

from evalkit.providers import parse_cassette
from evalkit.providers.gemini import GeminiOptions
from evalkit.providers.turns import FINISH_REASONS, TURN_KEYS
from evalkit.yamlfile import load

PAGE = Path(__file__).parents[2] / "docs" / "cassettes.md"


def test_the_cassette_on_the_page_is_one() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    cassette, problems = parse_cassette(load(example, "docs/cassettes.md"))

    assert problems == []
    assert len(cassette.turns) == 3


def test_the_page_names_every_key_finish_reason_and_option() -> None:
    page = PAGE.read_text(encoding="utf-8")
    keys = [*(key for key in TURN_KEYS if key != "finish_message"), *FINISH_REASONS]
    options = [name for name in GeminiOptions.__dataclass_fields__ if name != "api_key"]

    assert [name for name in [*keys, *options] if f"`{name}`" not in page] == []
