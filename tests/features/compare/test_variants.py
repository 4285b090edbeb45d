"""Variants of a comparison: what the option says, the ids, and what of a case they replace."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evalkit.errors import UsageError
from evalkit.features.compare.variants import VariantValues, read_comparison
from evalkit.records.case import Case, CaseSettings, get_case_name, split_case_id, split_variant
from evalkit.records.settings import Settings, choose_model

FLAG = "--evalkit-compare"
KNOWN = "Dimensions are agent, model, temperature, and names of your own that agents read from task.variant"


def labels(*options: str) -> list[str]:
    return [variant.label for variant in read_comparison(options)]


def test_values_are_variants_in_their_order() -> None:
    assert labels("agent=polite,terse") == ["agent=polite", "agent=terse"]
    assert labels(" prompt = v1.md , v2.md ") == ["prompt=v1.md", "prompt=v2.md"]
    assert labels() == []


def test_two_dimensions_give_their_products_the_first_varies_slowest() -> None:
    assert labels("agent=a,b", "model=m1,m2") == [
        "agent=a,model=m1",
        "agent=a,model=m2",
        "agent=b,model=m1",
        "agent=b,model=m2",
    ]
    (first, *_) = read_comparison(["agent=a,b", "model=m1,m2"])
    assert first.values == {"agent": "a", "model": "m1"}


def test_a_label_has_nothing_that_ids_and_names_of_files_are_taken_apart_by() -> None:
    first, second = read_comparison(["retriever=http://h:1/v1&x=1@y[z],g::h i"])
    assert first.label == "retriever=http:-h:1-v1-x-1-y-z-"
    assert second.label == "retriever=g-h-i"
    assert first.values["retriever"] == "http://h:1/v1&x=1@y[z]"


def test_options_of_a_model_which_may_hold_a_password_stand_in_no_id() -> None:
    urls = [f"openai:m?base_url=http://user:{word}@h/v1" for word in ("secret", "other")]
    first, second, third = read_comparison([f"model={','.join(urls)},openai:n"])
    assert (first.label, second.label, third.label) == ("model=openai:m", "model=openai:m-2", "model=openai:n")
    assert [variant.values["model"] for variant in (first, second)] == urls


def test_the_model_that_agent_and_case_have_is_compared_too() -> None:
    own, other = read_comparison(["model=own,openai:m"])
    case = Case(id="a", path=Path("a"), settings=CaseSettings(model="openai:n"))
    assert (own.label, own.apply(case).settings.model, own.apply(case).chosen_model) == ("model=own", "openai:n", "own")
    assert other.apply(case).settings.model == "openai:m"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["agent"], "'agent' is not NAME=VALUE,VALUE; write agent=a,b"),
        (["Agent=a,b"], "'Agent=a,b' is not NAME=VALUE,VALUE; write agent=a,b"),
        (["agent=a"], "'agent=a' has one value, and a comparison needs two or more: agent=a,OTHER"),
        (["agent=a,"], "'agent=a,' has an empty value; write agent=a,b"),
        (["agent=a,b,a"], "'agent=a,b,a' has the value 'a' twice; each variant stands there once"),
        (["agent=a,b", "agent=c,d"], "'agent' is given twice; write all its values once: agent=a,b,c"),
        (["agents=a,b"], f"unknown dimension 'agents'; did you mean 'agent'? {KNOWN}"),
        (["modle=a,b"], f"unknown dimension 'modle'; did you mean 'model'? {KNOWN}"),
        (["temperature=0,warm"], "'temperature=0,warm': the temperature 'warm' is not a number, 0 or more"),
        (["temperature=0,-1"], "'temperature=0,-1': the temperature '-1' is not a number, 0 or more"),
        (["p=a/b,a?b"], "two variants would both be called 'p=a-b'; rename one of the files or agents"),
        (
            [f"{name}={','.join(map(str, range(30)))}" for name in ("p", "q", "r")],
            "these options make 27,000 variants, more than 1,000; compare fewer values at a time",
        ),
        (["p=a/b,a?b", "agent=a,b"], "two variants would both be called 'p=a-b'; rename one of the files or agents"),
    ],
)
def test_what_is_no_comparison_says_what_to_write(options: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_comparison(options)
    assert str(raised.value) == f"{FLAG}: {message}"


@pytest.mark.parametrize(
    ("case_id", "file", "row", "label", "name"),
    [
        ("s/a_001.yaml", "s/a_001.yaml", None, "", "a_001"),
        ("s/a_001.yaml[gold]", "s/a_001.yaml", "gold", "", "a_001[gold]"),
        ("s/a_001.yaml[agent=b]", "s/a_001.yaml", None, "agent=b", "a_001[agent=b]"),
        ("s/a_001.yml[gold][agent=b,p=1]", "s/a_001.yml", "gold", "agent=b,p=1", "a_001[gold][agent=b,p=1]"),
        ("t/test_x.py::test_y[agent=b]", "t/test_x.py::test_y[agent=b]", None, "", None),
    ],
)
def test_an_id_is_taken_apart(case_id: str, file: str, row: str | None, label: str, name: str | None) -> None:
    assert split_case_id(case_id) == (file, row)
    assert split_variant(case_id) == (case_id.removesuffix(f"[{label}]") if label else case_id, label)
    if name is not None:
        assert get_case_name(case_id) == name


@given(st.lists(st.text(min_size=1), min_size=2, max_size=3, unique=True))
def test_every_label_can_be_read_back_from_the_id(values: list[str]) -> None:
    try:
        variants = read_comparison([f"prompt={','.join(values)}"])
    except UsageError:
        return
    for variant in variants:
        for plain in ("s/a_001.yaml", "s/a_001.yaml[gold]"):
            assert split_variant(f"{plain}[{variant.label}]") == (plain, variant.label)


def test_agent_model_and_temperature_are_put_in_force_and_stand_in_the_merged_case() -> None:
    (variant, *_) = read_comparison(["agent=b,c", "model=openai:m,n", "temperature=0.5,1"])
    case = Case(id="s/a_001.yaml", agent="a", settings=CaseSettings(seed=3), merged={"settings": {"seed": 3}})
    varied = variant.apply(case)
    assert varied.id == "s/a_001.yaml[agent=b,model=openai:m,temperature=0.5]"
    assert (varied.agent, varied.has_chosen_agent) == ("b", True)
    settings = CaseSettings(seed=3, model="openai:m", temperature=0.5)
    assert varied.settings == settings
    assert varied.merged == {
        "agent": "b",
        "variant": {"agent": "b", "model": "openai:m", "temperature": "0.5"},
        "settings": {"seed": 3, "model": "openai:m", "temperature": 0.5},
    }
    assert choose_model(Settings(), varied.chosen_model).model == "openai:m"
    assert choose_model(Settings(), case.chosen_model) == Settings()


@pytest.mark.parametrize(
    ("own", "default", "expected", "is_chosen"),
    [
        ("v0.md", None, "v1.md", True),
        (None, "v0.md", "v1.md", True),
        ("code", None, "code", False),
        (None, "code", "code", False),
    ],
)
def test_a_prompt_takes_the_place_of_an_instruction_file(
    own: str | None, default: str | None, expected: str, is_chosen: bool
) -> None:
    (variant, _) = read_comparison(["prompt=v1.md,v2.md"])
    varied = variant.apply(Case(id="a", agent=own, path=Path("a")), default)
    assert (varied.agent, varied.has_chosen_agent) == (expected, is_chosen)


def test_values_record_which_of_them_were_read() -> None:
    values = VariantValues({"prompt": "v1", "model": "m"})
    assert dict(VariantValues({"a": "1"})) == {"a": "1"}
    assert values.list_unread() == ("prompt", "model")
    assert values.get("other", "x") == "x"
    assert values["prompt"] == "v1"
    assert values.list_unread() == ("model",)
    assert values["model"] == "m"
    assert values.list_unread() == ()
