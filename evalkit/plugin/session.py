"""Setting a session up, in every process alike: the paths rule, sys.path, and the plugin objects."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from evalkit.errors import UsageError, did_you_mean
from evalkit.plugin.case_runner import CaseRunner
from evalkit.plugin.collection import CasePaths, Collection, SkippedFileCounter
from evalkit.plugin.configuration import IS_PARTIAL, Configuration, read_configuration
from evalkit.plugin.result_collector import ResultCollector


def start(config: pytest.Config) -> None:
    """Register what this process needs; in a worker of xdist that is all but the keeper of results."""
    try:
        configuration = read_configuration(config)
        check_models(configuration)
        insert_into_path(config)
        config.add_cleanup(partial(_check_unfinished_threads, frozenset(threading.enumerate())))
        paths = select_paths(config, configuration)
        config.stash[IS_PARTIAL] = paths.is_partial
        runner = CaseRunner(config, configuration)
        config.pluginmanager.register(Collection(config, configuration, paths), "evalkit-collection")
        config.pluginmanager.register(runner, "evalkit-runner")
        if config.getoption("lf", False):
            config.pluginmanager.register(SkippedFileCounter(runner), "evalkit-passed-over")
        register_sharding(config, configuration)
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(ResultCollector(config, configuration, runner), "evalkit-keeper")
            register_updater(config, configuration)
            register_linting(config, configuration)
            if configuration.faults:
                from evalkit.plugin.terminal import FaultSweepSummary

                config.pluginmanager.register(FaultSweepSummary(), "evalkit-faults")
    except UsageError as error:
        raise pytest.UsageError(f"evalkit: {error}") from None


def check_models(configuration: Configuration) -> None:
    """A model or grader that can't be opened is told once, before anything runs. Nothing is imported for a run
    offline.
    """
    settings = configuration.settings
    if settings.model is not None or settings.grader is not None:
        from evalkit.agents.model_choice import check_model

        check_model(settings.model)
        check_model(settings.grader, "the grader: ")


def _check_unfinished_threads(threads_before: frozenset[threading.Thread]) -> None:
    """Nothing is imported unless there are threads that agents have started."""
    if not all(thread.name.startswith("evalkit-") or thread in threads_before for thread in threading.enumerate()):
        report_unfinished_threads()


def register_sharding(config: pytest.Config, configuration: Configuration) -> None:
    """Nothing of shards is imported unless one is asked for."""
    if configuration.shard is not None:
        from evalkit.plugin.sharding import Sharding

        durations = () if configuration.durations is None else (configuration.durations,)
        config.pluginmanager.register(Sharding(config, configuration.shard, durations), "evalkit-sharding")


def register_updater(config: pytest.Config, configuration: Configuration) -> None:
    """Registered after the keeper, which takes the verdicts from the reports: hooks of the last come first."""
    dry = config.getoption("evalkit_update_diff")
    if dry or config.getoption("evalkit_update"):
        if configuration.faults:
            raise UsageError("--evalkit-faults and --evalkit-update exclude each other: a sweep writes no expectation")
        from evalkit.plugin.update import Updater

        config.pluginmanager.register(Updater(configuration.root, writes=not dry), "evalkit-updater")


def register_linting(config: pytest.Config, configuration: Configuration) -> None:
    """Nothing of lint is imported unless the project asks for it."""
    if configuration.lint is not None:
        from evalkit.lint.options import read_project_options
        from evalkit.plugin.lint import Linting

        options = read_project_options(configuration.lint, root=configuration.root)
        config.pluginmanager.register(Linting(options), "evalkit-linting")


def insert_into_path(config: pytest.Config) -> None:
    """The project's root, and before it pytest's `pythonpath`: under the console script neither need be there."""
    entries = [os.fspath(path) for path in (*config.getini("pythonpath"), config.rootpath)]
    sys.path[:0] = [entry for entry in entries if entry not in sys.path[: len(entries)]]


def select_paths(config: pytest.Config, configuration: Configuration) -> CasePaths:
    """Without paths on the command line, collect the case folders and nothing else, whatever `testpaths` says.

    xdist hands its workers the original arguments, so each process applies the rule for itself.
    """
    if config.args_source is config.ArgsSource.ARGS:
        arguments = tuple(_parse_path_argument(argument, config.invocation_params.dir) for argument in config.args)
        for argument, path in zip(config.args, arguments, strict=True):
            suggestion = _find_similar_name(path)
            if suggestion:
                raise UsageError(f"there is no '{argument.partition('::')[0]}'{suggestion}")
        return CasePaths(configuration.paths, arguments)
    missing = [path for path in configuration.paths if not path.exists()]
    if missing:
        raise UsageError(_explain_missing_folder(missing[0], configuration))
    config.args = [os.fspath(path) for path in configuration.paths]
    config.args_source = config.ArgsSource.ARGS
    return CasePaths(configuration.paths, ())


def _parse_path_argument(argument: str, start: Path) -> Path:
    return Path(os.path.normpath(start / argument.split("::")[0]))


def _find_similar_name(path: Path) -> str:
    """What `path`, if it does not exist, may have been meant to be; pytest only says that it is not there."""
    if path.exists() or not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, sorted(entry.name for entry in path.parent.iterdir()))


def _explain_missing_folder(path: Path, configuration: Configuration) -> str:
    relative_path = os.path.relpath(path, configuration.root)
    if configuration.paths_are_default:
        from evalkit.spec.discover import describe_folder_above

        hint = (
            describe_folder_above(relative_path, configuration.root)
            or "; `evalkit init` makes one, or set evalkit_paths"
        )
        return f"there is no folder '{relative_path}' in {configuration.root}{hint}"
    return f"evalkit_paths: there is no '{relative_path}' in {configuration.root}"


# A thread that an agent started and that does not end keeps Python from ending: the run is over, and nothing says why
# the process is still there. So it is said.

PATIENCE_S = 3.0  # threads that are about to end need no mention


def report_unfinished_threads() -> None:
    """Say so on stderr if Python, on its way out, has waited for some time."""
    threading.Thread(target=_wait_and_report, name="evalkit-lingering", daemon=True).start()


def _wait_and_report() -> None:
    time.sleep(PATIENCE_S)
    frames = list(_walk_main_frames())
    is_ending = bool(frames) and frames[-1].f_code.co_name == "_shutdown"  # it has left the program
    if is_ending and sys.__stderr__ is not None:
        names = ", ".join(sorted(_find_awaited_threads(frames)))
        print(f"evalkit: the run is over, and Python waits for threads that did not end: {names}", file=sys.__stderr__)
        print("evalkit: agents should end what they start; Ctrl-C ends it now", file=sys.__stderr__, flush=True)


def _walk_main_frames() -> Iterator[FrameType]:
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _find_awaited_threads(frames: list[FrameType]) -> set[str]:
    """Names of threads that are no daemons, and of the one of an executor that is joined: it may be a daemon."""
    plain = {each.name for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()}
    joined_threads = {each for frame in frames if isinstance(each := frame.f_locals.get("self"), threading.Thread)}
    return plain | {each.name for each in joined_threads}
