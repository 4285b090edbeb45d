"""What leaves a session: no secret, no terminal command, no unwritable character, in any sink."""

from __future__ import annotations

import re
from typing import Any

import pytest

Project = Any
ENVIRONMENT_CANARY = "canary-of-the-environment"
SHAPE_CANARY = "sk-canary0123456789abcdef"
KEY_CANARY = "canary-of-a-key"
GOOD = {"calls": [["check", {"id": "A1"}]]}

LEAKY = f'''\
import logging, os
import evalkit

@evalkit.agent("leaky")
def leaky(task):
    secret = os.environ["SHOP_API_KEY"]
    print("printed", secret, "{SHAPE_CANARY}")
    logging.getLogger("shop").warning("logged %s", secret)
    task.call("check", id=secret, password="{KEY_CANARY}", note="the password is {KEY_CANARY}")
    raise RuntimeError(f"raised {{secret}} {SHAPE_CANARY}")
'''


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_secret_is_in_no_sink(project: Project, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]) -> None:
    """Canaries in arguments, output, log, exception and case file; then every file and stream is searched."""
    monkeypatch.setenv("SHOP_API_KEY", ENVIRONMENT_CANARY)
    project.write("scenarios/conftest.py", LEAKY)
    project.case("bad_001", agent="leaky", description=f"pass {SHAPE_CANARY}")
    files = ("--junitxml=out/junit.xml", "--evalkit-html=out/report.html")
    result = project.run_apart(*files, "-vv", "--evalkit-show=conversation", "-rA", *workers)
    assert result.ret == 1
    written = [path for path in project.root.rglob("*") if path.is_file() and path.parent.name in ("out", ".evalkit")]
    assert {path.name for path in written} == {"junit.xml", "report.html", "last-run.json", ".gitignore"}
    sinks = {path.name: path.read_text("utf-8") for path in written}
    sinks |= {"stdout": result.stdout.str(), "stderr": result.stderr.str()}
    for name, text in sinks.items():
        for canary in (ENVIRONMENT_CANARY, SHAPE_CANARY, KEY_CANARY):
            assert canary not in text, name
    result.stdout.fnmatch_lines(
        ['  1. ✗ check(id="[[]redacted]", password="[[]redacted]", note="the password is [[]redacted]")*', "printed *"]
    )


def test_more_keys_of_secrets_can_be_named(project: Project) -> None:
    project.write("pyproject.toml", '[tool.evalkit]\nsecret_keys = ["pesel"]\n')
    project.case("bad_001", {"calls": [["check", {"pesel": "80010112345"}]]})
    result = project.run()
    assert "80010112345" not in result.stdout.str().replace(r"\"80010112345\"", "")
    result.stdout.fnmatch_lines(['  1. ✗ check(pesel="[[]redacted]")*'])


HOSTILE = "\x1b[2J\x1b[31m \u202e \x07 \x9b \u2028"


@pytest.mark.parametrize("arguments", [("--color=yes",), ("--color=no", "-vv", "--evalkit-show=conversation")])
def test_no_terminal_command_of_an_agent_reaches_the_terminal(project: Project, arguments: tuple[str, ...]) -> None:
    project.case("bad_001", {"calls": [[HOSTILE, {HOSTILE: HOSTILE}]], "say": HOSTILE, "print": HOSTILE})
    project.case("bad_002", {"raise": HOSTILE}, description=HOSTILE.replace("\x07", ""))
    shown = project.run(*arguments).stdout.str()
    for command in ("\x1b[2J", "\u202e", "\x07", "\x9b", "\u2028"):
        assert command not in shown, repr(command)
    assert r"\u202e" in shown


RUNNERS = re.compile(r"\s*::[\w-]+(?: .*)?::.*|.*##\w*\[.*")  # what GitHub's and Azure's runners take for commands
COMMANDS = "::error::x\n  ::add-mask::t\n::stop-commands::t\na ##[add-mask]t\n##vso[task.complete]x\n"


@pytest.mark.parametrize(
    "arguments", [(), ("-vv", "--evalkit-show=conversation", "-rA"), ("--evalkit-trace=none",), ("-n", "1")]
)
def test_an_agent_commands_no_ci_runner(
    project: Project, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """In traces, output that the case printed, summaries; the only commands in the log are evalkit's annotations."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    project.case("bad_001", {"calls": [[COMMANDS, {COMMANDS: COMMANDS}]], "say": COMMANDS, "print": COMMANDS})
    project.case("bad_002", {"raise": COMMANDS}, description=COMMANDS)
    project.case("bad_003", {"print": COMMANDS}, tags="smoke", expected_output={"response_contains": COMMANDS})
    project.case("good_001", {**GOOD, "print": COMMANDS, "say": COMMANDS}, description=COMMANDS)
    result = project.run_apart(*arguments)
    obeyed = [line for line in result.outlines + result.errlines if RUNNERS.fullmatch(line)]
    assert [line.split("::")[1].split("=")[0] for line in obeyed] == ["error file"] * 3
    assert r"\x3a:add-mask::t" in result.stdout.str()


def test_colours_are_for_terminals_that_have_them(project: Project) -> None:
    project.case("bad_001", {"calls": []})
    project.case("good_001")
    painted = project.run("--color=yes", "--evalkit-trace=all").stdout.str()
    assert "\x1b[1;31m✗ " in painted
    assert "\x1b[32m✓ " in painted
    assert "\x1b[" not in project.run("--color=no").stdout.str()


def test_a_terminal_without_the_signs_gets_stand_ins(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    project.case("bad_001", {"calls": [["check", {"id": "ł"}]]})
    project.case("good_001")
    result = project.run_afresh("--evalkit-trace=all")
    result.stdout.fnmatch_lines(["ok good_001*", "FAIL bad_001*", r'  1. FAIL check(id="\u0142") -> {"ok": true}'])
    assert "✓" not in result.stdout.str()


def test_an_argument_of_ten_megabytes_neither_floods_the_terminal_nor_is_lost(project: Project) -> None:
    project.write(
        "scenarios/conftest.py",
        "import evalkit\n@evalkit.agent('big')\ndef big(task):\n    task.call('check', id='x' * 10_000_000)\n",
    )
    project.case("bad_001", agent="big")
    result = project.run_apart("-n", "1")
    assert result.ret == 1
    assert len(result.stdout.str()) < 50_000
    assert len(project.run_file.verdicts[0].transcript.calls[0].arguments["id"]) == 10_000_000
