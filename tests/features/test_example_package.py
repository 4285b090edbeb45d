"""docs/examples/readability is a feature in a package of its own: installed by pip, it is there, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
EXAMPLE = TOP / "docs" / "examples" / "readability"
PAGE = (EXAMPLE / "README.md").read_text("utf-8")
(NAME, CASE), (OTHER_NAME, OTHER_CASE), (MAIL_NAME, MAIL_CASE) = re.findall(
    r"```yaml\n# (\S+)\n(.*?)```", PAGE, re.DOTALL
)
LINES, MAIL_LINES = (block.splitlines() for block in re.findall(r"```text\n(.*?)\n```", PAGE, re.DOTALL))
AGENTS = """\
import evalkit

@evalkit.agent("desk")
def desk(task):
    if "mail" in task.case_id:
        task.call("send_mail", text={reply!r})
    return {reply!r}
"""
SHORT, LONG = "At nine. We close at five.", "We open at nine, and on Sundays we stay closed all day."


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which pip has installed the package."""
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No matching distribution found for hatchling" in done.stderr:
        pytest.skip("no registry to fetch hatchling from, which builds the package")
    assert done.returncode == 0, done.stderr
    return folder


def run(
    project: Path,
    packages: Path | None,
    reply: str,
    case: str = CASE,
    options: tuple[str, ...] = ("--evalkit",),
    name: str = NAME,
) -> subprocess.CompletedProcess[str]:
    """Run a case of the page in a process that finds what is in `packages`."""
    (project / "conftest.py").write_text(AGENTS.format(reply=reply), "utf-8")
    (project / "scenarios").mkdir(exist_ok=True)
    (project / name).write_text(f"agent: desk\n{case}", "utf-8")
    return call(project, packages, "pytest", *options, "-p", "no:cacheprovider", f"--junitxml={project}/junit.xml")


