"""Dispatch in Python code: dictionaries of names and functions, alias maps, chains of ifs, `match`, getattr."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from evalkit.errors import Location
from evalkit.hosts.lint.facts.evaluate import Evaluator, NodeVisit, get_dotted_name, get_last_name
from evalkit.hosts.lint.facts.find_declarations import DECORATORS, HOLDERS
from evalkit.hosts.lint.facts.python_files import PythonFile
from evalkit.hosts.lint.facts.records import Alias, CodeFacts, DispatchEntry, DispatchTable
from evalkit.hosts.lint.facts.signatures import MAPPING_NAMES, Resolver, read_branch
from evalkit.hosts.lint.finding import Edit

_ALIASES = re.compile(
    r"alias|renam|legacy|native|tool_?names|(?:^|(?:tool|function|func|fn|method)_?)name_?map", re.IGNORECASE
)
# Functions that make a client, a wrapper, a schema of what the key names, and do not carry it out.
_BUILDERS = re.compile(
    r"_?(?:build|make|create|get|new|init)_\w+_(?:wrapper|builder|factory|schema|spec|tool|handler|declaration|client)$"
)


class _Branch(NamedTuple):
    """A branch of a chain of comparisons: its entry, its statements, and its place."""

    entry: DispatchEntry
    body: list[ast.stmt]
    visit: NodeVisit


class DispatchFinder:
    """Collector of the dispatch tables of one file after another in `code`. `consumed`: dictionaries that are none."""

    def __init__(self, code: CodeFacts, evaluator: Evaluator, resolver: Resolver, consumed: set[int]) -> None:
        self._code = code
        self._evaluator = evaluator
        self._resolver = resolver
        self._consumed = consumed
        self._chains: dict[tuple[str, int, str], list[_Branch]] = {}
        self._registrations: dict[tuple[str, str], list[DispatchEntry]] = {}

    def visit(self, visit: NodeVisit) -> None:
        node = visit.node
        if isinstance(node, ast.Dict):
            if id(node) not in self._consumed and node.keys:
                self._read_dictionary(node, visit)
        elif isinstance(node, ast.DictComp):
            self._read_comprehension(node, visit)
        elif isinstance(node, ast.Compare):
            self._read_comparison(node, visit)
        elif isinstance(node, ast.Match):
            self._read_match(node, visit)
        elif isinstance(node, ast.Call):
            self._read_call(node, visit)
        elif isinstance(node, ast.Assign):
            for item in node.targets:
                if isinstance(item, ast.Subscript):  # TABLE["search"] = search
                    key = self._evaluator.evaluate(item.slice, visit.scope)
                    self._record_comparison(key, visit.scope.file.locate(item))
                    self._record_registration(item.slice, node.value, get_dotted_name(item.value), visit)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            # Read ``@register("search")`` over a function; decorators that declare functions are no dispatch.
            for decorator in node.decorator_list:
                if (
                    not isinstance(decorator, ast.Call)
                    or get_last_name(decorator.func) in DECORATORS
                    or not decorator.args
                ):
                    continue
                name = self._evaluator.evaluate(decorator.args[0], visit.scope)
                if isinstance(name, str) and name.replace("-", "_").replace(".", "_").isidentifier():
                    file, is_method = visit.scope.file, visit.owner is not None and visit.function is None
                    target = self._resolver.signatures.read(node, file, is_method=is_method)
                    entry = DispatchEntry(
                        name=name, place=file.locate(decorator.args[0]), target=target, target_name=node.name
                    )
                    self._registrations.setdefault((file.relative_path, get_dotted_name(decorator.func)), []).append(
                        entry
                    )

    def finish(self) -> None:
        """Make tables of the chains of comparisons of one expression, and of the registrations by one decorator."""
        for branches in self._chains.values():
            chain = [statement for branch in branches for statement in branch.body]
            completed: list[DispatchEntry] = []
            for entry, body, visit in branches:
                target = entry.target  # else the keys that the branch reads itself
                if target is None:
                    target = read_branch(body, visit.function, chain, visit.scope.file, entry.name)
                completed.append(replace(entry, target=target))
            table = DispatchTable(place=completed[0].place, entries=tuple(completed), is_chain=True)
            self._code.tables.append(table)
        for (_, registry), entries in self._registrations.items():
            self._code.tables.append(DispatchTable(place=entries[0].place, entries=tuple(entries), registry=registry))
        self._chains.clear()
        self._registrations.clear()

    def _read_dictionary(self, node: ast.Dict, visit: NodeVisit) -> None:
        file = visit.scope.file
        if is_choice(node):  # tool_choice={"type": "function", "function": {"name": "answer"}}
            texts = (self._evaluator.evaluate(value, visit.scope) for value in node.values)
            self._record_comparison(next((text for text in texts if isinstance(text, str)), None), file.locate(node))
        pairs = [*zip(node.keys, node.values, strict=True)]
        names: list[Any] = [None if key is None else self._evaluator.evaluate(key, visit.scope) for key, _ in pairs]
        values = [self._evaluator.evaluate(value, visit.scope) for _, value in pairs]
        if all(isinstance(text, str) for text in (*names, *values)):
            if _ALIASES.search(_get_assigned_name(visit)):
                for key, name, text in zip(node.keys, names, values, strict=True):
                    if key is not None and name != text:
                        place, map_place = file.locate(key), file.locate(node)
                        self._code.aliases.append(Alias(name=name, target=text, place=place, map_place=map_place))
            return
        entries: list[DispatchEntry] = []
        for (key, value), name in zip(pairs, names, strict=True):
            target = find_target(value)
            bound = self._evaluator.find_constant(target.id, file) if isinstance(target, ast.Name) else None
            if bound and isinstance(bound[0], (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Constant)):
                continue  # {"search": SEARCH_SCHEMA} dispatches nothing
            if isinstance(name, str) and key is not None and target is not None:
                if _BUILDERS.match(get_last_name(target)):
                    continue
                code = None if isinstance(target, ast.Lambda) else self._resolver.find_function(target, visit)
                add = partial(_add_entry, file, key, value) if isinstance(key, ast.Constant) else None
                title = get_last_name(target)
                entry = DispatchEntry(name=name, place=file.locate(key), target=code, target_name=title, add=add)
                entries.append(entry)
        if 2 * len(entries) >= len(pairs):
            self._record_table(node, entries, len(pairs), visit)

    def _record_table(self, node: ast.expr, entries: list[DispatchEntry], count: int, visit: NodeVisit) -> None:
        """Record the table that `node` is, if it has entries; `count` includes those that can't be told."""
        file = visit.scope.file
        if entries:
            is_open = len(entries) < count or _get_assigned_name(visit) in file.changed_names
            table = DispatchTable(place=file.locate(node), entries=tuple(entries), is_open=is_open)
            self._code.tables.append(table)

    def _read_comprehension(self, node: ast.DictComp, visit: NodeVisit) -> None:
        """Read ``{tool.__name__: tool for tool in [search, fetch]}``."""
        key, listed, file = node.key, node.generators[0].iter, visit.scope.file
        if not (isinstance(key, ast.Attribute) and key.attr == "__name__" and len(node.generators) == 1):
            return
        if isinstance(listed, ast.Name):
            definition = self._evaluator.find_constant(listed.id, file)
            listed = definition[0] if definition is not None else listed
        if not isinstance(listed, (ast.List, ast.Tuple)):
            return
        entries = [
            DispatchEntry(
                name=item.id,
                place=file.locate(item),
                target=self._resolver.find_function(item, visit),
                target_name=item.id,
            )
            for item in listed.elts
            if isinstance(item, ast.Name)
        ]
        self._record_table(node, entries, len(listed.elts), visit)

    def _record_comparison(self, text: object, place: Location) -> bool:
        if not isinstance(text, str) or not text:
            return False
        self._code.compared_texts.setdefault(text, []).append(place)
        return True

    def _read_comparison(self, node: ast.Compare, visit: NodeVisit) -> None:
        if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.In)):
            return
        subject, operand = node.left, node.comparators[0]
        if isinstance(subject, ast.Constant):
            subject, operand = operand, subject
        value = self._evaluator.evaluate(operand, visit.scope)
        branch = visit.parent if isinstance(visit.parent, ast.If) else None
        written = ast.dump(operand)
        if branch is not None and isinstance(node.ops[0], ast.In):  # if key in CATALOG: tools.append(CATALOG[key])
            parts = (part for statement in branch.body for part in ast.walk(statement) if isinstance(part, ast.expr))
            branch = None if any(ast.dump(part) == written for part in parts) else branch
        for text in value if isinstance(value, (list, dict)) else [value]:
            place = visit.scope.file.locate(operand)
            if self._record_comparison(text, place) and branch is not None and isinstance(text, str):
                self._record_branch(subject, visit, text, place, branch)

    def _record_branch(
        self, subject: ast.expr, visit: NodeVisit, name: str, place: Location, node: ast.If | ast.match_case
    ) -> None:
        """Record a branch; the function that it calls with ``**arguments`` or ``arguments`` carries the name out."""
        calls = [inner for statement in node.body for inner in ast.walk(statement) if isinstance(inner, ast.Call)]
        spread = [call for call in calls if any(keyword.arg is None for keyword in call.keywords) and not call.args]
        alone = [call for call in calls if len(call.args) == 1 and not call.keywords]
        mapping_calls = [call for call in alone if get_last_name(call.args[0]) in MAPPING_NAMES]
        target = None
        if len(spread) == 1 and len(spread[0].keywords) == 1:
            target = self._resolver.find_function(spread[0].func, visit)
        elif not spread and len(mapping_calls) == 1:
            target = self._resolver.find_function(mapping_calls[0].func, visit)
            if target is not None and sum(parameter.required for parameter in target.parameters) > 1:
                target = None
        key = (visit.scope.file.relative_path, id(visit.function), ast.dump(subject))
        entry = DispatchEntry(name=name, place=place, target=target)
        self._chains.setdefault(key, []).append(_Branch(entry, node.body, visit))

    def _read_match(self, node: ast.Match, visit: NodeVisit) -> None:
        for case in node.cases:
            for pattern in list_alternatives(case.pattern):
                value = self._evaluator.evaluate(pattern, visit.scope)
                place = visit.scope.file.locate(pattern)
                if self._record_comparison(value, place) and isinstance(value, str):
                    self._record_branch(node.subject, visit, value, place, case)

    def _read_call(self, node: ast.Call, visit: NodeVisit) -> None:
        place = visit.scope.file.locate(node)
        if get_last_name(node.func) == "dict" and node.keywords and not node.args:  # dict(search=search, fetch=fetch)
            functions = [(keyword.arg, self._resolver.find_function(keyword.value, visit)) for keyword in node.keywords]
            entries = [
                DispatchEntry(name=name, place=place, target=function, target_name=function.name)
                for name, function in functions
                if name and function is not None
            ]
            if 2 * len(entries) >= len(node.keywords):
                self._record_table(node, entries, len(node.keywords), visit)
        if is_lookup(node, visit.parent):
            self._code.dynamic_lookups.append(place)
            looked_up = node.args[1] if get_last_name(node.func) == "getattr" else getattr(visit.parent, "slice", None)
            self._code.affixes |= {affixes} if (affixes := find_affixes(looked_up)) else set()
        elif len(node.args) > 1 and isinstance(node.args[0], ast.Constant):  # register("search", search)
            self._record_comparison(node.args[0].value, place)
            self._record_registration(node.args[0], node.args[1], get_dotted_name(node.func), visit)

    def _record_registration(self, key: ast.expr, value: ast.expr, holder: str, visit: NodeVisit) -> None:
        """Record a name and its function that are added to a registry one by one."""
        name, file = self._evaluator.evaluate(key, visit.scope), visit.scope.file
        target = self._resolver.find_function(value, visit) if holder else None
        if isinstance(name, str) and target is not None:
            entry = DispatchEntry(name=name, place=file.locate(key), target=target, target_name=target.name)
            self._registrations.setdefault((file.relative_path, holder), []).append(entry)


