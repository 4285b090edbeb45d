"""Parts that several commands share: the project around the current folder, its redactor, files that they write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

from evalkit.config import read_options
from evalkit.hosts.reports.run_file import replace_file
from evalkit.project import Project
from evalkit.text.redact import Redactor, find_secrets


def open_project(*, untrusted: bool = False) -> Project:
    """Open the project around the current folder."""
    return Project(Path.cwd(), untrusted=untrusted)


# What a command must not show or write: the secrets of the environment, and what the project calls one.


def build_redactor(root: Path) -> Redactor:
    """Return a redactor of secret variables, known shapes of tokens, and the `secret_keys` of the project at `root`."""
    return Redactor(find_secrets(os.environ), read_options(root).get("secret_keys", ()))


def run_pytest(*arguments: str) -> int:
    """Run `pytest --evalkit` with these arguments, and return its exit status."""
    return subprocess.call([sys.executable, "-m", "pytest", "--evalkit", *arguments])  # noqa: S603 - what was typed


# Arguments and options that several commands take.


def write_output(path: Path, text: str) -> None:
    """Write the file that `-o` names, in a folder that is made if need be."""
    with replace_file(path) as file:
        file.write(text + "\n")


def format_examples(*lines: str) -> str:
    """Return the end of a command's help."""
    return "\b\n" + "\n".join([f"Example{'s' * (len(lines) > 1)}:", *(f"  {line}" for line in lines)])


OUTPUT = click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
FORMAT = click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
