"""A run as OpenTelemetry spans, by the semantic conventions for generative AI; needs the extra `otel`.

`exporting` sends or writes them, `spans` builds a trace per run of a case, `messages` the JSON inside the attributes.
Conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai/ (status: development).
"""

from __future__ import annotations

from evalkit.reports.otel.exporting import otlp_lines as otlp_lines
from evalkit.reports.otel.exporting import send as send
from evalkit.reports.otel.exporting import spans_of as spans_of

__all__ = ["otlp_lines", "send", "spans_of"]
