"""Lazy modules: imported when a name of theirs is first used, and once in a process."""

from __future__ import annotations

import gc
import sys
import threading
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from evalkit import lazy
from evalkit.lazy import LazyModule, is_loaded

if TYPE_CHECKING:
    from evalkit.hosts.casecheck import mutants
else:
    mutants = LazyModule("evalkit.hosts.casecheck.mutants")

NAME = "evalkit.hosts.casecheck.mutants"


@pytest.fixture
def unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lazy module above, not loaded."""
    monkeypatch.setattr("evalkit.lazy._loaded", {})
    monkeypatch.setattr(mutants, "_module", None)
    monkeypatch.setattr(mutants, "__dict__", {})
    before = sys.modules.pop(NAME, None)
    if before is not None:
        monkeypatch.setitem(sys.modules, NAME, before)
        monkeypatch.delitem(sys.modules, NAME)


@pytest.mark.usefixtures("unloaded")
def test_a_module_is_imported_when_a_name_of_it_is_first_used() -> None:
    assert not is_loaded(mutants)
    assert mutants.UNLISTED
    assert is_loaded(mutants)
    assert mutants.UNLISTED is sys.modules[NAME].UNLISTED


@pytest.mark.usefixtures("unloaded")
def test_a_module_that_is_taken_away_is_not_imported_again() -> None:
    """`patch.dict(sys.modules)` takes away all that was imported inside."""
    with patch.dict(sys.modules):
        kinds = mutants.UNLISTED
    assert NAME not in sys.modules
    assert LazyModule(NAME).UNLISTED is kinds


@pytest.mark.usefixtures("unloaded")
def test_threads_that_load_a_module_at_once_get_the_same_one() -> None:
    found: list[object] = []
    barrier = threading.Barrier(8)

    def use() -> None:
        barrier.wait()
        found.append(LazyModule(NAME).UNLISTED)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(kinds is found[0] for kinds in found)


@pytest.mark.usefixtures("unloaded")
def test_what_is_imported_meanwhile_does_not_disturb() -> None:
    """Another thread gets its turn wherever objects are made; the collector of garbage stands for it here."""
    made: list[str] = []

    def import_another(phase: str, info: dict[str, int]) -> None:
        made.append(f"made_meanwhile_{len(made)}")
        sys.modules[made[-1]] = ModuleType(made[-1])

    threshold = gc.get_threshold()
    gc.callbacks.append(import_another)
    gc.set_threshold(1)
    try:
        assert lazy.load(NAME).UNLISTED
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(import_another)
        for name in made:
            del sys.modules[name]
    assert made


def test_a_name_that_a_module_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="mutants"):
        _ = LazyModule(NAME).MUTANTS


class SlowLoader(Loader):
    """Imports a module that has its name only when `go` is set."""

    def __init__(self) -> None:
        self.began, self.go = threading.Event(), threading.Event()

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: Any) -> None:
        self.began.set()
        assert self.go.wait(10)
        module.answer = 42


def test_a_module_that_another_thread_is_importing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    name, loader = "evalkit.slow_module", SlowLoader()
    spec = spec_from_loader(name, loader)
    assert spec is not None

    class Finder:
        @staticmethod
        def find_spec(wanted: str, path: object = None, target: object = None) -> Any:
            return spec if wanted == name else None

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    monkeypatch.setattr(lazy, "_loaded", {})
    first = threading.Thread(target=lazy.load, args=(name,))
    first.start()
    assert loader.began.wait(10)
    lazy.load("evalkit.text.format")  # notes what is there, while the other one is half imported
    assert name not in lazy._loaded
    found: list[ModuleType] = []
    second = threading.Thread(target=lambda: found.append(lazy.load(name)))
    second.start()
    loader.go.set()
    for thread in (first, second):
        thread.join(10)
    try:
        assert found[0].answer == 42
        assert lazy._loaded[name] is found[0]
    finally:
        sys.modules.pop(name, None)
