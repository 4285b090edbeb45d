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
from evalkit.lint.facts.evaluate import get_dotted_name, get_last_name
from evalkit.lint.facts.python_files import Function, PythonFile
from evalkit.lint.facts.records import UNKNOWN, Implementation, Parameter

# Names of a mapping of all arguments, or of a value that takes them all.
_MAPPING_WORDS = """args arguments params parameters payload kwargs input inputs tool_input tool_args request
    call data body function_args tool_call action event fn_args func_args tool_arguments function_arguments"""
MAPPING_NAMES = frozenset(_MAPPING_WORDS.split())
_CLEAR_NAMES = MAPPING_NAMES - frozenset(
    ("payload", "input", "inputs", "request", "call", "data", "body", "event", "action")
)
# Looking at a mapping as a whole reads none of its keys.
_INSPECTION_WORDS = """print len isinstance bool str repr type debug info warning error exception log critical dumps"""
_INSPECTIONS = frozenset(_INSPECTION_WORDS.split())
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


def find_keys(
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
    reading, outer = _KeyReading(file), _KeyReading(file)
    reading.read([*body], name)
    if not reading.places:
        return None
    outer.read([*also], name, left_out)
    parameters = [
        Parameter(
            name=key,
            place=place,
            required=key in reading.required and key not in outer.places,
            types=infer_types(reading.defaults.get(key)),
            annotation=f"{reading.defaults.get(key)!r} by default",
        )
        for key, place in {**outer.places, **reading.places}.items()
    ]
    return tuple(parameters), reading.is_passed_on or outer.is_passed_on


def infer_types(value: Any) -> frozenset[str] | None:
    """The JSON types of arguments beside which `value` can stand by default; None where it does not tell.

    What counts as false (``""``, ``0``, ``False``) may stand for no argument at all.
    """
    if not value or value is UNKNOWN:
        return None
    for kind, names in _OF_DEFAULT.items():
        if isinstance(value, kind):
            return frozenset(names)
    return None


class _KeyReading:
    """What statements do with one mapping and the names that it is given besides."""

    def __init__(self, file: PythonFile) -> None:
        self._file = file
        self.places: dict[str, Location] = {}
        self.defaults: dict[str, Any] = {}
        self.required: set[str] = set()
        self._optional: set[str] = set()
        self.is_passed_on = False

    def read(self, body: list[ast.AST], name: str, left_out: Container[int] = ()) -> None:
        """`left_out`: the ids of statements that are told elsewhere."""
        nodes = [node for top in body for node in _walk(top, left_out)]
        names = {name, *_find_other_names(nodes, name)}
        parents = {id(child): node for node in nodes for child in ast.iter_child_nodes(node)}
        for node in nodes:
            if (
                isinstance(node, (ast.Name, ast.Attribute))
                and isinstance(node.ctx, ast.Load)
                and get_dotted_name(node) in names
            ):
                self._use(node, parents)
        if any(isinstance(node, ast.ExceptHandler) and _is_for_keys(node) for node in nodes):
            self.required.clear()
        self.required -= self._optional

    def _use(self, name: ast.expr, parents: dict[int, ast.AST]) -> None:
        node = name
        parent = parents.get(id(node))
        if isinstance(parent, ast.BoolOp) and isinstance(parent.op, ast.Or):  # (arguments or {}).get("city")
            node, parent = parent, parents.get(id(parent))
        above = parents.get(id(parent)) if parent is not None else None
        if isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.ctx, ast.Load):
            self._record_key(parent.slice, is_needed=True)
        elif isinstance(parent, ast.Attribute) and parent.attr in _GETTING and isinstance(above, ast.Call):
            self._record_key(above.args[0] if above.args else None, is_needed=False)
            self._record_default(above)
        elif isinstance(parent, ast.Compare) and node in parent.comparators and isinstance(parent.left, ast.Constant):
            self._record_key(parent.left, is_needed=isinstance(parent.ops[0], ast.NotIn) and _is_refusal(above))
        elif not _is_inspection(node, parent, above):
            self.is_passed_on = True

    def _record_default(self, call: ast.Call) -> None:
        """``args.get("days", 3)``."""
        if len(call.args) == 2 and all(isinstance(argument, ast.Constant) for argument in call.args):
            key, value = call.args
            if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                self.defaults[str(key.value)] = value.value

    def _record_key(self, key: ast.expr | None, *, is_needed: bool) -> None:
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            self.is_passed_on = True  # any key may be meant
            return
        self.places.setdefault(key.value, self._file.locate(key))
        (self.required if is_needed else self._optional).add(key.value)


