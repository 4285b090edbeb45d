"""Enums that belong together and are declared apart: `section` and `subsection`, `category` and `subcategory`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evalkit.lint.facts.records import DeclaredFunction
from evalkit.lint.finding import Finding
from evalkit.lint.names import split_words

_TYING = ("anyOf", "oneOf", "allOf", "if", "dependentSchemas")
ValueTree = Mapping[str, frozenset[str]]


def check_pairs(declared: Iterable[DeclaredFunction], trees: Iterable[ValueTree]) -> Iterator[Finding]:
    """Pairs that the schema allows and the document has not. `trees` are mappings of outer to inner values."""
    value_trees = list(trees)
    for function in declared:
        schema = function.parameters
        properties = function.properties
        if properties is None or any(key in schema for key in _TYING):
            continue
        for outer, inner in _find_pairs(properties):
            above, below = properties[outer]["enum"], properties[inner]["enum"]
            counted = _count_wrong_pairs(above, below, value_trees)
            if counted is None:
                continue
            yield Finding(
                name="impossible-pairs",
                location=function.locate(("parameters", "properties", inner, "enum")),
                message=f"'{function.name}': '{outer}' ({len(above)} values) and '{inner}' ({len(below)}) are chosen "
                f"apart{counted}",
                advice=f"offer one enum of pairs, or check in the code that '{inner}' belongs to '{outer}' and say so",
            )


def _find_pairs(properties: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    listed = [name for name, schema in properties.items() if _has_values(schema)]
    for inner in listed:
        for outer in listed:
            if outer != inner and _is_below(inner, outer):
                yield outer, inner


def _has_values(schema: Any) -> bool:
    values = schema.get("enum") if isinstance(schema, Mapping) else None
    return isinstance(values, list) and len(values) > 1


def _is_below(inner: str, outer: str) -> bool:
    """``subsection`` and ``sub_section`` are below ``section``."""
    return "".join(split_words(inner)) == "sub" + "".join(split_words(outer))


def _count_wrong_pairs(above: list[Any], below: list[Any], trees: list[ValueTree]) -> str | None:
    """How many pairs do not exist, where a tree of them is found; None if all do."""
    tree = next((tree for tree in trees if _is_tree_of(tree, above, below)), None)
    if tree is None:
        return ", so that pairs are possible that do not belong together"
    wrong = [
        (outer_value, inner_value)
        for outer_value in above
        for inner_value in below
        if inner_value not in tree[outer_value]
    ]
    if not wrong:
        return None
    return (
        f": {len(wrong)} of {len(above) * len(below)} pairs do not exist, such as {wrong[0][0]!r} with {wrong[0][1]!r}"
    )


def _is_tree_of(tree: ValueTree, above: list[Any], below: list[Any]) -> bool:
    inner = frozenset().union(*tree.values())
    return set(above) <= tree.keys() and set(below) <= inner


def find_trees(nodes: Iterable[ast.AST]) -> Iterator[ValueTree]:
    """Dictionaries of texts to lists of texts."""
    for node in nodes:
        if isinstance(node, ast.Dict) and len(node.keys) > 1:
            tree = {
                key.value: frozenset(str(item.value) for item in value.elts if isinstance(item, ast.Constant))
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
                and isinstance(key.value, str)
                and isinstance(value, (ast.List, ast.Tuple))
            }
            if len(tree) == len(node.keys):
                yield tree


def read_headings(text: str) -> ValueTree | None:
    """The headings of a Markdown text, two neighbouring levels of them: sections and what stands below each."""
    levels = [(len(line) - len(line.lstrip("#")), line.lstrip("#").strip()) for line in _find_headings(text)]
    for level in (1, 2):
        sections: dict[str, set[str]] = {}
        current = ""
        for depth, title in levels:
            if depth <= level:
                current = title if depth == level else ""
                sections.setdefault(title, set()) if current else None
            elif depth == level + 1 and current:
                sections[current].add(title)
        if sum(map(bool, sections.values())) > 1:
            return {title: frozenset(inner) for title, inner in sections.items()}
    return None


def _find_headings(text: str) -> Iterator[str]:
    fenced = False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif line.startswith("#") and not fenced and line.lstrip("#").startswith(" "):
            yield line
