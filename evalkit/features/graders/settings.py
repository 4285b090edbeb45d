"""What [tool.evalkit] says of graders: the model that grades, and the labels by which it is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evalkit.config import read_strings, read_text
from evalkit.jsonvalue import JsonDict

GRADER, JUDGE_CHECK = "grader", "judge_check"


def read_setting(key: str, value: object) -> Any:
    """Check and convert the value of a key. ValueError says what was expected."""
    return _read_graders(value) if key == GRADER else _read_judge_check(value)


def _read_graders(value: object) -> str:
    """Read a model, or the models of a panel as a list or with commas between them."""
    if isinstance(value, list) and value and all(isinstance(item, str) and item.strip() for item in value):
        return ", ".join(item.strip() for item in value)
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError("a text" if isinstance(value, str) else "a model, or a list of models")


def _read_judge_check(value: object) -> JsonDict:
    if not isinstance(value, dict) or not set(value) <= set(_KEYS):
        raise ValueError(f"a table with {', '.join(_KEYS)}")
    return {name: _KEYS[name](item) for name, item in value.items()}


def _read_covered(value: object) -> tuple[str, ...]:
    try:
        return read_strings(value)
    except ValueError:
        raise ValueError("a table whose covers is a list of criteria, with * for any text") from None


def _read_share(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError("a table whose min_kappa and min_kappa_low are numbers from 0 to 1")


_KEYS: dict[str, Callable[[Any], Any]] = {
    "labels": read_text,
    "min_kappa": _read_share,
    "min_kappa_low": _read_share,
    "covers": _read_covered,
}


def read_demands(judge_check: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the demands on graders that the gate of a run makes: those of a project that names its labels."""
    table = judge_check if judge_check is not None and "labels" in judge_check else {}
    demands = {name: table[name] for name in ("min_kappa", "min_kappa_low") if name in table}
    return {**demands, "covered_criteria": table["covers"]} if "covers" in table else demands
