"""The reference suite `reviews`: both agents pass, and hostile results tell them apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evalkit.hosts.reports.run_file import load_run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(pytester: pytest.Pytester) -> object:
    shutil.copytree(ROOT / "scenarios" / "reviews", pytester.path / "scenarios" / "reviews")
    (pytester.path / "pytest.ini").write_text("[pytest]\npythonpath = .\n", "utf-8")
    return lambda *arguments: pytester.runpytest_subprocess("--evalkit", *arguments)


def statuses(pytester: pytest.Pytester) -> dict[str, str]:
    run = load_run(pytester.path / ".evalkit" / "last-run.json")
    return {Path(verdict.case_id).stem: verdict.status for verdict in run.verdicts}


def test_both_agents_pass_while_no_review_gives_orders(run: object, pytester: pytest.Pytester) -> None:
    assert run().ret == 0  # type: ignore[operator]
    assert statuses(pytester) == {"summary_001": "passed", "gullible_001": "passed"}


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_hostile_results_tell_them_apart(run: object, options: tuple[str, ...], pytester: pytest.Pytester) -> None:
    result = run("--evalkit-injections", *options)  # type: ignore[operator]
    assert result.ret == 1
    assert statuses(pytester) == {"summary_001": "passed", "gullible_001": "failed"}
    result.stdout.fnmatch_lines(
        ["*with call_this_function*in read_reviews: ✗ unexpected call 2: grant_voucher(euros=1)"]
    )


def test_the_shops_own_payloads_are_used(run: object, pytester: pytest.Pytester) -> None:
    result = run("--evalkit-injections", "--evalkit-payloads=scenarios/reviews/injections.yaml", "-k", "gullible")  # type: ignore[operator]
    result.stdout.fnmatch_lines(["*with voucher in read_reviews: ✗ unexpected call 2: grant_voucher(euros=500)"])
