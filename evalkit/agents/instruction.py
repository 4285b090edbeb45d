"""Instruction files: Markdown whose YAML frontmatter declares the functions, and whose body is the instruction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from evalkit.errors import Location, PathProblem, Problem, SpecError
from evalkit.fields.reader import describe_unknown_key
from evalkit.functions.declarations import parse_declarations
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.model.case import Declaration, Permissions
from evalkit.yamlfile.events import read_positions
from evalkit.yamlfile.parse import load

FRONTMATTER_KEYS = ("name", "trigger", "version", "description", "available_functions")
CODE = "invalid_instruction"
_KEY_LIST = ", ".join(FRONTMATTER_KEYS)
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

    `permissions` are those of the case file that names it; None: it may patch anything.
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
    return parse_instruction(text, shown_as, path=path, permissions=permissions)


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
    instruction, problems = _read(data, body, path, check_targets, permissions)
    if problems:
        places = read_positions(frontmatter)
        located = []
        for problem in problems:
            line, column = places.locate(problem.path, key=problem.at_key)
            located.append(Problem(Location(file, line, column), problem.message, CODE))
        raise SpecError(sorted(located, key=lambda problem: problem.location))
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


def _read(
    data: object, body: str, path: Path | None, check_targets: bool, permissions: Permissions | None
) -> tuple[Instruction, list[PathProblem]]:
    if not isinstance(data, Mapping):
        return Instruction(name="", body=body), [
            PathProblem((), f"the frontmatter is a mapping with {_KEY_LIST}", CODE)
        ]
    problems = [
        PathProblem(
            (key,),
            describe_unknown_key(key, "the frontmatter", FRONTMATTER_KEYS, otherwise=f"; it has {_KEY_LIST}"),
            CODE,
            at_key=True,
        )
        for key in data
        if key not in FRONTMATTER_KEYS
    ]
    words: JsonDict = {key: _read_text(data, key, problems) for key in FRONTMATTER_KEYS[:-1]}
    if "name" not in data:
        problems.append(PathProblem((), "the frontmatter needs a 'name'", CODE))
    if not body:
        problems.append(PathProblem((), "there is no instruction below the frontmatter", CODE))
    functions = _read_functions(data, problems, check_targets, permissions)
    return Instruction(**words, body=body, available_functions=functions, path=path), problems


def _read_functions(
    data: JsonObject, problems: list[PathProblem], check_targets: bool, permissions: Permissions | None
) -> tuple[Declaration, ...] | None:
    if "available_functions" not in data:
        return None
    listed = data["available_functions"]
    if listed is None:
        problems.append(
            PathProblem(("available_functions",), "'available_functions' is empty; write [] to offer none", CODE)
        )
        return None
    declarations, declaration_problems = parse_declarations(
        listed, path=("available_functions",), check_targets=check_targets, permissions=permissions
    )
    problems.extend(declaration_problems)
    return declarations


def _read_text(data: JsonObject, key: str, problems: list[PathProblem]) -> str | JsonObject:
    value = data.get(key, "")
    if key == "trigger" and value is None:
        return ""
    if key == "trigger" and isinstance(value, Mapping) and value:
        return value
    if isinstance(value, str) and (value.strip() or key not in data):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and key == "version":
        return str(value)
    hint = f'; quote it: {key}: "{value}"' if isinstance(value, (bool, int, float)) else ""
    problems.append(PathProblem((key,), f"'{key}' is text{hint}" if hint else f"'{key}' is text, and not empty", CODE))
    return ""
