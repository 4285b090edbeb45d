"""Calls in Python's syntax, `f(a=1)` and `[f(a=1), g()]`, read with `ast` and never executed."""

from __future__ import annotations

import ast
import math
import re
import threading
import warnings
from typing import Any

from evalkit.jsonvalue import JsonDict

MAX_LENGTH = 20_000

_quiet = threading.Lock()  # filters of warnings are the whole process's

_OPENERS = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(r"""'''|\"\"\"|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[()\[\]{}"']""")
_COLON_ARGUMENT = re.compile(r"([(,]\s*)([A-Za-z_]\w*)\s*:\s*")


class NotACallError(ValueError):
    """The text is no call with literal arguments."""


def find_balanced_end(text: str, start: int) -> tuple[int | None, int]:
    """Find the position behind the bracket that closes the one at `start`, None if it is not closed within bounds;
    and the number of characters that were read."""
    stack: list[str] = []
    limit = min(len(text), start + MAX_LENGTH)
    for token in _TOKEN.finditer(text, start, limit):
        mark, read = token[0], token.end() - start
        if mark in _OPENERS:
            stack.append(_OPENERS[mark])
        elif mark in (")", "]", "}"):
            if not stack or stack.pop() != mark:
                return None, read
            if not stack:
                return token.end(), read
        elif len(mark) == 1 or mark in ("'''", '"""'):
            return None, read  # an open quote: nothing behind it can be trusted
    return None, limit - start


def read_calls(source: str) -> list[tuple[str, list[Any], JsonDict, list[str]]]:
    """Read (name, positional, named, repairs) of one call or a list of calls. Raises NotACallError for anything
    else."""
    repairs: list[str] = []
    tree = _parse_expression(source)
    if tree is None:
        # `f(serial_number: "x")` is no Python, and common.
        mended = _COLON_ARGUMENT.sub(r"\1\2=", source)
        tree = _parse_expression(mended)
        if tree is None:
            raise NotACallError("not a call")
        repairs.append("':' instead of '=' before an argument")
    nodes = tree.elts if isinstance(tree, (ast.List, ast.Tuple)) else [tree]
    if not nodes:
        raise NotACallError("an empty list")
    try:
        return [(*_read_call(node), list(repairs)) for node in nodes]
    except RecursionError:  # a parser with room for more has passed it
        raise NotACallError("nested too deeply") from None


def _parse_expression(source: str) -> ast.expr | None:
    if len(source) > MAX_LENGTH:
        return None
    try:
        with _quiet, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of "\d" in a text, which the model wrote, and -W error would refuse
            return ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError, SystemError):
        return None  # SystemError: Python 3.11 miscounts its depth when another thread parses meanwhile


def _read_call(node: ast.expr) -> tuple[str, list[Any], JsonDict]:
    if not isinstance(node, ast.Call):
        raise NotACallError("not a call")
    name = _read_dotted_name(node.func)
    if name == "print" and len(node.args) == 1 and not node.keywords:
        return _read_call(node.args[0])
    if any(keyword.arg is None for keyword in node.keywords):
        raise NotACallError("** in a call")
    named = {str(keyword.arg): _read_literal(keyword.value) for keyword in node.keywords}
    if len(named) != len(node.keywords):
        raise NotACallError("an argument twice")
    return name, [_read_literal(argument) for argument in node.args], named


def _read_dotted_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_read_dotted_name(node.value)}.{node.attr}"
    raise NotACallError("the function is no name")


_JSON_NAMES = {"true": True, "false": False, "null": None}


def _read_literal(node: ast.expr) -> Any:
    """JSON data of a literal; anything that would have to be evaluated is refused."""
    if isinstance(node, ast.Name) and node.id in _JSON_NAMES:
        return _JSON_NAMES[node.id]
    if isinstance(node, (ast.List, ast.Tuple)):
        return [_read_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [_read_literal(key) if key is not None else None for key in node.keys]
        if not all(isinstance(key, str) for key in keys):
            raise NotACallError("a key that is no string")
        return dict(zip(keys, map(_read_literal, node.values), strict=True))
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError, RecursionError):
        raise NotACallError("an argument that is no literal") from None
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise NotACallError("an argument that is no JSON")
