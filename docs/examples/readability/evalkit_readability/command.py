"""The command `evalkit readability TEXT`."""

import click

from evalkit_readability.sentences import count_words, find_longest


@click.command(short_help="Count the words of the longest sentence of a text.")
@click.argument("text")
def measure(text: str) -> None:
    """Count the words of the longest sentence of TEXT."""
    click.echo(f"{count_words(find_longest(text))} words")
