"""Declarations in Python code: FunctionDeclaration(...), tool dicts, decorated functions, classes of tools."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from evalkit.errors import Location
from evalkit.lint import shapes
from evalkit.lint.facts import DECORATED, GEMINI_SCHEMA, MCP, OPENAI, PLAIN, UNKNOWN, Code, Declared, Implementation
from evalkit.lint.pythonfile import Function
from evalkit.lint.resolving import Resolver
from evalkit.lint.signatures import schema_of
from evalkit.lint.static import Evaluator, Reading, last_name
from evalkit.lint.toolclasses import runner, tool_class
from evalkit.lint.walking import Visit

_DECORATOR_NAMES = """tool function_tool tool_plain kernel_function ai_function ai_tool register_tool mcp_tool
    llm_tool beta_tool tool_function
    is_tool"""
DECORATORS = frozenset(_DECORATOR_NAMES.split())
_NAME_KEYWORDS = ("name", "name_override", "tool_name")
_DESCRIPTION_KEYWORDS = ("description", "description_override")
_FROM_FUNCTION = frozenset(("from_function", "from_defaults", "from_callable", "from_func"))
_FUNCTION_KEYWORDS = ("func", "fn", "function", "callable", "coroutine", "async_fn")
_GIVEN = frozenset(("tools", "functions"))
_DECLARING = frozenset(("Tool", "FunctionDeclaration", "ToolDefinition", "FunctionDefinition"))
_FRAMEWORK_TOOLS = frozenset(("Tool", "FunctionTool", "StructuredTool"))


class DeclaredCode:
    """Collects the declarations of one file after another into `code`."""

    def __init__(self, code: Code, evaluator: Evaluator, resolver: Resolver) -> None:
        self._code = code
        self._evaluator = evaluator
        self._resolver = resolver
        self.consumed: set[int] = set()  # dictionaries and calls that are part of a declaration
        self._gemini: set[int] = set()  # dictionaries that google-genai makes declarations of
        self._bound_to: dict[int, Implementation] = {}  # dictionaries beside which their function is given

    def visit(self, visit: Visit) -> None:
        node = visit.node
        self._gemini.update(id(item) for item in _function_declarations(node))
        if isinstance(node, ast.Dict):
            if id(node) not in self.consumed and _may_declare(node):
                self._dictionary(node, visit)
        elif isinstance(node, ast.Call):
            self._call(node, visit)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._decorated(node, visit)
        elif isinstance(node, ast.ClassDef):
            self._class(node, visit)

    def _dictionary(self, node: ast.Dict, visit: Visit) -> None:
        data, reading = self._evaluator.read(node, visit.scope)
        if not isinstance(data, dict) or shapes.is_server_tool(data):
            return
        form = GEMINI_SCHEMA if id(node) in self._gemini else None
        self._keep(shapes.declared(data, reading.locate, form=form, listed_in=_list_of(visit)), node)

    def _keep(self, found: Declared | Location | None, node: ast.AST) -> None:
        if found is None:
            return
        self.consumed.update(id(inner) for inner in ast.walk(node) if isinstance(inner, (ast.Dict, ast.Call)))
        if isinstance(found, Location):
            self._code.opaque.append(found)
        else:
            self._code.declared.append(replace(found, bound=self._bound_to.get(id(node))))

    def _call(self, node: ast.Call, visit: Visit) -> None:
        name = last_name(node.func)
        keywords = {keyword.arg for keyword in node.keywords}
        self._note_bound(node, visit)
        if id(node) in self.consumed:
            return
        if name == "FunctionDeclaration" and "name" in keywords:
            self._keep(self._from_keywords(node, visit, GEMINI_SCHEMA), node)
        elif name == "Tool" and {"name", "inputSchema"} <= keywords:
            self._keep(self._from_keywords(node, visit, MCP), node)
        elif {"name", "parameters"} <= keywords or {"type", "function"} <= keywords:
            self._keep(self._from_keywords(node, visit, None), node)
        elif name in _FROM_FUNCTION or (name in _FRAMEWORK_TOOLS and keywords & {*_FUNCTION_KEYWORDS}):
            self._bound(node, visit)
        elif name == "pydantic_function_tool":
            self._of_model(node, visit)
        self._given(node, visit)

    def _of_model(self, node: ast.Call, visit: Visit) -> None:
        """``pydantic_function_tool(SearchArgs)``: the class's name and docstring are the function's."""
        place = visit.scope.file.place(node)
        named = next((keyword.value for keyword in node.keywords if keyword.arg == "name"), None)
        model = node.args[0] if node.args else None
        name = last_name(model) if named is None and model is not None else self._evaluator.value(named, visit.scope)
        if isinstance(name, str) and name:
            self._code.declared.append(
                Declared(
                    name=name,
                    file=place.file,
                    form=OPENAI,
                    description=UNKNOWN,
                    parameters=UNKNOWN,
                    locate=lambda path: place,
                    listed_in=_list_of(visit),
                )
            )
        else:
            self._code.opaque.append(place)

    def _note_bound(self, node: ast.Call, visit: Visit) -> None:
        """``function_tool(handler, raw_schema={...})``: the dictionary's function is known."""
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        tools = [value for value in given if isinstance(value, ast.Dict) and _may_declare(value)]
        if len(tools) == 1:
            code = [found for value in given if (found := self._resolver.function(value, visit)) is not None]
            if len(code) == 1:
                self._bound_to[id(tools[0])] = code[0]

    def _given(self, node: ast.Call, visit: Visit) -> None:
        """``Agent(tools=[search, fetch])``: frameworks declare functions by their signatures."""
        for keyword in node.keywords:
            if keyword.arg in _GIVEN and isinstance(keyword.value, (ast.List, ast.Tuple)):
                for item in keyword.value.elts:
                    found = (
                        self._resolver.function(item, visit) if isinstance(item, (ast.Name, ast.Attribute)) else None
                    )
                    if found is not None and not self._is_declared(found.name):
                        description = found.doc or UNKNOWN
                        self._code.declared.append(_by_code(found.name, found.place, found, description))

    def _is_declared(self, name: str) -> bool:
        return any(function.name == name for function in self._code.declared)

    def _from_keywords(self, node: ast.Call, visit: Visit, form: str | None) -> Declared | Location | None:
        file, reading = visit.scope.file, Reading({(): visit.scope.file.place(node)})
        data: dict[str, Any] = {}
        for keyword in node.keywords:
            if keyword.arg is not None:
                value, inner = self._evaluator.read(keyword.value, visit.scope)
                data[keyword.arg] = value
                reading.at |= {(keyword.arg, *path): place for path, place in inner.at.items()}
        if any(keyword.arg is None for keyword in node.keywords) and "name" not in data:
            return file.place(node)
        return shapes.declared(data, reading.locate, form=form, listed_in=_list_of(visit))

    def _bound(self, node: ast.Call, visit: Visit) -> None:
        """``StructuredTool.from_function(func=search, name="search")``: the declaration names its code."""
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        function = next((keywords[key] for key in _FUNCTION_KEYWORDS if key in keywords), None)
        if function is None and node.args:
            function = node.args[0]
        target = self._resolver.function(function, visit) if function is not None else None
        name = self._evaluator.value(keywords.get("name"), visit.scope)
        name = target.name if name is None and target is not None else name
        place = visit.scope.file.place(node)
        if not isinstance(name, str):
            self._code.opaque.append(place)
            return
        description = self._evaluator.value(keywords.get("description"), visit.scope)
        self._code.declared.append(_by_code(name, place, target, description))

    def _decorated(self, node: Function, visit: Visit) -> None:
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            if last_name(call.func if call else decorator) not in DECORATORS:
                continue
            implementation = self._resolver.signatures.read(
                node, visit.scope.file, is_method=visit.owner is not None and visit.function is None
            )
            given = [*call.args, *(keyword.value for keyword in call.keywords)] if call else []
            written = [value for value in given if isinstance(value, ast.Dict) and _may_declare(value)]
            if written:  # @function_tool(raw_schema={...})
                self._bound_to[id(written[0])] = implementation
                return
            keywords = {keyword.arg: keyword.value for keyword in call.keywords} if call else {}
            named = next((keywords[key] for key in _NAME_KEYWORDS if key in keywords), None)
            if named is None and call and call.args and isinstance(call.args[0], ast.Constant):
                named = call.args[0]
            named = visit.scope.file.renamed.get(node.name, named)
            name = node.name if named is None else self._evaluator.value(named, visit.scope)
            place = visit.scope.file.place(node)
            if not isinstance(name, str):
                self._code.opaque.append(place)
                return
            described = next((keywords[key] for key in _DESCRIPTION_KEYWORDS if key in keywords), None)
            description = self._evaluator.value(described, visit.scope)
            self._code.declared.append(_by_code(name, place, implementation, description))
            return

    def _bind_inside(self, owner: ast.ClassDef, runner: Function, visit: Visit) -> None:
        """A class that returns its own declaration, ``get_info``, and has a method that runs it, ``invoke``."""
        returned = [
            node.value for node in ast.walk(owner) if isinstance(node, ast.Return) and _is_declaration(node.value)
        ]
        if len(returned) == 1:
            self._bound_to[id(returned[0])] = self._resolver.signatures.read(
                runner, visit.scope.file, name=f"{owner.name}.{runner.name}", is_method=True
            )

    def _class(self, node: ast.ClassDef, visit: Visit) -> None:
        """``class Search(BaseTool): name = "search"`` with a method that runs it."""
        run = runner(node)
        if run is not None:
            self._bind_inside(node, run, visit)
        tool = tool_class(node, DECORATORS)
        name = self._evaluator.value(tool.name, visit.scope) if tool is not None else None
        if tool is None or not isinstance(name, str) or not name:
            return
        file, reading = visit.scope.file, Reading({(): visit.scope.file.place(tool.name)})
        implementation = self._resolver.signatures.read(
            tool.runner, file, name=f"{node.name}.{tool.runner.name}", is_method=True
        )
        # Without a description of its own it is one that the service describes, or a base class.
        described = UNKNOWN if tool.description is None else self._evaluator.value(tool.description, visit.scope)
        found = _by_code(name, reading.at[()], implementation, described)
        if tool.parameters is None:
            self._code.declared.append(replace(found, parameters=UNKNOWN))
            return
        schema, inner = self._evaluator.read(tool.parameters, visit.scope)
        reading.at |= {("parameters", *path): place for path, place in inner.at.items()}
        parameters = shapes.schema(schema)
        self._code.declared.append(replace(found, form=PLAIN, parameters=parameters, locate=reading.locate))


