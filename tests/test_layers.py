"""The rooms of the architecture may import only what the table allows, lazy imports counted."""

from __future__ import annotations

from functools import cache
from importlib import import_module

import grimp
import pytest

BASE = {"errors", "model"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "model": set(),
    "yamlfile": set(),
    "operators": set(),
    "stats": set(),
    "functions": {"operators", "yamlfile"},
    "checks": {"operators"},
    "providers": {"yamlfile"},
    "spec": {"yamlfile", "operators", "functions", "checks"},
    "agents": {"functions", "providers", "yamlfile"},
    "adapters": {"agents", "functions", "providers"},
    "pipeline": {"agents", "functions", "checks"},
    "execution": {"pipeline"},
    "gate": {"stats"},
    "project": {"gate"},
    "reports": {"stats"},
    "probing": {"pipeline", "functions", "checks", "operators", "spec", "yamlfile"},
    "lint": {"spec", "functions", "agents", "yamlfile"},
    "importing": {"functions", "lint", "yamlfile"},
}
SHELLS = {"plugin", "cli", "__init__", "__main__"}
ONLY_IMPORTER = {"yaml": {"yamlfile"}, "ruamel": {"yamlfile"}, "pytest": {"plugin"}, "_pytest": set(), "click": {"cli"}}


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("evalkit", include_external_packages=True, cache_dir=None)


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def rooms() -> list[str]:
    return sorted({room(m) for m in graph().modules if m.split(".")[0] == "evalkit"} - SHELLS)


def imports_of(name: str) -> set[tuple[str, str]]:
    return {
        (module, imported)
        for module in graph().modules
        if module.split(".")[0] == "evalkit" and room(module) == name
        for imported in graph().find_modules_directly_imported_by(module)
    }


@pytest.mark.parametrize("name", rooms())
def test_a_room_imports_only_what_its_row_allows(name: str) -> None:
    assert name in ALLOWED, f"evalkit/{name} has no row in the table of docs/architecture.md"
    allowed = ALLOWED[name] | BASE | {name}
    wrong = {
        f"{module} imports {imported}"
        for module, imported in imports_of(name)
        if imported.split(".")[0] == "evalkit" and room(imported) not in allowed
    }
    assert not wrong


@pytest.mark.parametrize(("package", "importers"), ONLY_IMPORTER.items())
def test_a_library_is_imported_by_its_room_alone(package: str, importers: set[str]) -> None:
    found = {
        room(module)
        for module in graph().modules
        if module.split(".")[0] == "evalkit" and package in graph().find_modules_directly_imported_by(module)
    }
    assert found <= importers


def test_model_and_errors_need_the_standard_library_alone() -> None:
    import sys

    outside = {
        f"{module} imports {imported}"
        for name in BASE
        for module, imported in imports_of(name)
        if imported.split(".")[0] not in {*sys.stdlib_module_names, "evalkit", "msgspec"}
    }
    assert not outside


def test_no_name_that_a_package_imports_on_use_is_a_module_of_it() -> None:
    """Once imported, the module would be found in the name's place."""
    hidden = {
        f"{package}.{name}"
        for package in graph().modules
        if "evalkit.lazily" in graph().find_modules_directly_imported_by(package)
        for name in getattr(import_module(package), "_HOMES", None) or getattr(import_module(package), "_SELDOM", {})
        if f"{package}.{name}" in graph().modules
    }
    assert not hidden
