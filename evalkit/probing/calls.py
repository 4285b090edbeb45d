"""The arguments of an expected call, made from what the case says of them and from the declared schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from evalkit.errors import EvalkitError, MockError
from evalkit.functions.mocks import Answer, Call, Delayed, Match, Sequence
from evalkit.functions.violations import argument_violations
from evalkit.model.case import Declaration
from evalkit.model.template import Reference, Template, TemplateError, parse
from evalkit.operators.compile import Mode
from evalkit.probing.examples import Impossible, LeftOut, Resolve, Unsure, accepts, example, is_operator
from evalkit.probing.ruling import ruled_out
from evalkit.probing.schemas import schema_example

Path = tuple[str | int, ...]
_WHOLE_NUMBERS = 100  # that are tried between a schema's bounds
GROUPS = ("in_order", "any_order", "in_parallel")
PHRASES = ("response_contains", "response_body_contains")


class Wanted(Struct, frozen=True):
    """One expected call with its place; `together`: the place of the `in_parallel` around it."""

    keys: Mapping[str, Any]
    path: Path
    together: Path | None = None

    @property
    def name(self) -> str:
        return str(self.keys["function_name"])

    @property
    def times(self) -> int:
        times = self.keys.get("times", 1)
        least = times.get("min", 1) if isinstance(times, dict) else times
        return max(int(least), 1)


def wanted_calls(items: list[Any], path: Path, variant: int, together: Path | None = None) -> Iterator[Wanted]:
    """The calls of a list, in order; of each `one_of`, alternative number `variant`, or its last."""
    for number, item in enumerate(items):
        here = (*path, number)
        if isinstance(item, str):
            yield Wanted({"function_name": item}, here, together)
        elif "function_name" in item:
            yield Wanted(item, here, together)
        else:
            ((key, inner),) = item.items()
            if key in GROUPS:
                yield from wanted_calls(
                    inner, (*here, key), variant, (*here, key) if key == "in_parallel" else together
                )
            else:
                chosen = min(variant, len(inner) - 1)
                alternative = inner[chosen]
                at = (*here, key, chosen)
                if isinstance(alternative, list):
                    yield from wanted_calls(alternative, at, variant, together)
                else:
                    yield from (
                        Wanted(one.keys, at if one.path == (*at, 0) else one.path, together)
                        for one in wanted_calls([alternative], at, variant, together)
                    )


def implied(expected: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The calls that must be made where no list says so."""
    found: dict[str, dict[str, Any]] = {}
    for name, times in _referenced(expected).items():
        found[name] = {"function_name": name, "times": times}
    fields = expected.get("ticket_fields")
    if fields or expected.get("ticket_created"):
        found["create_ticket"] = {"function_name": "create_ticket", "arguments_contain": fields or {}}
    if expected.get("email_sent"):
        found["send_email"] = {"function_name": "send_email"}
    last = expected.get("final_function_call")
    if last:
        found[last] = found.pop(last, {"function_name": last})
    return list(found.values())


def _referenced(expected: Mapping[str, Any]) -> dict[str, int]:
    """The functions whose calls the phrases speak of, ``{{ calls.f[2].result.id }}``, and how often they are called."""
    found: dict[str, int] = {}
    for phrase in (phrase for key in PHRASES for phrase in listed_texts(expected.get(key))):
        template = parse(phrase)
        for part in template.parts if isinstance(template, Template) else ():
            if isinstance(part, Reference) and part.root == "calls" and part.path:
                name, number = str(part.path[0]), part.path[1] if len(part.path) > 1 else 1
                found[name] = max(found.get(name, 1), number if isinstance(number, int) else 1)
    return found


def listed_texts(value: Any) -> list[str]:
    """One text or several, as a list."""
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def variants(items: Any) -> int:
    """How many alternatives the longest `one_of` in a list of calls has; 1 where there is none."""
    if isinstance(items, list):
        return max(map(variants, items), default=1)
    if isinstance(items, dict):
        own = len(items["one_of"]) if isinstance(items.get("one_of"), list) else 1
        return max(own, *(variants(items[key]) for key in (*GROUPS, "one_of") if key in items), 1)
    return 1


class Made(Struct):
    """Arguments. `guessed` are names of which the case leaves the value open; `unsure` says of which no value was
    found, and `wrong` (path, code, message) of which there is none. `is_valid`: the schema is to be kept."""

    arguments: dict[str, Any] = field(default_factory=dict)
    guessed: set[str] = field(default_factory=set)
    unsure: list[str] = field(default_factory=list)
    wrong: list[tuple[Path, str, str]] = field(default_factory=list)
    is_valid: bool = True


def left_open(
    wanted: Wanted, declaration: Declaration | None, mock: Answer | None, error: EvalkitError, is_unsure: bool
) -> str | None:
    """Why the failure of a call tells nothing: its mock depends on what nobody has said. None: it does tell.

    `is_unsure`: a call before could not be checked either.
    """
    unknown = declaration is None or declaration.parameters is None
    is_open = unknown and not any(key in wanted.keys for key in ("arguments", "arguments_contain"))
    is_broken = isinstance(error, MockError)
    is_known = getattr(error, "type", "") != "unknown_function"
    if is_open and ("{{ arguments" in str(error) if is_broken else is_known and _asks(mock)):
        return "its mock refers to arguments that the case leaves open"
    if is_unsure and is_broken and any(root in str(error) for root in ("{{ state", "{{ calls")):
        return "its mock refers to a call that could not be checked"
    return None


