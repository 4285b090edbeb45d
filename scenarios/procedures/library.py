"""What the analyst may look into: a few texts, and a search over them that knows words and nothing more."""

from __future__ import annotations

import re
from collections.abc import Mapping

PROCEDURES = {
    "TR-4": "Hotel: up to 120 EUR a night, 150 EUR in capitals. More needs the consent of the head of department.",
    "TR-7": "Trains second class; first class from four hours on. Flights only above 600 km.",
    "PU-2": "Purchases above 5,000 EUR need three offers, which are kept for ten years.",
}
GUIDELINES = {
    "GL-1": "Write to customers within two working days, in their language.",
    "GL-5": "Gifts above 35 EUR are declined in writing; a template is in the annex.",
}
DOCUMENTS = {
    "note-2025-11": "From January on travel is booked with the new portal; the old address is switched off.",
    "faq-88": "Is a gift card a gift? Yes, whatever its value.",
}


def matching(texts: Mapping[str, str], query: str) -> list[dict[str, str]]:
    """The texts that hold one of the query's words, those with most of them first."""
    wanted = set(re.findall(r"\w{4,}", query.lower()))
    scores = {name: len(wanted & set(re.findall(r"\w{4,}", text.lower()))) for name, text in texts.items()}
    found = sorted((name for name, score in scores.items() if score), key=lambda name: (-scores[name], name))
    return [{"id": name, "text": texts[name]} for name in found]
