"""The calls that a case forbids, made: names, and arguments that it describes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evalkit.model.case import Case
from evalkit.model.template import Reference, TemplateError
from evalkit.probing.examples import ExampleNotFoundError, NoExampleError, OmittedArgumentError, make_example


def make_forbidden_calls(case: Case) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of one call for each entry of `forbidden_function_calls`; none where no example was found."""
    listed = case.expected_output.get("forbidden_function_calls") or []
    for item in listed if isinstance(listed, list) else [listed]:
        entry = {"function_name": item} if isinstance(item, str) else item
        try:
            described = make_example(entry.get("arguments_contain") or {}, _refuse_reference)
        except (ExampleNotFoundError, NoExampleError, OmittedArgumentError, TemplateError):
            continue
        yield str(entry["function_name"]), described


def _refuse_reference(reference: Reference) -> Any:
    raise TemplateError(f"{reference.text} is known in the run alone")
