"""`dump` writes what `load` reads back, what other YAML readers do not misread, and what a person can read."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evalkit.errors import UsageError
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.write import dump

ODD = (
    "yes no on null ~ true 12 012 1e5 0x1F 12:30 2026-01-18 - : # a:b a: b #c !x &x *x | > ' \" [ ] { } , % @ ` ? = <<"
)
TEXT = st.one_of(
    st.text(max_size=12),
    st.text(" \t\n\r:#-'\"[]{},&*!|>%@`~\\\x85\u2028\ufeff\x00é", max_size=8),
    st.sampled_from(ODD.split(" ")),
    st.text("ab \n\t", max_size=14),
)
SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXT)
DATA = st.recursive(SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))


def typed(value: Any) -> Any:
    """`value` with its types, so that `1`, `1.0` and `True` differ."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (type(value).__name__, repr(value))


@settings(max_examples=400)
@given(DATA)
@example({"a": "x\n\n", "b": ["\n", " x\n", "\tx\ny", "x\n "]})
@example([[[], {}], [[1]], {"a": []}, ""])
@example({"k" * 200: {"k" * 1100: 1}, "": {"": ""}})
@example({"<<": 1, "a": {"<<": {"b": 1}}})
def test_what_is_dumped_loads_as_the_same_data(data: Any) -> None:
    assert typed(load(dump(data), "dump.yaml")) == typed(data)


@settings(max_examples=150)
@given(TEXT)
@example("2026-01-18")
@example("0o17")
def test_other_yaml_readers_read_dumped_text_as_the_same_text(text: str) -> None:
    assert yaml.safe_load(dump({"a": text})) == {"a": text}


def test_a_dumped_case_reads_well() -> None:
    data = {
        "description": "Ile to kosztuje, proszę? (pilne)",
        "tags": ["smoke", "12"],
        "input": {"message": "Hello,\n\n  my serial: SN1\n", "limits": [], "rate": 1e-7, "seed": 0},
        "calls": [{"name": "check", "arguments": {}}, [["x"], None]],
        "note": "two\nlines",
    }
    assert dump(data) == (
        'description: "Ile to kosztuje, proszę? (pilne)"\n'
        "tags:\n"
        "  - smoke\n"
        '  - "12"\n'
        "input:\n"
        "  message: |\n"
        "    Hello,\n"
        "\n"
        "      my serial: SN1\n"
        "  limits: []\n"
        "  rate: 0.0000001\n"
        "  seed: 0\n"
        "calls:\n"
        "  - name: check\n"
        "    arguments: {}\n"
        "  - - - x\n"
        "    - null\n"
        "note: |-\n"
        "  two\n"
        "  lines\n"
    )


@pytest.mark.parametrize("text", ["trailing \nspace", "tab\t\nend", "cr\r\nlf", "bell\x07\n", "nel\x85\n", "\ufeff\n"])
def test_text_whose_odd_characters_would_be_invisible_is_quoted(text: str) -> None:
    assert dump({"a": text}).startswith('a: "')
    assert load(dump({"a": text}), "f.yaml") == {"a": text}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (float("nan"), "can't write the data as YAML: nan is not JSON data"),
        ({"a": [0, float("inf")]}, "can't write a[1] as YAML: inf is not JSON data"),
        ({"a": {1: 2}}, "can't write a as YAML: key 1 is not text"),
        ({"a": "x\ud800"}, "can't write a as YAML: '\\ud800' is no character"),
        ({"a": {1, 2}}, "can't write a as YAML: {1, 2} is not JSON data"),
    ],
)
def test_what_yaml_cannot_express_is_refused_with_its_path(data: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        dump(data)
    assert str(caught.value) == message
