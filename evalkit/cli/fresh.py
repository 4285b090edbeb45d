"""`evalkit new`: the next case file of a category, with the functions that its suite declares filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evalkit import yamlfile
from evalkit.errors import SpecError, UsageError
from evalkit.functions import parse_declarations
from evalkit.model.case import Declaration
from evalkit.probing.schemas import schema_example
from evalkit.spec.naming import is_case_name, stem_problem
from evalkit.spec.suites import suites_of

_NUMBERED = re.compile(r".*_[0-9]+")
_HINT = "# Says nothing yet: put in what your case is about, and see `evalkit smoke` for whether it can be met.\n"


def write_case(target: Path, message: str | None) -> Path:
    """Write the case `target`: a name with its number, or a category, which gets the next number. Says where.

    Raises UsageError, and writes nothing, where the name is none, the file is there, or the suite is broken.
    """
    path = _path(target)
    problem = stem_problem(path.name)
    if problem is not None:
        raise UsageError(f"{path}: {problem}")
    if path.exists():
        raise UsageError(f"{path} is there already; name only its category, and it gets the next number")
    case = _case(path, message)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_HINT + yamlfile.dump(case), "utf-8", newline="\n")
    return path


def _path(target: Path) -> Path:
    if target.suffix in (".yaml", ".yml"):
        return target
    if _NUMBERED.fullmatch(target.name):
        return target.with_name(f"{target.name}.yaml")
    folder = target.parent
    beside = [path.stem for path in folder.iterdir() if is_case_name(path.name)] if folder.is_dir() else []
    numbers = [stem.removeprefix(f"{target.name}_") for stem in beside if stem.startswith(f"{target.name}_")]
    taken = [number for number in numbers if number.isdigit()]
    width = max(map(len, taken), default=3)
    return folder / f"{target.name}_{max(map(int, taken), default=0) + 1:0{width}}.yaml"


def _case(path: Path, message: str | None) -> dict[str, Any]:
    suite = suites_of(str(path.parent.resolve()), str(Path.cwd()))
    if suite.problems:
        raise SpecError(suite.problems)
    given = suite.data.get("input")
    mocks = given.get("mock_function_responses") if isinstance(given, Mapping) else None
    declared, problems = parse_declarations(suite.data.get("functions"), check_targets=False)
    if problems:
        raise UsageError(f"the functions of the suite: {problems[0].message}; see `evalkit lint`")
    unanswered = [one for one in declared if one.name not in (mocks or {})]
    said: dict[str, Any] = {"message": message or "What the user says"}
    if unanswered:
        said["mock_function_responses"] = {
            one.name: schema_example(one.returns or {"type": "object"}) for one in unanswered
        }
    found = {"description": "What this case is about", "input": said}
    if "agent" not in suite.data and not declared:
        found = {"description": found["description"], "agent": "your_agent", "input": said}
    return {**found, "expected_output": {"expected_function_calls": [_expected(one) for one in declared]}}


def _expected(one: Declaration) -> dict[str, Any]:
    arguments = schema_example(one.parameters) if one.parameters else {}
    return {"function_name": one.name, **({"arguments": arguments} if arguments else {})}
