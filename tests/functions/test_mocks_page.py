"""Every example of docs/mocks.md does what the page says."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import FunctionError, MockError, format_path
from evalkit.functions.declarations import parse_declarations
from evalkit.functions.dispatcher import FakeDispatcher
from evalkit.functions.mocks.files import MockFiles
from evalkit.functions.mocks.reader import parse_mocks
from evalkit.functions.patching import patch_functions
from evalkit.yamlfile.parse import load

PAGE = Path(__file__).parents[2] / "docs" / "mocks.md"
SECTIONS = re.split(r"^##? (?=[A-Z])", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"# ([\w/]+\.(?:py|yaml))\n")
CALL = re.compile(r"(?P<call>[\w.:]+\(.*?\)) → (?P<outcome>.*)")


def examples() -> Iterator[Any]:
    for section in SECTIONS:
        blocks = BLOCK.findall(section)
        if any(kind == "text" for kind, _ in blocks):
            yield pytest.param(blocks, id=section.partition("\n")[0])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty project, whose folders `mocks` and `shop` can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    aside = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] in ("mocks", "shop")}
    # What the page's `exception: requests.exceptions:ConnectTimeout` names; requests itself is not needed here.
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests" / "__init__.py").write_text("")
    (tmp_path / "requests" / "exceptions.py").write_text("class ConnectTimeout(Exception): ...\n")
    monkeypatch.delitem(sys.modules, "requests", raising=False)
    monkeypatch.delitem(sys.modules, "requests.exceptions", raising=False)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mocks", "shop", "requests")]:
        del sys.modules[name]
    sys.modules.update(aside)


class Page:
    """The example that is being read: its case, and the dispatcher that answers for it."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.dispatcher = FakeDispatcher(None)
        self.problems: list[str] = []
        self.recorded: list[str] = []

    def case(self, text: str) -> None:
        data = load(text, "mocks.md")
        declarations, problems = parse_declarations(data.get("functions"))
        known = {declaration.name: declaration for declaration in declarations}
        include = MockFiles(self.project / "mocks")
        options: dict[str, Any] = {"input": data["input"]} if "input" in data else {}
        mocks, more = parse_mocks(data["mock_function_responses"], declarations=known, include=include, **options)
        self.problems = [f"problem at {format_path(p.path[2:])}: {p.message}" for p in (*problems, *more)]
        self.dispatcher = FakeDispatcher(mocks, declarations, input=data.get("input"), state=data.get("state"))

    def outcome(self, call: str) -> str:
        expression = ast.parse(re.sub(r"^[\w.:]+", "f", call), mode="eval").body
        assert isinstance(expression, ast.Call)
        arguments = {str(word.arg): ast.literal_eval(word.value) for word in expression.keywords}
        name = call.partition("(")[0]
        try:
            return json.dumps(self.call(name, arguments), ensure_ascii=False)
        except FunctionError as error:
            return f"error {error.type}: {error.message}"
        except MockError as error:
            return f"broken: {error}"

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        if ":" not in name:
            return self.dispatcher.call(name, arguments)
        module, _, attribute = name.partition(":")
        with patch_functions(self.dispatcher.declarations, self.dispatcher):
            result = getattr(importlib.import_module(module), attribute)(**arguments)
            return asyncio.run(result) if inspect.iscoroutine(result) else result

    def check(self, lines: list[str]) -> None:
        calls = [line for line in lines if CALL.fullmatch(line)]
        unused = [line for line in lines if line.startswith("unused: ")]
        problems = [line for line in lines if line.startswith("problem at ")]
        clock = [line for line in lines if line.startswith("clock: ")]
        recorded = [line for line in lines if line.startswith("recorded: ")]
        assert len(calls) + len(unused) + len(problems) + len(clock) + len(recorded) == len(lines)
        assert self.problems == problems
        for line in calls:
            match = CALL.fullmatch(line)
            assert match is not None
            assert self.outcome(match["call"]) == match["outcome"]
        if unused:
            assert [f"unused: {sentence}" for sentence in self.dispatcher.find_unused()] == unused
        if clock:
            assert [f"clock: {self.dispatcher.virtual_ms:g} ms"] == clock
        seen = [f"recorded: {call.name} {json.dumps(call.arguments)}" for call in self.dispatcher.calls]
        assert seen[: len(recorded)] == recorded


@pytest.mark.parametrize("blocks", list(examples()))
def test_the_page_is_right(project: Path, blocks: list[tuple[str, str]]) -> None:
    page = Page(project)
    for kind, text in blocks:
        named = NAMED.match(text)
        if named is not None:
            path = project / named[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            importlib.invalidate_caches()
        elif kind == "yaml":
            page.case(text)
        elif kind == "text":
            page.check(text.splitlines())


def test_the_page_shows_every_directive() -> None:
    from evalkit.functions.mocks.reader import DIRECTIVES

    table = next(section for section in SECTIONS if section.startswith("Overview"))
    assert {name for name in DIRECTIVES if f"`{name}`" not in table and f"`{name}," not in table} - {
        "$sequence",
        "$match",
    } == set()
    assert set(re.findall(r"`(\$\w+)", table)) >= {"$sequence", "$match"}


def test_every_link_within_the_page_leads_to_a_heading() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", section.partition("\n")[0].lower()).replace(" ", "-") for section in SECTIONS
    }
    links = set(re.findall(r"\]\(#([\w-]+)\)", PAGE.read_text(encoding="utf-8")))
    assert links <= headings
