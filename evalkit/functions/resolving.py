"""What ``{{ root.path }}`` means in a mock while a case runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from evalkit.model.template import Reference, TemplateError, follow_path
from evalkit.model.transcript import FunctionCall


class TemplateRoots(Struct, frozen=True):
    """The four roots. `calls` gives the records so far, `canonical` the name of an alias."""

    arguments: Any
    input: Any
    state: Mapping[str, Any]
    calls: Callable[[], Iterable[FunctionCall]]
    resolve_name: Callable[[str], str]

    def resolve(self, reference: Reference) -> Any:
        """The value of `reference`; TemplateError where it leads nowhere."""
        if reference.root == "calls":
            return self._resolve_call(reference)
        return follow_path(getattr(self, reference.root), reference.path, reference.text)

    def _resolve_call(self, reference: Reference) -> Any:
        """``calls.name[n]`` is the n-th successful call of that name so far, from 1; ``calls.name`` is the first."""
        first, *rest = reference.path
        name = self.resolve_name(str(first))
        successful_calls = [call for call in self.calls() if call.name == name and call.outcome == "ok"]
        number = rest.pop(0) if rest and isinstance(rest[0], int) else 1
        if not isinstance(number, int) or not 0 < number <= len(successful_calls):
            times = {0: "has not succeeded yet", 1: "has succeeded once"}.get(
                len(successful_calls), f"has succeeded {len(successful_calls)} times"
            )
            raise TemplateError(f"template {reference.text} leads nowhere: {name} {times}")
        call = successful_calls[number - 1]
        return follow_path({"arguments": call.arguments, "result": call.result}, tuple(rest), reference.text)
