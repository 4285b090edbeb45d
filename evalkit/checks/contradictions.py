"""Demands that no call can meet together: they are reported when the case is loaded, so that no agent fails them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from evalkit.checks.call_checks import find_text_argument
from evalkit.checks.call_results import OutcomeCheck
from evalkit.checks.evidence import extract_texts
from evalkit.checks.expected_calls import ExpectedCall
from evalkit.checks.legacy_keys import EMAIL, TICKET
from evalkit.checks.reader import ExpectationReader
from evalkit.errors import KeyPath
from evalkit.jsonvalue import is_json_equal
from evalkit.operators.compile import OperatorProblems, compile_value
from evalkit.operators.phrases import find_phrase, fold_text, has_phrase
from evalkit.text.format import format_value

_MAX_COMPARED = 50_000  # pairs of an expected and a forbidden call; others fail when the case runs


def _is_plain(value: object) -> bool:
    """Return whether a value has neither operators nor templates in it, and so means itself."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and not key.startswith("$") and _is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not (isinstance(value, str) and "{{" in value)


def _list_plain_phrases(value: object) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str) and item.strip() and _is_plain(item)]


def check_within_call(reader: ExpectationReader, path: KeyPath, keys: Mapping[str, Any]) -> None:
    """Report demands of one expected call that exclude each other."""
    exact = keys.get("arguments")
    contained = keys.get("arguments_contain")
    absent = keys.get("arguments_absent")
    absent_names = [absent] if isinstance(absent, str) else absent if isinstance(absent, list) else []
    demands: list[tuple[str, object]] = [("arguments_contain", contained)]
    if "arguments" in keys and (exact is None or isinstance(exact, dict)):
        exact = exact or {}
        if not any(isinstance(key, str) and key.startswith("$") for key in exact):
            _check_against_exact(reader, path, keys, exact)
            demands.insert(0, ("arguments", exact))
    for key, value in keys.items():
        if key.endswith("_excludes"):
            demanded = keys.get(f"{key.removesuffix('_excludes')}_contains")
            _check_excluded_phrases(reader, (*path, key), demanded, value)
    absent_path = (*path, "arguments_absent")
    for demanding_key, arguments in demands:
        for name in absent_names:
            if isinstance(arguments, dict) and name in arguments and _is_plain(arguments[name]):
                message = f"{reader.format_place(absent_path)} forbids '{name}', which {demanding_key} demands"
                reader.add_problem(absent_path, message)


def _check_against_exact(
    reader: ExpectationReader, path: KeyPath, keys: Mapping[str, Any], exact: Mapping[Any, Any]
) -> None:
    """Report other demands on arguments that `arguments`, which lists all of them, rules out."""

    def report(path: KeyPath, problem: str) -> None:
        reader.add_problem(path, f"{reader.format_place(path)}{problem}")

    contained = keys.get("arguments_contain")
    for name, value in contained.items() if isinstance(contained, dict) and _is_plain(contained) else ():
        value_path = (*path, "arguments_contain", name)
        if name not in exact:
            report(value_path, f" can't be: arguments lists all of them, and '{name}' is not among them")
        elif _is_plain(exact[name]) and not _is_contained(value, exact[name], otherwise=True):
            report(value_path, f" can't be: arguments says that '{name}' is {format_value(exact[name])}")
    for key, value in keys.items():
        text_argument = find_text_argument(key)
        if text_argument is None or key == "result_contains":
            continue
        if text_argument not in exact:
            report((*path, key), f" can't be: arguments lists all of them, and '{text_argument}' is not among them")
        elif _is_plain(exact[text_argument]):
            texts = extract_texts(exact[text_argument])
            for phrase in _list_plain_phrases(value):
                if any(find_phrase(text, fold_text(phrase)) >= 0 for text in texts) is key.endswith("_excludes"):
                    says = f"arguments says that '{text_argument}' is {format_value(exact[text_argument])}"
                    report((*path, key), f": {format_value(phrase)} can't be: {says}")


def _is_contained(value: object, actual: object, *, otherwise: bool) -> bool:
    """Return whether `actual` contains `value`; `otherwise` where that is not known yet, or the value is a mistake."""
    try:
        matcher = compile_value(value, mode="contain")
    except OperatorProblems:
        return otherwise
    return otherwise if matcher.has_templates else matcher.is_match(actual)


