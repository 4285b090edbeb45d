"""What an agent hands back when it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from evalkit.errors import UsageError, did_you_mean
from evalkit.model.transcript import Usage

COMPLETED = "completed"


class ReplyText(Struct, frozen=True):
    """The part of a reply that may be given by position."""

    text: str = ""


class Reply(ReplyText, frozen=True, kw_only=True):
    """An agent's answer. A bare string means `Reply(text)`.

    `stop_reason` says how it ended: ``completed``, or a short stable word such as ``email_not_sent``; a case passes
    with another one only if it asks for it. `usage` is for agents that bring their own model client; turns taken
    with `task.turn` are counted without it; a mapping such as ``{"input_tokens": 120, "output_tokens": 18}`` will do.
    `data` is kept in the transcript's metadata.
    """

    stop_reason: str = COMPLETED
    instruction_used: str | None = None
    usage: Usage | Mapping[str, int] | None = None
    data: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.text, str):
            raise UsageError(f"Reply(text=...) is a string, got {type(self.text).__name__}")
        if not isinstance(self.stop_reason, str) or not self.stop_reason:
            raise UsageError(f"Reply(stop_reason=...) is a word such as 'completed', got {self.stop_reason!r}")
        if self.usage is not None and not isinstance(self.usage, Usage):
            force_setattr(self, "usage", _build_usage(self.usage))


def _build_usage(counts: Any) -> Usage:
    from evalkit.providers.turns import USAGE_KEYS

    if not isinstance(counts, Mapping):
        raise UsageError(f"Reply(usage=...) is a mapping of {', '.join(USAGE_KEYS)}, got {type(counts).__name__}")
    for key, count in counts.items():
        if key not in USAGE_KEYS:
            hint = did_you_mean(key, USAGE_KEYS) or f"; it has {', '.join(USAGE_KEYS)}"
            raise UsageError(f"Reply(usage=...) has the unknown key {key!r}{hint}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise UsageError(f"Reply(usage=...): {key!r} is a number of tokens, got {count!r}")
    return Usage(**counts)