def call(project: Path, packages: Path | None, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module in a process that finds what is in `packages`."""
    paths = [str(TOP), *([] if packages is None else [str(packages)])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "160"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)


def test_it_judges_sums_up_and_reports(tmp_path: Path, packages: Path) -> None:
    done = run(tmp_path, packages, SHORT)
    assert done.returncode == 0, done.stdout
    assert f"the longest sentence has 4 words: {NAME}" in done.stdout
    junit = (tmp_path / "junit.xml").read_text("utf-8")
    assert '<property name="evalkit_longest_sentence" value="4"' in junit


def test_it_fails_a_case_with_a_reason(tmp_path: Path, packages: Path) -> None:
    done = run(tmp_path, packages, LONG)
    assert done.returncode == 1
    assert [line for line in LINES if line in done.stdout] == LINES
    assert len(LINES) == 2


def test_its_problems_have_their_lines(tmp_path: Path, packages: Path) -> None:
    done = run(tmp_path, packages, SHORT, CASE.replace("{max_words: 8}", "{max_word: 8}"))
    assert f"{NAME}:3:15: unknown key 'max_word' in readability; did you mean 'max_words'?" in done.stdout


def test_its_agents_are_described_by_a_mapping(tmp_path: Path, packages: Path) -> None:
    """And unknown keys of it have a hint, as those of evalkit's own forms have."""
    (tmp_path / "scenarios").mkdir()
    (tmp_path / OTHER_NAME).write_text(OTHER_CASE, "utf-8")
    done = run(tmp_path, packages, SHORT)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    (tmp_path / OTHER_NAME).write_text(OTHER_CASE.replace("says", "say"), "utf-8")
    assert "unknown key 'say' in agent; did you mean 'says'?" in run(tmp_path, packages, SHORT).stdout


def test_without_the_package_the_key_is_unknown(tmp_path: Path) -> None:
    done = run(tmp_path, None, SHORT)
    assert done.returncode != 0
    assert f"{NAME}:3:1: unknown key 'readability'" in done.stdout


SENTENCE = f"{NAME}: 4 words: We close at five.\n"


@pytest.mark.parametrize(
    "settings",
    [
        ("--evalkit", "--evalkit-sentences=out/s.txt"),
        ("--evalkit", "-n", "1", "--evalkit-sentences=out/s.txt"),
        ("--evalkit", "-o", "evalkit_sentences=out/s.txt"),
    ],
    ids=["flag", "xdist", "ini"],
)
def test_its_option_writes_its_report(tmp_path: Path, packages: Path, settings: tuple[str, ...]) -> None:
    done = run(tmp_path, packages, SHORT, options=settings)
    assert (tmp_path / "out" / "s.txt").read_text("utf-8") == SENTENCE, done.stdout
    assert "sentences: out/s.txt" in done.stdout.splitlines()


def test_its_option_is_a_key_of_the_project_s_table(tmp_path: Path, packages: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.evalkit]\nsentences = "s.txt"\n')
    assert run(tmp_path, packages, SHORT).returncode == 0
    assert (tmp_path / "s.txt").read_text("utf-8") == SENTENCE
    done = run(tmp_path, None, SHORT)
    assert "unknown key 'sentences' in [tool.evalkit]" in done.stderr


def test_addopts_ask_for_its_option_too(tmp_path: Path, packages: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --evalkit --evalkit-sentences=s.txt\n")
    run(tmp_path, packages, SHORT, options=())
    assert (tmp_path / "s.txt").read_text("utf-8") == SENTENCE


def test_a_report_that_cannot_be_written_is_no_met_gate(tmp_path: Path, packages: Path) -> None:
    (tmp_path / "out").write_text("a file")
    done = run(tmp_path, packages, SHORT, options=("--evalkit", "--evalkit-sentences=out/s.txt"))
    assert done.returncode == 6
    assert "evalkit: the list of sentences was not written: " in done.stdout


def test_pytest_lists_its_option_where_evalkit_is_asked_for(tmp_path: Path, packages: Path) -> None:
    assert "--evalkit-sentences=FILE" in call(tmp_path, packages, "pytest", "--evalkit", "--help").stdout
    assert "--evalkit-sentences=FILE" not in call(tmp_path, packages, "pytest", "--help").stdout


def test_its_report_and_its_command_are_those_of_evalkit(tmp_path: Path, packages: Path) -> None:
    run(tmp_path, packages, SHORT)
    done = call(tmp_path, packages, "evalkit", "report", "--format", "sentences")
    assert (done.stdout, done.returncode) == (SENTENCE, 0)
    assert re.search(r"^  readability +Count the", call(tmp_path, packages, "evalkit", "--help").stdout, re.MULTILINE)
    assert call(tmp_path, packages, "evalkit", "readability", "We open at nine.").stdout == "4 words\n"
    assert "No such command 'readability'" in call(tmp_path, None, "evalkit", "readability", "x").stderr


def test_its_operator_judges_arguments(tmp_path: Path, packages: Path) -> None:
    done = run(tmp_path, packages, LONG, MAIL_CASE, name=MAIL_NAME)
    assert done.returncode == 1
    assert [line for line in MAIL_LINES if line in done.stdout] == MAIL_LINES != []
    assert run(tmp_path, packages, SHORT, MAIL_CASE, name=MAIL_NAME).returncode == 0


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (("smoke", "scenarios"), "1 case walked through with 1 call: each can be satisfied"),
        (("explain", "long_sentence"), "The reply has a sentence of more words than the case allows"),
        (("lint", "--rules"), "  R101 readability-loose: warning. A case allows sentences that few readers follow."),
        (("schema", "case"), '"$short_sentences": {'),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_know_what_it_brings(tmp_path: Path, packages: Path, command: tuple[str, ...], line: str) -> None:
    run(tmp_path, packages, SHORT, MAIL_CASE, name=MAIL_NAME)
    done = call(tmp_path, packages, "evalkit", *command)
    assert done.returncode == 0, done.stderr
    assert line in done.stdout


def test_a_wrong_operand_has_its_line(tmp_path: Path, packages: Path) -> None:
    case = MAIL_CASE.replace("sentences: 8", "sentences: few")
    done = run(tmp_path, packages, SHORT, case, name=MAIL_NAME)
    assert f"{MAIL_NAME}:7:69: $short_sentences wants a number of words from 1 on" in done.stdout


def test_its_rule_of_lint_finds_a_loose_limit(tmp_path: Path, packages: Path) -> None:
    run(tmp_path, packages, SHORT, CASE.replace("max_words: 8", "max_words: 80"))
    done = call(tmp_path, packages, "evalkit", "lint")
    assert f"{NAME}:3:26: warning R101 readability-loose: sentences may have 80 words" in done.stdout


def test_it_imports_what_the_page_on_features_lists() -> None:
    page = (TOP / "docs" / "reference-features.md").read_text("utf-8")
    offered = set(re.findall(r"^## `(evalkit[\w.]+)`", page, re.MULTILINE))
    sources = "".join(path.read_text("utf-8") for path in EXAMPLE.rglob("*.py"))
    assert set(re.findall(r"^from (evalkit\.[\w.]+) import", sources, re.MULTILINE)) <= offered


def write_dialogues(project: Path, *lines: str) -> None:
    (project / "dialogues.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")


def test_its_format_of_logs_makes_cases_and_is_judged(tmp_path: Path, packages: Path) -> None:
    (dialogue,) = re.findall(r"```json\n(.*?)\n```", PAGE, re.DOTALL)
    run(tmp_path, packages, SHORT)
    write_dialogues(tmp_path, dialogue)
    done = call(tmp_path, packages, "evalkit", "judge-traces", "dialogues.jsonl", "-p", "no:cacheprovider")
    assert "1 passed" in done.stdout, done.stdout
    done = call(tmp_path, packages, "evalkit", "import", "dialogues.jsonl", "--format", "dialogues")
    assert "1 case from 1 log, 1 of them pass offline" in done.stdout, done.stderr
    done = call(tmp_path, None, "evalkit", "import", "dialogues.jsonl")
    assert "dialogues.jsonl:1: no conversation in 'asked', 'said'" in done.stderr


def test_what_its_format_cannot_read_is_no_met_gate(tmp_path: Path, packages: Path) -> None:
    """Neither what it says of a record nor what it raises by mistake."""
    run(tmp_path, packages, SHORT)
    unread = '{"asked": "When?", "said": 9}'
    write_dialogues(tmp_path, '{"asked": "When are you open?", "said": "At nine."}', unread)
    done = call(tmp_path, packages, "evalkit", "judge-traces", "dialogues.jsonl", "-p", "no:cacheprovider")
    assert "1 trace could not be read: dialogues.jsonl:2: 'said' is not a text" in done.stdout
    assert done.returncode == 6
    write_dialogues(tmp_path, unread)
    done = call(tmp_path, packages, "evalkit", "import", "dialogues.jsonl")
    assert ("dialogues.jsonl:1: 'said' is not a text" in done.stderr, done.returncode) == (True, 1)
