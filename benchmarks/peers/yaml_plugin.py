"""The least plugin that collects YAML files, on PyYAML's C loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import desk
import pytest
import yaml


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return YamlFile.from_parent(parent, path=file_path) if file_path.suffix == ".yaml" else None


class YamlFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        with self.path.open("rb") as file:
            case = yaml.load(file, yaml.CSafeLoader)
        yield Case.from_parent(self, name=case["name"], case=case)


class Case(pytest.Item):
    def __init__(self, *, case: dict[str, Any], **node: Any) -> None:
        super().__init__(**node)
        self.case = case

    def runtest(self) -> None:
        calls, _ = desk.act(self.case["message"], desk.mocked(self.case))
        wrong = desk.problems(calls, self.case["expected"])
        assert not wrong, wrong

    def repr_failure(self, excinfo: Any) -> str:
        return str(excinfo.value)
