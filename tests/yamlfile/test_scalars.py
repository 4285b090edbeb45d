"""What a plain scalar means, by table: JSON's types and nothing by surprise."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.errors import SpecError
from evalkit.yamlfile.parse import load

TEXTS = """
    yes no on off y n Yes NO On OFF tRUE nULL None none undefined
    012 00 -01 007.5 +5 +0.5 .5 5. -- 1e5 1E5 1.5e3 -2e-7 1_000 1,000 0x1F 0o17 0b11 0x .inf -.inf .nan inf NaN
    12:30 12:30:45 190:20:30 2026-01-18 2026-01-18T10:00:00Z 1.2.3 127.0.0.1 SN12345 12E5 12e3a = +48 5% 1/2 5kg
    << <<< 123abc 0.1.0 1- 10-12
"""
PLAIN: list[tuple[str, Any]] = [
    ("true", True),
    ("false", False),
    ("True", True),
    ("FALSE", False),
    ("null", None),
    ("Null", None),
    ("~", None),
    ("", None),
    ("0", 0),
    ("-0", 0),
    ("5", 5),
    ("-17", -17),
    ("5.0", 5.0),
    ("-0.25", -0.25),
    ("123456789012345678901234567890", 123456789012345678901234567890),
    *((text, text) for text in TEXTS.split()),
]


@pytest.mark.parametrize(("text", "value"), PLAIN)
def test_a_plain_scalar_means(text: str, value: Any, parser: str) -> None:
    (got,) = load(f"- {text}\n", "f.yaml")
    assert (type(got), got) == (type(value), value)


@pytest.mark.parametrize("text", sorted({text for text, value in PLAIN if text}))
@pytest.mark.parametrize("quote", ["'", '"'])
def test_a_quoted_scalar_is_text(text: str, quote: str, parser: str) -> None:
    assert load(f"- {quote}{text}{quote}\n", "f.yaml") == [text]


@pytest.mark.parametrize("style", ["|", ">", "|-", ">-"])
def test_a_block_scalar_is_text(style: str, parser: str) -> None:
    assert load(f"a: {style}\n  12\n", "f.yaml") in ({"a": "12"}, {"a": "12\n"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("!!str 12", "12"),
        ("!!str", ""),
        ("! 12", "12"),
        ('!!int "12"', 12),
        ("!!int 0x1F", 31),
        ("!!int 0o17", 15),
        ("!!int 012", 12),
        ("!!float 5", 5.0),
        ("!!float 1e3", 1000.0),
        ("!!bool 'true'", True),
        ("!!null ''", None),
        ("!!seq [1]", [1]),
        ("!!map {a: 1}", {"a": 1}),
        ("!<tag:yaml.org,2002:str> 5", "5"),
    ],
)
def test_a_core_tag_is_honoured(text: str, value: Any, parser: str) -> None:
    (got,) = load(f"- {text}\n", "f.yaml")
    assert (type(got), got) == (type(value), value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!int abc", "'abc' is no !!int"),
        ("!!float .inf", "'.inf' is no !!float"),
        ("!!bool yes", "'yes' is no !!bool"),
        ("!!null no", "'no' is no !!null"),
        ("!!float 1e999", "number 1e999 is too large; quote it if it is text"),
        ("9" * 400 + ".0", "number 999999999999999999999999999999… is too large; quote it if it is text"),
        ("9" * 4001, "a number of 4001 digits is too long; quote it if it is text"),
    ],
)
def test_a_scalar_that_is_not_what_it_says_is_a_problem(text: str, message: str, parser: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(f"- {text}\n", "f.yaml")
    assert str(caught.value) == f"f.yaml:1:3: {message}"


_JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")


@given(st.text("0123456789-+.eExo_:", min_size=1, max_size=8))
def test_a_plain_scalar_is_a_number_iff_it_is_a_json_number_without_exponent(text: str) -> None:
    try:
        (got,) = load(f"- {text}\n", "f.yaml")
    except SpecError:
        return  # "- - 1" and the like are no scalars
    if isinstance(got, (int, float)):
        assert _JSON_NUMBER.fullmatch(text)
        assert got == json.loads(text)
    elif isinstance(got, str):
        assert got == text
        assert not _JSON_NUMBER.fullmatch(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_as_json_writes_it_is_read_as_json_reads_it(value: float) -> None:
    text = json.dumps(value)
    (got,) = load(f"[{text}]", "f.yaml")
    assert got == (text if "e" in text else value)
    assert "e" in text or math.copysign(1, got) == math.copysign(1, value)
