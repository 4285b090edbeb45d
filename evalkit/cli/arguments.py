"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path

import click

OUTPUT = click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