def _get_assigned_name(visit: NodeVisit) -> str:
    parent = visit.parent
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    if isinstance(parent, ast.AnnAssign):
        targets = [parent.target]
    return next((get_last_name(target) for target in targets), "")


def _add_entry(file: PythonFile, key: ast.expr, value: ast.expr, name: str) -> Edit:
    """Return the edit that adds an entry for another name before `key`, with the same value."""
    start, _ = file.find_span(key)
    quote = file.text[start] if file.text[start] in "'\"" else '"'
    first, last = file.find_span(value)
    before = file.get_line_start(start)
    separator = f"\n{before}" if not before.strip() else " "
    return Edit(file.relative_path, start, start, f"{quote}{name}{quote}: {file.text[first:last]},{separator}")


def is_choice(node: ast.Dict) -> bool:
    """Return whether a dictionary is ``{"name": "answer"}`` and no more: the tool that the model has to call."""
    return len(node.keys) == 1 and isinstance(node.keys[0], ast.Constant) and node.keys[0].value == "name"


def is_lookup(node: ast.Call, parent: ast.AST | None) -> bool:
    """Return whether any function may be meant: ``getattr(self, name)``, ``globals()[name]``."""
    name = get_last_name(node.func)
    if name == "getattr":
        return len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)
    return name in ("globals", "locals") and isinstance(parent, ast.Subscript)


