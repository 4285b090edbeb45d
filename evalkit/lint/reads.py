"""Which keys code reads from a mapping of arguments: ``arguments["city"]``, ``args.get("days")``, ``"city" in args``.

A function that takes all arguments as one value has no signature to compare; what it reads says the same. Where the
mapping is handed on (``save(args)``, ``Model(**args)``) others may read more, which is told as well.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from evalkit.errors import Location
from evalkit.lint.facts import UNKNOWN, Implementation, Parameter
from evalkit.lint.pythonfile import Function, PythonFile
from evalkit.lint.static import dotted, last_name

# Names of a mapping of all arguments, or of a value that takes them all.
_WHOLE_WORDS = """args arguments params parameters payload kwargs input inputs tool_input tool_args request
    call data body function_args tool_call action event fn_args func_args tool_arguments function_arguments"""
WHOLE = frozenset(_WHOLE_WORDS.split())
_ARGUMENTS = WHOLE - frozenset(("payload", "input", "inputs", "request", "call", "data", "body", "event", "action"))
# Looking at a mapping as a whole reads none of its keys.
_LOOKING_WORDS = """print len isinstance bool str repr type debug info warning error exception log critical dumps"""
_LOOKING = frozenset(_LOOKING_WORDS.split())
_OF_A_CALL = ("input", "args", "arguments")
_GETTING = ("get", "pop")
_OF_DEFAULT: dict[type, tuple[str, ...]] = {  # bool first: it is an int
    bool: ("boolean",),
    str: ("string",),
    int: ("integer", "number"),
    float: ("number", "integer"),
    list: ("array",),
    dict: ("object",),
}


def keys_read(
    body: Iterable[ast.AST],
    name: str,
    file: PythonFile,
    *,
    also: Iterable[ast.AST] = (),
    left_out: Container[int] = (),
) -> tuple[tuple[Parameter, ...], bool] | None:
    """The keys that the statements `body` read from the mapping `name`, and whether it is handed on; None for no key.

    What `also` reads (code around `body` that runs as well, `left_out` but for) is read, and needed by nobody.
    """
    reading, around = _Reading(file), _Reading(file)
    reading.read([*body], name)
    if not reading.found:
        return None
    around.read([*also], name, left_out)
    parameters = [
        Parameter(
            name=key,
            place=place,
            required=key in reading.needed and key not in around.found,
            types=types_of_default(reading.defaults.get(key)),
            annotation=f"{reading.defaults.get(key)!r} by default",
        )
        for key, place in {**around.found, **reading.found}.items()
    ]
    return tuple(parameters), reading.handed_on or around.handed_on


def types_of_default(value: Any) -> frozenset[str] | None:
    """The JSON types of arguments beside which `value` can stand by default; None where it does not tell.

    What counts as false (``""``, ``0``, ``False``) may stand for no argument at all.
    """
    if not value or value is UNKNOWN:
        return None
    for kind, names in _OF_DEFAULT.items():
        if isinstance(value, kind):
            return frozenset(names)
    return None


class _Reading:
    """What statements do with one mapping and the names that it is given besides."""

    def __init__(self, file: PythonFile) -> None:
        self._file = file
        self.found: dict[str, Location] = {}
        self.defaults: dict[str, Any] = {}
        self.needed: set[str] = set()
        self._asked: set[str] = set()
        self.handed_on = False

    def read(self, body: list[ast.AST], name: str, left_out: Container[int] = ()) -> None:
        """`left_out`: the ids of statements that are told elsewhere."""
        nodes = [node for top in body for node in _walk(top, left_out)]
        names = {name, *_other_names(nodes, name)}
        parents = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
        for node in nodes:
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and dotted(node) in names:
                self._use(node, parents)
        if any(isinstance(node, ast.ExceptHandler) and _is_for_keys(node) for node in nodes):
            self.needed.clear()
        self.needed -= self._asked

    def _use(self, name: ast.expr, parents: dict[int, ast.AST]) -> None:
        node = name
        parent = parents.get(id(node))
        if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or):  # (arguments or {}).get("city")
            node, parent = parent, parents.get(id(parent))
        above = parents.get(id(parent)) if parent is not None else None
        if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load):
            self._key(parent.slice, is_needed=True)
        elif isinstance(parent, ast.Attribute) and parent.attr in _GETTING and isinstance(above, ast.Call):
            self._key(above.args[0] if above.args else None, is_needed=False)
            self._default(above)
        elif isinstance(parent, ast.Compare) and node in parent.comparators and isinstance(parent.left, ast.Constant):
            self._key(parent.left, is_needed=isinstance(parent.ops[0], ast.NotIn) and _is_refusal(above))
        elif not _only_looks(node, parent, above):
            self.handed_on = True

    def _default(self, call: ast.Call) -> None:
        """``args.get("days", 3)``."""
        if len(call.args) == 2 and all(isinstance(argument, ast.Constant) for argument in call.args):
            key, value = call.args
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                self.defaults[str(key.value)] = value.value

    def _key(self, key: ast.expr | None, *, is_needed: bool) -> None:
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            self.handed_on = True  # any key may be meant
            return
        self.found.setdefault(key.value, self._file.place(key))
        (self.needed if is_needed else self._asked).add(key.value)


def _is_for_keys(handler: ast.ExceptHandler) -> bool:
    """``except KeyError``: a key may be missing. What catches everything tells the model of a failure."""
    caught = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    return any(last_name(kind) in ("KeyError", "LookupError") for kind in caught if kind is not None)


def _is_refusal(test: ast.AST | None) -> bool:
    """``if "city" not in args: raise ...``."""
    return isinstance(test, ast.If) and isinstance(test.body[0], ast.Raise) and len(test.body) == 1


def _walk(top: ast.AST, left_out: Container[int]) -> Iterator[ast.AST]:
    pending = [top]
    while pending:
        node = pending.pop()
        if id(node) not in left_out:
            yield node
            pending.extend(ast.iter_child_nodes(node))


def _other_names(nodes: list[ast.AST], name: str) -> Iterator[str]:
    """``args = arguments or {}``, ``args = dict(arguments)``."""
    for node in nodes:
        if isinstance(node, ast.Assign) and _is_same(node.value, name):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_same(value: ast.expr, name: str) -> bool:
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
        value = value.values[0]
    if isinstance(value, ast.Call) and last_name(value.func) == "dict" and len(value.args) == 1 and not value.keywords:
        value = value.args[0]
    return dotted(value) == name


def _only_looks(node: ast.expr, parent: ast.AST | None, above: ast.AST | None) -> bool:
    if isinstance(parent, ast.Call):
        name = last_name(parent.func)
        return name in _LOOKING or (name == "dict" and isinstance(above, ast.Assign))
    is_asked = isinstance(parent, (ast.If, ast.IfExp, ast.While)) and parent.test is node
    return is_asked or isinstance(parent, (ast.FormattedValue, ast.UnaryOp, ast.Assign, ast.Compare))


def by_reading(node: Function, file: PythonFile, implementation: Implementation) -> Implementation | None:
    """A function of one mapping, as one of the keys that it reads; None where that can't be told."""
    mapping = next((it.name for it in implementation.parameters if it.name in WHOLE), None)
    mapping = mapping or next((it.name for it in implementation.parameters if it.required), None)
    found = keys_read(node.body, mapping, file) if mapping is not None else None
    if found is None:
        return None
    parameters, handed_on = found
    return replace(implementation, parameters=parameters, takes_any=handed_on, reads=True)


