"""A run without secrets, whoever wrote the file: what a report shows leaves the machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from evalkit.model.codec import to_plain_json
from evalkit.model.redaction import Redactor
from evalkit.model.run import GateDecision, Run
from evalkit.model.verdict import Verdict
from evalkit.reports.wire import from_line, to_line, to_plain_line

Redact = Callable[[str], str]


def redact_run(run: Run, redact: Redact | None = None) -> Run:
    """`run` with every verdict passed through `redact`, by default known token shapes and keys of secrets.

    Whatever agents passed, the verdicts then hold JSON data alone.
    """
    redact = redact or Redactor()
    verdicts = tuple(_redact_verdict(verdict, redact) for verdict in run.verdicts)
    return replace(run, verdicts=verdicts, metadata=_redact_data(run.metadata, redact))


def redact_decision(decision: GateDecision, redact: Redact | None = None) -> GateDecision:
    """`decision`, whose words quote case ids and reasons, passed through `redact`."""
    redact = redact or Redactor()
    return replace(decision, reasons=tuple(map(redact, decision.reasons)), facts=_redact_data(decision.facts, redact))


def _redact_verdict(verdict: Verdict, redact: Redact) -> Verdict:
    plain = to_plain_line(verdict)
    clean = redact(to_line(verdict) if plain is None else plain)
    return verdict if clean == plain else from_line(clean)


def _redact_data(value: Any, redact: Redact) -> Any:
    text = json.dumps(to_plain_json(value))
    clean = redact(text)
    return value if clean == text else json.loads(clean)