def find_affixes(node: ast.expr | None) -> tuple[str, str] | None:
    """Return ``("do_", "")`` for ``f"do_{name}"`` and ``"do_" + name``; None for any other expression."""
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    texts = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else None for part in parts]
    if texts.count(None) != 1 or len(texts) < 2:
        return None
    at = texts.index(None)
    return "".join(text or "" for text in texts[:at]), "".join(text or "" for text in texts[at + 1 :])


def find_target(value: ast.expr) -> ast.expr | None:
    """Return the expression in a table's value that stands for a function; None if there is none."""
    if isinstance(value, (ast.Name, ast.Attribute, ast.Lambda)):
        return value
    if isinstance(value, ast.Call) and get_last_name(value.func) == "partial":
        return value
    if isinstance(value, ast.Dict):
        keyed = zip(value.keys, value.values, strict=True)
        return next((item for key, item in keyed if isinstance(key, ast.Constant) and key.value in HOLDERS), None)
    if isinstance(value, ast.Call):
        targets = [keyword.value for keyword in value.keywords if keyword.arg in HOLDERS]
        return next(iter(targets), None)
    if isinstance(value, (ast.Tuple, ast.List)) and value.elts:
        return value.elts[0] if isinstance(value.elts[0], (ast.Name, ast.Attribute)) else None
    return None


def list_alternatives(pattern: ast.pattern) -> Iterator[ast.expr]:
    if isinstance(pattern, ast.MatchValue):
        yield pattern.value
    elif isinstance(pattern, ast.MatchOr):
        for inner in pattern.patterns:
            yield from list_alternatives(inner)
