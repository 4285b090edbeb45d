"""--evalkit-shard I/N: of the cases that are selected, this process keeps those of its shard.

Each process of xdist splits for itself, and all find the same.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any

import pytest

from evalkit.execution.shards import Shard, compute_fingerprint, split
from evalkit.model.codec import decode, encode
from evalkit.model.run import Selection
from evalkit.plugin.collection import get_case_id
from evalkit.plugin.configuration import SELECTION
from evalkit.reports.run_file import read_durations
from evalkit.spec.files import SUITE_FILE

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
        parts = split(ids, self._shard.total, self._seconds)
        places = tuple(place for place, case_id in enumerate(ids) if parts[case_id] == self._shard.number)
        self._config.stash[SELECTION] = Selection(
            count=len(ids),
            fingerprint=compute_fingerprint(ids),
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
            output[_OUTPUT] = encode(selection)

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
    files = set(case_ids)
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
