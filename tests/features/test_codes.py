"""What a feature's entry says of its codes: their rank among reasons, what smoke advises, their sections."""

from __future__ import annotations

from importlib.resources import files

import pytest

from evalkit.checks.reasons import OTHER_RANK, RANK, UNMEASURED, rank_code
from evalkit.entries import BUILT_IN, Entry
from evalkit.hooks.loading import get_built_in


def get_package(entry: Entry) -> str:
    return entry.target.partition(":")[0].rpartition(".")[0]


@pytest.mark.parametrize("package", dict.fromkeys(get_package(entry) for entry in BUILT_IN if entry.codes))
def test_its_page_has_a_section_for_each_code_and_no_other(package: str) -> None:
    page = files(package).joinpath("codes.md").read_text("utf-8")
    sections = sorted(line.removeprefix("### ") for line in page.splitlines() if line.startswith("### "))
    assert sections == sorted(code for entry in BUILT_IN if get_package(entry) == package for code in entry.codes)


def test_the_kernel_has_the_codes_beside_which_they_rank_and_not_their_own() -> None:
    codes = get_built_in().codes
    assert {name for code in codes.values() for name in (code.beside, code.after) if name} <= RANK.keys()
    assert not codes.keys() & {*RANK, *UNMEASURED}


def test_codes_rank_beside_or_behind_those_that_they_name() -> None:
    assert rank_code("policy_broken") == rank_code("forbidden_call")
    assert rank_code("wrong_outcome") < rank_code("wrong_approval") < rank_code("wrong_order")
    assert rank_code("missing_approval")[0] == rank_code("code_of_a_custom_check")[0] == OTHER_RANK
