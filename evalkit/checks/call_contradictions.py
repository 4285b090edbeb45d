"""Demands of one expected call that no call can meet together, reported when the case is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalkit.checks.call_keys import find_text_argument
from evalkit.checks.evidence import extract_texts
from evalkit.checks.reader import ExpectationReader
from evalkit.errors import KeyPath
from evalkit.operators.compile import OperatorProblems, compile_value
from evalkit.operators.phrases import find_phrase, fold_text, has_phrase
from evalkit.text.format import format_value


def is_plain(value: object) -> bool:
    """Return whether a value has neither operators nor templates in it, and so means itself."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and not key.startswith("$") and is_plain(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return not (isinstance(value, str) and "{{" in value)


def list_plain_phrases(value: object) -> list[str]:
    """List the phrases of a key that mean themselves."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str) and item.strip() and is_plain(item)]


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
            check_excluded_phrases(reader, (*path, key), demanded, value)
    absent_path = (*path, "arguments_absent")
    for demanding_key, arguments in demands:
        for name in absent_names:
            if isinstance(arguments, dict) and name in arguments and is_plain(arguments[name]):
                message = f"{reader.format_place(absent_path)} forbids '{name}', which {demanding_key} demands"
                reader.add_problem(absent_path, message)


def _check_against_exact(
    reader: ExpectationReader, path: KeyPath, keys: Mapping[str, Any], exact: Mapping[Any, Any]
) -> None:
    """Report other demands on arguments that `arguments`, which lists all of them, rules out."""

    def report(path: KeyPath, problem: str) -> None:
        reader.add_problem(path, f"{reader.format_place(path)}{problem}")

    contained = keys.get("arguments_contain")
    for name, value in contained.items() if isinstance(contained, dict) and is_plain(contained) else ():
        value_path = (*path, "arguments_contain", name)
        if name not in exact:
            report(value_path, f" can't be: arguments lists all of them, and '{name}' is not among them")
        elif is_plain(exact[name]) and not is_contained(value, exact[name], otherwise=True):
            report(value_path, f" can't be: arguments says that '{name}' is {format_value(exact[name])}")
    for key, value in keys.items():
        text_argument = find_text_argument(key)
        if text_argument is None or key == "result_contains":
            continue
        if text_argument not in exact:
            report((*path, key), f" can't be: arguments lists all of them, and '{text_argument}' is not among them")
        elif is_plain(exact[text_argument]):
            texts = extract_texts(exact[text_argument])
            for phrase in list_plain_phrases(value):
                if any(find_phrase(text, fold_text(phrase)) >= 0 for text in texts) is key.endswith("_excludes"):
                    says = f"arguments says that '{text_argument}' is {format_value(exact[text_argument])}"
                    report((*path, key), f": {format_value(phrase)} can't be: {says}")


def is_contained(value: object, actual: object, *, otherwise: bool) -> bool:
    """Return whether `actual` contains `value`; `otherwise` where that is not known yet, or the value is a mistake."""
    try:
        matcher = compile_value(value, mode="contain")
    except OperatorProblems:
        return otherwise
    return otherwise if matcher.has_templates else matcher.is_match(actual)


def check_excluded_phrases(reader: ExpectationReader, path: KeyPath, demanded: object, excluded: object) -> None:
    """Report the excluded phrases (at `path`) that stand in a phrase which is demanded of the same text."""
    for phrase in list_plain_phrases(excluded):
        for container in list_plain_phrases(demanded):
            if has_phrase(container, phrase):
                problem = f"{format_value(phrase)} can't be excluded, {format_value(container)} is demanded"
                reader.add_problem(path, f"{reader.format_place(path)}: {problem} of the same text")
