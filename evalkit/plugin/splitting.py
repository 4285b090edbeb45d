"""Parts of the cases: batches that may run ahead together, and the shard of --evalkit-shard I/N.

In one process all neighbours are a batch, under xdist a part of them. Of the cases that are selected, a process keeps
those of its shard; each process of xdist splits for itself, and all find the same.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from hashlib import sha256
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import to_builtins

from evalkit.hosts.reports.run_file import read_durations
from evalkit.lazy import LazyModule
from evalkit.plugin.collection import get_case_id
from evalkit.plugin.configuration import EXCHANGE_KEY, SELECTION
from evalkit.records.case import split_case_id
from evalkit.records.codec import decode
from evalkit.records.run import Selection
from evalkit.spec.files import SUITE_FILE

if TYPE_CHECKING:
    from evalkit.execution import shards
    from evalkit.execution.shards import Shard
else:
    shards = LazyModule("evalkit.execution.shards")

BATCHES_PER_WORKER = 4
_ABANDONED_S = 86_400.0  # after which files of a killed run are removed


def parse_case_id(node_id: str) -> str | None:
    """Return the case id in the node id of a case, ``folder/a_001.yaml::a_001``; None for any other test.

    A row follows in brackets, as ``::a_001[gold]``, and under xdist's loadgroup ``@group``.
    """
    file, separator, name = node_id.partition("::")
    stem, dot, ending = file.rpartition("/")[2].partition(".")
    name = name.partition("@")[0]
    row = name[len(stem) :]
    is_case = separator and dot and ending.lower() in ("yaml", "yml") and name.startswith(stem)
    return file + row if is_case and (not row or (row[0] == "[" and row[-1] == "]")) else None


def split_into_batches(ids: Sequence[str], workers: int) -> dict[str, int]:
    """Return the number of each id's batch: about four batches a worker, in the order of collection."""
    size = max(1, -(-len(ids) // (max(workers, 1) * BATCHES_PER_WORKER)))
    return {node_id: place // size for place, node_id in enumerate(ids)}


def allow_replacement(config: pytest.Config) -> None:
    """Have xdist replace one more worker, since the one that died brought the run on: its culprit is known or sought.

    By itself xdist gives up after four deaths a worker and leaves the other tests without a result. That is for workers
    that die before they begin; who gives --max-worker-restart means every death.
    """
    session = config.pluginmanager.getplugin("dsession")
    if config.getoption("maxworkerrestart") is None and session._max_worker_restart is not None:
        session._max_worker_restart += 1


def _remove_abandoned_folders() -> None:
    """Remove what runs that were killed have left in the folder for temporary files, a day later.

    Not at once: a process of another container may have the same folder, and is not seen here.
    """
    for file in Path(tempfile.gettempdir()).glob("evalkit-[0-9]*-*"):
        with suppress(OSError, ValueError):
            is_old = time.time() - file.stat().st_mtime > _ABANDONED_S
            if is_old and not os.path.isdir(f"/proc/{int(file.name.split('-')[1])}"):
                shutil.rmtree(file) if file.is_dir() else file.unlink()


class WorkerExchange:
    """A folder in which the controller and its workers, on the same machine, exchange facts beside xdist."""

    def __init__(self, folder: str | None = None) -> None:
        self._existing_folder = folder

    @cached_property
    def folder(self) -> Path:
        """The folder, made when it is first used: sessions without workers need none."""
        if self._existing_folder is not None:
            return Path(self._existing_folder)
        _remove_abandoned_folders()
        return Path(tempfile.mkdtemp(prefix=f"evalkit-{os.getpid()}-"))

    def start_batches(self) -> None:
        """Announce that cases are distributed by whole batches."""
        (self.folder / "batches").touch()

    @property
    def has_batches(self) -> bool:
        return (self.folder / "batches").exists()

    def set_apart(self, node_ids: Iterable[str]) -> None:
        """Add tests that are run one by one from now on."""
        with (self.folder / "alone").open("a", encoding="utf-8") as file:
            file.writelines(f"{node_id}\n" for node_id in node_ids)

    def read_apart(self) -> frozenset[str]:
        try:
            return frozenset((self.folder / "alone").read_text("utf-8").splitlines())
        except FileNotFoundError:
            return frozenset()

    def write_marked(self, cases: Mapping[str, str]) -> None:
        """Write node id -> case id of the ordinary tests that run cases, the same in every worker."""
        file = self.folder / f"marked-{os.getpid()}"
        file.write_text(json.dumps(cases), "utf-8")
        file.replace(self.folder / "marked")

    def read_marked(self) -> dict[str, str]:
        """Return the node ids and case ids that a worker has written."""
        try:
            cases: dict[str, str] = json.loads((self.folder / "marked").read_text("utf-8"))
        except FileNotFoundError:
            return {}
        return cases

    def remove(self) -> None:
        if "folder" in self.__dict__ and self._existing_folder is None:
            shutil.rmtree(self.folder, ignore_errors=True)


class BatchPlan:
    """The cases that may start while another one is in its protocol: in one process all, under xdist those of its
    batch.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._worker: dict[str, object] | None = getattr(config, "workerinput", None)
        folder = None if self._worker is None else self._worker.get(EXCHANGE_KEY)
        self._exchange = None if folder is None else WorkerExchange(str(folder))
        self._batches: dict[str, int] = {}

    def plan(self, node_ids: Iterable[str]) -> None:
        """Make the batches of all node ids of this process, in the order of collection, which every worker shares."""
        if self._worker is not None:
            cases = [node_id for node_id in node_ids if parse_case_id(node_id) is not None]
            self._batches = split_into_batches(cases, int(str(self._worker["workercount"])))

    def can_run_ahead(self, item: pytest.Item) -> bool:
        """Return whether any other case may start while `item` is in its protocol."""
        exchange = self._exchange
        return self._worker is None or (
            exchange is not None and exchange.has_batches and item.nodeid not in exchange.read_apart()
        )

    def is_same_batch(self, item: pytest.Item, later: pytest.Item) -> bool:
        """Return whether `later` may start while `item` is in its protocol, if any case may."""
        return self._worker is None or self._batches[item.nodeid] == self._batches[later.nodeid]


_OUTPUT = "evalkit_selection"  # the key of xdist's workeroutput that carries it


class Sharding:
    """The hook that registers the splitter after pytest's own plugins, so that it comes after all of them, --lf
    included.
    """

    def __init__(self, config: pytest.Config, shard: Shard, durations: tuple[Path, ...]) -> None:
        self._splitter = Splitter(config, shard, read_durations(durations))

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        session.config.pluginmanager.register(self._splitter, "evalkit-splitter")


class Splitter:
    """The hooks that deselect the cases of other shards. Tests that run no case are kept."""

    def __init__(self, config: pytest.Config, shard: Shard, seconds: Mapping[str, float]) -> None:
        self._config = config
        self._shard = shard
        self._seconds = seconds

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Split what all other plugins have selected."""
        yield
        ids = list(dict.fromkeys(case_id for item in items if (case_id := get_case_id(item)) is not None))
        parts = shards.split(ids, self._shard.total, self._seconds)
        places = tuple(place for place, case_id in enumerate(ids) if parts[case_id] == self._shard.number)
        self._config.stash[SELECTION] = Selection(
            count=len(ids),
            fingerprint=shards.compute_fingerprint(ids),
            content=compute_content_hash(self._config.rootpath, ids),
            places=places,
        )
        deselected_items = [item for item in items if not self._is_ours(item, parts)]
        if deselected_items:
            items[:] = [item for item in items if self._is_ours(item, parts)]
            self._config.hook.pytest_deselected(items=deselected_items)

    def _is_ours(self, item: pytest.Item, parts: Mapping[str, int]) -> bool:
        case_id = get_case_id(item)
        return case_id is None or parts[case_id] == self._shard.number

    def pytest_report_collectionfinish(self) -> str:
        selection = self._config.stash[SELECTION]
        how = f", balanced by {len(self._seconds)} recorded durations" if self._seconds else ""
        cases = f"{len(selection.places)} of {selection.count} cases"
        return f"evalkit: shard {self._shard}: {cases}{how}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        output: dict[str, Any] | None = getattr(self._config, "workeroutput", None)
        selection = self._config.stash.get(SELECTION, None)
        if output is not None and selection is not None:
            output[_OUTPUT] = to_builtins(selection)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Take the selection from any worker that lived: the controller collects nothing."""
        selection = getattr(node, "workeroutput", {}).get(_OUTPUT)
        if selection:
            self._config.stash[SELECTION] = decode(Selection, selection)


def compute_content_hash(root: Path, case_ids: Iterable[str]) -> str:
    """Return 16 hexadecimal digits that are equal for equal texts of case files and of the suites above them.

    Line ends don't count, which git may write differently on each machine.
    """
    files = {split_case_id(case_id)[0] for case_id in case_ids}
    for folder in {PurePath(case_id).parent for case_id in files}:
        files.update((above / SUITE_FILE).as_posix() for above in (folder, *folder.parents))
    digest = sha256()
    for file in sorted(files):
        try:
            with open(os.path.join(root, file), "rb") as text:
                digest.update(sha256(text.read().replace(b"\r\n", b"\n")).digest())
        except OSError:  # no suite there, or a case that is no file any more
            digest.update(b"-")
    return digest.hexdigest()[:16]
