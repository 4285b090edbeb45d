"""`evalkit record-mocks`: calls of the real function become keys of a mock file, and a schema beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evalkit import yamlfile
from evalkit.cli.redacting import redactor
from evalkit.errors import UsageError
from evalkit.functions.recording import RecordedCall, answer_of, record, returns_schema
from evalkit.spec.project import importable
from evalkit.yamlfile.editing import Editing

_ENDINGS = (".yaml", ".yml")
_LINE_KEYS = {"key", "arguments"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call to be made, and the key under which its result is kept."""

    key: str
    arguments: Mapping[str, Any]


def wanted_calls(given: Sequence[str], file: Path | None, key: str | None) -> list[Wanted]:
    """The calls of the options and of the lines of `file`. UsageError for what is no call, or has no key."""
    texts = [(f"--call {text}", text) for text in given]
    lines = file.read_text("utf-8").splitlines() if file is not None else []
    texts += [(f"{file}:{number}", line) for number, line in enumerate(lines, 1) if line.strip()]
    if not texts:
        raise UsageError('record-mocks needs calls: --call \'{"argument": "value"}\', or --calls FILE')
    return [_wanted(where, text, key) for where, text in texts]


def _wanted(where: str, text: str, key: str | None) -> Wanted:
    try:
        call = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON: {error}") from None
    if isinstance(call, dict) and call.keys() == _LINE_KEYS and isinstance(call["arguments"], dict):
        return Wanted(str(call["key"]), call["arguments"])
    if not isinstance(call, dict):
        raise UsageError(f"{where}: a call is a JSON object of arguments by name")
    if key is None:
        raise UsageError(f'{where}: under which key? Say --key, or write {{"key": ..., "arguments": {{...}}}}')
    return Wanted(key, call)


def record_mocks(target: str, calls: Sequence[Wanted], to: Path, *, force: bool) -> Iterator[str]:
    """Make the calls, write `to` and the schema beside it, and tell what was written. Nothing is, if a call fails."""
    root = Path.cwd()
    if to.suffix not in _ENDINGS:
        raise UsageError(f"--to {to}: a mock file is YAML; name it {to.with_suffix('.yaml')}")
    before = to.read_bytes().decode("utf-8") if to.exists() else ""  # with its line ends as they are
    present = yamlfile.load(before, str(to)) if before.strip() else {}
    _refuse_present(calls, present, to, force=force)
    importable(str(root))
    made = record(target, [call.arguments for call in calls])
    by_key: dict[str, list[RecordedCall]] = {}
    for wanted, call in zip(calls, _redacted(made, root), strict=True):
        by_key.setdefault(wanted.key, []).append(call)
    for same in by_key.values():
        if len(same) > 1 and any(call.arguments not in [one.arguments for one in made] for call in same):
            raise UsageError("an argument is a secret, which a rule in a file can't name; record that call under a key")
    answers = {key: answer_of(same) for key, same in by_key.items()}
    beside = to.with_name(f"{to.stem}.returns.json")
    known = json.loads(beside.read_text("utf-8")) if beside.exists() else None
    schema = returns_schema([call.result for same in by_key.values() for call in same], known)
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_bytes((_edited(before, answers) if present else yamlfile.dump(answers)).encode("utf-8"))
    beside.write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n", "utf-8")
    for key, same in by_key.items():
        yield f"wrote {to}: {key} ({len(same)} call{'' if len(same) == 1 else 's'})"
    yield f"wrote {beside}: the schema of what it returns, for `returns` where the function is declared"


def _refuse_present(calls: Sequence[Wanted], present: Any, to: Path, *, force: bool) -> None:
    if not isinstance(present, dict):
        raise UsageError(f"{to} holds no mapping, so that no key can be added")
    taken = [call.key for call in calls if call.key in present]
    if taken and not force:
        raise UsageError(f"{to} has the key '{taken[0]}' already; nothing was called. Choose another, or add --force")


def _redacted(calls: Sequence[RecordedCall], root: Path) -> list[RecordedCall]:
    redact = redactor(root)

    def without_secrets(value: Any) -> Any:
        return json.loads(redact(json.dumps(value)))

    return [RecordedCall(without_secrets(call.arguments), without_secrets(call.result)) for call in calls]


def _edited(before: str, answers: Mapping[str, Any]) -> str:
    """The file as it was, comments included, with these keys."""
    editing = Editing(before)
    for key, answer in answers.items():
        editing.set((key,), answer)
    return editing.text()
