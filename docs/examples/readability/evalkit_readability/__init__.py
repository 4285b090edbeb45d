"""Replies in short sentences: `readability: {max_words: 20}` in a case, or in a suite for all of its cases.

`agent: {says: ...}` is an agent that says the same in every case, to see what the judge makes of a text. Recorded
dialogues are read by `evalkit import` and judged by `evalkit judge-traces`.
"""

from evalkit.entries import CASE, VALUE, Code, Command, Entry, Option, ReportFormat

# What evalkit knows of the feature before something asks for it: nothing else is imported until then.
ENTRY = Entry(
    name="readability",
    target="evalkit_readability.feature:Readability",
    keys={CASE: ("readability",), VALUE: ("$short_sentences",)},
    codes={"long_sentence": Code(after="wrong_outcome", update_refusal="a sentence of the reply is too long")},
    has_rules=True,
    agent_forms=("says",),
    log_formats={"dialogues": "evalkit_readability.dialogues:DIALOGUES"},
    options=(Option("sentences", "write the longest sentence of each reply to this file", "FILE", kind="path"),),
    reports=(ReportFormat("sentences", "evalkit_readability.report:render_sentences"),),
    commands=(
        Command(
            "readability", "evalkit_readability.command:measure", "Count the words of the longest sentence of a text."
        ),
    ),
)