def _check_excluded_phrases(reader: ExpectationReader, path: KeyPath, demanded: object, excluded: object) -> None:
    """Report the excluded phrases (at `path`) that stand in a phrase which is demanded of the same text."""
    for phrase in _list_plain_phrases(excluded):
        for container in _list_plain_phrases(demanded):
            if has_phrase(container, phrase):
                problem = f"{format_value(phrase)} can't be excluded, {format_value(container)} is demanded"
                reader.add_problem(path, f"{reader.format_place(path)}: {problem} of the same text")


def check_across_keys(
    reader: ExpectationReader,
    expected: Mapping[str, Any],
    leaves: Sequence[ExpectedCall],
    forbidden: Sequence[ExpectedCall],
) -> None:
    """Report keys of `expected_output` that exclude each other."""
    for key in ("response", "response_body"):
        if f"{key}_excludes" in expected:
            path = (*reader.root, f"{key}_excludes")
            _check_excluded_phrases(reader, path, expected.get(f"{key}_contains"), expected[f"{key}_excludes"])
    _check_calls_outside_list(
        reader, expected, leaves, [entry.function_name for entry in forbidden if not entry.checks]
    )
    by_function: dict[str, list[ExpectedCall]] = {}
    for leaf in leaves:
        by_function.setdefault(leaf.function_name, []).append(leaf)
    pairs = ((leaf, entry) for entry in forbidden for leaf in by_function.get(entry.function_name, ()))
    for leaf, entry in islice(pairs, _MAX_COMPARED):
        if _is_always_forbidden(
            _get_item(expected, leaf.path, reader.root), _get_item(expected, entry.path, reader.root)
        ):
            here, there = reader.format_place(leaf.path), reader.format_place(entry.path)
            reader.add_problem(leaf.path, f"{here} expects {leaf.function_name}, which {there} forbids")


def _get_item(expected: Any, path: KeyPath, root: KeyPath) -> Any:
    """Return what stands at `path` in the mapping that stands at `root`."""
    for step in path[len(root) :]:
        expected = expected[step]
    return expected


def _is_always_forbidden(demanded: object, ruled_out: object) -> bool:
    """Return whether every call that meets an expected call is forbidden by an entry, as far as plain values tell.

    Both are entries as written, of the same function.
    """
    if not isinstance(ruled_out, dict):
        return True
    if not isinstance(demanded, dict):
        return ruled_out.keys() == {"function_name"}
    keys = ruled_out.keys() - {"function_name", "arguments_contain"}
    if not all(key in demanded and is_json_equal(demanded[key], ruled_out[key]) for key in keys):
        return False
    part = ruled_out.get("arguments_contain")
    exact, contained = demanded.get("arguments"), demanded.get("arguments_contain")
    if part is None or is_json_equal(part, exact) or is_json_equal(part, contained):
        return True
    # A phrase that a text contains is contained in every longer text; operators are not so simple.
    arguments = exact if isinstance(exact, dict) else contained if _is_plain(part) else None
    return isinstance(arguments, dict) and _is_plain(arguments) and _is_contained(part, arguments, otherwise=False)


def _check_calls_outside_list(
    reader: ExpectationReader, expected: Mapping[str, Any], leaves: Sequence[ExpectedCall], never: Sequence[str]
) -> None:
    """Report calls that one key of `expected_output` demands, and another rules out. `never`: forbidden functions."""
    final = expected.get("final_function_call")
    demanded = {"final_function_call": (reader.find_canonical(final) or final) if isinstance(final, str) else None}
    for key, function in (("email_sent", EMAIL), ("ticket_created", TICKET)):
        succeeds = expected.get(key)
        demanded[key] = function if succeeds is True else None
        for leaf in leaves if succeeds is False else ():
            outcomes = [check for check in (*leaf.checks, *leaf.implied) if isinstance(check, OutcomeCheck)]
            if leaf.function_name == function and any(check.outcome == "ok" for check in outcomes):
                place = reader.format_place(leaf.path)
                reader.add_problem(leaf.path, f"{place} expects {function}, which {key}: false rules out")
    demanded["ticket_fields"] = TICKET if "ticket_fields" in expected else None
    for key, called in demanded.items():
        path = (*reader.root, key)
        if called is not None and expected.get("expected_function_calls") == []:
            reader.add_problem(path, f"{key} can't be: expected_function_calls is [], which means no call at all")
        elif called in never:
            reader.add_problem(path, f"{key} can't be: {called} is forbidden")
    if demanded["ticket_fields"] and expected.get("ticket_created") is False:
        reader.add_problem((*reader.root, "ticket_fields"), "ticket_fields can't be: ticket_created is false")
