"""Declarations that stand in many case files in the same words are parsed once, and every file gives what it says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from evalkit.spec import load
from evalkit.spec.load import load_case
from evalkit.yamlfile.parse import read

HEAD = 'description: It\'s a "case" [of ours]\ntags: [x, y-z]\n# a comment\n'
FUNCTIONS = """functions:
  look_up:
    description: >-
      one two
      three

    parameters: {type: object, properties: {a: {type: string}}}
"""
TAIL = """input:
  message: hi
  mock_function_responses: {look_up: 1}
expected_output: {expected_function_calls: [look_up]}
"""
# fmt: off
PIECES = (
    "'", '"', "[", "]", "{", "}", "&a ", "*a", "|\n", "|+\n\n", ">\n", "#", "\n", " ", "  ", "\t", "- ", ": ", "? ",
    "---\n", "...\n", "%YAML 1.1\n", "functions:\n", "functions: 1\n", "  f: 1\n", "\r", "\x85", "\u2028", "<<: ",
    "!x ", ",", "\\", "\0", "~", "a: 'x\n", "input: [\n",
)
# fmt: on


def test_equal_blocks_are_parsed_once_and_each_case_has_them_in_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str | bytes] = []

    def read_and_count(data: str | bytes, file: str) -> object:
        texts.append(data)
        return read(data, file)

    monkeypatch.setattr(load, "read", read_and_count)
    monkeypatch.setattr(load, "_BLOCKS", {})
    cases = []
    for number in (1, 2):
        path = tmp_path / f"hello_00{number}.yaml"
        path.write_text(HEAD + FUNCTIONS + TAIL.replace("hi", f"hi {number}"))
        cases.append(load_case(path, root=tmp_path))
    assert [b"one two" in bytes(text) for text in texts if isinstance(text, bytes)] == [True, False, False]
    assert [case.input["message"] for case in cases] == ["hi 1", "hi 2"]
    assert list(cases[1].merged) == ["description", "tags", "functions", "input", "expected_output"]
    assert cases[1].merged["functions"] is cases[0].merged["functions"]
    assert cases[1].functions[0].description == "one two three"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('note: "\n' + FUNCTIONS + '"\n' + TAIL, id="in a quoted text"),
        pytest.param(HEAD + "settings: &all {seed: 1}\n" + FUNCTIONS + TAIL, id="an anchor before it"),
        pytest.param(HEAD + FUNCTIONS.replace("string", "'string") + TAIL, id="a quote that is not closed"),
        pytest.param(HEAD + FUNCTIONS + TAIL + FUNCTIONS, id="twice"),
        pytest.param(HEAD + FUNCTIONS + "# a comment\n  send: {}\n" + TAIL, id="a comment in it"),
        pytest.param(HEAD.replace("\n", "\r", 1) + FUNCTIONS + TAIL, id="a line break of old"),
        pytest.param(HEAD + "functions:\n" + TAIL, id="empty"),
        pytest.param(HEAD + FUNCTIONS, id="the last key"),
    ],
)
def test_a_file_in_which_the_block_may_mean_something_else_is_parsed_whole(text: str) -> None:
    assert load._parse_around_functions(text.encode(), "hello_001.yaml") is None


@pytest.mark.parametrize("seed", range(20))
def test_texts_with_odd_pieces_have_the_value_that_parsing_the_whole_gives(seed: int) -> None:
    chance, shared = random.Random(seed), 0
    for _ in range(200):
        text = HEAD + FUNCTIONS + TAIL
        for _ in range(chance.choice([0, 1, 1, 2, 3])):
            place = chance.choice([place for place, char in enumerate(text) if char == "\n"]) + chance.choice([0, 1])
            place = chance.choice([place, chance.randrange(len(text))])
            text = text[:place] + chance.choice(PIECES) + text[place:]
        parsed = load._parse_around_functions(text.encode(), "hello_001.yaml")
        if parsed is not None:
            shared += 1
            whole = read(text.encode(), "hello_001.yaml")
            assert (
                (repr(parsed.value), parsed.problems) == (repr(whole.value), ()) == (repr(whole.value), whole.problems)
            )
    assert shared > 40
