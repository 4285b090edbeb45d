"""Instruction files: Markdown whose YAML frontmatter declares the functions, and whose body is the instruction."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from evalkit.errors import KeyPath, Location, Problem, SpecError
from evalkit.fields.reader import FieldReader
from evalkit.functions.declarations import parse_declarations
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.case import Declaration, Permissions
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.positions import raise_problems

FRONTMATTER_KEYS = ("name", "trigger", "version", "description", "available_functions")
CODE = "invalid_instruction"
_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)


class Instruction(Struct, frozen=True, kw_only=True):
    """A system instruction and the functions that go with it.

    `available_functions` is None where the file doesn't say: the case's own `functions` are offered then. An empty
    list in the file offers none.
    """

    name: str
    body: str
    trigger: str | JsonObject = ""  # kept for the agent that chooses among instructions; evalkit does not read it
    version: str = ""
    description: str = ""
    available_functions: tuple[Declaration, ...] | None = None
    path: Path | None = None


def load_instruction(
    path: str | Path, *, shown_as: str | None = None, permissions: Permissions | None = None
) -> Instruction:
    """Read an instruction file. Unchanged files are parsed once in a process.

    `permissions` are those of the case file that names it; None: nothing is imported to check what it patches.
    Raises SpecError with every problem and its place, FileNotFoundError if there is no such file.
    """
    path = Path(path)
    stat = path.stat()
    return _load(path, stat.st_mtime_ns, stat.st_size, shown_as or path.as_posix(), permissions)


@lru_cache(maxsize=512)
def _load(path: Path, mtime_ns: int, size: int, shown_as: str, permissions: Permissions | None) -> Instruction:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise _make_error(shown_as, 0, f"this is not UTF-8: byte {error.start}") from None
    # Code that names a file has not read what a pull request has written into it.
    check_targets = permissions is not None
    return parse_instruction(text, shown_as, path=path, check_targets=check_targets, permissions=permissions)


def parse_instruction(
    text: str,
    file: str,
    *,
    path: Path | None = None,
    check_targets: bool = True,
    permissions: Permissions | None = None,
) -> Instruction:
    """Parse the instruction in `text`. `file` is the name for messages. Raises SpecError.

    `check_targets` imports what a declaration's `patch` names, to see that it is there.
    """
    frontmatter, body = split_instruction(text.replace("\r\n", "\n"), file)
    data = load(frontmatter, file)
    reader = _InstructionReader(subject="the frontmatter")
    instruction = reader.read(data, body, path, check_targets, permissions)
    raise_problems(reader.problems, frontmatter, file, CODE)
    return instruction


def split_instruction(text: str, file: str) -> tuple[str, str]:
    """Split a file into its frontmatter, with an empty line for the fence so that line numbers stay, and its body."""
    opening = _FENCE.match(text)
    if opening is None:
        raise _make_error(file, 1, "an instruction file begins with '---', its frontmatter, and '---'")
    closing = _FENCE.search(text, opening.end())
    if closing is None:
        raise _make_error(file, 1, "the frontmatter that begins here is never closed; write a line '---' below it")
    return text[opening.end() : closing.start()], text[closing.end() :].strip()


def _make_error(file: str, line: int, message: str) -> SpecError:
    return SpecError([Problem(Location(file, line, 1 if line else 0), message, CODE)])


class _InstructionReader(FieldReader):
    def read(
        self, value: object, body: str, path: Path | None, check_targets: bool, permissions: Permissions | None
    ) -> Instruction:
        data = self.read_mapping((), value, f"a mapping with {', '.join(FRONTMATTER_KEYS)}")
        if data is None:
            return Instruction(name="", body=body)
        self.check_keys((), data, FRONTMATTER_KEYS)
        words: JsonDict = {key: self._read_words(key, data[key]) for key in FRONTMATTER_KEYS[:-1] if key in data}
        if "name" not in data:
            self.add_problem((), "the frontmatter needs a 'name'")
        if not body:
            self.add_problem((), "there is no instruction below the frontmatter")
        functions: tuple[Declaration, ...] | None = None
        if (key := FRONTMATTER_KEYS[-1]) in data:
            functions = self._read_functions((key,), data[key], check_targets, permissions)
        return Instruction(**{"name": "", **words}, body=body, available_functions=functions, path=path)

    def _read_functions(
        self, path: KeyPath, value: object, check_targets: bool, permissions: Permissions | None
    ) -> tuple[Declaration, ...] | None:
        if value is None:
            self.add_problem(path, "'available_functions' is empty; write [] to offer none")
            return None
        declarations, problems = parse_declarations(
            value, path=path, check_targets=check_targets, permissions=permissions
        )
        self.add_problems(problems)
        return declarations

    def _read_words(self, key: str, value: object) -> str | JsonObject:
        if key == "trigger" and (value is None or (isinstance(value, dict) and value)):
            return value or ""
        if key == "version" and type(value) is int:
            return str(value)
        return self.read_text((key,), value, "text, and not empty", empty=False) or ""
