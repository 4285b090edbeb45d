"""What docs/site/make_pages.py makes from the code is as it would make it: pages, tables in pages, schemas."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_pages", ROOT / "docs" / "site" / "make_pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_pages = load_script()


@pytest.mark.parametrize("name", make_pages.FILES)
def test_a_made_file_is_current(name: str) -> None:
    made = make_pages.FILES[name]()
    assert (ROOT / name).read_text("utf-8") == made, "write it anew: python docs/site/make_pages.py"
