"""The rules: code, name, default severity, one sentence. Codes and names are stable; docs/lint.md lists them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from evalkit.errors import UsageError, did_you_mean

ERROR, WARNING, NOTE = "error", "warning", "note"
SEVERITIES = (ERROR, WARNING, NOTE)


class Rule(Struct, frozen=True):
    """One kind of finding. `fixable`: `--fix` can mend some of them; `optional`: off unless it is selected."""

    code: str
    name: str
    severity: str
    summary: str
    fixable: bool = False
    optional: bool = False


GROUPS = {
    "L1": "Declarations: what the model is told",
    "L2": "Implementations: what the code does",
    "L3": "Dispatch: how a name finds its code",
    "L4": "Instructions: what the model is asked to do",
    "L5": "Cases and mocks",
    "L6": "What could not be read",
}

RULES: tuple[Rule, ...] = (
    Rule("L101", "invalid-declaration", ERROR, "A declaration or an instruction file breaks its format."),
    Rule("L102", "duplicate-declaration", ERROR, "A function is declared twice in one list."),
    Rule("L103", "conflicting-declarations", WARNING, "Two declarations of a function differ in their parameters."),
    Rule("L104", "description-missing", WARNING, "A function is declared without a description."),
    Rule("L105", "parameter-description-missing", NOTE, "A parameter has no description.", optional=True),
    Rule("L106", "description-contradicts", WARNING, "A description says something else than the schema."),
    Rule("L107", "gemini-rejects", ERROR, "Gemini refuses the function's name or a keyword of its schema."),
    Rule("L108", "openai-rejects", ERROR, "OpenAI refuses the function's name or a keyword of its schema."),
    Rule("L109", "required-undeclared", ERROR, "`required` names a parameter that `properties` lacks."),
    Rule("L110", "impossible-pairs", WARNING, "Two enums allow pairs that do not belong together."),
    Rule("L201", "not-implemented", ERROR, "A function is declared, and no code implements it."),
    Rule("L202", "implementation-name", ERROR, "A function is declared under one name and implemented under another."),
    Rule("L203", "parameter-missing", ERROR, "A declared parameter is one that the implementation does not take."),
    Rule("L204", "parameter-extra", ERROR, "The implementation needs a parameter that is not declared."),
    Rule("L205", "parameter-name", ERROR, "A parameter is declared under one name and taken under another."),
    Rule("L206", "parameter-type", WARNING, "A parameter's declared type is not the one it is annotated with."),
    Rule("L207", "parameter-required", ERROR, "A parameter is optional in the declaration and needed by the code."),
    Rule("L208", "parameter-enum", WARNING, "The declared enum and the annotation's values differ."),
    Rule("L209", "parameter-default", WARNING, "The declared default is not the implementation's."),
    Rule("L301", "not-dispatched", ERROR, "A declared function has no entry where all others have one."),
    Rule("L302", "dispatch-name", ERROR, "A function is declared under one name and dispatched under another.", True),
    Rule("L303", "undeclared-dispatch", WARNING, "A function is dispatched, and no model is told of it."),
    Rule("L304", "alias-target", ERROR, "An alias leads to a function that does not exist."),
    Rule("L401", "instruction-function", ERROR, "An instruction names a function that is not declared.", True),
    Rule("L402", "instruction-argument", WARNING, "An instruction writes a call with an argument that is unknown."),
    Rule("L403", "text-format", WARNING, "An instruction demands calls as text while native calls are on."),
    Rule("L501", "case-function", ERROR, "A case expects a function that is not declared.", True),
    Rule("L502", "case-argument", ERROR, "A case expects an argument that the function does not have."),
    Rule("L503", "case-value", ERROR, "A case expects a value that the function's schema rules out."),
    Rule("L504", "case-argument-missing", ERROR, "A case's exact arguments lack a required one."),
    Rule("L505", "mock-function", ERROR, "A function is mocked, and not declared.", True),
    Rule("L506", "mock-argument", ERROR, "A mock matches on an argument that the function does not have."),
    Rule("L507", "mock-result", ERROR, "A mock answers what the function's `returns` schema rules out."),
    Rule("L508", "never-expected", WARNING, "A declared function is expected by no case."),
    Rule("L509", "invalid-case", ERROR, "A case file breaks the format."),
    Rule("L510", "case-name", ERROR, "A file holds a case, and its name or scenario_id keeps it from being one.", True),
    Rule("L601", "unreadable", WARNING, "A file could not be read, so that nothing in it was checked."),
    Rule("L602", "import-failed", WARNING, "A module could not be imported (with --import)."),
)

RULES_BY_NAME = {rule.name: rule for rule in RULES}
_RULES_BY_CODE = {rule.code: rule for rule in RULES}
ALL_RULES = "ALL"
DEFAULT_RULES = frozenset(rule.name for rule in RULES if not rule.optional)


def select_rules(selectors: Iterable[str], source: str) -> frozenset[str]:
    """The names of the rules that `selectors` (names, codes, beginnings of codes, or ALL) mean."""
    names: set[str] = set()
    for selector in selectors:
        matching = {rule.name for rule in RULES if _is_match(selector, rule)}
        if not matching:
            hint = did_you_mean(selector, [*RULES_BY_NAME, *_RULES_BY_CODE, *GROUPS])
            raise UsageError(f"{source}: there is no rule '{selector}'{hint or '; docs/lint.md lists them'}")
        names |= matching
    return frozenset(names)


def _is_match(selector: str, rule: Rule) -> bool:
    is_code = len(selector) > 1 and selector[0] == "L" and selector[1:].isdecimal()
    return selector in (rule.name, ALL_RULES) or (is_code and rule.code.startswith(selector))
