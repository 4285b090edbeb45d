"""A verdict as one line of ASCII JSON: what xdist carries, the journal keeps and the run file is made of.

Agents pass what they like, so everything is representable: text with lone surrogates, NaN, Python objects, cycles.
`msgspec` does the common case; only what it would refuse or change goes the slow way. Secrets are taken out of the
strings of a record, never out of its JSON text: keys, numbers, ids, statuses and whatever a gate asks for stay.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from evalkit.hooks.loading import iter_data
from evalkit.jsonvalue import JsonDict, map_strings
from evalkit.records.codec import VERSION, decode, to_plain_json
from evalkit.records.run import GateDecision, Run
from evalkit.records.transcript import FunctionCall, Transcript
from evalkit.records.verdict import Verdict
from evalkit.text.redact import Redactor, redact_copies

R = TypeVar("R", bound=Struct)
Redact = Callable[[str], str]


def to_line(verdict: Verdict) -> str:
    """Encode a verdict as one line of ASCII JSON; `from_line` reads it back."""
    return encode_verdict(verdict)[0]


def encode_verdict(verdict: Verdict) -> tuple[str, Verdict]:
    """Return the line of a verdict, and the verdict as it is read back: JSON data alone, whatever agents passed."""
    try:
        encoded = msgspec.json.encode(verdict)
        copy = _DECODER.decode(encoded)
        if copy == verdict:
            line = encoded.decode()
            return line if line.isascii() else line.encode("ascii", "evalkit_json").decode(), copy
    except (msgspec.MsgspecError, ValueError, TypeError, OverflowError, RecursionError):
        pass
    data = to_plain_json(verdict)  # NaN, a key that is no string, an object, a cycle
    line = json.dumps(data, separators=(",", ":"))
    try:
        return line, decode(Verdict, data)
    except ValueError:  # a field of another type than the record says; who reads the line finds it
        return line, verdict


def _escape_as_json(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("evalkit_json", _escape_as_json)
_DECODER = msgspec.json.Decoder(Verdict)


def from_line(line: str) -> Verdict:
    """Decode a line of `to_line`. Raises ValueError for any other text."""
    try:
        verdict = _DECODER.decode(line)
        if verdict.version == VERSION:
            return verdict
    except (msgspec.MsgspecError, ValueError, RecursionError):  # lone surrogates; or no verdict at all
        pass
    return Verdict.from_json(json.loads(line))


# A run without secrets, whoever wrote the file: what a report shows leaves the machine.

# Fields that name a thing, tell its state, or that a gate asks for. A secret that is equal to one of them is none.
# fmt: off
_KEPT_FIELDS = frozenset(
    {
        "case_id", "status", "code", "check", "category", "tags", "path", "schema_path", "place", "location", "row",
        "expectation", "outcome", "channel", "finish_reason", "cassette", "feature", "change", "group",
        "source", "selected", "started", "ended",
        "evalkit", "shard",
    }
)
# fmt: on


def redact_record(record: R, redact: Redact | None = None) -> R:
    """Copy a record of JSON data with the secrets in its strings replaced: by default known shapes and keys of secrets.

    A value of a secret key is replaced wherever the record quotes it. Keys, numbers, the structure, and the fields that
    say what a thing is or how it went stay as they are. To do it again changes nothing.
    """
    redact = redact or Redactor()
    if not isinstance(redact, Redactor):
        change = redact
        return _change_texts(record, lambda value: map_strings(value, change))
    redactor = redact
    while True:
        copies: set[str] = set()
        clean = _change_texts(record, partial(redactor.redact_data, copies=copies))
        if copies:
            clean = _change_texts(clean, partial(redact_copies, copies=copies))
        if clean is record:
            return record
        record = clean


def _change_texts(record: R, change: Callable[[object], object]) -> R:
    """Apply `change` to the fields of `record` that hold JSON data. Return `record` itself if nothing changes."""

    def apply(value: object) -> object:
        if isinstance(value, Struct):
            return _change_texts(value, change)
        if isinstance(value, tuple):
            items = tuple(map(apply, value))
            return value if all(map(_is_same, items, value)) else items
        return change(value) if isinstance(value, (str, dict, list)) else value

    def apply_to(name: str, value: object) -> object:
        if name == "features" and value and isinstance(record, Verdict | Transcript | FunctionCall):
            return _change_features(record, change)
        return apply(value)

    values = ((name, getattr(record, name)) for name in record.__struct_fields__)
    changed = {
        name: new
        for name, value in values
        if (name not in _KEPT_FIELDS or isinstance(value, Struct)) and not _is_same(new := apply_to(name, value), value)
    }
    return replace(record, **changed) if changed else record


def _change_features(record: Verdict | Transcript | FunctionCall, change: Callable[[object], object]) -> JsonDict:
    """Apply `change` to what features say in a record, as the types say that they give their data."""
    typed = dict(record.features)
    for name, data, hint in iter_data(record):
        with suppress(msgspec.ValidationError):  # who reads the record finds it
            typed[name] = msgspec.convert(data, hint)
    return {name: _change_data(data, typed[name], change) for name, data in record.features.items()}


def _change_data(data: Any, typed: object, change: Callable[[object], object]) -> Any:
    """Apply `change` to JSON data, but for the fields of records that are kept. `typed` is what the data is read as."""
    if isinstance(typed, Struct) and isinstance(data, dict):
        kept = _KEPT_FIELDS.intersection(typed.__struct_fields__)
        return {
            key: item if key in kept else _change_data(item, getattr(typed, key, item), change)
            for key, item in data.items()
        }
    if isinstance(typed, tuple) and isinstance(data, list):
        return [_change_data(item, part, change) for item, part in zip(data, typed, strict=True)]
    return change(data) if isinstance(data, str | dict | list) else data


def _is_same(new: object, old: object) -> bool:
    return new is old or (not isinstance(old, Struct) and new == old)


def redact_verdict(verdict: Verdict, redact: Redact | None = None) -> tuple[str, Verdict]:
    """Return the line of `verdict` and the verdict, both without secrets and of JSON data alone."""
    line, plain = encode_verdict(verdict)
    if isinstance(redact, Redactor):
        # Letters that look like those of a key are no escapes there.
        text = line if "\\u" not in line else json.dumps(json.loads(line), ensure_ascii=False)
        if not redact.may_find_secrets(text):
            return line, plain
    clean = redact_record(plain, redact)
    return (line, plain) if clean is plain else encode_verdict(clean)


def redact_run(run: Run, redact: Redact | None = None) -> Run:
    """Pass every verdict of `run`, and its metadata, through `redact`; the verdicts then hold JSON data alone."""
    redact = redact or Redactor()
    verdicts = tuple(redact_verdict(verdict, redact)[1] for verdict in run.verdicts)
    metadata = to_plain_json(run.metadata)
    return replace(redact_record(replace(run, verdicts=(), metadata=metadata), redact), verdicts=verdicts)


def redact_decision(decision: GateDecision, redact: Redact | None = None) -> GateDecision:
    """Pass `decision`, whose words quote case ids and reasons, through `redact`."""
    facts = to_plain_json(decision.facts)
    ids = {"changes": facts.pop("changes")} if "changes" in facts else {}
    clean = redact_record(replace(decision, facts=facts), redact)
    return replace(clean, facts={**clean.facts, **ids})