def _asks(mock: Answer | None) -> bool:
    """Whether what a mock answers depends on what is sent."""
    if isinstance(mock, Delayed):
        return _asks(mock.answer)
    return any(map(_asks, mock.elements)) if isinstance(mock, Sequence) else isinstance(mock, (Match, Call))


def make_arguments(wanted: Wanted, declaration: Declaration | None, resolve: Resolve) -> Made:
    """What an agent that did as the case says would send."""
    made = Made(is_valid=wanted.keys.get("valid") is not False)
    schemas = _properties(declaration)
    for key in ("arguments_contain", "arguments"):
        for name, value in (wanted.keys.get(key) or {}).items():
            _make_one(made, (*wanted.path, key), name, value, schemas.get(name), resolve)
    for key, value in wanted.keys.items():
        if key.endswith("_contains") and key != "result_contains":
            _add_phrases(made, (*wanted.path, key), key.removesuffix("_contains"), value, wanted, schemas, resolve)
    for key in wanted.keys:
        name = key.removesuffix("_excludes")
        if name != key and name not in made.arguments:
            made.arguments[name] = schema_example(schemas.get(name))
            made.guessed.add(name)
    if "arguments" not in wanted.keys and declaration is not None:
        for name in (declaration.parameters or {}).get("required") or ():
            if name not in made.arguments and name not in (wanted.keys.get("arguments_absent") or ()):
                made.arguments[name] = schema_example(schemas.get(name))
                made.guessed.add(name)
    return made


def _properties(declaration: Declaration | None) -> Mapping[str, Any]:
    found = (declaration.parameters or {}).get("properties") if declaration else None
    return found if isinstance(found, Mapping) else {}


def _make_one(made: Made, path: Path, name: str, value: Any, schema: Any, resolve: Resolve) -> None:
    offered = _offered(schema) if is_operator(value) else ()
    mode: Mode = "equal" if path[-1] == "arguments" else "contain"
    is_open = is_operator(value) and not _enumerates(value)
    hopeless = ruled_out(value, schema, mode) if is_open and made.is_valid else ""
    if hopeless:
        made.wrong.append(((*path, name), "invalid_arguments", hopeless))
        return
    try:
        made.arguments[name] = example(value, resolve, offered, mode)
    except LeftOut:
        return
    except Unsure as unsure:
        made.unsure.append(f"{name}: {unsure}")
        made.guessed.add(name)
    except Impossible as impossible:
        made.wrong.append(((*path, name), "unmatchable_pattern", str(impossible)))
    except TemplateError as error:
        made.wrong.append(((*path, name), "unresolved_reference", str(error)))
    if is_open:
        made.guessed.add(name)


def _offered(schema: Any) -> tuple[Any, ...]:
    if not isinstance(schema, Mapping):
        return ()
    if isinstance(schema.get("enum"), list):
        return tuple(schema["enum"])
    bounds = [schema[key] for key in ("minimum", "maximum") if isinstance(schema.get(key), (int, float))]
    between = range(int(bounds[0]), int(bounds[1]) + 1)[:_WHOLE_NUMBERS] if len(bounds) == 2 else ()
    return (schema_example(schema), *bounds, *between)


def _enumerates(value: dict[str, Any]) -> bool:
    """Whether the operators list every value that will do, so that the schema can refuse them all."""
    listed = value.get("$one_of")
    return "$eq" in value or "$literal" in value or (isinstance(listed, list) and not any(map(is_operator, listed)))


def _add_phrases(
    made: Made, path: Path, name: str, value: Any, wanted: Wanted, schemas: Mapping[str, Any], resolve: Resolve
) -> None:
    phrases = []
    for number, phrase in enumerate(value if isinstance(value, list) else [value]):
        try:
            phrases.append(str(example(phrase, resolve)))
        except TemplateError as error:
            made.wrong.append(((*path, number), "unresolved_reference", str(error)))
    schema = schemas.get(name)
    if isinstance(schema, Mapping) and schema.get("type") == "array":
        made.arguments[name] = phrases
        return
    there = made.arguments.get(name)
    text = "\n".join([*([there] if isinstance(there, str) else []), *phrases])
    exact = (wanted.keys.get("arguments") or {}).get(name)
    # A text that is given word for word stays; the judge says whether the phrases are in it.
    if exact is None or (is_operator(exact) and accepts(exact, text, resolve)):
        made.arguments[name] = text


def refused(made: Made, declaration: Declaration | None) -> tuple[list[str], list[str]]:
    """What the declared schema says against the arguments: of what the case says, and of what was guessed."""
    found = () if declaration is None else argument_violations(declaration, made.arguments)
    said: list[str] = []
    guessed: list[str] = []
    for violation in found:
        about_guess = bool(violation.path) and violation.path[0] in made.guessed
        (guessed if about_guess else said).append(violation.message)
    return said, guessed
