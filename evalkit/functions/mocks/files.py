"""Files of mocks: read for `$include`, and written from calls of the real function.

`$include: warranty/check_warranty.valid` is the file ``mocks/warranty/check_warranty.yaml``, its key ``valid``. A
recorded mock is what the real function returned, as the answer that a mock file holds; its schema comes with it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.errors import EvalkitError, UsageError, did_you_mean
from evalkit.functions.permissions import explain_path
from evalkit.functions.targets import AnyFunction, TargetError, find_object, wait_for
from evalkit.jsonvalue import JsonDict, JsonObject, NotJsonError, to_json
from evalkit.lazy import LazyModule
from evalkit.records.case import Permissions
from evalkit.records.template import has_syntax, to_literal
from evalkit.records.transcript import AgentValue
from evalkit.text.format import format_value
from evalkit.yamlfile.events import read_file
from evalkit.yamlfile.parse import load

if TYPE_CHECKING:
    from evalkit.yamlfile import positions
else:
    positions = LazyModule("evalkit.yamlfile.positions")

_ENDINGS = (".yaml", ".yml", ".json")
_REFERENCE = r"(?P<file>(?:[\w-]+/)*[\w-]+)(?:\.(?P<key>.+))?"
_CACHE: dict[Path, tuple[tuple[int, int], object]] = {}


class IncludeError(EvalkitError):
    """An `$include` that leads nowhere."""

    code = "invalid_case"


class MockFiles(Struct, frozen=True):
    """The `include` of `parse_mocks` for a folder of mock files (YAML or JSON).

    It gives the data that a reference names, raises IncludeError where it names none, and SpecError where the file does
    not load. Files are read once per process and again when they change. No reference leads out of the folder.
    `fill` fills the templates of a row into what is included. Links lead where `permissions` allow it.
    """

    folder: str | Path
    fill: Callable[[Any], object] | None = None
    permissions: Permissions | None = None

    def __call__(self, reference: str) -> object:
        data = self._find(reference)[2]
        return data if self.fill is None else self.fill(data)

    def locate(self, reference: str, inner: tuple[str | int, ...], at_key: bool) -> str:
        """``mocks/warranty/check_warranty.yaml:4:9``, of what lies at `inner` below what `reference` names."""
        path, steps, _ = self._find(reference)
        line, column = positions.read_positions(path.read_bytes()).locate((*steps, *inner), key=at_key)
        return f"{self._format_path(path)}:{line}:{column}"

    def _find(self, reference: str) -> tuple[Path, tuple[str, ...], object]:
        """Return the file that a reference names, the keys to go down in it, and the data there."""
        match = re.fullmatch(_REFERENCE, reference)
        if match is None:
            raise IncludeError(f"{reference!r} names no mock file; write it as 'warranty/check_warranty.valid'")
        folder, name, key = Path(self.folder), match["file"], match["key"]
        candidates = (folder / f"{name}{ending}" for ending in _ENDINGS)
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is None:
            files = (file for ending in _ENDINGS for file in folder.glob(f"**/*{ending}"))
            names = sorted({file.relative_to(folder).with_suffix("").as_posix() for file in files})
            raise IncludeError(f"there is no file {folder.name}/{name}.yaml{did_you_mean(name, names)}")
        if reason := explain_path(path, self.permissions, folder=folder):
            raise IncludeError(f"{self._format_path(path)} is refused: {reason}")
        data = _read_file(path, self._format_path(path))
        if key is None:
            return path, (), data
        value, steps = _find_key(data, key, self._format_path(path))
        return path, steps, value

    def _format_path(self, path: Path) -> str:
        return path.relative_to(Path(self.folder).parent).as_posix()


def _read_file(path: Path, label: str) -> object:
    status = path.stat()
    stamp = (status.st_mtime_ns, status.st_size)
    cached = _CACHE.get(path)
    if cached is not None and cached[0] == stamp:
        return cached[1]
    try:
        content = read_file(path)
    except OSError as error:
        raise IncludeError(f"{label} can't be read: {error.strerror}") from None
    data = load(content, label)
    _CACHE[path] = (stamp, data)
    return data


def _find_key(data: object, key: str, file: str) -> tuple[object, tuple[str, ...]]:
    """Return the value under `key`, the key as it stands or a path of keys joined by dots; and that path."""
    if isinstance(data, Mapping) and key in data:
        return data[key], (key,)
    value = data
    for step in key.split("."):
        if not isinstance(value, Mapping):
            raise IncludeError(f"{file} has no '{key}': {format_value(value, 60)} has no keys")
        if step not in value:
            hint = "; leave the file's ending out" if f".{key}" in _ENDINGS else did_you_mean(step, map(str, value))
            raise IncludeError(f"{file} has no key '{step}'{hint}")
        value = value[step]
    return value, tuple(key.split("."))


# ---- mocks out of calls of the real function ----

_EXAMPLE = "shop.clients:WarrantyClient.check"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class RecordedCall(Struct, frozen=True):
    """A call of the real function and its result, as JSON data."""

    arguments: AgentValue
    result: AgentValue


def load_real_function(target: str) -> AnyFunction:
    """Import what `target` (``module:function``, ``module:Class.method``) names, ready to be called.

    A method is that of an instance made without arguments. Raises UsageError where there is nothing to call.
    """
    try:
        target_object = find_object(target, _EXAMPLE)
    except TargetError as error:
        raise UsageError(f"{target}: {error}") from None
    function: Any = target_object.value
    if isinstance(target_object.owner, type) and inspect.isfunction(
        inspect.getattr_static(target_object.owner, target_object.name)
    ):
        try:
            function = getattr(target_object.owner(), target_object.name)
        except Exception as error:
            why = f"{target_object.owner.__name__}() raised {type(error).__name__}: {error}"
            raise UsageError(f"{target}: {why}; name a function that makes the call") from error
    if not callable(function):
        raise UsageError(f"{target}: it is not callable")
    return function  # type: ignore[no-any-return]


def record_calls(target: str, calls: Iterable[JsonObject]) -> list[RecordedCall]:
    """Call `target` with each mapping of arguments by name. UsageError if one raises or returns something not JSON."""
    function = load_real_function(target)
    recorded_calls = []
    for arguments in calls:
        call_text = f"{target}({', '.join(f'{name}={format_value(value, 40)}' for name, value in arguments.items())})"
        try:
            result = function(**arguments)
            result = wait_for(result) if inspect.isawaitable(result) else result
        except Exception as error:
            raise UsageError(f"{call_text} raised {type(error).__name__}: {error}; nothing was written") from error
        try:
            recorded_calls.append(RecordedCall(dict(arguments), to_json(result)))
        except NotJsonError as error:
            raise UsageError(f"{call_text} returned something else than JSON: {error}; nothing was written") from None
    return recorded_calls


def build_answer(calls: Sequence[RecordedCall]) -> object:
    """Return the mock of these calls: the result of the only one, else a rule by arguments for each."""
    if len(calls) == 1:
        return to_literal(calls[0].result)
    for call in calls:
        if has_syntax(call.arguments):
            raise UsageError(
                f"{format_value(dict(call.arguments), 60)} holds '$' keys or '{{{{', which mean something in 'when'"
            )
    rules = {repr(call.arguments): call for call in calls}  # the same call made twice: its last result
    return {"$match": [{"when": dict(rule.arguments), "$return": to_literal(rule.result)} for rule in rules.values()]}


def build_returns_schema(results: Iterable[object], base_schema: JsonObject | None = None) -> JsonDict:
    """Return a JSON Schema that all `results` fit, and all that fit `base_schema`, an earlier one of this function."""
    from genson import SchemaBuilder

    builder = SchemaBuilder(schema_uri=_DIALECT)
    if base_schema:
        builder.add_schema({key: value for key, value in base_schema.items() if key != "$schema"})
    for result in results:
        builder.add_object(result)
    return dict(builder.to_schema())
