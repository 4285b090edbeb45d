"""`parts`: the texts, images and files of a user's message, as the loader reads them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import jsonschema
import pytest

from evalkit.bounds import get_bounds, set_bounds
from evalkit.errors import SpecError
from evalkit.project import Project
from evalkit.records.parts import list_parts
from evalkit.spec.load import case_from_dict, load_case
from evalkit.spec.schema import build_case_schema

PNG = b"\x89PNG\r\n\x1a\n picture"
CASE = """\
input:
  parts: PARTS
  mock_function_responses: {f: 1}
expected_output: {expected_function_calls: [f]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "scenarios"
    folder.mkdir()
    (folder / "photo.png").write_bytes(PNG)
    (folder / "notes.txt").write_text("hello")
    (folder / "empty.png").write_bytes(b"")
    (folder / ".env").write_text("KEY=1")
    (folder / "link.png").symlink_to(folder / ".env")
    return folder


def write(folder: Path, parts: str) -> Path:
    (folder / "a_001.yaml").write_text(CASE.replace("PARTS", parts))
    return folder / "a_001.yaml"


def refuse(folder: Path, parts: str) -> str:
    """Return the message on a list of parts that is refused."""
    write(folder, parts)
    (file,) = Project(folder.parent).load_cases(["scenarios"])
    return "\n".join(f"{problem.location}: {problem.message}" for problem in file.problems)


def test_each_file_is_known_by_its_type_size_and_hash(folder: Path) -> None:
    case = load_case(write(folder, "[{text: Look.}, {image: photo.png}, {file: notes.txt}]"), root=folder.parent)

    text, image, file = case.input["parts"]
    assert text == {"text": "Look."}
    assert image == {
        "image": "photo.png",
        "path": "scenarios/photo.png",
        "mime_type": "image/png",
        "bytes": len(PNG),
        "sha256": hashlib.sha256(PNG).hexdigest(),
    }
    assert (file["mime_type"], file["bytes"]) == ("text/plain", 5)


def test_a_type_that_the_name_does_not_tell_is_written(folder: Path) -> None:
    (folder / "scan").write_bytes(b"%PDF")

    case = load_case(write(folder, "[{file: scan, mime_type: application/pdf}]"), root=folder.parent)

    assert case.input["parts"][0]["mime_type"] == "application/pdf"


def test_a_turn_has_parts_and_a_row_names_them(folder: Path) -> None:
    (folder / "a_001.yaml").write_text(
        """\
cases: [{id: one, photo: photo.png}, {id: two, photo: gone.png}]
input:
  turns:
    - user: Hello.
    - user: {parts: [{image: "{{ row.photo }}"}]}
expected_output: {expected_function_calls: []}
"""
    )

    one, two = Project(folder.parent).load_cases(["scenarios"])
    assert one.case is not None
    assert list_parts(one.case.turns[1].user)[0]["path"] == "scenarios/photo.png"
    assert [problem.message for problem in two.problems] == [
        "there is no image 'gone.png' in scenarios (row two, scenarios/a_001.yaml:1)"
    ]


def test_a_file_counts_from_the_case_that_names_it(folder: Path) -> None:
    write(folder, "[{image: photo.png}]")
    (folder / "deeper").mkdir()
    (folder / "deeper" / "b_001.yaml").write_text("extends: ../a_001.yaml\ndescription: the same\n")

    case = load_case(folder / "deeper" / "b_001.yaml", root=folder.parent)

    assert case.input["parts"][0]["path"] == "scenarios/photo.png"


def test_a_case_in_python_counts_from_the_root(folder: Path) -> None:
    data = {"input": {"parts": [{"image": "scenarios/photo.png"}]}, "expected_output": {"expected_function_calls": []}}

    assert case_from_dict(data, root=folder.parent).input["parts"][0]["sha256"] == hashlib.sha256(PNG).hexdigest()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ("look", "2:10: input.parts must be a list of parts: [{text: ...}, {image: photo.jpg}], got \"look\"; write parts: [{text: ...}]"),  # noqa: E501
        ("[]", "2:10: input.parts must be a list of parts: [{text: ...}, {image: photo.jpg}], got an empty list"),
        ("[look]", "2:11: input.parts[0] must be a part: {text: ...}, {image: photo.jpg} or {file: invoice.pdf}, got \"look\"; write {text: ...}"),  # noqa: E501
        ("[{picture: photo.png}]", "2:11: input.parts[0] has one of 'text', 'image' and 'file'; it has none of them"),
        ("[{picture: photo.png}]", "2:12: unknown key 'picture' in input.parts[0]"),
        ("[{text: a, image: photo.png}]", "2:11: input.parts[0] has one of 'text', 'image' and 'file'; it has 'text' and 'image'"),  # noqa: E501
        ("[{image: phto.png}]", "2:19: there is no image 'phto.png' in scenarios; did you mean 'photo.png'?"),
        ("[{image: 5}]", "2:19: input.parts[0].image must be text, got 5; quote it: '5'"),
        ("[{image: empty.png}]", "2:19: image 'empty.png' is empty"),
        ("[{image: notes.txt}]", "2:19: 'notes.txt' is text/plain, no image; write {file: notes.txt}"),
        ("[{file: ../scenarios}]", "2:18: file '../scenarios' is no file"),
        ("[{file: .env}]", "2:18: file '.env' is refused: hidden files may hold keys, and are sent to no model"),
        ("[{image: link.png}]", "2:19: image 'link.png' is refused: hidden files may hold keys, and are sent to no model"),  # noqa: E501
        ("[{file: /etc/hostname}]", "2:18: file '/etc/hostname' is refused: it leads out of the project, to /etc/hostname;"),  # noqa: E501
        ("[{image: 'https://x.y/z.png'}]", "2:19: image 'https://x.y/z.png' is a URL; evalkit sends files of the project: save it beside the case"),  # noqa: E501
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(folder: Path, parts: str, message: str) -> None:
    assert f"scenarios/a_001.yaml:{message}" in refuse(folder, parts)


def test_an_unknown_type_is_a_problem(folder: Path) -> None:
    (folder / "photo.xyzzy").write_bytes(PNG)

    assert "the type of file 'photo.xyzzy' can't be told by its name; write it: 'mime_type: image/png'" in refuse(
        folder, "[{file: photo.xyzzy}]"
    )


def test_a_file_has_a_bound(folder: Path) -> None:
    (folder.parent / "pyproject.toml").write_text("[tool.evalkit.bounds]\npart_bytes = 10\n")
    bounds = get_bounds()
    try:
        message = refuse(folder, "[{image: photo.png}]")
    finally:
        set_bounds(bounds)
    assert "has 16 bytes, more than 10; `part_bytes` in [tool.evalkit.bounds] allows more" in message


def test_a_turn_says_everything_in_its_parts(folder: Path) -> None:
    (folder / "a_001.yaml").write_text(
        "input:\n  turns:\n    - user: {message: Look., parts: [{image: photo.png}]}\n"
        "expected_output: {expected_function_calls: []}\n"
    )
    with pytest.raises(SpecError, match=r"3:14: 'message' stands beside 'parts'; write it as a part: \{text: ...\}"):
        load_case(folder / "a_001.yaml", root=folder.parent)


def test_the_schema_for_editors_knows_parts() -> None:
    validator = jsonschema.Draft202012Validator(build_case_schema())
    case = {"input": {"parts": [{"image": "a.png"}]}, "expected_output": {"expected_function_calls": []}}
    assert validator.is_valid(case)
    for part in ({"image": "a.png", "text": "x"}, {"picture": "a.png"}, {}):
        assert not validator.is_valid({**case, "input": {"parts": [part]}}), json.dumps(part)