def of_branch(
    body: list[ast.stmt], function: Function | None, chain: list[ast.stmt], file: PythonFile, name: str
) -> Implementation | None:
    """The branch of a chain of ifs that carries `name` out, as far as it reads the arguments itself.

    `chain` are the statements of all branches, which the rest of the `function` is told from.
    """
    used = {mapping for top in body for node in ast.walk(top) if (mapping := _read_from(node)) is not None}
    bound = {node.id for top in body for node in ast.walk(top) if isinstance(node, ast.Name) and _is_bound(node)}
    if function is None or len(used) != 1 or used & bound:
        return None
    found = keys_read(body, used.pop(), file, also=function.body, left_out={id(statement) for statement in chain})
    if found is None:
        return None
    parameters, handed_on = found
    place = file.place(body[0])
    return Implementation(
        name=f"the branch of '{name}'", place=place, parameters=parameters, takes_any=handed_on, reads=True
    )


def _read_from(node: ast.AST) -> str | None:
    """The mapping of arguments from which the expression reads a key."""
    is_read = isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in _GETTING)
    value = node.value if isinstance(node, (ast.Subscript, ast.Attribute)) and is_read else None
    if isinstance(value, ast.Attribute) and value.attr in _OF_A_CALL:
        return dotted(value) or None  # block.input["city"], call.args["city"]
    return value.id if isinstance(value, ast.Name) and value.id in _ARGUMENTS else None


def _is_bound(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)
