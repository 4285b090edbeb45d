"""What cases say of functions: whom they expect, with which arguments, and what is mocked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from evalkit.errors import Location
from evalkit.lint.facts import Path
from evalkit.lint.finding import Edit, below
from evalkit.lint.nearby import folders_of
from evalkit.spec.loading import Examined
from evalkit.spec.suites import suites_of

_GROUPS = ("in_order", "any_order", "one_of", "in_parallel")
_ENDS = ("_contains", "_excludes")
_OWN_KEYS = frozenset(("result_contains", "arguments_contain", "arguments_contains", "arguments_excludes"))
_ANSWERS = ("$return", "$default")


class ExpectedCall(Struct, frozen=True):
    """One expected (or forbidden) call as it is written: a mapping, or a bare name."""

    name: str
    path: Path  # of the name
    written: Mapping[str, Any]
    root: Path  # of the call
    forbidden: bool = False

    def named_arguments(self) -> Iterator[tuple[str, Path, bool]]:
        """Every argument that the call names, where, and whether the call is to have it.

        What must not be sent need not be declared: models invent arguments, and cases guard against it.
        """
        for key in ("arguments", "arguments_contain"):
            value = self.written.get(key)
            if isinstance(value, Mapping) and not is_operator(value):
                yield from ((name, (*self.root, key, name), True) for name in value)
        for key in ("arguments_absent", "grounded"):
            value = self.written.get(key)
            for name in [value] if isinstance(value, str) else value if isinstance(value, list) else ():
                if isinstance(name, str):
                    yield name, (*self.root, key), key == "grounded"
        for key in self.written:
            if key not in _OWN_KEYS:
                yield from ((key.removesuffix(end), (*self.root, key), True) for end in _ENDS if key.endswith(end))


class Answer(Struct, frozen=True):
    """A mock's plain answer."""

    name: str
    path: Path
    value: Any


def is_operator(value: Any) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(str(key).startswith("$") for key in value)


