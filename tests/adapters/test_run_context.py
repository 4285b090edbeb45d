"""Frameworks are hooked once, whoever comes first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from evalkit.adapters.common import run_once


def test_a_hook_does_its_work_once_however_many_call_it() -> None:
    done: list[str] = []

    @run_once
    def hook() -> None:
        """Changes something."""
        done.append("changed")

    with ThreadPoolExecutor(4) as pool:
        for asked in [pool.submit(hook) for _ in range(20)]:
            asked.result()
    assert (done, hook.__doc__) == (["changed"], "Changes something.")
