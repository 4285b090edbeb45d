"""Data of runs that older versions wrote, as this one reads it.

Version 2: what a feature says of a run or a call stands under its name in `features`. Before, each had a field of its
own there; `Entry.was` of a feature names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evalkit.hooks import list_entries, load_feature, name_errors
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.records.codec import VERSION

_OLD = 1


def upgrade_run(data: JsonObject) -> JsonObject:
    """Return the data of a run of any version as that of this one; of a version that is not known, as it is."""
    if not _is_old(data):
        return data
    metadata = data.get("metadata")
    changed = {"metadata": _move(metadata, "metadata")} if isinstance(metadata, Mapping) else {}
    return {**data, **changed, **_change(data, "verdicts", upgrade_verdict), "version": VERSION}


def upgrade_verdict(data: JsonObject) -> JsonObject:
    """Return the data of a verdict of any version as that of this one."""
    if not _is_old(data):
        return data
    changed = _change(data, "runs", upgrade_verdict) | _change(data, "calls", _upgrade_line)
    changed["changed_runs"] = _list_changed_runs(data)
    return {**_move(_upgrade_holder(data), "verdict"), **changed, "version": VERSION}


def _list_changed_runs(data: JsonObject) -> list[JsonObject]:
    """Return the changed runs of a verdict, which stood in a field for each feature."""
    names = {entry.was["changed_runs"]: entry.name for entry in list_entries() if "changed_runs" in entry.was}
    runs: list[JsonObject] = []
    for old, name in names.items():
        with name_errors(name):
            upgrade = load_feature(name).upgrade_changed_run
            runs += ({**upgrade(run), "feature": name} for run in _change(data, old, _upgrade_holder).get(old, ()))
    return runs


def upgrade_transcript(data: JsonObject) -> JsonObject:
    """Return the data of a transcript of any version as that of this one."""
    if not _is_old(data):
        return data
    user = data.get("simulation")
    if isinstance(user, Mapping):  # what it said is the run's own
        rest = {key: value for key, value in user.items() if key != "messages"}
        data = {**data, "messages": user.get("messages", ()), "simulation": rest}
    return {**_move(data, "transcript"), **_change(data, "calls", _upgrade_call), "version": VERSION}


def _upgrade_call(data: JsonObject) -> JsonObject:
    return _move(data, "call")


def _upgrade_line(data: JsonObject) -> JsonObject:
    """Upgrade the call in a line of a verdict: a result of matching."""
    call = data.get("call")
    return {**data, "call": _upgrade_call(call)} if isinstance(call, Mapping) else data


def _upgrade_holder(data: JsonObject) -> JsonObject:
    """Upgrade the transcript that a verdict or a changed run holds."""
    transcript = data.get("transcript")
    return {**data, "transcript": upgrade_transcript(transcript)} if isinstance(transcript, Mapping) else data


def _is_old(data: object) -> bool:
    return isinstance(data, Mapping) and data.get("version") == _OLD


def _change(data: JsonObject, key: str, upgrade: Callable[[JsonObject], JsonObject]) -> JsonDict:
    """Return the list under `key` with each mapping in it upgraded; nothing where there is no list."""
    items = data.get(key)
    if not isinstance(items, list | tuple) or not items:
        return {}
    return {key: [upgrade(item) if isinstance(item, Mapping) else item for item in items]}


def _move(data: JsonObject, record: str) -> JsonObject:
    """Return the data of a record with what its old fields say under the names of features."""
    names = {entry.was[record]: entry.name for entry in list_entries() if record in entry.was}
    found = {name: data[old] for old, name in names.items() if data.get(old)}
    rest = {key: value for key, value in data.items() if key not in names}
    return {**rest, "features": found} if found else rest
