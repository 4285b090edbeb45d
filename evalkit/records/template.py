"""Templates: ``{{ calls.create_ticket.result.ticket_id }}`` as frozen data, and their rendering.

The roots are ``arguments``, ``input``, ``calls`` and ``state``. Braces around another word are a mistake, and not text:
a misspelt root would otherwise hold in silence, above all where a text must not be found. Text with braces is written
as ``{{ '{{ name }}' }}``. Braces around anything else (``{{#each}}``, ``{{"a": 1}}``) are text.

A string that is one template keeps the value's type. What was rendered is a `Literal`: it is never scanned again,
neither for templates nor for operators.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

from msgspec import Struct

from evalkit.bounds import explain_bound, get_bounds
from evalkit.errors import EvalkitError, did_you_mean, find_nearest

ROOTS = ("arguments", "input", "calls", "state")
ROW = "row"  # the root of templates that are filled before a case is read: ``{{ row.x }}``
# As text: few cases hold a template, and `re` keeps what it has compiled.
_QUOTED = r"\{\{\s*(?:'([^']*)'|\"([^\"]*)\")\s*\}\}"
_WORD = r"\{\{\s*([.$@]?[^\W\d][\w-]*)"
_TEMPLATE = _QUOTED + "|" + _WORD + r"((?:[^{}'\"]|'[^']*'|\"[^\"]*\")*)\}\}"
_UNCLOSED = _WORD + r"\s*[.\[][^\n]{0,40}"
_STEP = (
    r"\.([A-Za-z_][\w-]*)|\[\s*([0-9]{1,9})\s*\]|\[\s*'([^']*)'\s*\]|\[\s*\"([^\"]*)\"\s*\]"
    r"|\[\s*arguments((?:\.[A-Za-z_][\w-]*)+)\s*\]"
)

_SHOWN = 80

JsonLike = Any  # JSON data in which templates and literals may stand
_TEXTLESS = frozenset((int, float, bool, type(None)))


class TemplateError(EvalkitError):
    """A template with a known root and a path that does not parse or leads nowhere."""

    code = "template"


class MissingArgumentError(TemplateError):
    """A template of the call's arguments leads nowhere: the agent left an argument out, or sent another value."""


class TooFewCallsError(TemplateError):
    """A template names a later call of a function than those that have succeeded so far."""


class ArgumentStepError(TemplateError):
    """An argument of the agent's is no step of a path: not a text or a whole number."""


class ArgumentStep(str):
    """A step into the state that an argument of the call names: ``{{ state.orders[arguments.order_id].total }}``.

    The text is the path of the argument: ``order_id``.
    """

    __slots__ = ()


class Literal(Struct, frozen=True):
    """A value in which `$` and ``{{`` mean nothing: `{$literal: X}`, or something a template was replaced by."""

    value: JsonLike


class Reference(Struct, frozen=True):
    """A ``{{ root.path }}``; `text` is its source."""

    root: str
    path: tuple[str | int, ...]
    text: str


class Template(Struct, frozen=True):
    """A string with references in it: text and references in turn. One reference alone keeps its value's type."""

    parts: tuple[str | Reference, ...]

    def __str__(self) -> str:
        return "".join(escape_braces(part) if isinstance(part, str) else part.text for part in self.parts)


def escape_braces(text: str) -> str:
    """Write `text` so that `parse_template` returns it, whatever braces it holds."""
    if "'" in text:
        return text.replace("{{", "{{ '{{' }}")
    return re.sub(f"{_TEMPLATE}|{_UNCLOSED}", r"{{ '\g<0>' }}", text) if "{{" in text else text


def has_braces(value: Any) -> bool:
    """Tell whether any text of a value may hold a template. Most hold none, and need not be parsed."""
    of_type = type(value)
    if of_type is str:
        return "{{" in value
    if of_type is dict:
        value = value.values()
    elif of_type is not list:
        return of_type not in _TEXTLESS
    for item in value:  # noqa: SIM110 - half the time of any(...), once for each key of each expected call
        if has_braces(item):
            return True
    return False


def parse_template(text: str) -> str | Template:
    """Return the text if `text` holds no reference, its quoted braces unquoted, else the Template.

    TemplateError for a word that is no root, for a path that does not parse, and for a reference that is not closed.
    """
    if "{{" not in text:
        return text
    parts: list[str | Reference] = []
    unread, end = "", 0  # text since the last reference
    for match in re.finditer(_TEMPLATE, text):
        unread += _check_plain(text[end : match.start()])
        end = match.end()
        if match[3] is None:
            unread += match[1] if match[1] is not None else match[2]
            continue
        if match[3] == ROW:
            raise TemplateError(explain_missing_rows(match[0]))
        if match[3] not in ROOTS:
            raise TemplateError(
                f"template {match[0]} begins with none of {', '.join(ROOTS)}"
                f"{did_you_mean(match[3].lstrip('.$@'), ROOTS)} (text with braces is written {escape_braces(match[0])})"
            )
        parts += [unread] if unread else []
        path = _parse_path(match[4].rstrip(), match[0])
        if match[3] != "state" and any(isinstance(step, ArgumentStep) for step in path):
            raise TemplateError(f"template {match[0]}: an argument can name a step of a path into the state alone")
        parts.append(Reference(match[3], path, match[0]))
        unread = ""
    unread += _check_plain(text[end:])
    if not parts:
        return unread
    return Template((*parts, unread) if unread else tuple(parts))


def explain_missing_rows(text: str) -> str:
    """Explain the first ``{{ row.x }}`` in `text`, of a case without rows; "" if there is none."""
    match = next((match for match in re.finditer(_TEMPLATE, text) if match[3] == ROW), None) if "{{" in text else None
    return "" if match is None else f"template {match[0]} needs rows: the case has none of 'cases', 'matrix' and 'from'"


