"""`peek` finds what `load` finds under one key of the top mapping."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.yamlfile.parse import ABSENT, load, read_key
from evalkit.yamlfile.write import dump

TEXTS = {
    "a list": "a: 1\ntags: [x, y]\nb: 2\n",
    "a block list": "a: {b: [1, {tags: no}]}\ntags:\n- x\n- y\n",
    "text": "tags: smoke\n",
    "a number": "tags: 5",
    "null": "tags:\nb: 2",
    "absent": "a: {tags: [x]}\n",
    "absent, at the end": "a: 1\nb:\n- tags: x\n",
    "an empty mapping": "{}",
    "JSON": '{"a": {"tags": 1}, "tags": ["x"]}',
    "an escaped key": '{"t\\u0061gs": ["x"]}',
    "an explicit key": "? tags\n: [x]\n",
    "an alias as value": "a: &it [x]\ntags: *it\n",
    "an alias as key": "a: &it tags\n*it : [x]\n",
    "merged": "a: &it {tags: [x]}\n<<: *it\n",
    "merged, and its own before": "tags: [y]\na: &it {tags: [x]}\n<<: *it\n",
    "an anchor at the key": "a: 1\n&it tags: [x]\n",
    "after a line that looks like it": 'a: "one\ntags: [no]"\ntags: [x]\n',
    "beyond the old line breaks": "a: one\u2028tags\ntags: [x\u0085y]\n",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_value_is_the_one_that_loading_gives(text: str) -> None:
    assert read_key(text.encode(), "tags") == load(text, "x.yaml").get("tags", ABSENT)


@pytest.mark.parametrize("text", ["", "# nothing", "[tags, x]", "just text", "a: ]", "a: 1\n\ttags: x"])
def test_what_holds_no_mapping_or_breaks_off_before_it_has_none(text: str) -> None:
    assert read_key(text.encode(), "tags") is ABSENT


def test_bytes_that_are_no_text_have_none() -> None:
    assert read_key(b"tags: \xff", "tags") is ABSENT


def test_a_text_is_read_no_further_than_the_key() -> None:
    assert read_key(b"tags: [x]\nb: ]", "tags") == ["x"]


DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "tags", "b"]), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "tags", "b", "<<"]), DATA, max_size=4))
def test_so_it_is_for_any_mapping(data: dict[str, Any]) -> None:
    assert read_key(dump(data).encode(), "tags") == data.get("tags", ABSENT)
