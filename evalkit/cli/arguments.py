"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path

import click


def write_output(path: Path, text: str) -> None:
    """What `-o` names, in a folder that is made if need be, as pytest's `--evalkit-html` does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", "utf-8")


OUTPUT = click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
