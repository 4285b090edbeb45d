"""When two names are probably one, and when they only look alike."""

from __future__ import annotations

import pytest

from evalkit.hosts.lint.names import (
    describe_difference,
    find_affix,
    find_relative,
    is_alike,
    is_part,
    is_related,
    split_words,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("search_procedure", ("search", "procedure")),
        ("searchProcedure", ("search", "procedure")),
        ("SearchProcedure", ("search", "procedure")),
        ("search-procedure", ("search", "procedure")),
        ("SEARCH_PROCEDURE", ("search", "procedure")),
        ("searchRAGIndex", ("search", "rag", "index")),
        ("get_page2", ("get", "page", "2")),
        ("", ()),
        ("日本", ()),
    ],
)
def test_the_words_of_a_name(name: str, expected: tuple[str, ...]) -> None:
    assert split_words(name) == expected


RELATED = [
    ("tool_search_procedure", "search_procedure", "the prefix 'tool_' differs"),
    ("search_procedure", "tool_search_procedure", "the prefix 'tool_' differs"),
    ("search_procedure_v2", "search_procedure", "the suffix '_v2' differs"),
    ("handle_search", "search", "the prefix 'handle_' differs"),
    ("mcp__crm__search", "search", "the prefix 'mcp__crm__' differs"),
    ("crm.search", "search", "the prefix 'crm.' differs"),
    ("searchProcedure", "search_procedure", "the spelling differs"),
    ("search-procedure", "search_procedure", "the spelling differs"),
    ("toolSearchProcedure", "search_procedure", "the prefix 'tool' differs"),
]


@pytest.mark.parametrize(("one", "other", "said"), RELATED)
def test_names_that_are_one_but_for_an_affix_or_their_spelling(one: str, other: str, said: str) -> None:
    assert is_related(one, other)
    assert is_related(other, one)
    assert describe_difference(one, other) == said


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("search", "search"),
        ("search_procedure", "search_guidelines"),
        ("procedure", "search_procedure"),
        ("search", "search_index"),
        ("call", "call_tool"),
        ("tool", "tool_call"),
        ("get_user", "get_users_by_name"),
        ("", "search"),
        ("日本", "日本語"),
    ],
)
def test_names_that_are_two(one: str, other: str) -> None:
    assert not is_related(one, other)
    assert not is_related(other, one)


def test_a_slip_of_a_key_is_alike_and_not_related() -> None:
    """Related names are paired wherever they stand; a slip is only assumed where both sides miss a partner."""
    assert is_alike("serach_procedure", "search_procedure")
    assert not is_related("serach_procedure", "search_procedure")
    assert not is_alike("search_procedure", "search_procedure")
    assert not is_alike("get", "set")
    assert describe_difference("serach_procedure", "search_procedure") == "a few letters differ"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("list_channels", "slack_list_channels", True),
        ("slack_list_channels", "listChannels", True),
        ("slack_list", "slack_list_channels", True),
        ("channels", "slack_list_channels", False),
        ("list_channels", "list_channels", False),
        ("slack_channels", "slack_list_channels", False),
    ],
)
def test_a_part_of_a_name_is_a_hint(one: str, other: str, expected: bool) -> None:
    """Good enough to say what may have been meant, not to take two names for one."""
    assert is_part(one, other) is expected


def test_a_relative_is_the_only_one() -> None:
    """Two that are equally near are none; the same words are nearer than an affix."""
    assert find_relative("tool_search", ["search", "fetch"]) == "search"
    assert find_relative("search", ["tool_search", "run_search"]) is None
    assert find_relative("search_page", ["searchPage", "run_search_page"]) == "searchPage"
    assert find_relative("search", ["search", "fetch"]) is None


def test_an_affix_is_written_as_it_stands() -> None:
    assert find_affix("TOOL_search", "Search") == "TOOL_"
    assert find_affix("searchPageTool", "search_page") == "tool"
    assert find_affix("search", "tool_search") is None
