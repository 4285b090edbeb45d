"""The rules of policies against their definitions, quantifier by quantifier, over all short runs that chance makes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from evalkit.features.policies.rules import START, Event, agrees, find_excess, find_unmet


def is_closed_between(opening: Event, subject: Event, closings: Sequence[Event]) -> bool:
    return any(
        opening.moment < closing.moment < subject.moment and agrees(closing.key, subject.key) for closing in closings
    )


def define_excess(
    subjects: Sequence[Event], limit: int, openings: Sequence[Event] | None, closings: Sequence[Event]
) -> list[int]:
    """A subject is one too many if some opening before it, which nothing closes, has more than `limit` behind it."""
    broken = []
    for place, subject in enumerate(subjects):
        for opening in [Event(START)] if openings is None else openings:
            if not agrees(opening.key, subject.key) or opening.moment >= subject.moment:
                continue
            if is_closed_between(opening, subject, closings):
                continue
            counted = [
                other for other in subjects[: place + 1] if other.key == subject.key and opening.moment < other.moment
            ]
            if len(counted) > limit:
                broken.append(subject.index)
                break
    return broken


def define_unmet(
    subjects: Sequence[Event], openings: Sequence[Event] | None, closings: Sequence[Event]
) -> list[int | None]:
    """An opening is unmet unless some subject comes after it, and no closing comes between the two."""
    return [
        None if openings is None else opening.index
        for opening in ([Event(START)] if openings is None else openings)
        if not any(
            agrees(subject.key, opening.key)
            and subject.moment > opening.moment
            and not any(
                agrees(closing.key, opening.key) and opening.moment < closing.moment < subject.moment
                for closing in closings
            )
            for subject in subjects
        )
    ]


def events(keys: st.SearchStrategy[str | None]) -> st.SearchStrategy[list[Event]]:
    pairs = st.lists(st.tuples(st.integers(0, 6), keys), max_size=6)
    return pairs.map(
        lambda made: [Event(moment, i, key) for i, (moment, key) in enumerate(sorted(made, key=by_moment))]
    )


def by_moment(pair: tuple[int, str | None]) -> int:
    return pair[0]


CALLS = events(st.sampled_from(["a", "b"]))
ANY = events(st.sampled_from(["a", "b", None]))


@given(subjects=CALLS | events(st.none()), limit=st.integers(0, 2), openings=st.none() | ANY, closings=ANY)
def test_excess_is_what_its_definition_says(
    subjects: list[Event], limit: int, openings: list[Event] | None, closings: list[Event]
) -> None:
    breaches = find_excess(subjects, limit, openings, closings)
    assert [breach.event.index for breach in breaches if breach.event] == define_excess(
        subjects, limit, openings, closings
    )


@given(subjects=ANY, openings=st.none() | ANY, closings=ANY)
def test_unmet_is_what_its_definition_says(
    subjects: list[Event], openings: list[Event] | None, closings: list[Event]
) -> None:
    breaches = find_unmet(subjects, openings, closings)
    found = [None if breach.event is None else breach.event.index for breach in breaches]
    assert found == define_unmet(subjects, openings, closings)


@given(subjects=CALLS, limit=st.integers(0, 2), openings=ANY, closings=ANY)
def test_the_reference_is_an_opening_or_a_subject_that_counted(
    subjects: list[Event], limit: int, openings: list[Event], closings: list[Event]
) -> None:
    for breach in find_excess(subjects, limit, openings, closings):
        assert breach.event is not None
        assert breach.reference is not None
        assert breach.reference in (subjects if limit else openings)
        assert breach.reference.moment <= breach.event.moment