def fill_row(text: str, row: Mapping[str, JsonLike], *, escape: Callable[[JsonLike], JsonLike]) -> JsonLike:
    """Replace each ``{{ row.path }}`` of `text` by the row's value; one that is the whole text keeps the value's type.

    `escape` makes data of a value where templates are read later. TemplateError for a path that leads nowhere.
    """
    parts: list[str] = []
    end = 0
    for match in re.finditer(_TEMPLATE, text):
        if match[3] != ROW:
            continue
        path = _parse_path(match[4].rstrip(), match[0])
        value = escape(follow_path(row, path, match[0]))
        if match[0] == text:
            return value
        parts += [text[end : match.start()], value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)]
        end = match.end()
    rest = text[end:]
    for match in re.finditer(_UNCLOSED, rest) if ROW in rest else ():
        if match[1] == ROW:
            raise TemplateError(f"template {match[0]} is not closed; write }}}} behind its path")
    return "".join((*parts, rest))


def _check_plain(text: str) -> str:
    """Return `text`, which holds no template. TemplateError if it holds one that is not closed."""
    for match in re.finditer(_UNCLOSED, text) if "{{" in text else ():
        if find_nearest(match[1], ROOTS) is not None:
            raise TemplateError(f"template {match[0]} is not closed; write }}}} behind its path")
    return text


def explain_key(key: str) -> str:
    """Explain why a mapping's key can't be used: templates stand in values alone; "" if it is an ordinary key."""
    try:
        if isinstance(parse_template(key), str):
            return ""
    except TemplateError:
        pass
    return f"the key '{key}' holds a template, which only values may; {{$literal: ...}} makes the mapping data"


def _parse_path(text: str, template_text: str) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = re.compile(_STEP).match(text, position)
        if match is None:
            raise TemplateError(
                f"template {template_text} does not parse at {text[position:]!r}; "
                "a path is .name, [0] or ['odd name'], as in {{ calls['crm.lookup'][1].result.id }}"
            )
        if match[5] is not None:
            steps.append(ArgumentStep(match[5][1:]))
        else:
            steps.append(int(match[2]) if match[2] is not None else next(g for g in match.groups() if g is not None))
        position = match.end()
    return tuple(steps)


def render_templates(value: object, resolve: Callable[[Reference], object]) -> JsonLike:
    """Replace every Template in `value`; the value of a reference is wrapped in `Literal`.

    `resolve` gives a reference's value or raises TemplateError. Values without templates come back as they are.
    """
    if isinstance(value, Template):
        if len(value.parts) == 1 and isinstance(value.parts[0], Reference):
            return Literal(resolve(value.parts[0]))
        texts: list[str] = []
        length = 0
        for part in value.parts:
            rendered = part if isinstance(part, str) else resolve(part)
            texts.append(rendered if isinstance(rendered, str) else json.dumps(rendered, ensure_ascii=False))
            length += len(texts[-1])
            if length > (limit := get_bounds().result_characters):
                more = explain_bound("result_characters")
                raise TemplateError(f"'{str(value)[:_SHOWN]}' comes to more than {limit:,} characters{more}")
        return Literal("".join(texts))
    if isinstance(value, dict):
        return {key: render_templates(item, resolve) for key, item in value.items()}
    if isinstance(value, list):
        return [render_templates(item, resolve) for item in value]
    return value


def is_operator(value: object) -> TypeGuard[dict[str, Any]]:
    """Tell whether a value of a case is an operator, and not data: a mapping whose keys all begin with ``$``."""
    return isinstance(value, dict) and bool(value) and all(str(key).startswith("$") for key in value)


def to_literal(value: JsonLike) -> JsonLike:
    """Return `value` as a case must write it to mean this very value, whatever its keys and braces mean there."""
    return {"$literal": value} if has_syntax(value) else value


def has_syntax(value: object) -> bool:
    """Tell whether a case would read something into `value`: an operator, a directive or a template."""
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, Mapping):
        return any(key.startswith("$") or has_syntax(key) or has_syntax(item) for key, item in value.items())
    return isinstance(value, list) and any(map(has_syntax, value))


def strip_literals(value: object) -> JsonLike:
    """Unwrap every `Literal` in `value`, at any depth."""
    if isinstance(value, Literal):
        return value.value
    if isinstance(value, dict):
        return {key: strip_literals(item) for key, item in value.items()}
    if isinstance(value, list):
        return [strip_literals(item) for item in value]
    return value


def follow_path(value: JsonLike, path: tuple[str | int, ...], template_text: str) -> JsonLike:
    """Return the value at `path`: mapping keys and list indices only. A wrong step is a TemplateError that names it."""
    start = value
    for step in path:
        if not _has_step(value, step):
            raise TemplateError(f"template {template_text} {explain_miss(start, path)}")
        value = value[step]
    return value


def explain_miss(value: JsonLike, path: tuple[str | int, ...]) -> str:
    """Explain which step of `path` leads nowhere; "" if all lead somewhere."""
    for depth, step in enumerate(path):
        if not _has_step(value, step):
            return f"leads nowhere: {_describe_miss(value, step)} (step {depth + 1} of the path)"
        value = value[step]
    return ""


def _has_step(value: JsonLike, step: str | int) -> bool:
    if isinstance(value, Mapping):
        return step in value
    return isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value)


def _describe_miss(value: object, step: str | int) -> str:
    if isinstance(value, Mapping):
        return f"there is no {step!r} in {{{', '.join(map(str, value))}}}" + did_you_mean(step, [str(k) for k in value])
    if isinstance(value, list):
        return f"a list of {len(value)} has no item {step!r}"
    return f"{json.dumps(value, ensure_ascii=False, default=str)[:60]} has no parts"
