"""All that the Python files of a project say of functions, in two passes: who declares, then who implements."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator

from evalkit.errors import Location
from evalkit.lint.facts.evaluate import Evaluator, NodeVisit, get_dotted_name, get_last_name, walk_file
from evalkit.lint.facts.find_declarations import DeclarationFinder
from evalkit.lint.facts.find_dispatch import DispatchFinder
from evalkit.lint.facts.find_prompts import PromptSource, has_form, is_listing, read_prompt
from evalkit.lint.facts.python_files import PythonFile, PythonFiles
from evalkit.lint.facts.records import CodeFacts
from evalkit.lint.facts.signatures import Resolver, SignatureReader
from evalkit.lint.names import split_words
from evalkit.lint.rules.enum_pairs import find_trees

_DECLARES = re.compile(
    r"FunctionDeclaration|input_?[sS]chema|[\"'](?:parameters|function)[\"']|@\s*(?:\w+\.)*\w*(?:tool|function)"
    r"|from_function|from_defaults|\bTool\(|_function_tool|class \w+\([^)]*Tool|\bDeclaration\("
    r"|\b(?:tools|functions) ?= ?\["
    r"|evalkit\.(?:agent|check|operator)\(|from evalkit[\w.]* import [^\n]*\b(?:agent|check|operator)\b"
)
_FOLD = str.maketrans("", "", "_-. :")
_SHORTEST_PROMPT, _FEWEST_WORDS = 60, 8
_TOOL_KEYWORDS = frozenset(("tools", "functions", "function_declarations"))
_REGISTERING = ("agent", "check", "operator")
# What texts are given to that are patterns, or messages for people.
_NO_PROMPTS_WORDS = """compile search match findall finditer sub split startswith find
    debug info warning warn error exception critical log print fail"""
_NO_PROMPTS = frozenset(_NO_PROMPTS_WORDS.split())
_MESSAGES = re.compile(r"(?:^|_)(?:msg|err|error|warning|log|reason|detail)s?(?:_(?:msg|message|text))?$", re.I)
_NAME_IN_TEXT = re.compile(r"\b[a-z][a-z0-9]*_[a-z]|[a-z]-[a-z]+ (?:tool|function)\b")
_EXCEPTION = re.compile(r"(?:Error|Exception|Warning|Exit)$")


class CodeReader:
    """Reads `files` into a Code."""

    def __init__(self, files: list[PythonFile]) -> None:
        self.files = files
        self._python_files = PythonFiles(files)
        self._evaluator = Evaluator(self._python_files)
        self._resolver = Resolver(self._python_files, SignatureReader(self._evaluator))
        self.code = CodeFacts(is_used_with=self._is_used_with)
        self._reachable: dict[str, frozenset[str]] = {}
        self._declarations = DeclarationFinder(self.code, self._evaluator, self._resolver)
        self._files_read: set[str] = set()

    def read_declaring(self) -> CodeFacts:
        """The first pass: files that may declare functions or register something with evalkit."""
        for file in self.files:
            if _DECLARES.search(file.text):
                self._read_file(file)
        return self.code

    def list_read_files(self) -> list[PythonFile]:
        """The files that have been read."""
        return [file for file in self.files if file.relative_path in self._files_read]

    def read_naming(self, names: Collection[str]) -> CodeFacts:
        """The second pass: files that name one of the functions `names`, in whatever spelling."""
        folded = {"".join(split_words(name)) for name in names} - {""}
        pattern = re.compile("|".join(map(re.escape, sorted(folded, key=len, reverse=True)))) if folded else None
        for file in self.files:
            if file.relative_path in self._files_read or pattern is None:
                continue
            if pattern.search(file.text.lower().translate(_FOLD)):
                self._read_file(file)
        return self.code

    def _is_used_with(self, first: str, second: str) -> bool:
        """Whether a file that was read imports both, directly or through others, or is one of them."""
        files = {file.relative_path: file for file in self.files if file.relative_path in self._files_read}
        return any({first, second} <= self._find_reachable(name, files) for name in files)

    def _find_reachable(self, start: str, files: dict[str, PythonFile]) -> frozenset[str]:
        if start not in self._reachable:
            reachable, pending = {start}, [start]
            while pending:
                new = {
                    file.relative_path
                    for file in self._python_files.find_imports(files[pending.pop()])
                    if file.relative_path in files
                } - reachable
                reachable |= new
                pending += new
            self._reachable[start] = frozenset(reachable)
        return self._reachable[start]

    def _read_file(self, file: PythonFile) -> None:
        self._files_read.add(file.relative_path)
        tables = DispatchFinder(self.code, self._evaluator, self._resolver, self._declarations.consumed)
        for visit in walk_file(file):
            self._declarations.visit(visit)
            tables.visit(visit)
            self._read_text(visit)
            self._record_native_calls(visit)
            self._record_registration(visit)
            self.code.value_trees.extend(find_trees([visit.node]))
        tables.finish()
        self._collect_implementations(file)

    def _collect_implementations(self, file: PythonFile) -> None:
        signatures = self._resolver.signatures
        for qualified, node in file.functions.items():
            if not node.name.startswith("__"):
                implementation = signatures.read(node, file, is_method="." in qualified)
                self.code.implementations.setdefault(node.name, []).append(implementation)

    def _read_text(self, visit: NodeVisit) -> None:
        """Long texts in the code may be instructions; docstrings and patterns are none."""
        node = visit.node
        if (
            visit.is_doc
            or not isinstance(node, (ast.Constant, ast.JoinedStr))
            or isinstance(visit.parent, ast.JoinedStr)
        ):
            return
        if _is_message(visit.parent):
            return
        text = _get_text(node)
        if len(text) < _SHORTEST_PROMPT or len(re.findall(r"[^\W\d_]{2,}", text)) < _FEWEST_WORDS:
            return
        if "`" in text or has_form(text) or _NAME_IN_TEXT.search(text):
            self.code.prompts.append(read_prompt(PromptSource(text, _make_locator(node, text, visit.scope.file))))

    def _record_native_calls(self, visit: NodeVisit) -> None:
        """``client.create(tools=TOOLS)``: the file makes native calls."""
        if isinstance(visit.node, ast.Call) and any(keyword.arg in _TOOL_KEYWORDS for keyword in visit.node.keywords):
            self.code.native_call_files.add(visit.scope.file.relative_path)

    def _record_registration(self, visit: NodeVisit) -> None:
        """``@evalkit.agent("desk")``, ``evalkit.check("steps")(function)``."""
        node = visit.node
        if not isinstance(node, ast.Call) or get_last_name(node.func) not in _REGISTERING or len(node.args) != 1:
            return
        file, kind = visit.scope.file, get_last_name(node.func)
        name = self._evaluator.evaluate(node.args[0], visit.scope)
        first = get_dotted_name(node.func).partition(".")[0]
        module = file.imports.get(first, ("", "", 0))[0]
        if isinstance(name, str) and module.partition(".")[0] == "evalkit":
            self.code.registered_names.setdefault(kind, set()).add(name)
            if kind == "agent":
                self.code.agents[name] = file.relative_path


def _is_message(parent: ast.AST | None) -> bool:
    """Whether a text is a pattern, or told to people: logged, raised, or kept as ``msg``."""
    if isinstance(parent, ast.Call):
        name = get_last_name(parent.func)
        return name in _NO_PROMPTS or _EXCEPTION.search(name) is not None
    return isinstance(parent, ast.Assign) and any(_MESSAGES.search(get_last_name(target)) for target in parent.targets)


def _get_text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    parts = (part.value if isinstance(part, ast.Constant) else _make_placeholder(part) for part in node.values)
    return "".join(part for part in parts if isinstance(part, str))


def _make_placeholder(part: ast.expr) -> str:
    """``{tools}`` for what is put into the text, if it speaks of functions; ``{}`` for anything else."""
    names = [get_last_name(inner) for inner in ast.walk(part) if isinstance(inner, (ast.Name, ast.Attribute))]
    return "{tools}" if any(is_listing(name) for name in names) else "{}"


def _make_locator(node: ast.expr, text: str, file: PythonFile) -> Callable[[int], Location]:
    """The place of an offset in a text, to the line where the literal's lines are the text's."""
    start = file.locate(node)
    is_plain = text.count("\n") == (node.end_lineno or node.lineno) - node.lineno

    def place(offset: int) -> Location:
        before = text.count("\n", 0, offset)
        if not is_plain or not before:
            return start
        return Location(start.file, start.line + before, offset - text.rfind("\n", 0, offset))

    return place


def list_problems(files: list[PythonFile]) -> Iterator[tuple[Location, str]]:
    """What kept files that were parsed from being read."""
    return (file.problem for file in files if file.problem is not None)
