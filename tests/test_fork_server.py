"""A command of the fork server is a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fork_server import ForkServer

COMMAND = """\
import os, sys
print(sys.argv[1:], os.environ["TOLD"], os.getcwd(), getattr(os, "left_behind", None))
os.left_behind = "by the command before"
sys.exit("no" if sys.argv[1:] else 0)
"""


def test_a_command_has_its_environment_folder_and_streams_and_leaves_nothing(
    fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "told.py").write_text(COMMAND, "utf-8")
    output, errors = tmp_path / "output", tmp_path / "errors"
    for arguments, told, status, complaint in (([], "once", 0, ""), (["a b"], "twice", 1, "no\n")):
        monkeypatch.setenv("TOLD", told)
        assert fork_server.run("told", *arguments, folder=tmp_path, output=output, errors=errors) == status
        assert output.read_text("utf-8") == f"{arguments} {told} {tmp_path} None\n"
        assert errors.read_text("utf-8") == complaint
