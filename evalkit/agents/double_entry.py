"""The faults of a run whose exchanges with a model's service hold what nobody can read, or calls in a request's history
that no reply was seen to make.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch

from evalkit.errors import UnreadItemError, UnseenCallError
from evalkit.text.format import format_arguments
from evalkit.wire.ledger import UNSEEN_CALL, UNSEEN_REPLY, Discrepancy
from evalkit.wire.reading import explain_unread
from evalkit.wire.reading import find_unread as find_unread_item
from evalkit.wire.records import Exchange

_GO_ON = "a part of the traffic with the model went unseen"


def find_pattern(name: str, patterns: Iterable[str]) -> str:
    """Return the first of `patterns`, such as ``search_*``, that a name fits; "" if none does."""
    return next((pattern for pattern in patterns if fnmatch(name, pattern)), "")


def find_unread(exchange: Exchange, harmless: Iterable[str]) -> UnreadItemError | None:
    """Return the fault of an exchange in which something can't be read that is not `harmless`; None if all was read."""
    item = find_unread_item(exchange.list_unread(), harmless)
    if item is None:
        return None
    return UnreadItemError(explain_unread(f"the traffic with {exchange.url.partition('?')[0]}", item))


def build_finding_fault(finding: Discrepancy) -> UnseenCallError:
    """Return the fault of a run in which a request holds what no reply was seen to ask for."""
    if finding.kind == UNSEEN_REPLY:
        return UnseenCallError(
            f"a request goes on from a reply that evalkit did not see, {finding.detail}: {_GO_ON}. "
            'docs/ways-in.md, "What is seen", says which clients are read'
        )
    if finding.kind == UNSEEN_CALL and finding.call is not None:
        name: str | None = finding.call.name
        shown = f"{name}({format_arguments(finding.call.arguments, 120)})"
        what = f"the history of a request holds a call that no reply on record asked for: {shown}"
    else:
        name = finding.answer.name if finding.answer is not None else None
        call_id = finding.answer.call_id if finding.answer is not None else None
        what = f"the history of a request holds an answer to a call that no reply on record asked for: {call_id}"
    return UnseenCallError(
        f"{what}: {_GO_ON}\nIf the agent itself writes that call into its history, say so in "
        f'pyproject.toml, [tool.evalkit.http]: own_calls = ["{name or "NAME"}"]'
    )
