"""`evalkit explain`: the page of codes, its sections, and the rules of lint.

The page stands in evalkit/reports/codes.md; docs/codes.md is a copy of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from evalkit.errors import UsageError, did_you_mean
from evalkit.lint.rules import RULES


def read_page() -> str:
    """Return the page of codes."""
    return files("evalkit.reports").joinpath("codes.md").read_text("utf-8")


def list_sections() -> dict[str, str]:
    """Return the sections of the page by code, without their headings."""
    found = re.finditer(r"^### (\w+)\n(.*?)(?=^##|\Z)", read_page(), re.MULTILINE | re.DOTALL)
    return {match[1]: match[2].strip() for match in found}


def list_codes() -> Iterator[str]:
    """Yield a line for each code with what it means, under the headings of the page."""
    for line in re.findall(r"^## .*|^### \w+\n.*", read_page(), re.MULTILINE):
        code, _, meaning = line.removeprefix("### ").partition("\n")
        yield f"  {code}: {meaning}" if meaning else code.removeprefix("## ")


def explain(code: str) -> str:
    """Return what `code` means: a code of reasons or problems, the name or the code of a rule of lint.

    Raise UsageError with the nearest name for any other.
    """
    name = code.strip("[]` ")
    sections = list_sections()
    if name in sections:
        return f"{name}\n\n{sections[name]}"
    for rule in RULES:
        if name in (rule.name, rule.code):
            mended = "\n`evalkit lint --fix` can mend it." if rule.fixable else ""
            return f"{rule.name} ({rule.code}, {rule.severity})\n\n{rule.summary}{mended}\nMore: docs/lint.md"
    known = [*sections, *(word for rule in RULES for word in (rule.name, rule.code))]
    nearest = did_you_mean(name, known) or "; `evalkit explain` lists the codes"
    raise UsageError(f"there is no code {name!r}{nearest}")
