"""The `evalkit` command. Exit statuses are pytest's and the gate's: 0 met, 1 missed, 4 usage, 6 not measured."""

from __future__ import annotations

import sys

import click

import evalkit
from evalkit.cli import case_commands, run_commands
from evalkit.errors import EvalkitError, UsageError
from evalkit.text.format import escape_lines

USAGE = 4


def main() -> None:
    """Run the command line. An error of evalkit or of click becomes one line and an exit status."""
    try:
        status = commands(prog_name="evalkit", standalone_mode=False)
    except click.Abort:
        status = 2
    except click.ClickException as error:
        error.show()
        status = USAGE
    except OSError as error:  # a disk that is full, a folder that may not be written to
        click.echo(f"evalkit: {error.filename or 'a file'}: {error.strerror or error}", err=True)
        status = USAGE
    except EvalkitError as error:
        click.echo(escape_lines(f"evalkit: {error}"), err=True)
        status = USAGE if isinstance(error, UsageError) else 1
    sys.exit(status if isinstance(status, int) else 0)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(evalkit.__version__, prog_name="evalkit")
def commands() -> None:
    """Evaluate tool-calling agents. Cases run under pytest: `pytest --evalkit`."""


for command in (*case_commands.COMMANDS, *run_commands.COMMANDS):
    commands.add_command(command)
