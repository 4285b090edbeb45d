"""A format of logs: a question and its answer in each record, `{"asked": "When are you open?", "said": "At nine."}`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evalkit.hosts.traces.api import Conversation, LogFormat, LoggedMessage, ModelReply, Record, UnreadableLogError


def read(records: Sequence[Record]) -> Iterator[Conversation | UnreadableLogError]:
    """Yield what each record tells, or why it can't be read: an answer that is left out would be no evidence."""
    for place, record in records:
        if isinstance(record["said"], str):
            events = (LoggedMessage(str(record["asked"])), ModelReply(text=record["said"]))
            yield Conversation(events=events, source=place)
        else:
            yield UnreadableLogError(f"{place}: 'said' is not a text")


DIALOGUES = LogFormat(
    fits=lambda record: record.keys() >= {"asked", "said"},
    read=read,
    missing="no question in it",
)
