"""No decision hangs on the words of a message: codes and data decide, words are made at the edge.

A change of wording must change what is read, and nothing else. Only messages of others (a library, a service) may be
asked what they say, where they have no code; the places that do are listed here with their reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import evalkit

PACKAGE = Path(evalkit.__file__).parent
MESSAGES = {
    *("message", "what", "problem", "error", "exc", "reason", "note", "loss", "trouble", "hint", "advice", "summary"),
    *("warning", "problems", "reasons", "notes", "losses"),
}
MAPPINGS = {"message", "error"}  # names of JSON objects too: `"type" in error` asks for a key
ASKING = {"startswith", "endswith", "partition", "rpartition", "index", "find", "count"}
MATCHING = {"search", "match", "fullmatch", "findall"}

# "file: expression" -> why it may ask
ALLOWED = {
    "agents/task.py: PARTS in message": "a key of a JSON object",
    "adapters/pydantic_ai/__init__.py: 'request_limit' in str(error)": "pydantic-ai's error has no code",
    "features/simulated_users/mistakes.py: _FENCE.fullmatch(message.strip())": "the user's message is judged",
    "plugin/verdicts.py: 'timeout' in error.lower()": "pytest-timeout's report has no code",
    "models/providers/client.py: 'api_key' in str(error)": "the openai client's error has no code",
    "models/providers/gemini.py: 'api key' in str(error).lower()": "google-genai raises a plain ValueError",
    "wire/openai_chat.py: _UNREADABLE.match(message)": "llama.cpp's server has no code for it",
    "wire/records.py: re.search(pattern, message)": "the words of a model's service where it has no code: FULL_CONTEXT",
    "yamlfile/syntax_errors.py: _BEGINNING in message": "a place in a text that is filled in",
}


def names_message(node: ast.expr) -> bool:
    """Return whether an expression is named as a message: `message`, `reason.message`, `str(error)`, `f"{error}"`."""
    if isinstance(node, ast.Name):
        return node.id in MESSAGES
    if isinstance(node, ast.Attribute):
        return node.attr in MESSAGES
    if isinstance(node, ast.Call):
        inner = [*node.args, node.func.value] if isinstance(node.func, ast.Attribute) else node.args
        is_text = isinstance(node.func, ast.Name) and node.func.id == "str"
        is_folded = isinstance(node.func, ast.Attribute) and node.func.attr in ("lower", "casefold", "strip")
        return (is_text or is_folded) and any(map(names_message, inner))
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(part, ast.FormattedValue) and names_message(part.value) for part in node.values)
    return False


def is_prose(node: ast.expr) -> bool:
    """Return whether an expression may be words: a text with a letter, or a constant of the module."""
    if isinstance(node, ast.Tuple):
        return any(map(is_prose, node.elts))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and any(map(str.isalpha, node.value))
    return isinstance(node, ast.Name) and node.id.strip("_").isupper()


def asks_for_key(node: ast.Compare) -> bool:
    """Return whether a comparison may ask a JSON object for a key: `"type" in error`."""
    asked = node.comparators[0]
    is_key = isinstance(node.left, ast.Constant) and str(node.left.value).isidentifier()
    return is_key and isinstance(asked, ast.Name) and asked.id in MAPPINGS


def find_decisions(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that ask what a message says."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn, ast.Eq, ast.NotEq)):
            if is_prose(node.left) and names_message(node.comparators[0]) and not asks_for_key(node):
                yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asks = node.func.attr in ASKING and names_message(node.func.value) and any(map(is_prose, node.args[:1]))
            matches = node.func.attr in MATCHING and any(map(names_message, node.args))
            if asks or matches:
                yield node


def list_decisions(source: str) -> list[str]:
    return [ast.unparse(node) for node in find_decisions(ast.parse(source))]


@pytest.mark.parametrize(
    "line",
    [
        'if " succeeded" in message: pass',
        'if "the run file was not written" in str(error): pass',
        'if what.endswith(" not written"): pass',
        'if "{ arguments" in f"{error}": pass',
        "if reason.message.startswith(INTERVAL): pass",
        'if "true" in advice: pass',
        'if re.search("no such", str(error)): pass',
    ],
)
def test_a_decision_on_words_is_found(line: str) -> None:
    assert len(list_decisions(line)) == 1


@pytest.mark.parametrize(
    "line", ['if "type" in error: pass', 'if reason.code == "mock_error": pass', 'x = f"{message}."']
)
def test_codes_and_keys_are_no_words(line: str) -> None:
    assert list_decisions(line) == []


def test_no_decision_hangs_on_the_words_of_a_message() -> None:
    found = {
        f"{file.relative_to(PACKAGE).as_posix()}: {decision}"
        for file in PACKAGE.rglob("*.py")
        for decision in list_decisions(file.read_text("utf-8"))
    }

    assert found - ALLOWED.keys() == set(), "decide by a code or by data, and make the words at the edge"
    assert ALLOWED.keys() - found == set(), "these are gone: take them out of the list"
