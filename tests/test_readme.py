"""The README is true: its case passes, its links lead somewhere, its commands are where .ci/run looks for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import evalkit
from evalkit.yamlfile.parse import load

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
(CASE,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)


def agent(task: evalkit.Task) -> str:
    serial = "SN12345" if "SN12345" in task.message else "SN99999"
    task.call("check_warranty", serial_number=serial)
    ticket = task.call("create_ticket", priority="high")
    return f"We opened {ticket['ticket_id']}."


def test_the_example_case_passes_for_an_agent_that_does_it_right() -> None:
    verdict = evalkit.run_case(evalkit.case_from_dict(load(CASE, "README.md")), agent)
    assert (verdict.status, verdict.reasons) == ("passed", ())


@pytest.mark.parametrize(
    ("word", "other", "code"),
    [
        ("arguments: {serial_number: SN12345}", "arguments: {serial_number: SN1}", "wrong_argument"),
        ("[high, urgent]", "[low]", "wrong_argument"),
        ("[issue_refund]", "[{function_name: create_ticket, arguments_contain: {priority: high}}]", "forbidden_call"),
        ("drill SN12345 broke", "drill broke", "wrong_argument"),
        ("create_ticket.result.ticket_id }}", "check_warranty.result.status }}", "text_missing"),
    ],
)
def test_the_example_case_fails_where_it_should(word: str, other: str, code: str) -> None:
    assert word in CASE
    verdict = evalkit.run_case(evalkit.case_from_dict(load(CASE.replace(word, other), "README.md")), agent)
    assert verdict.status == "failed"
    assert code in [reason.code for reason in verdict.reasons]


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("docs/*.md")), ROOT / "README.md"], ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:\"\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("command", ["run", "test"])
def test_the_commands_stand_behind_their_markers(command: str) -> None:
    assert re.search(rf"<!-- command: {command} -->\n```sh\npython3 -m venv .+\n```", README)
