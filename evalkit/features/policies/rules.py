"""When a policy is broken: its rule over the events of one run.

An event is a call, or a message of the user, at a moment. The calls of one model turn share a moment: the model asked
for them without knowing what the others return, so that none of them is before or after another. A rule speaks of
subjects (the calls that it limits or demands), of openings (events after which it holds; without any, it holds from the
beginning) and of closings (events up to which it holds). An opening without a closing after it holds to the end of the
run. In the terms of Declare over finite traces:

- at most 0 subjects is absence; with closings, precedence: no subject before the first closing;
- with openings, negative response: no subject after an opening (until the next closing);
- at most n subjects is bounded existence;
- a demanded subject is existence, and with openings response: each opening has a subject after it (before the next
  closing), at the end of the run at the latest.

With keys (`for_each`), the rule holds for each value by itself. An event without a key, a message of the user, belongs
to every value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence

from msgspec import Struct

START = -1  # the moment before everything


class Event(Struct, frozen=True):
    """Something at a moment. `index` tells events of one kind apart; `key` is None for all values."""

    moment: int
    index: int = -1
    key: Hashable = None


class Breach(Struct, frozen=True):
    """A broken rule. `event`: the subject that is one too many, or the opening without the demanded subject (None: the
    beginning). `reference`: the event that it is held against, if there is one.
    """

    event: Event | None
    reference: Event | None = None


def find_excess(
    subjects: Sequence[Event], limit: int, openings: Sequence[Event] | None, closings: Sequence[Event]
) -> list[Breach]:
    """Find every subject that is more than `limit` since an opening that is not closed before it.

    Each sequence is in the order of moments. `openings` None: the rule holds from the beginning. Held against is the
    nearest opening, or where some are allowed the first that counted.
    """
    breaches = []
    for _, events in _group(subjects):
        key = events[0].key
        opened = [Event(START)] if openings is None else _select(openings, key)
        closed = _select(closings, key)
        opened_at, closed_at = [event.moment for event in opened], [event.moment for event in closed]
        own_at = [event.moment for event in events]
        for place, subject in enumerate(events):
            # The openings that hold: before the subject, with no closing between them and the subject.
            last_closing = bisect_left(closed_at, subject.moment) - 1
            since = closed_at[last_closing] if last_closing >= 0 else START
            first, end = bisect_left(opened_at, since), bisect_left(opened_at, subject.moment)
            if first >= end:
                continue
            counted_from = bisect_right(own_at, opened_at[first])
            if place - counted_from + 1 > limit:
                nearest = opened[end - 1] if openings is not None else None
                breaches.append(Breach(subject, events[counted_from] if limit else nearest))
    return sorted(breaches, key=lambda breach: breach.event.index if breach.event else -1)


def find_unmet(subjects: Sequence[Event], openings: Sequence[Event] | None, closings: Sequence[Event]) -> list[Breach]:
    """Find every opening (the beginning, if `openings` is None) that no subject follows before the next closing."""
    breaches = []
    for key, events in _group([Event(START)] if openings is None else openings):
        own_subjects, own_closings = _select(subjects, key), _select(closings, key)
        for opening in events:
            subject, closing = _find_after(own_subjects, opening), _find_after(own_closings, opening)
            if subject is None or (closing is not None and subject.moment > closing.moment):
                breaches.append(Breach(None if openings is None else opening, closing))
    return sorted(breaches, key=lambda breach: breach.event.index if breach.event else -1)


def _find_after(events: Sequence[Event], opening: Event) -> Event | None:
    place = bisect_right(events, opening.moment, key=lambda event: event.moment)
    return events[place] if place < len(events) else None


def agrees(key: Hashable, other: Hashable) -> bool:
    """Return whether events with these keys belong to one value of `for_each`."""
    return key is None or other is None or key == other


def _select(events: Iterable[Event], key: Hashable) -> list[Event]:
    return [event for event in events if agrees(event.key, key)]


def _group(events: Sequence[Event]) -> list[tuple[Hashable, list[Event]]]:
    groups: dict[Hashable, list[Event]] = {}
    for event in events:
        groups.setdefault(event.key, []).append(event)
    return list(groups.items())
