"""References of case files that lead out of the project are refused, with their place and the line that allows them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import evalkit
from evalkit.config import build_permissions
from evalkit.spec.load import load_case

CASE = "description: x\ninput: {message: hi}\nexpected_output: {response_contains: [x]}\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project, with files beside it and within it."""
    root = tmp_path / "repo/shop"
    for folder in (tmp_path / "repo/shared", root):
        (folder / "desk.md").parent.mkdir(parents=True, exist_ok=True)
        (folder / "desk.md").write_text("---\nname: desk\n---\nYou help.\n")
        (folder / "desk_001.yaml").write_text(CASE)
        (folder / "check.yaml").write_text("valid: {status: valid}\n")
    for name in ("scenarios", "mocks/cassettes", "inner"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return root


def run(root: Path, text: str, **options: object) -> evalkit.Verdict:
    settings = evalkit.Settings(root=root, permissions=build_permissions(options, root, ()))
    (root / "scenarios/a_001.yaml").write_text(text)
    return evalkit.run_case(load_case(root / "scenarios/a_001.yaml", settings=settings), settings=settings)


def explain(root: Path, text: str, **options: object) -> str:
    try:
        verdict = run(root, text, **options)
    except evalkit.SpecError as error:
        return str(error)
    assert verdict.status == "error"
    return verdict.reasons[0].message


ADVICE = 'if cases may read there, write allow_paths = ["../shared"] into [tool.evalkit]'


def test_an_instruction_file_elsewhere_is_refused(root: Path) -> None:
    text = f"{CASE}agent: ../../shared/desk.md\n"

    message = explain(root, text)

    assert message.startswith(
        "scenarios/a_001.yaml:4:8: instruction file '../../shared/desk.md' is refused: it leads out"
    )
    assert message.endswith(ADVICE)
    assert "is refused" not in explain(root, text, allow_paths=("../shared",))
    assert "is refused" not in explain(root, f"{CASE}agent: ../desk.md\n")
    assert "is refused" not in explain(root, text, allow_paths=("*",))


def test_a_link_to_an_instruction_file_elsewhere_is_refused(root: Path) -> None:
    os.symlink(root.parent / "shared/desk.md", root / "scenarios/linked.md")
    os.symlink(root / "desk.md", root / "scenarios/inner.md")

    assert explain(root, f"{CASE}agent: linked.md\n").endswith(ADVICE)
    assert "is refused" not in explain(root, f"{CASE}agent: inner.md\n")


def test_a_case_elsewhere_can_not_be_extended(root: Path) -> None:
    message = explain(root, "extends: ../../shared/desk_001\n")

    assert message.startswith("scenarios/a_001.yaml:1:10: 'extends' \"../../shared/desk_001\" is refused: it leads out")
    assert message.endswith(ADVICE)
    assert "names no agent" in explain(root, "extends: ../../shared/desk_001\n", allow_paths=("../shared",))
    assert "names no agent" in explain(root, "extends: ../desk_001\n")


def test_a_link_to_mocks_elsewhere_is_refused(root: Path) -> None:
    text = CASE.replace("{message: hi}", "{message: hi, mock_function_responses: {check: {$include: check.valid}}}")
    os.symlink(root.parent / "shared/check.yaml", root / "mocks/check.yaml")

    message = explain(root, text)

    assert "scenarios/a_001.yaml:2" in message
    assert message.endswith(ADVICE)
    assert "names no agent" in explain(root, text, allow_paths=("../shared",))


@pytest.mark.parametrize(
    "link",
    [
        "mocks/cassettes/scenarios",
        "mocks/cassettes/scenarios/a_001.yaml",
        "mocks/cassettes/scenarios/a_001.run-2.yaml",
        "mocks/cassettes/scenarios/a_001.run-2.judge.yaml",
    ],
)
def test_a_link_of_recordings_is_refused(root: Path, link: str) -> None:
    target = root.parent / "shared"
    (root / link).parent.mkdir(parents=True, exist_ok=True)
    os.symlink(target if link.endswith("scenarios") else target / "desk_001.yaml", root / link)

    message = explain(root, f"{CASE}agent: ../desk.md\nrepeat: 2\n")

    assert message.startswith(f"{link} is refused: it leads out of the project")
    assert message.endswith(ADVICE)


@pytest.mark.parametrize("link", ["scenarios/b_001.yaml", "linked", "scenarios/suite.yaml"])
def test_a_link_of_a_case_or_suite_elsewhere_is_refused(root: Path, link: str) -> None:
    shared = root.parent / "shared"
    (shared / "suite.yaml").write_text("tags: [elsewhere]\n")
    (root / "scenarios/a_001.yaml").write_text(CASE)
    os.symlink(shared if link == "linked" else shared / link.replace("b_001", "desk_001").split("/")[1], root / link)
    case = {"linked": "linked/desk_001.yaml", "scenarios/suite.yaml": "scenarios/a_001.yaml"}.get(link, link)

    def load(**options: object) -> evalkit.Case:
        settings = evalkit.Settings(root=root, permissions=build_permissions(options, root, ()))
        return load_case(root / case, settings=settings)

    with pytest.raises(evalkit.SpecError) as caught:
        load()
    refused = case if link == "linked" else link
    assert str(caught.value).startswith(f"{refused}: the file is refused: it leads out of the project")
    assert str(caught.value).endswith(ADVICE)
    assert load(allow_paths=("../shared",)).description == "x"


def test_a_case_beside_the_project_that_is_named_itself_is_read(root: Path) -> None:
    settings = evalkit.Settings(root=root, permissions=build_permissions({}, root, ()))
    assert load_case(root.parent / "shared/desk_001.yaml", settings=settings).description == "x"


def test_folders_that_the_configuration_names_may_lie_elsewhere(root: Path) -> None:
    (root / "scenarios/a_001.yaml").write_text(f"{CASE}agent: ../desk.md\n")
    settings = evalkit.Settings(
        root=root, cassettes=root.parent / "shared", permissions=build_permissions({}, root, ())
    )

    verdict = evalkit.run_case(load_case(root / "scenarios/a_001.yaml", settings=settings), settings=settings)

    assert verdict.reasons[0].code == "missing_cassette"
    assert "is refused" not in verdict.reasons[0].message