class CaseFacts(Struct, frozen=True):
    """One case file, merged with its suites."""

    examined: Examined
    root: str = ""

    @property
    def file(self) -> str:
        return self.examined.id

    @property
    def agent(self) -> Any:
        return self.examined.data.get("agent")

    def locate(self, path: Path, *, key: bool = False) -> Location:
        return self.examined.source.locate(path, key=key)

    def suite_file(self, functions: Any) -> str | None:
        """The suite.yaml that `functions` comes from as it is; None if the case has a say in it."""
        own = self.examined.source.layers[0].path or ""
        shared = suites_of(os.path.dirname(own), self.root).data.get("functions")
        return self.locate(("functions",)).file if shared is functions else None

    def instruction_file(self, name: str) -> str | None:
        """The instruction file that ``agent: name`` means: beside the case, or in a folder around it."""
        folders = folders_of(self.file)
        found = (f"{folder}/{name}" if folder else name for folder in folders)
        return next((file for file in found if os.path.isfile(os.path.join(self.root, file))), None)

    def locator(self, root: Path) -> Callable[[Path], Location]:
        """Places in the declaration at `root`."""

        def locate(path: Path) -> Location:
            is_name = path == ("name",) and isinstance(root[-1], str)
            return self.locate(root, key=True) if is_name else self.locate((*root, *path))

        return locate

    def alias_adder(self, root: Path) -> Callable[[str], Edit | None]:
        """How to give the declaration at `root` an alias."""

        def add(alias: str) -> Edit | None:
            layer = next((it for it in self.examined.source.layers if it.find(root, key=False)), None)
            if layer is None or layer.path is None or layer.find((*root, "alias"), key=False):
                return None
            with open(layer.path, encoding="utf-8-sig") as file:
                text = file.read()
            is_named = isinstance(root[-1], str)
            at = layer.find(root if is_named else (*root, "name"), key=True)
            if at is None:
                return None
            return below(text, layer.file, at.line, at.column + (1 if is_named else -1), f"alias: [{alias}]")

        return add

    def expectations(self) -> Iterator[tuple[Mapping[str, Any], Path]]:
        """`expected_output` of the case and of its turns."""
        data = self.examined.data
        if isinstance(data.get("expected_output"), Mapping):
            yield data["expected_output"], ("expected_output",)
        given = data.get("input")
        turns = given.get("turns") if isinstance(given, Mapping) else None
        for index, turn in enumerate(turns if isinstance(turns, list) else ()):
            if isinstance(turn, Mapping) and isinstance(turn.get("expected_output"), Mapping):
                yield turn["expected_output"], ("input", "turns", index, "expected_output")

    def expected(self) -> Iterator[ExpectedCall]:
        """The calls that the case expects or forbids, however deep in groups."""
        for output, path in self.expectations():
            yield from _calls(output.get("expected_function_calls"), (*path, "expected_function_calls"))
            forbidden = output.get("forbidden_function_calls")
            for call in _calls(forbidden, (*path, "forbidden_function_calls")):
                yield ExpectedCall(call.name, call.path, call.written, call.root, forbidden=True)
            final = output.get("final_function_call")
            if isinstance(final, str):
                yield ExpectedCall(final, (*path, "final_function_call"), {}, (*path, "final_function_call"))

    @property
    def mocks(self) -> Mapping[str, Any]:
        given = self.examined.data.get("input")
        mocks = given.get("mock_function_responses") if isinstance(given, Mapping) else None
        return mocks if isinstance(mocks, Mapping) else {}

    def mock_path(self, name: str) -> Path:
        return ("input", "mock_function_responses", name)

    def conditions(self) -> Iterator[tuple[str, str, Path]]:
        """Function, argument and place of every argument that a mock matches on."""
        for name, mock in self.mocks.items():
            for value, path in _parts(mock, self.mock_path(name)):
                rules = value.get("$match") if isinstance(value, Mapping) else None
                for index, rule in enumerate(rules if isinstance(rules, list) else ()):
                    when = rule.get("when") if isinstance(rule, Mapping) else None
                    if isinstance(when, Mapping):
                        names = (key for key in when if not str(key).startswith("$"))
                        yield from ((name, str(key), (*path, "$match", index, "when", str(key))) for key in names)

    def answers(self) -> Iterator[Answer]:
        """Every plain answer of the mocks: no directives, and no templates, whose values are not known."""
        for name, mock in self.mocks.items():
            for value, path in _parts(mock, self.mock_path(name)):
                is_directive = isinstance(value, Mapping) and any(str(key).startswith("$") for key in value)
                if not is_directive and "{{" not in str(value):
                    yield Answer(name, path, value)


def _calls(listed: Any, path: Path) -> Iterator[ExpectedCall]:
    for index, item in enumerate(listed if isinstance(listed, list) else [listed]):
        root = (*path, index) if isinstance(listed, list) else path
        if isinstance(item, str):
            yield ExpectedCall(item, root, {}, root)
        elif isinstance(item, list):
            yield from _calls(item, root)
        elif isinstance(item, Mapping):
            name = item.get("function_name")
            if isinstance(name, str):
                yield ExpectedCall(name, (*root, "function_name"), item, root)
            for group in _GROUPS:
                if group in item:
                    yield from _calls(item[group], (*root, group))


def _parts(value: Any, path: Path) -> Iterator[tuple[Any, Path]]:
    """A mock and every place inside it where an answer may stand."""
    yield value, path
    if not isinstance(value, Mapping):
        return
    for key in _ANSWERS:
        if key in value:
            yield from _parts(value[key], (*path, key))
    for key in ("$sequence", "$match"):
        items = value.get(key)
        for index, item in enumerate(items if isinstance(items, list) else ()):
            yield from _parts(item, (*path, key, index)) if key == "$sequence" else _ruled(item, (*path, key, index))


def _ruled(rule: Any, path: Path) -> Iterator[tuple[Any, Path]]:
    if isinstance(rule, Mapping) and "$return" in rule:
        yield from _parts(rule["$return"], (*path, "$return"))
