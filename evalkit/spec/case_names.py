"""Names of case files: `<category>_<number>.yaml`."""

from __future__ import annotations

import re

CASE_ENDINGS = (".yaml", ".yml")
_STEM = re.compile(r"[a-z0-9]+(?:[_-][a-z0-9]+)*_[0-9]+")
_NUMBER = re.compile(r"_[0-9]+\Z")
_RULE = "a case file is named <category>_<number>.yaml in small letters, digits, '_' and '-'"


def is_case_name(name: str) -> bool:
    """Whether a file of this name is a case."""
    stem, dot, ending = name.rpartition(".")
    return dot + ending in CASE_ENDINGS and _STEM.fullmatch(stem) is not None


def find_name_problem(name: str) -> str | None:
    """What is wrong with the name of a case file, and what it could be called."""
    return None if is_case_name(name) else f"{_RULE}, e.g. {make_case_name(name)}"


def make_case_name(name: str) -> str:
    """A name that would do: `Valid Warranty 1.YAML` becomes `valid_warranty_1.yaml`."""
    stem = re.sub(r"(\.[A-Za-z]+)+\Z", "", name).lower()
    words = re.sub(r"[^a-z0-9-]+", "_", stem)
    base = re.sub(r"[_-]+", lambda run: "_" if "_" in run[0] else "-", words).strip("_-") or "case"
    numbered = re.sub(r"(?<=[a-z])-?([0-9]+)\Z|(?<=[0-9])-([0-9]+)\Z", r"_\1\2", base)
    return (numbered if _STEM.fullmatch(numbered) else f"{numbered}_001") + ".yaml"


def get_category(category: str | None, stem: str) -> str:
    """`given`, else the stem without its number, with `-` for `_`: `valid_warranty` and `valid-warranty` are one."""
    return (category or _NUMBER.sub("", stem)).strip().replace("_", "-")
