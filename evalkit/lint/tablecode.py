"""Dispatch in Python code: dictionaries of names and functions, alias maps, chains of ifs, `match`, getattr."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from evalkit.errors import Location
from evalkit.lint.declaredcode import DECORATORS
from evalkit.lint.facts import Alias, Code, Entry, Implementation, Table
from evalkit.lint.finding import Edit
from evalkit.lint.pythonfile import Function, PythonFile
from evalkit.lint.reads import WHOLE, of_branch
from evalkit.lint.resolving import Resolver
from evalkit.lint.static import Evaluator, dotted, last_name
from evalkit.lint.tableforms import alternatives, around_name, is_choice, is_lookup, target_of
from evalkit.lint.walking import Visit

_ALIASES = re.compile(r"alias|renam|legacy|native|tool_?names|name_?map", re.IGNORECASE)


class _Branch(NamedTuple):
    """One branch of a chain of comparisons: its entry, what it does, and where."""

    entry: Entry
    body: list[ast.stmt]
    visit: Visit


class TableCode:
    """Collects the dispatch tables of one file after another into `code`. `consumed`: dictionaries that are none."""

    def __init__(self, code: Code, evaluator: Evaluator, resolver: Resolver, consumed: set[int]) -> None:
        self._code = code
        self._evaluator = evaluator
        self._resolver = resolver
        self._consumed = consumed
        self._chains: dict[tuple[str, int, str], list[_Branch]] = {}
        self._registered: dict[tuple[str, str], list[Entry]] = {}

    def visit(self, visit: Visit) -> None:
        node = visit.node
        if isinstance(node, ast.Dict):
            if id(node) not in self._consumed and node.keys:
                self._dictionary(node, visit)
        elif isinstance(node, ast.DictComp):
            self._comprehension(node, visit)
        elif isinstance(node, ast.Compare):
            self._comparison(node, visit)
        elif isinstance(node, ast.Match):
            self._match(node, visit)
        elif isinstance(node, ast.Call):
            self._call(node, visit)
        elif isinstance(node, ast.Assign):
            self._assignment(node, visit)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._registration(node, visit)

    def finish(self) -> None:
        """Chains of comparisons of one expression, and registrations by one decorator, made into tables."""
        for branches in self._chains.values():
            chain = [statement for branch in branches for statement in branch.body]
            found = tuple(_entry_of(branch, chain) for branch in branches)
            self._code.tables.append(Table(place=found[0].place, entries=found, branches=True))
        for (_, registry), entries in self._registered.items():
            self._code.tables.append(Table(place=entries[0].place, entries=tuple(entries), registry=registry))
        self._chains.clear()
        self._registered.clear()

    def _registration(self, node: Function, visit: Visit) -> None:
        """``@register("search")`` over a function; decorators that declare functions are no dispatch."""
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call) or last_name(decorator.func) in DECORATORS or not decorator.args:
                continue
            name = self._evaluator.value(decorator.args[0], visit.scope)
            if isinstance(name, str) and name.replace("-", "_").replace(".", "_").isidentifier():
                file, is_method = visit.scope.file, visit.owner is not None and visit.function is None
                target = self._resolver.signatures.read(node, file, is_method=is_method)
                entry = Entry(name=name, place=file.place(decorator.args[0]), target=target, target_name=node.name)
                self._registered.setdefault((file.shown, dotted(decorator.func)), []).append(entry)

    def _dictionary(self, node: ast.Dict, visit: Visit) -> None:
        if is_choice(node):  # tool_choice={"type": "function", "function": {"name": "answer"}}
            texts = (self._evaluator.value(value, visit.scope) for value in node.values)
            self._compared(next((text for text in texts if isinstance(text, str)), None), visit.scope.file.place(node))
        pairs = [*zip(node.keys, node.values, strict=True)]
        names: list[Any] = [None if key is None else self._evaluator.value(key, visit.scope) for key, _ in pairs]
        values: list[Any] = [self._evaluator.value(value, visit.scope) for _, value in pairs]
        if all(isinstance(text, str) for text in (*names, *values)):
            if _ALIASES.search(_assigned_to(visit)):
                self._aliases(node, names, values, visit.scope.file)
            return
        entries: list[Entry] = []
        for (key, value), name in zip(pairs, names, strict=True):
            target = target_of(value)
            if isinstance(name, str) and key is not None and target is not None and not self._is_data(target, visit):
                entries.append(self._entry(name, key, value, target, visit))
        if entries and 2 * len(entries) >= len(pairs):
            is_open = len(entries) < len(pairs) or _assigned_to(visit) in visit.scope.file.changed
            self._code.tables.append(Table(place=visit.scope.file.place(node), entries=tuple(entries), is_open=is_open))

    def _is_data(self, target: ast.expr, visit: Visit) -> bool:
        """A name that is bound to a literal is no function: ``{"search": SEARCH_SCHEMA}`` dispatches nothing."""
        if not isinstance(target, ast.Name):
            return False
        found = self._evaluator.constant(target.id, visit.scope.file)
        return found is not None and isinstance(found[0], (ast.Dict, ast.List, ast.Tuple, ast.Set, ast.Constant))

    def _entry(self, name: str, key: ast.expr, value: ast.expr, target: ast.expr, visit: Visit) -> Entry:
        file = visit.scope.file
        found = None if isinstance(target, ast.Lambda) else self._resolver.function(target, visit)
        return Entry(
            name=name,
            place=file.place(key),
            target=found,
            target_name=last_name(target),
            add=_adder(file, key, value) if isinstance(key, ast.Constant) else None,
        )

    def _aliases(self, node: ast.Dict, names: list[Any], texts: list[Any], file: PythonFile) -> None:
        whole = file.place(node)
        for key, name, text in zip(node.keys, names, texts, strict=True):
            if key is not None and name != text:
                self._code.aliases.append(Alias(name=name, target=text, place=file.place(key), listed_in=whole))

    def _comprehension(self, node: ast.DictComp, visit: Visit) -> None:
        """``{tool.__name__: tool for tool in [search, fetch]}``."""
        key, first = node.key, node.generators[0]
        if not (isinstance(key, ast.Attribute) and key.attr == "__name__" and len(node.generators) == 1):
            return
        listed = first.iter
        if isinstance(listed, ast.Name):
            found = self._evaluator.constant(listed.id, visit.scope.file)
            listed = found[0] if found is not None else listed
        if not isinstance(listed, (ast.List, ast.Tuple)):
            return
        file = visit.scope.file
        entries = [
            Entry(
                name=item.id,
                place=file.place(item),
                target=self._resolver.function(item, visit),
                target_name=item.id,
            )
            for item in listed.elts
            if isinstance(item, ast.Name)
        ]
        if entries:
            table = Table(place=file.place(node), entries=tuple(entries), is_open=len(entries) < len(listed.elts))
            self._code.tables.append(table)

    def _compared(self, text: object, place: Location) -> bool:
        if not isinstance(text, str) or not text:
            return False
        self._code.compared.setdefault(text, []).append(place)
        return True

    def _comparison(self, node: ast.Compare, visit: Visit) -> None:
        if len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Eq, ast.In)):
            return
        subject, other = node.left, node.comparators[0]
        if isinstance(subject, ast.Constant):
            subject, other = other, subject
        value = self._evaluator.value(other, visit.scope)
        for text in value if isinstance(value, (list, dict)) else [value]:
            place = visit.scope.file.place(other)
            if self._compared(text, place) and isinstance(visit.parent, ast.If) and isinstance(text, str):
                self._chain(subject, visit, text, place, visit.parent)

    def _chain(
        self, subject: ast.expr, visit: Visit, name: str, place: Location, node: ast.If | ast.match_case
    ) -> None:
        key = (visit.scope.file.shown, id(visit.function), ast.dump(subject))
        entry = Entry(name=name, place=place, target=self._branch(node, visit))
        self._chains.setdefault(key, []).append(_Branch(entry, node.body, visit))

    def _branch(self, node: ast.If | ast.match_case, visit: Visit) -> Implementation | None:
        """The function that a branch calls with ``**arguments``, or with ``arguments``: they are the model's then."""
        calls = [inner for statement in node.body for inner in ast.walk(statement) if isinstance(inner, ast.Call)]
        spread = [call for call in calls if any(keyword.arg is None for keyword in call.keywords) and not call.args]
        if len(spread) == 1 and len(spread[0].keywords) == 1:
            return self._resolver.function(spread[0].func, visit)
        alone = [call for call in calls if len(call.args) == 1 and not call.keywords]
        whole = [call for call in alone if last_name(call.args[0]) in WHOLE]
        if spread or len(whole) != 1:
            return None
        found = self._resolver.function(whole[0].func, visit)
        return found if found is not None and len([it for it in found.parameters if it.required]) < 2 else None

    def _match(self, node: ast.Match, visit: Visit) -> None:
        for case in node.cases:
            for pattern in alternatives(case.pattern):
                value = self._evaluator.value(pattern, visit.scope)
                place = visit.scope.file.place(pattern)
                if self._compared(value, place) and isinstance(value, str):
                    self._chain(node.subject, visit, value, place, case)

    def _call(self, node: ast.Call, visit: Visit) -> None:
        place = visit.scope.file.place(node)
        if last_name(node.func) == "dict" and node.keywords and not node.args:
            self._keywords(node, visit)
        if is_lookup(node, visit.parent):
            self._code.dynamic.append(place)
            looked_up = node.args[1] if last_name(node.func) == "getattr" else getattr(visit.parent, "slice", None)
            self._code.affixes |= {around} if (around := around_name(looked_up)) else set()
        elif len(node.args) > 1 and isinstance(node.args[0], ast.Constant):  # register("search", search)
            self._compared(node.args[0].value, place)
            self._kept(node.args[0], node.args[1], dotted(node.func), visit)

    def _keywords(self, node: ast.Call, visit: Visit) -> None:
        """``dict(search=search, fetch=fetch)``."""
        found = {keyword.arg: self._resolver.function(keyword.value, visit) for keyword in node.keywords if keyword.arg}
        file = visit.scope.file
        entries = [
            Entry(name=name, place=file.place(node), target=target, target_name=target.name)
            for name, target in found.items()
            if target is not None
        ]
        if entries and 2 * len(entries) >= len(node.keywords):
            is_open = len(entries) < len(node.keywords) or _assigned_to(visit) in file.changed
            self._code.tables.append(Table(place=file.place(node), entries=tuple(entries), is_open=is_open))

    def _kept(self, key: ast.expr, value: ast.expr, holder: str, visit: Visit) -> None:
        """A name and its function, given to a registry one by one."""
        name, file = self._evaluator.value(key, visit.scope), visit.scope.file
        target = self._resolver.function(value, visit) if holder else None
        if isinstance(name, str) and target is not None:
            entry = Entry(name=name, place=file.place(key), target=target, target_name=target.name)
            self._registered.setdefault((file.shown, holder), []).append(entry)

    def _assignment(self, node: ast.Assign, visit: Visit) -> None:
        """``TABLE["search"] = search``."""
        for target in node.targets:
            if isinstance(target, ast.Subscript):
                self._compared(self._evaluator.value(target.slice, visit.scope), visit.scope.file.place(target))
                self._kept(target.slice, node.value, dotted(target.value), visit)


def _entry_of(branch: _Branch, chain: list[ast.stmt]) -> Entry:
    """The entry of a branch; if it calls no function with all arguments, by what it reads of them itself."""
    entry, visit = branch.entry, branch.visit
    if entry.target is not None:
        return entry
    return replace(entry, target=of_branch(branch.body, visit.function, chain, visit.scope.file, entry.name))


def _assigned_to(visit: Visit) -> str:
    parent = visit.parent
    targets = parent.targets if isinstance(parent, ast.Assign) else []
    if isinstance(parent, ast.AnnAssign):
        targets = [parent.target]
    return next((last_name(target) for target in targets), "")


def _adder(file: PythonFile, key: ast.expr, value: ast.expr) -> Callable[[str], Edit]:
    """Makes the edit that adds an entry for another name before `key`, with the same value."""

    def add(name: str) -> Edit:
        start, _ = file.span(key)
        quote = file.text[start] if file.text[start] in "'\"" else '"'
        first, last = file.span(value)
        before = file.line_of(start)
        behind = f"\n{before}" if not before.strip() else " "
        return Edit(file.shown, start, start, f"{quote}{name}{quote}: {file.text[first:last]},{behind}")

    return add
