"""The commit that a run file names, read from the repository's own files."""

from __future__ import annotations

from pathlib import Path

from evalkit.repository import find_commit

ONE, TWO = "1" * 40, "2" * 40


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_branch_is_followed_from_any_folder(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git" / "refs" / "heads" / "main", f"{ONE}\n")
    assert find_commit(tmp_path / "deep" / "down", {"GITHUB_SHA": TWO}) == ONE


def test_a_branch_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / ".git" / "HEAD").write_bytes("ref: refs/heads/żółw\n".encode())
    (tmp_path / ".git" / "refs" / "heads" / "żółw").write_text(f"{ONE}\n")
    assert find_commit(tmp_path, {}) == ONE


def test_a_detached_head_and_packed_references(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", f"{ONE}\n")
    assert find_commit(tmp_path, {}) == ONE
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    write(tmp_path / ".git" / "packed-refs", f"# pack-refs with: peeled\n{TWO} refs/heads/main\n^{ONE}\n")
    assert find_commit(tmp_path, {}) == TWO


def test_a_worktree_shares_the_references_of_its_repository(tmp_path: Path) -> None:
    own = tmp_path / "whole" / ".git" / "worktrees" / "side"
    write(tmp_path / "side" / ".git", f"gitdir: {own}\n")
    write(own / "HEAD", "ref: refs/heads/side\n")
    write(own / "commondir", "../..\n")
    write(tmp_path / "whole" / ".git" / "refs" / "heads" / "side", f"{TWO}\n")
    assert find_commit(tmp_path / "side", {}) == TWO


def test_without_a_repository_the_ci_knows(tmp_path: Path) -> None:
    assert find_commit(tmp_path, {"CI_COMMIT_SHA": TWO}) == TWO
    assert find_commit(tmp_path, {}) is None


def test_a_repository_without_a_commit_has_none(tmp_path: Path) -> None:
    write(tmp_path / ".git" / "HEAD", "ref: refs/heads/main\n")
    assert find_commit(tmp_path, {}) is None
