"""Batches of cases that may run ahead together: in one process all neighbours, under xdist a part of them."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import pytest

BATCHES_PER_WORKER = 4
EXCHANGE_KEY = "evalkit_rendezvous"  # the key of xdist's workerinput that names the folder


def parse_case_id(node_id: str) -> str | None:
    """Return the case id in the node id of a case, ``folder/a_001.yaml::a_001``; None for any other test.

    Under xdist's loadgroup ``@group`` follows.
    """
    file, separator, name = node_id.partition("::")
    stem, dot, ending = file.rpartition("/")[2].partition(".")
    is_case = separator and dot and ending.lower() in ("yaml", "yml") and name.partition("@")[0] == stem
    return file if is_case else None


def split_into_batches(ids: Sequence[str], workers: int) -> dict[str, int]:
    """Return the number of each id's batch: about four batches a worker, in the order of collection."""
    size = max(1, -(-len(ids) // (max(workers, 1) * BATCHES_PER_WORKER)))
    return {node_id: place // size for place, node_id in enumerate(ids)}


class WorkerExchange:
    """A folder in which the controller and its workers, on the same machine, exchange facts beside xdist."""

    def __init__(self, folder: str | None = None) -> None:
        self._existing_folder = folder

    @cached_property
    def folder(self) -> Path:
        """The folder, made when it is first used: sessions without workers need none."""
        return Path(self._existing_folder or tempfile.mkdtemp(prefix="evalkit-"))

    def start_batches(self) -> None:
        """Announce that cases are distributed by whole batches."""
        (self.folder / "buckets").touch()

    @property
    def has_batches(self) -> bool:
        return (self.folder / "buckets").exists()

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
