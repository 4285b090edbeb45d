"""Recorded grades as earlier versions wrote them: they asked at temperature 0 with seed 0 of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evalkit.models.cassettes.fingerprint import compute_fingerprint
from evalkit.yamlfile.parse import load
from evalkit.yamlfile.write import dump


def age_recording(file: Path) -> None:
    """Rewrite a recording as one of before."""
    data: Any = load(file.read_bytes(), file.name)
    for turn in data["turns"]:
        asked = {"system": turn["request"]["system"], "functions": [], "settings": {"temperature": 0.0, "seed": 0}}
        asked |= {"messages": turn["request"]["messages"]}
        turn["request"] = {**turn["request"], "settings": asked["settings"], "fingerprint": compute_fingerprint(asked)}
    file.write_text(dump(data), encoding="utf-8")
