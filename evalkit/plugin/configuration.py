"""What a session is told, from flags, ini options and [tool.evalkit], checked and typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evalkit.errors import UsageError, did_you_mean
from evalkit.gate.rates import percentage
from evalkit.model.run import Policy
from evalkit.model.settings import Settings
from evalkit.plugin.options import OPTIONS, SWITCHES, flag_of, told

DEFAULT_PATHS = ("scenarios",)
DEFAULT_RESULTS = ".evalkit/last-run.json"
TRACES = ("failed", "all", "none")
SHOWN = ("calls", "conversation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """One session's settings. `trace` None: failed traces, and passed ones of small runs."""

    root: Path
    paths: tuple[Path, ...]
    paths_are_default: bool
    results: Path
    policy: Policy
    settings: Settings
    agent: str | None = None
    baseline: Path | None = None
    trace: str | None = None
    conversation: bool = False
    resume: bool = False
    secret_keys: tuple[str, ...] = ()


def read_configuration(config: pytest.Config) -> Configuration:
    """Raises UsageError that names the option and what it should be."""
    table = project_table(config.rootpath)
    return _Reader(config, table).configuration()


def project_table(root: Path) -> Mapping[str, Any]:
    """[tool.evalkit] of the project's pyproject.toml, its keys checked; empty if there is none."""
    file = root / "pyproject.toml"
    if not file.is_file():
        return {}
    import tomllib

    try:
        table = tomllib.loads(file.read_text("utf-8")).get("tool", {}).get("evalkit", {})
    except (OSError, ValueError) as error:
        raise UsageError(f"{file.name}: can't be read: {error}") from None
    if not isinstance(table, dict):
        raise UsageError(f"{file.name}: tool.evalkit is a table, got {table!r}")
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{file.name}: unknown key '{key}' in [tool.evalkit]{did_you_mean(key, _KEYS)}")
    return table


def _text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise ValueError("a text")


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError("true or false")


def _count(value: Any) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError("a whole number, 0 or more")


def _number(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise ValueError("a number, 0 or more")


def _rate(value: Any) -> str:
    # TOML's floats are binary; their shortest decimal form is what was written.
    text = str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("a percentage, such as 99 or 99.5")
    percentage(text, "")
    return text


def _strings(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise ValueError("a list of texts")


def _floors(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {category: _rate(floor) for category, floor in value.items()}
    raise ValueError("a table of categories and percentages")


def _prices(value: Any) -> dict[str, dict[str, float]]:
    if isinstance(value, dict) and all(isinstance(item, dict) for item in value.values()):
        return {model: {unit: _number(price) for unit, price in item.items()} for model, item in value.items()}
    raise ValueError("a table of models, each a table of prices")


def _one_of(*choices: str) -> Callable[[Any], str]:
    def chosen(value: Any) -> str:
        if value in choices:
            return str(value)
        raise ValueError(f"one of {', '.join(choices)}")

    return chosen


# Every key of [tool.evalkit], and how its value is read. Those that are also in OPTIONS have a flag or ini option.
_KEYS: dict[str, Callable[[Any], Any]] = {
    "paths": _strings,
    "agent": _text,
    "min_pass_rate": _rate,
    "min_lower_bound": _rate,
    "category_floors": _floors,
    "max_errors": _count,
    "max_skipped": _count,
    "max_cost_usd": _number,
    "max_text_call_rate": _rate,
    "no_regressions": _flag,
    "results": _text,
    "baseline": _text,
    "model": _text,
    "trace": _one_of(*TRACES),
    "show": _one_of(*SHOWN),
    "resume": _flag,
    "cassettes": _text,
    "mocks": _text,
    "deadline_s": _number,
    "max_iterations": _count,
    "temperature": _number,
    "seed": _count,
    "strict_mocks": _flag,
    "prices": _prices,
    "secret_keys": _strings,
}
_POLICY = (
    "min_pass_rate",
    "min_lower_bound",
    "category_floors",
    "max_errors",
    "max_skipped",
    "max_cost_usd",
    "max_text_call_rate",
    "no_regressions",
)
_SETTINGS = ("model", "deadline_s", "max_iterations", "temperature", "seed", "strict_mocks", "prices")
_FOLDERS = ("cassettes", "mocks")


class _Reader:
    """Looks a name up in the flags, the ini options and the table, and says which of them was wrong."""

    def __init__(self, config: pytest.Config, table: Mapping[str, Any]) -> None:
        self._config = config
        self._table = table

    def value(self, name: str) -> Any:
        said = told(self._config, name) if name in OPTIONS or name in SWITCHES else None
        if said is not None:
            return self._parsed(name, said, self._source(name))
        if name in self._table:
            return self._parsed(name, self._table[name], f"tool.evalkit.{name}")
        return None

    def _source(self, name: str) -> str:
        by_flag = (name in SWITCHES or OPTIONS[name][0] is not None) and self._config.getoption(
            f"evalkit_{name}"
        ) is not None
        return flag_of(name) if by_flag else f"evalkit_{name}"

    @staticmethod
    def _parsed(name: str, value: Any, source: str) -> Any:
        try:
            return _KEYS[name](value)
        except UsageError as error:
            raise UsageError(f"{source}{error}") from None
        except ValueError as error:
            raise UsageError(f"{source}: {value!r} is not {error}") from None

    def path(self, name: str, default: str | None = None) -> Path | None:
        """Paths on the command line are relative to where pytest was started, others to the project's root."""
        value = self.value(name) or default
        if value is None:
            return None
        by_flag = name in OPTIONS and OPTIONS[name][0] and self._config.getoption(f"evalkit_{name}") is not None
        return (self._config.invocation_params.dir if by_flag else self._config.rootpath) / value

    def _told(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name in names if (value := self.value(name)) is not None}

    def configuration(self) -> Configuration:
        root = self._config.rootpath
        paths = self.value("paths")
        folders: dict[str, Any] = {name: Path(value) for name, value in self._told(_FOLDERS).items()}
        results = self.path("results", DEFAULT_RESULTS)
        assert results is not None
        policy = Policy(**self._told(_POLICY))
        if policy.no_regressions and self.path("baseline") is None:
            raise UsageError(f"{flag_of('no_regressions')} needs a baseline: {flag_of('baseline')} FILE")
        return Configuration(
            root=root,
            paths=tuple(root / path for path in paths or DEFAULT_PATHS),
            paths_are_default=paths is None,
            results=results,
            policy=policy,
            settings=Settings(root=root, **self._told(_SETTINGS), **folders),
            agent=self.value("agent"),
            baseline=self.path("baseline"),
            trace=self.value("trace"),
            conversation=self.value("show") == "conversation",
            resume=bool(self.value("resume")),
            secret_keys=self.value("secret_keys") or (),
        )
