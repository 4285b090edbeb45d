"""Classes of tools: name, description and parameters as attributes, properties or getters, and a method that runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from msgspec import Struct

from evalkit.lint.pythonfile import Function
from evalkit.lint.static import get_last_name

_RUNNER_NAMES = """run _run execute _execute aexecute call __call__ invoke forward arun _arun handle run_tool
    execute_tool handle_call"""
_RUNNERS = _RUNNER_NAMES.split()
_PARAMETER_FIELDS = ("parameters", "input_schema", "inputSchema", "parameters_json_schema")


class ToolClass(Struct, frozen=True):
    """What a class says of its tool, as expressions. `runner` is the method that carries a call out."""

    name: ast.expr
    runner: Function
    description: ast.expr | None = None
    parameters: ast.expr | None = None


def find_tool_class(node: ast.ClassDef, decorators: frozenset[str]) -> ToolClass | None:
    """The tool that the class is; None if it does not look like one. `decorators` register functions by name."""
    runner_method = find_runner(node)
    registered = _read_registered_name(node, decorators)
    fields = {**dict(_list_fields(node)), **registered}
    is_tool = "description" in fields or any("Tool" in get_last_name(base) for base in node.bases) or bool(registered)
    if runner_method is None or "name" not in fields or not is_tool:
        return None
    parameters = next((fields[key] for key in _PARAMETER_FIELDS if key in fields), None)
    return ToolClass(fields["name"], runner_method, fields.get("description"), parameters)


def find_runner(node: ast.ClassDef) -> Function | None:
    """The method that runs the tool."""
    methods = {item.name: item for item in node.body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return next((methods[name] for name in _RUNNERS if name in methods), None)


def _read_registered_name(node: ast.ClassDef, decorators: frozenset[str]) -> dict[str, ast.expr]:
    """``@register_tool("search")`` over a class: its name."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and get_last_name(decorator.func) in decorators and decorator.args:
            return {"name": decorator.args[0]}
    return {}


def _list_fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.value is not None:
            yield item.target.id, item.value
        elif isinstance(item, ast.Assign):
            yield from ((target.id, item.value) for target in item.targets if isinstance(target, ast.Name))
        elif isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
            returned = [inner.value for inner in ast.walk(item) if isinstance(inner, ast.Return)]
            if len(returned) == 1 and returned[0] is not None and len(item.args.args) < 2:
                yield item.name.removeprefix("get_"), returned[0]
