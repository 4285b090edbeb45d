"""Instruction files, and other files that hold instructions for a model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evalkit.agents.instruction import FRONTMATTER_KEYS, parse_instruction, split_instruction
from evalkit.errors import Location, SpecError
from evalkit.lint.facts import INSTRUCTION, Declared, Path, Prompt
from evalkit.lint.finding import Edit, Finding, below
from evalkit.lint.promptcode import Source, lines_of, read_prompt
from evalkit.lint.shapes import schema
from evalkit.yamlfile.builder import read
from evalkit.yamlfile.places import Positions, positions

ENDINGS = (".md", ".txt", ".prompt", ".j2", ".jinja", ".jinja2")
_MEANT_FOR_MODELS = re.compile(r"prompt|instruction|system", re.IGNORECASE)
_NO_INSTRUCTIONS = re.compile(r"(^|/)(readme|changelog|contributing|license|history|docs?/)", re.IGNORECASE)
_FRONTMATTER = re.compile(r"\A---[ \t]*\r?\n")


def read_instruction(text: str, file: str) -> tuple[list[Declared], list[Prompt], list[Finding]]:
    """What a text file declares and says; nothing for files that seem to be written for people."""
    if _FRONTMATTER.match(text) and "\n---" in text:
        found = _with_frontmatter(text.replace("\r\n", "\n"), file)
        if found is not None:
            return found
    if _MEANT_FOR_MODELS.search(file) and not _NO_INSTRUCTIONS.search(file):
        return [], [read_prompt(_source(text, file, 0))], []
    return [], [], []


def _with_frontmatter(text: str, file: str) -> tuple[list[Declared], list[Prompt], list[Finding]] | None:
    frontmatter, _ = split_instruction(text, file)
    data, _ = read(frontmatter, file)
    if not isinstance(data, Mapping) or not ("available_functions" in data or _only_ours(data)):
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
    declared = list(_declared(listed, frontmatter, text, file))
    start = text.index("\n---", 3) + 4
    own = tuple(declared) if "available_functions" in data else None
    return declared, [read_prompt(_source(text, file, start), own=own)], findings


def _only_ours(data: Mapping[str, Any]) -> bool:
    return "name" in data and data.keys() <= {*FRONTMATTER_KEYS} and ("trigger" in data or "version" in data)


def _source(text: str, file: str, start: int) -> Source:
    place = lines_of(text)
    return Source(
        text[start:],
        lambda offset: Location(file, *place(start + offset)),
        lambda first, last, new: Edit(file, start + first, start + last, new),
    )


def _declared(listed: Any, frontmatter: str, text: str, file: str) -> Iterator[Declared]:
    entries: list[tuple[str | int, Any]] = []
    if isinstance(listed, list):
        entries = list(enumerate(listed))
    elif isinstance(listed, Mapping):
        entries = list(listed.items())
    places = _Places(frontmatter)
    for key, entry in entries:
        entry = {} if entry is None else entry
        name = key if isinstance(key, str) else entry.get("name") if isinstance(entry, Mapping) else None
        if isinstance(name, str) and isinstance(entry, Mapping):
            root: Path = ("available_functions", key)
            yield declaration(
                name,
                entry,
                file=file,
                form=INSTRUCTION,
                locate=_locator(places, root, file),
                add_alias=_alias_adder(places, root, text, file),
            )


class _Places:
    """The side table of a frontmatter, made when it is first asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._table: Positions | None = None

    @property
    def table(self) -> Positions:
        if self._table is None:
            self._table = positions(self._text)
        return self._table


def _locator(places: _Places, root: Path, file: str) -> Callable[[Path], Location]:
    def locate(path: Path) -> Location:
        is_name = path == ("name",) and isinstance(root[-1], str)
        return Location(file, *places.table.locate(root if is_name else (*root, *path), key=is_name))

    return locate


def _alias_adder(places: _Places, root: Path, text: str, file: str) -> Callable[[str], Edit | None]:
    def add(alias: str) -> Edit | None:
        if places.table.has((*root, "alias")):
            return None
        if isinstance(root[-1], str):
            line, column = places.table.locate(root, key=True)
            return below(text, file, line, column + 1, f"alias: [{alias}]")
        line, column = places.table.locate((*root, "name"), key=True)
        return below(text, file, line, column - 1, f"alias: [{alias}]")

    return add


def declaration(
    name: str,
    entry: Mapping[str, Any],
    *,
    file: str,
    form: str,
    locate: Callable[[Path], Location],
    listed_in: object = None,
    add_alias: Callable[[str], Edit | None] | None = None,
) -> Declared:
    """A declaration as case files, suites and instruction files write it."""
    alias = entry.get("alias")
    aliases = [alias] if isinstance(alias, str) else alias if isinstance(alias, list) else ()
    returns, patch = entry.get("returns"), entry.get("patch")
    return Declared(
        name=name,
        file=file,
        form=form,
        description=entry.get("description"),
        parameters=schema(entry.get("parameters")),
        returns=returns if isinstance(returns, Mapping) else None,
        aliases=tuple(item for item in aliases if isinstance(item, str)),
        patch=patch if isinstance(patch, str) else "",
        locate=locate,
        listed_in=listed_in,
        add_alias=add_alias,
    )