def _is_for_keys(handler: ast.ExceptHandler) -> bool:
    """``except KeyError``: a key may be missing. What catches everything tells the model of a failure."""
    caught = [handler.type] if not isinstance(handler.type, ast.Tuple) else handler.type.elts
    return any(get_last_name(kind) in ("KeyError", "LookupError") for kind in caught if kind is not None)


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


def _find_other_names(nodes: list[ast.AST], name: str) -> Iterator[str]:
    """``args = arguments or {}``, ``args = dict(arguments)``."""
    for node in nodes:
        if isinstance(node, ast.Assign) and _is_same(node.value, name):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_same(value: ast.expr, name: str) -> bool:
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.Or):
        value = value.values[0]
    if (
        isinstance(value, ast.Call)
        and get_last_name(value.func) == "dict"
        and len(value.args) == 1
        and not value.keywords
    ):
        value = value.args[0]
    return get_dotted_name(value) == name


def _is_inspection(node: ast.expr, parent: ast.AST | None, above: ast.AST | None) -> bool:
    if isinstance(parent, ast.Call):
        name = get_last_name(parent.func)
        return name in _INSPECTIONS or (name == "dict" and isinstance(above, ast.Assign))
    is_asked = isinstance(parent, (ast.If, ast.IfExp, ast.While)) and parent.test is node
    return is_asked or isinstance(parent, (ast.FormattedValue, ast.UnaryOp, ast.Assign, ast.Compare))


def read_key_parameters(node: Function, file: PythonFile, implementation: Implementation) -> Implementation | None:
    """A function of one mapping, as one of the keys that it reads; None where that can't be told."""
    mapping = next((parameter.name for parameter in implementation.parameters if parameter.name in MAPPING_NAMES), None)
    mapping = mapping or next((parameter.name for parameter in implementation.parameters if parameter.required), None)
    result = find_keys(node.body, mapping, file) if mapping is not None else None
    if result is None:
        return None
    parameters, handed_on = result
    return replace(implementation, parameters=parameters, takes_any=handed_on, has_key_parameters=True)


def read_branch(
    body: list[ast.stmt], function: Function | None, chain: list[ast.stmt], file: PythonFile, name: str
) -> Implementation | None:
    """The branch of a chain of ifs that carries `name` out, as far as it reads the arguments itself.

    `chain` are the statements of all branches, which the rest of the `function` is told from.
    """
    used = {mapping for top in body for node in ast.walk(top) if (mapping := _find_mapping(node)) is not None}
    assigned_names = {
        node.id for top in body for node in ast.walk(top) if isinstance(node, ast.Name) and _is_assigned(node)
    }
    if function is None or len(used) != 1 or used & assigned_names:
        return None
    result = find_keys(body, used.pop(), file, also=function.body, left_out={id(statement) for statement in chain})
    if result is None:
        return None
    parameters, handed_on = result
    place = file.locate(body[0])
    return Implementation(
        name=f"the branch of '{name}'", place=place, parameters=parameters, takes_any=handed_on, has_key_parameters=True
    )


def _find_mapping(node: ast.AST) -> str | None:
    """The mapping of arguments from which the expression reads a key."""
    is_read = isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in _GETTING)
    value = node.value if isinstance(node, (ast.Subscript, ast.Attribute)) and is_read else None
    if isinstance(value, ast.Attribute) and value.attr in _OF_A_CALL:
        return get_dotted_name(value) or None  # block.input["city"], call.args["city"]
    return value.id if isinstance(value, ast.Name) and value.id in _CLEAR_NAMES else None


def _is_assigned(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)
