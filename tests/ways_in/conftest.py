"""What the tests of the ways in share: a project in a folder of its own, and cases that are loaded from its files."""

from __future__ import annotations

import importlib
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from evalkit.records.case import Case
from evalkit.spec.load import case_from_dict

_NUMBERS = itertools.count()

MakeModule = Callable[[str], ModuleType]
MakeCase = Callable[..., Case]


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeModule]:
    """A function that turns source into an importable module; `__name__` is what a case would write."""
    monkeypatch.syspath_prepend(str(tmp_path))
    made: list[str] = []

    def make(source: str) -> ModuleType:
        name = f"made_for_a_way_in_{next(_NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
        importlib.invalidate_caches()
        made.append(name)
        return importlib.import_module(name)

    yield make
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture
def make_case(tmp_path: Path) -> MakeCase:
    """A function that loads a case as its file would be; the project's root is `tmp_path`."""

    def make(mocks: Any = None, expected: Any = None, **keys: Any) -> Case:
        data = {
            "input": {"message": "SN12345?", "mock_function_responses": mocks or {}},
            "expected_output": {"expected_function_calls": []} if expected is None else expected,
            **keys,
        }
        return case_from_dict(data, tmp_path / "scenarios" / "case_001.yaml", root=tmp_path)

    return make
