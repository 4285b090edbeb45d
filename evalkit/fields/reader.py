"""What to write where a text stands for a boolean or a number: in case files `no` and `1e5` are texts."""

from __future__ import annotations

import re

_BOOLEANS = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false"}
# As text: few cases need one of them, and `re` keeps what it has compiled.
_JSON_NUMBER = r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?"
_WHOLE = ((16, r"0x[0-9a-f]{1,16}"), (8, r"0o[0-7]{1,20}"), (10, r"\+?[0-9]{1,30}"))
_DECIMAL = r"[-+]?(?:[0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:e[-+]?[0-9]{1,2})?"


def suggest_boolean(value: object) -> str:
    """``"write true"``, where `value` says so in another way."""
    if value is True or value is False or not isinstance(value, (str, int)):
        return ""
    if isinstance(value, int):
        return {0: "write false", 1: "write true"}.get(value, "")
    folded = value.strip().lower()
    if folded in ("true", "false"):
        return f"write {folded} without quotes"
    return f"write {_BOOLEANS[folded]}" if folded in _BOOLEANS else ""


def suggest_number(value: object) -> str:
    """``"write 100000"``, where `value` is that number in a form that is read as text."""
    if not isinstance(value, str):
        return ""
    folded = value.strip().lower().replace("_", "")
    if re.fullmatch(_JSON_NUMBER, folded):
        return f"write {folded} without quotes"
    for base, form in _WHOLE:
        if re.fullmatch(form, folded):
            return f"write {int(folded, base)}"
    return f"write {float(folded):.15g}" if re.fullmatch(_DECIMAL, folded) else "write it as digits"
