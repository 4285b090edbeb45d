"""Reading a project: which files are looked at, and what they say, before anything is judged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from evalkit.errors import Location, Problem, SpecError, UsageError
from evalkit.lint.casefacts import CaseFacts
from evalkit.lint.code import CodeReader, problems_of
from evalkit.lint.datafiles import YAML_ENDINGS, read_data_file
from evalkit.lint.facts import SUITE, Code, Declared, Prompt
from evalkit.lint.finding import Finding
from evalkit.lint.instructions import ENDINGS, declaration, read_instruction
from evalkit.lint.options import LintOptions
from evalkit.lint.pythonfile import PythonFile
from evalkit.lint.unreadable import unreadable
from evalkit.model.registry import CHECKS, OPERATORS, Table
from evalkit.spec.discovery import FoundFile, find_cases
from evalkit.spec.loading import examine_case

_LARGEST = 1_000_000  # bytes; nobody writes such files by hand
_READ = (".py", ".json", *YAML_ENDINGS, *ENDINGS)


class Facts(Struct):
    """What a project says. `findings` are those that reading itself gave."""

    options: LintOptions
    declared: list[Declared] = field(default_factory=list)
    code: Code = field(default_factory=Code)
    prompts: list[Prompt] = field(default_factory=list)
    cases: list[CaseFacts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    misnamed: list[tuple[Path, Problem]] = field(default_factory=list)  # files that are nearly cases
    broken: list[Problem] = field(default_factory=list)  # of files that hold no case at all
    documents: list[str] = field(default_factory=list)  # Markdown texts


def gather(options: LintOptions) -> Facts:
    """Everything that lint looks at. Raises UsageError for a path that does not exist."""
    facts = Facts(options)
    python: list[PythonFile] = []
    for path, shown in _files(options):
        text = _text(path, shown, facts)
        if text is not None and path.suffix == ".py":
            python.append(PythonFile(path, shown, text))
        elif text is not None:
            _read_text(path, shown, text, facts)
    reader = CodeReader(python)
    facts.code = reader.read_declaring()
    if options.imports:
        from evalkit.lint.importing import import_declaring

        facts.findings += import_declaring(reader, options.root)
    _read_cases(facts)
    facts.declared = _distinct([*facts.declared, *facts.code.declared])
    patched = {function.patch.rpartition(":")[2].rpartition(".")[2] for function in facts.declared if function.patch}
    reader.read_naming({function.name for function in facts.declared} | patched)
    facts.declared = _distinct([*facts.declared, *facts.code.declared])
    facts.findings += unreadable(problems_of(python), options.root)
    return facts


def _read_text(path: Path, shown: str, text: str, facts: Facts) -> None:
    """A file that is no code: declarations in JSON, or an instruction."""
    prompts: list[Prompt] = []
    if path.suffix in (".json", *YAML_ENDINGS):
        declared, findings = read_data_file(text, shown)
    else:
        declared, prompts, findings = read_instruction(text, shown)
        facts.documents += [text] if path.suffix == ".md" else []
    facts.declared += declared
    facts.prompts += prompts
    facts.findings += findings


def _files(options: LintOptions) -> Iterator[tuple[Path, str]]:
    seen: set[str] = set()
    for given in options.paths:
        start = os.path.normpath(options.root / given)
        if not os.path.exists(start):
            raise UsageError(f"{given}: no such file or folder")
        for path in [start] if os.path.isfile(start) else _walk(start, options):
            shown = _shown(path, options.root)
            if path not in seen:
                seen.add(path)
                yield Path(path), shown


def _walk(folder: str, options: LintOptions) -> Iterator[str]:
    mocks = os.path.normpath(options.root / options.mocks)
    start = _shown(folder, options.root)
    cases = tuple(os.path.normpath(options.root / folder) for folder in options.cases or ("scenarios",))
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "__pycache__"))
            and os.path.join(parent, name) != mocks
            and not options.is_excluded(_shown(os.path.join(parent, name), options.root), below=start)
            and not os.path.exists(os.path.join(parent, name, "pyvenv.cfg"))
        )
        for name in sorted(files):
            path = os.path.join(parent, name)
            if name.endswith(YAML_ENDINGS) and _is_below(parent, cases):
                continue  # cases and suites, which have a reader of their own
            if name.endswith(_READ) and not options.is_excluded(_shown(path, options.root), below=start):
                yield path


def _is_below(folder: str, others: tuple[str, ...]) -> bool:
    return any(folder == other or folder.startswith(other + os.sep) for other in others)


def _shown(path: str, root: Path) -> str:
    shown = os.path.relpath(path, root).replace(os.sep, "/")
    return "" if shown == "." else shown


def _text(path: Path, shown: str, facts: Facts) -> str | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        message = "not UTF-8"
    except OSError as error:
        message = f"can't be read: {error.strerror}"
    if path.suffix == ".py":
        advice = "correct the file, or leave it out with `exclude`"
        facts.findings.append(Finding(name="unreadable", location=Location(shown), message=message, advice=advice))
    return None


def _distinct(declared: list[Declared]) -> list[Declared]:
    """One per place: a dictionary that is declared by name, and again by the list that refers to it, is one."""
    found: dict[object, Declared] = {}
    for function in declared:
        key = (function.name, function.file) if function.form == SUITE else (function.name, function.place)
        found.setdefault(key, function)
    return list(found.values())


def _read_cases(facts: Facts) -> None:
    options = facts.options
    folders = options.cases if options.cases is not None else ("scenarios",)
    if options.cases is None and not (options.root / folders[0]).exists():
        return
    with _registered(facts.code):
        for found in _case_files(folders, options):
            if found.problem is not None:
                facts.misnamed.append((found.path, found.problem))
                continue
            try:
                examined = examine_case(found.path, root=options.root, mocks=options.mocks)
                facts.cases.append(CaseFacts(examined, os.path.abspath(options.root)))
            except SpecError as error:
                facts.broken += error.problems
    facts.declared += _declared_by_cases(facts.cases)


def _case_files(folders: Iterable[str], options: LintOptions) -> Iterator[FoundFile]:
    seen: set[str] = set()
    for folder in folders:
        below = _shown(os.path.normpath(options.root / folder), options.root)
        for found in find_cases([folder], options.root):
            shown = _shown(os.fspath(found.path), options.root)
            if shown not in seen and not options.is_excluded(shown, below=below, code=False):
                seen.add(shown)
                yield found


@contextmanager
def _registered(code: Code) -> Iterator[None]:
    """While inside, the checks and operators that the project's code registers are known names."""
    added: list[tuple[Table, str]] = []
    for kind, table in (("check", CHECKS), ("operator", OPERATORS)):
        for name in code.registered.get(kind, ()):
            if name not in table:
                table.add(name, _never_called)
                added.append((table, name))
    try:
        yield
    finally:
        for table, name in added:
            table.remove(name)


def _never_called(expected: Any, actual: Any) -> bool:
    """Stands for registered code while names are checked."""
    return True


def _declared_by_cases(cases: list[CaseFacts]) -> Iterator[Declared]:
    """The functions of suites and cases. Cases of one suite share its mapping, which is read once."""
    seen: set[int] = set()
    for case in cases:
        functions = case.examined.data.get("functions")
        if id(functions) in seen:
            continue
        seen.add(id(functions))
        file = case.suite_file(functions) or case.file
        for key, entry in _entries(functions):
            root = ("functions", key)
            name = key if isinstance(key, str) else entry.get("name")
            if isinstance(name, str):
                yield declaration(
                    name, entry, file=file, form=SUITE, locate=case.locator(root), add_alias=case.alias_adder(root)
                )


def _entries(functions: Any) -> Iterator[tuple[str | int, dict[str, Any]]]:
    pairs = (
        functions.items()
        if isinstance(functions, dict)
        else enumerate(functions if isinstance(functions, list) else ())
    )
    for key, entry in pairs:
        if isinstance(entry, dict) or entry is None:
            yield key, entry or {}
