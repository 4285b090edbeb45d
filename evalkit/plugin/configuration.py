"""What a session is told, from flags, ini options and [tool.evalkit], checked and typed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from evalkit.errors import UsageError
from evalkit.model.redaction import secrets_of
from evalkit.model.run import Policy, Selection
from evalkit.model.settings import Settings
from evalkit.plugin.metering import metering
from evalkit.plugin.options import OPTIONS, SHARD, SWITCHES, flag_of, told
from evalkit.project import POLICY, project_table, read_value

if TYPE_CHECKING:
    from evalkit.execution.shards import Shard

SELECTION: pytest.StashKey[Selection] = pytest.StashKey()  # what the shards were made of, once it is collected
PART: pytest.StashKey[bool] = pytest.StashKey()  # whether paths on the command line leave cases out of sight

DEFAULT_PATHS = ("scenarios",)
DEFAULT_CONCURRENCY = 50
DEFAULT_FALLBACK_RATE = "10"
DEFAULT_RESULTS = ".evalkit/last-run.json"
_LISTINGS = ("collectonly", "showfixtures", "show_fixtures_per_test", "setuponly", "setupplan", "cacheshow")


def only_lists(config: pytest.Config) -> bool:
    """Whether pytest is asked to list something, and runs nothing."""
    return any(getattr(config.option, name, False) for name in _LISTINGS)


class Configuration(Struct, frozen=True, kw_only=True):
    """One session's settings. `trace` None: failed traces, and passed ones of small runs."""

    root: Path
    paths: tuple[Path, ...]
    paths_are_default: bool
    results: Path
    policy: Policy
    settings: Settings
    agent: str | None = None
    baseline: Path | None = None
    html: Path | None = None
    otlp: str | None = None  # an OTLP/HTTP endpoint
    trace: str | None = None
    concurrency: int = DEFAULT_CONCURRENCY
    conversation: bool = False
    resume: bool = False
    faults: bool = False
    shard: Shard | None = None
    executor: str | None = None  # the address of a cluster
    durations: Path | None = None  # what shards are balanced by
    secrets: tuple[str, ...] = ()  # values, from the environment
    secret_keys: tuple[str, ...] = ()
    max_fallback_rate: str = DEFAULT_FALLBACK_RATE  # percent; above it the summary warns
    lint: Mapping[str, Any] | None = None  # what lint has to know, if it is to warn of its findings


def read_configuration(config: pytest.Config) -> Configuration:
    """Raises UsageError that names the option and what it should be."""
    table = project_table(config.rootpath)
    return _Reader(config, table).configuration()


_MODELS = ("model", "grader", "record")
_SETTINGS = (*_MODELS, "deadline_s", "max_iterations", "temperature", "seed", "strict_mocks", "prices")
_FOLDERS = ("cassettes", "mocks")
_LINTED = ("paths", "mocks", "lint")


class _Reader:
    """Looks a name up in the flags, the ini options and the table, and says which of them was wrong."""

    def __init__(self, config: pytest.Config, table: Mapping[str, Any]) -> None:
        self._config = config
        self._table = table

    def value(self, name: str) -> Any:
        said = told(self._config, name) if name in OPTIONS or name in SWITCHES else None
        if said is not None:
            return read_value(name, said, self._source(name))
        if name in self._table:
            return read_value(name, self._table[name], f"tool.evalkit.{name}")
        return None

    def _source(self, name: str) -> str:
        by_flag = (name in SWITCHES or OPTIONS[name][0] is not None) and self._config.getoption(
            f"evalkit_{name}"
        ) is not None
        return flag_of(name) if by_flag else f"evalkit_{name}"

    def path(self, name: str, default: str | None = None) -> Path | None:
        """Paths on the command line are relative to where pytest was started, others to the project's root."""
        value = self.value(name) or default
        if value is None:
            return None
        by_flag = name in OPTIONS and OPTIONS[name][0] and self._config.getoption(f"evalkit_{name}") is not None
        return (self._config.invocation_params.dir if by_flag else self._config.rootpath) / value

    def _shard(self) -> Shard | None:
        said = self._config.getoption(f"evalkit_{SHARD}")
        if said is None:
            return None
        from evalkit.execution.shards import parse_shard

        try:
            return parse_shard(said)
        except ValueError as error:
            raise UsageError(f"{flag_of(SHARD)}: {said!r} is not {error}") from None

    def _told(self, names: tuple[str, ...]) -> dict[str, Any]:
        return {name: value for name in names if (value := self.value(name)) is not None}

    def _settings(self, results: Path, secrets: tuple[str, ...]) -> Settings:
        folders: dict[str, Any] = {name: Path(value) for name, value in self._told(_FOLDERS).items()}
        return Settings(
            root=self._config.rootpath,
            extra={"secrets": secrets, "secret_keys": self.value("secret_keys") or ()},
            allow_real=bool(self._config.getoption("evalkit_allow_real")),
            real_sleep=bool(self._config.getoption("evalkit_real_sleep")),
            **self._told(_SETTINGS),
            **metering(self.value, self._config, results),
            **folders,
        )

    def configuration(self) -> Configuration:
        root = self._config.rootpath
        paths = self.value("paths")
        results = self.path("results", DEFAULT_RESULTS)
        secrets = secrets_of(os.environ)
        assert results is not None
        if results.exists() and not results.is_file():  # /dev/null, say, over which a finished file must not be renamed
            raise UsageError(
                f"{self._source('results')}: {results} is no regular file, and reports are made of it; name another"
            )
        policy = Policy(**self._told(POLICY))
        if policy.no_regressions and self.path("baseline") is None:
            raise UsageError(f"{flag_of('no_regressions')} needs a baseline: {flag_of('baseline')} FILE")
        return Configuration(
            root=root,
            paths=tuple(root / path for path in paths or DEFAULT_PATHS),
            paths_are_default=paths is None,
            results=results,
            policy=policy,
            settings=self._settings(results, secrets),
            secrets=secrets,
            agent=self.value("agent"),
            baseline=self.path("baseline"),
            html=self.path("html"),
            otlp=self.value("otlp"),
            trace=self.value("trace"),
            concurrency=self.value("concurrency") or DEFAULT_CONCURRENCY,
            conversation=self.value("show") == "conversation",
            resume=bool(self.value("resume")),
            faults=bool(self._config.getoption("evalkit_faults")),
            shard=self._shard(),
            executor=self.value("executor"),
            durations=self.path("durations"),
            secret_keys=self.value("secret_keys") or (),
            max_fallback_rate=self.value("max_fallback_rate") or DEFAULT_FALLBACK_RATE,
            lint=self._told(_LINTED) if (self.value("lint") or {}).get("in_collection") else None,
        )