def _by_code(name: str, place: Location, implementation: Implementation | None, description: Any) -> Declared:
    doc = implementation.doc if implementation is not None else UNKNOWN
    return Declared(
        name=name,
        file=place.file,
        form=DECORATED,
        description=doc if description is None else description,
        parameters=UNKNOWN if implementation is None else schema_of(implementation),
        locate=lambda path: place,
        bound=implementation,
    )


def _function_declarations(node: ast.AST) -> Iterator[ast.Dict]:
    """``types.Tool(function_declarations=[{...}])``, ``{"function_declarations": [{...}]}``."""
    pairs: list[tuple[object, ast.expr]] = []
    if isinstance(node, ast.Call):
        pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
    elif isinstance(node, ast.Dict):
        keyed = zip(node.keys, node.values, strict=True)
        pairs = [(key.value, value) for key, value in keyed if isinstance(key, ast.Constant)]
    for name, value in pairs:
        if name in ("function_declarations", "functionDeclarations") and isinstance(value, (ast.List, ast.Tuple)):
            yield from (item for item in value.elts if isinstance(item, ast.Dict))


def _is_declaration(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Call):
        return "name" in {keyword.arg for keyword in node.keywords} and last_name(node.func) in _DECLARING
    return isinstance(node, ast.Dict) and _may_declare(node)


def _may_declare(node: ast.Dict) -> bool:
    keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
    return ("name" in keys and bool(keys & {"parameters", "input_schema", "inputSchema", "type"})) or (
        {"type", "function"} <= keys
    )


def _list_of(visit: Visit) -> object:
    """The list that the declaration is an item of."""
    return id(visit.parent) if isinstance(visit.parent, (ast.List, ast.Tuple)) else None
