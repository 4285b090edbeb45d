"""Serial numbers in what customers write.

Ours are ``SN``, five or more digits, and perhaps a suffix: SN12345, SN12345-AB. Customers also write SN-12345,
"sn 123 45", "S/N: 12345-AB", "serial no. 12345", "numer seryjny 12345", "シリアル番号：ＳＮ１２３４５". Other makers'
numbers count only where the customer calls them a serial number. Order numbers, phone numbers and dates never do.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_LABELS = (
    r"serial(?:\s+(?:number|no|nr|num|code)|\s*\#)?|s\s*/\s*n|serien[\s-]*(?:nummer|nr)|serienummer"
    r"|(?:numer|nr\.?|numeru|numerze)\s+(?:seryjny|seryjnego|seryjnym|fabryczny)"
    r"|n\.?(?:um[ée]ro|°|º|o)\s*(?:de\s+)?s[ée]rie|n[úu](?:mero|m)\s*de\s+s[ée]rie|numero\s+di\s+serie|matricola"
    r"|s[ée]riov[ée]\s+č[íi]slo|シリアル(?:番号|ナンバー|no)?|製造番号|序列号"
)
_PLURAL_LABELS = r"serial\s+(?:numbers|nos)|seriennummern|numery\s+seryjne|n[uú]m[ée]ros\s+de\s+s[ée]rie"
_FILLERS = r"(?:is|are|of|ist|sind|lautet|to|jest|brzmi|est|sont|es|son|el|è|é|[:：=#.,はが\-–(\"'“„«「])"
_AND = r"\s*(?:[,;/、と]|and|und|oraz|i|et|y|e)\s*"
_PREFIX = r"(?:s\s*/\s*n|sn)"
_DIGITS = r"(?:\d{5,}|\d{2,4}(?:[ ]\d{2,4}){1,4}(?!\d)|\d{2,4}-\d{3,}(?!\d))"
_SUFFIX = r"(?:[-/]?[a-z]{1,3}\d{0,2}|-[a-z0-9]{1,4})(?![a-z0-9])"
_OURS = re.compile(rf"(?P<digits>{_DIGITS})(?P<suffix>{_SUFFIX})?(?![a-z0-9])", re.IGNORECASE)
_BARE = rf"{_DIGITS}(?:{_SUFFIX})?(?![a-z0-9])"
_NUMBERS = (
    re.compile(rf"(?<![a-z0-9/]){_PREFIX}(?:\s*{_FILLERS}){{0,3}}\s*(?P<ours>{_BARE})", re.IGNORECASE),
    re.compile(rf"(?:{_PLURAL_LABELS})(?:\s*{_FILLERS}){{0,4}}\s*(?P<ours>{_BARE}(?:{_AND}{_BARE})+)", re.IGNORECASE),
    re.compile(
        rf"(?<![a-z0-9])(?:{_LABELS})\.?(?:\s*{_FILLERS}){{0,4}}\s*"
        rf"(?:(?P<ours>{_BARE})|(?P<other>(?=[a-z0-9-]*\d)[a-z0-9]+(?:-[a-z0-9]+)*)(?![a-z0-9]))",
        re.IGNORECASE,
    ),
)
_SHORTEST_OTHER = 5


def find_serials(text: str) -> tuple[str, ...]:
    """Every serial number in `text`, in reading order and in its standard form, each once.

    >>> find_serials("My fridge (sn-12345) and my oven, S/N: 67890-AB")
    ('SN12345', 'SN67890-AB')
    """
    text = unicodedata.normalize("NFKC", text)
    found: dict[int, tuple[int, str]] = {}
    for pattern in _NUMBERS:
        for match in pattern.finditer(text):
            for start, end, serial in _standard_forms(match):
                if not any(known < end and start < stop for known, (stop, _) in found.items()):
                    found[start] = (end, serial)
    return tuple(dict.fromkeys(serial for _, (_, serial) in sorted(found.items())))


def _standard_forms(match: re.Match[str]) -> Iterator[tuple[int, int, str]]:
    """Where each number stands, and ``SN`` + digits + ``-SUFFIX``, or another maker's number in capitals."""
    groups = match.groupdict()
    if groups["ours"] is None:
        if len(groups["other"]) >= _SHORTEST_OTHER:
            yield *match.span("other"), groups["other"].upper()
        return
    for ours in _OURS.finditer(groups["ours"]):
        digits, suffix = re.sub(r"\D", "", ours["digits"]), (ours["suffix"] or "").lstrip("-/").upper()
        start = match.start("ours") + ours.start()
        yield start, start + len(ours[0]), f"SN{digits}-{suffix}" if suffix else f"SN{digits}"
