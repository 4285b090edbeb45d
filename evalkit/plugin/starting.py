"""Setting a session up, in every process alike: the paths rule, sys.path, and the plugin objects."""

from __future__ import annotations

import os
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from evalkit.errors import UsageError, did_you_mean
from evalkit.plugin.collection import Collection, PassedOver, Paths
from evalkit.plugin.configuration import PART, Configuration, read_configuration
from evalkit.plugin.keeping import Keeper
from evalkit.plugin.running import Runner


def start(config: pytest.Config) -> None:
    """Register what this process needs; in a worker of xdist that is all but the keeper of results."""
    try:
        configuration = read_configuration(config)
        check_the_model(configuration)
        put_first_on_path(config)
        config.add_cleanup(partial(_look_for_threads, frozenset(threading.enumerate())))
        paths = choose_paths(config, configuration)
        config.stash[PART] = paths.are_part
        runner = Runner(config, configuration)
        config.pluginmanager.register(Collection(config, configuration, paths), "evalkit-collection")
        config.pluginmanager.register(runner, "evalkit-runner")
        if config.getoption("lf", False):
            config.pluginmanager.register(PassedOver(runner), "evalkit-passed-over")
        take_a_shard(config, configuration)
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Keeper(config, configuration, runner), "evalkit-keeper")
            update_cases(config, configuration)
            warn_of_findings(config, configuration)
            if configuration.faults:
                from evalkit.plugin.faults import FaultCounter

                config.pluginmanager.register(FaultCounter(), "evalkit-faults")
    except UsageError as error:
        raise pytest.UsageError(f"evalkit: {error}") from None


def check_the_model(configuration: Configuration) -> None:
    """A model or grader that can't be opened is told once, before anything runs. Nothing is imported for a run
    offline.
    """
    settings = configuration.settings
    if settings.model is not None or settings.grader is not None:
        from evalkit.agents.models import check_model

        check_model(settings.model)
        check_model(settings.grader, "the grader: ")


def _look_for_threads(before: frozenset[threading.Thread]) -> None:
    """Nothing is imported unless there are threads that agents have started."""
    if not all(thread.name.startswith("evalkit-") or thread in before for thread in threading.enumerate()):
        from evalkit.plugin.lingering import tell_of_lingering

        tell_of_lingering()


def take_a_shard(config: pytest.Config, configuration: Configuration) -> None:
    """Nothing of shards is imported unless one is asked for."""
    if configuration.shard is not None:
        from evalkit.plugin.sharding import Sharding

        durations = () if configuration.durations is None else (configuration.durations,)
        config.pluginmanager.register(Sharding(config, configuration.shard, durations), "evalkit-sharding")


def update_cases(config: pytest.Config, configuration: Configuration) -> None:
    """Registered after the keeper, which takes the verdicts from the reports: hooks of the last come first."""
    dry = config.getoption("evalkit_update_diff")
    if dry or config.getoption("evalkit_update"):
        if configuration.faults:
            raise UsageError("--evalkit-faults and --evalkit-update exclude each other: a sweep writes no expectation")
        from evalkit.plugin.updating import Updater

        config.pluginmanager.register(Updater(configuration.root, writes=not dry), "evalkit-updater")


def warn_of_findings(config: pytest.Config, configuration: Configuration) -> None:
    """Nothing of lint is imported unless the project asks for it."""
    if configuration.lint is not None:
        from evalkit.lint.options import options_of_project
        from evalkit.plugin.linting import Linting

        options = options_of_project(configuration.lint, root=configuration.root)
        config.pluginmanager.register(Linting(options), "evalkit-linting")


def put_first_on_path(config: pytest.Config) -> None:
    """The project's root, and before it pytest's `pythonpath`: under the console script neither need be there."""
    wanted = [os.fspath(path) for path in (*config.getini("pythonpath"), config.rootpath)]
    sys.path[:0] = [entry for entry in wanted if entry not in sys.path[: len(wanted)]]


def choose_paths(config: pytest.Config, configuration: Configuration) -> Paths:
    """Without paths on the command line, collect the case folders and nothing else, whatever `testpaths` says.

    xdist hands its workers the original arguments, so each process applies the rule for itself.
    """
    if config.args_source is config.ArgsSource.ARGS:
        named = tuple(_path_of(argument, config.invocation_params.dir) for argument in config.args)
        for argument, path in zip(config.args, named, strict=True):
            near = _near(path)
            if near:
                raise UsageError(f"there is no '{argument.partition('::')[0]}'{near}")
        return Paths(configuration.paths, named)
    missing = [path for path in configuration.paths if not path.exists()]
    if missing:
        raise UsageError(_no_folder(missing[0], configuration))
    config.args = [os.fspath(path) for path in configuration.paths]
    config.args_source = config.ArgsSource.ARGS
    return Paths(configuration.paths, ())


def _path_of(argument: str, start: Path) -> Path:
    return Path(os.path.normpath(start / argument.split("::")[0]))


def _near(path: Path) -> str:
    """What `path`, if it does not exist, may have been meant to be; pytest only says that it is not there."""
    if path.exists() or not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, sorted(entry.name for entry in path.parent.iterdir()))


def _no_folder(path: Path, configuration: Configuration) -> str:
    shown = os.path.relpath(path, configuration.root)
    if configuration.paths_are_default:
        from evalkit.spec.discovery import seen_above

        hint = seen_above(shown, configuration.root) or "; `evalkit init` makes one, or set evalkit_paths"
        return f"there is no folder '{shown}' in {configuration.root}{hint}"
    return f"evalkit_paths: there is no '{shown}' in {configuration.root}"
