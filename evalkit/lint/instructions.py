"""Instruction files, and other files that hold instructions for a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evalkit.agents.instruction import FRONTMATTER_KEYS, parse_instruction, split_instruction
from evalkit.errors import Location, SpecError
from evalkit.lint.facts import INSTRUCTION, DataPath, DeclaredFunction, Prompt
from evalkit.lint.finding import Edit, Finding, add_line_below
from evalkit.lint.promptcode import PromptSource, make_line_locator, read_prompt
from evalkit.lint.shapes import normalize_schema
from evalkit.yamlfile.builder import read
from evalkit.yamlfile.places import Positions, read_positions

INSTRUCTION_ENDINGS = (".md", ".txt", ".prompt", ".j2", ".jinja", ".jinja2")
_MEANT_FOR_MODELS = re.compile(r"prompt|instruction|system", re.IGNORECASE)
_NO_INSTRUCTIONS = re.compile(r"(^|/)(readme|changelog|contributing|license|history|docs?/)", re.IGNORECASE)
_FRONTMATTER = re.compile(r"\A---[ \t]*\r?\n")


def read_instruction(text: str, file: str) -> tuple[list[DeclaredFunction], list[Prompt], list[Finding]]:
    """What a text file declares and says; nothing for files that seem to be written for people."""
    if _FRONTMATTER.match(text) and "\n---" in text:
        result = _read_with_frontmatter(text.replace("\r\n", "\n"), file)
        if result is not None:
            return result
    if _MEANT_FOR_MODELS.search(file) and not _NO_INSTRUCTIONS.search(file):
        return [], [read_prompt(_make_source(text, file, 0))], []
    return [], [], []


def _read_with_frontmatter(text: str, file: str) -> tuple[list[DeclaredFunction], list[Prompt], list[Finding]] | None:
    frontmatter, _ = split_instruction(text, file)
    data, _ = read(frontmatter, file)
    if not isinstance(data, Mapping) or not ("available_functions" in data or _has_only_our_keys(data)):
        return None
    findings: list[Finding] = []
    try:
        parse_instruction(text, file, check_targets=False)
    except SpecError as error:
        advice = "correct the file; docs/agents.md describes it"
        findings = [
            Finding(name="invalid-declaration", location=p.location, message=p.message, advice=advice)
            for p in error.problems
        ]
    listed = data.get("available_functions")
    declared = list(_read_functions(listed, frontmatter, text, file))
    start = text.index("\n---", 3) + 4
    own_functions = tuple(declared) if "available_functions" in data else None
    return declared, [read_prompt(_make_source(text, file, start), own_functions=own_functions)], findings


def _has_only_our_keys(data: Mapping[str, Any]) -> bool:
    return "name" in data and data.keys() <= {*FRONTMATTER_KEYS} and ("trigger" in data or "version" in data)


def _make_source(text: str, file: str, start: int) -> PromptSource:
    place = make_line_locator(text)
    return PromptSource(
        text[start:],
        lambda offset: Location(file, *place(start + offset)),
        lambda first, last, new: Edit(file, start + first, start + last, new),
    )


def _read_functions(listed: Any, frontmatter: str, text: str, file: str) -> Iterator[DeclaredFunction]:
    entries: list[tuple[str | int, Any]] = []
    if isinstance(listed, list):
        entries = list(enumerate(listed))
    elif isinstance(listed, Mapping):
        entries = list(listed.items())
    places = _FrontmatterPlaces(frontmatter)
    for key, entry in entries:
        entry = {} if entry is None else entry
        name = key if isinstance(key, str) else entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and isinstance(entry, Mapping):
            root: DataPath = ("available_functions", key)
            yield build_declaration(
                name,
                entry,
                file=file,
                form=INSTRUCTION,
                locate=_make_locator(places, root, file),
                add_alias=_make_alias_adder(places, root, text, file),
            )


class _FrontmatterPlaces:
    """The side table of a frontmatter, made when it is first asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._table: Positions | None = None

    @property
    def table(self) -> Positions:
        if self._table is None:
            self._table = read_positions(self._text)
        return self._table


def _make_locator(places: _FrontmatterPlaces, root: DataPath, file: str) -> Callable[[DataPath], Location]:
    def locate(path: DataPath) -> Location:
        is_name = path == ("name",) and isinstance(root[-1], str)
        return Location(file, *places.table.locate(root if is_name else (*root, *path), key=is_name))

    return locate


def _make_alias_adder(places: _FrontmatterPlaces, root: DataPath, text: str, file: str) -> Callable[[str], Edit | None]:
    def add(alias: str) -> Edit | None:
        if places.table.has((*root, "alias")):
            return None
        if isinstance(root[-1], str):
            line, column = places.table.locate(root, key=True)
            return add_line_below(text, file, line, column + 1, f"alias: [{alias}]")
        line, column = places.table.locate((*root, "name"), key=True)
        return add_line_below(text, file, line, column - 1, f"alias: [{alias}]")

    return add


def build_declaration(
    name: str,
    entry: Mapping[str, Any],
    *,
    file: str,
    form: str,
    locate: Callable[[DataPath], Location],
    listed_in: object = None,
    add_alias: Callable[[str], Edit | None] | None = None,
) -> DeclaredFunction:
    """A declaration as case files, suites and instruction files write it."""
    alias = entry.get("alias")
    aliases = [alias] if isinstance(alias, str) else alias if isinstance(alias, list) else ()
    returns, patch = entry.get("returns"), entry.get("patch")
    return DeclaredFunction(
        name=name,
        file=file,
        form=form,
        description=entry.get("description"),
        parameters=normalize_schema(entry.get("parameters")),
        returns=returns if isinstance(returns, Mapping) else None,
        aliases=tuple(item for item in aliases if isinstance(item, str)),
        patch=patch if isinstance(patch, str) else "",
        locate=locate,
        list_key=listed_in,
        add_alias=add_alias,
    )
