"""Demands that no call can meet together: refused when the case is loaded, so that the agent is not blamed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from evalkit.checks.call_checks import OutcomeCheck
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.legacy_keys import EMAIL, TICKET
from evalkit.checks.phrases import extract_texts
from evalkit.checks.reader import ExpectationReader
from evalkit.errors import KeyPath
from evalkit.jsonvalue import is_json_equal
from evalkit.operators.compile import OperatorProblems, compile_value
from evalkit.operators.phrases import fold_text
from evalkit.text.format import format_value

_ENDS = ("_contains", "_excludes")
_NOT_TEXT = ("result_contains",)


def is_plain(value: Any) -> bool:
    """Whether a value has neither operators nor templates in it, and so means itself."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and not key.startswith("$") and is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return not (isinstance(value, str) and "{{" in value)


def check_within_call(reader: ExpectationReader, path: KeyPath, keys: Mapping[str, Any]) -> None:
    """Report what contradicts itself within one expected call."""
    exact = keys.get("arguments")
    if "arguments" in keys and (exact is None or isinstance(exact, dict)):
        _check_against_exact(reader, path, keys, exact or {})
    _check_text_against_itself(reader, path, keys)
    contained = keys.get("arguments_contain")
    absent = keys.get("arguments_absent")
    for name in [absent] if isinstance(absent, str) else absent if isinstance(absent, list) else []:
        if isinstance(contained, dict) and name in contained and is_plain(contained[name]):
            at = (*path, "arguments_absent")
            reader.add_problem(at, f"{reader.format_place(at)} forbids '{name}', which arguments_contain demands")


def _check_against_exact(
    reader: ExpectationReader, path: KeyPath, keys: Mapping[str, Any], exact: Mapping[Any, Any]
) -> None:
    """`arguments` says everything about the arguments: no other key may ask for something else."""
    if any(isinstance(key, str) and key.startswith("$") for key in exact):
        return
    contained = keys.get("arguments_contain")
    for name, value in contained.items() if isinstance(contained, dict) and is_plain(contained) else ():
        at = (*path, "arguments_contain", name)
        if name not in exact:
            reader.add_problem(
                at, f"{reader.format_place(at)} can't be: arguments lists all of them, and '{name}' is not among them"
            )
        elif is_plain(exact[name]) and not _is_contained(value, exact[name], otherwise=True):
            reader.add_problem(
                at, f"{reader.format_place(at)} can't be: arguments says that '{name}' is {format_value(exact[name])}"
            )
    for key, value in keys.items():
        if key.endswith(_ENDS) and key not in _NOT_TEXT:
            _check_text_against_exact(reader, (*path, key), value, exact)
    absent = keys.get("arguments_absent")
    for name in [absent] if isinstance(absent, str) else absent if isinstance(absent, list) else []:
        if isinstance(name, str) and name in exact and is_plain(exact[name]):
            at = (*path, "arguments_absent")
            reader.add_problem(at, f"{reader.format_place(at)} forbids '{name}', which arguments demands")


def _is_contained(value: Any, actual: Any, *, otherwise: bool) -> bool:
    """Whether `actual` contains `value`; `otherwise` where that can't be said yet, or the value is itself a mistake."""
    try:
        matcher = compile_value(value, mode="contain")
    except OperatorProblems:
        return otherwise
    return otherwise if matcher.has_templates else matcher.is_match(actual)


def _check_text_against_exact(reader: ExpectationReader, path: KeyPath, value: Any, exact: Mapping[Any, Any]) -> None:
    key = str(path[-1])
    name, excludes = key[: -len("_contains")], key.endswith("_excludes")
    if name not in exact:
        reader.add_problem(
            path, f"{reader.format_place(path)} can't be: arguments lists all of them, and '{name}' is not among them"
        )
        return
    if not is_plain(exact[name]):
        return
    texts = extract_texts(exact[name])
    for phrase in _list_plain_phrases(value):
        is_found = any(fold_text(phrase) in text for text in texts)
        if is_found is excludes:
            says = f"arguments says that '{name}' is {format_value(exact[name])}"
            reader.add_problem(path, f"{reader.format_place(path)}: {format_value(phrase)} can't be: {says}")


def is_always_forbidden(demanded: Any, ruled_out: Any) -> bool:
    """Whether every call that meets an expected call is forbidden by another entry, as far as plain values tell.

    Both are entries as written, of the same function.
    """
    if not isinstance(ruled_out, dict):
        return True
    keys = ruled_out.keys() - {"function_name", "arguments_contain"}
    if not isinstance(demanded, dict):
        return ruled_out.keys() == {"function_name"}
    if not all(key in demanded and is_json_equal(demanded[key], ruled_out[key]) for key in keys):
        return False
    contained_by_rule = ruled_out.get("arguments_contain")
    if contained_by_rule is None:
        return True
    exact, contained = demanded.get("arguments"), demanded.get("arguments_contain")
    if is_json_equal(contained_by_rule, exact) or is_json_equal(contained_by_rule, contained):
        return True
    # What a text contains is contained in every longer text; of operators that can't be said.
    arguments = exact if isinstance(exact, dict) else contained if is_plain(contained_by_rule) else None
    return (
        isinstance(arguments, dict)
        and is_plain(arguments)
        and _is_contained(contained_by_rule, arguments, otherwise=False)
    )


def check_calls_outside_list(
    reader: ExpectationReader, expected: Mapping[str, Any], leaves: Iterable[ExpectedCall], never: Collection[str]
) -> None:
    """Report calls that one key of `expected_output` demands, and another rules out. `never`: what is forbidden."""
    final = expected.get("final_function_call")
    demanded = {"final_function_call": (reader.find_canonical(final) or final) if isinstance(final, str) else None}
    for key, function in (("email_sent", EMAIL), ("ticket_created", TICKET)):
        succeeds = expected.get(key)
        demanded[key] = function if succeeds is True else None
        for leaf in leaves if succeeds is False else ():
            if leaf.function_name == function and _must_succeed(leaf):
                reader.add_problem(
                    leaf.path, f"{reader.format_place(leaf.path)} expects {function}, which {key}: false rules out"
                )
    demanded["ticket_fields"] = TICKET if "ticket_fields" in expected else None
    for key, called in demanded.items():
        at = (*reader.root, key)
        if called is not None and expected.get("expected_function_calls") == []:
            reader.add_problem(at, f"{key} can't be: expected_function_calls is [], which means no call at all")
        elif called in never:
            reader.add_problem(at, f"{key} can't be: {called} is forbidden")
    if demanded["ticket_fields"] and expected.get("ticket_created") is False:
        reader.add_problem((*reader.root, "ticket_fields"), "ticket_fields can't be: ticket_created is false")


def _must_succeed(leaf: ExpectedCall) -> bool:
    outcomes = (check for check in (*leaf.checks, *leaf.implied) if isinstance(check, OutcomeCheck))
    return any(check.outcome == "ok" for check in outcomes)


def _list_plain_phrases(value: Any) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str) and item.strip() and is_plain(item)]


def _check_text_against_itself(reader: ExpectationReader, path: KeyPath, keys: Mapping[str, Any]) -> None:
    """A phrase that must be there and contains one that must not."""
    for key, value in keys.items():
        if key.endswith("_excludes"):
            demanded = keys.get(f"{key.removesuffix('_excludes')}_contains")
            check_excluded_phrases(reader, (*path, key), demanded, value)


def check_excluded_phrases(reader: ExpectationReader, path: KeyPath, demanded: Any, excluded: Any) -> None:
    """Report the excluded phrases (at `path`) that stand in a phrase which is demanded of the same text."""
    for phrase in _list_plain_phrases(excluded):
        for demanded_phrase in _list_plain_phrases(demanded):
            if fold_text(phrase) in fold_text(demanded_phrase):
                message = f"{format_value(phrase)} can't be excluded, {format_value(demanded_phrase)} is demanded of the same text"  # noqa: E501
                reader.add_problem(path, f"{reader.format_place(path)}: {message}")
