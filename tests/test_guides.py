"""docs/architecture.md and CONTRIBUTING.md name files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDES = [ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md"]
NEW = "NAME"  # stands for the name of what a recipe adds


def find_file(path: str) -> Path | None:
    """A page names files of the package from the package's folder, others from the root."""
    return next((file for file in (ROOT / "evalkit" / path, ROOT / path) if file.exists()), None)


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_named_files_exist(guide: Path) -> None:
    text = guide.read_text("utf-8")
    paths = set(re.findall(r"(?<![\w/<])((?:\w+/)+(?:\w+\.(?:py|md|json|txt))?)(?![\w])", text))
    missing = sorted(path for path in paths if NEW not in path and find_file(path) is None)
    assert missing == []
    assert len(paths) > 10


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_named_functions_stand_in_the_named_file(guide: Path) -> None:
    text = guide.read_text("utf-8")
    pairs = re.findall(r"`((?:\w+/)*\w+\.py): (\w+)`", text)
    pairs += re.findall(r'\["((?:\w+/)+\w+\.py)<br/>(?:\w+, )?(\w+)(?::|,|")', text)
    wrong = [f"{path}: {name}" for path, name in pairs if not is_defined(path, name)]
    assert wrong == []


def is_defined(path: str, name: str) -> bool:
    file = find_file(path)
    return (
        file is not None
        and re.search(rf"^\s*(?:async def|def|class) {name}\b|^{name}\b.* = ", file.read_text("utf-8"), re.MULTILINE)
        is not None
    )
