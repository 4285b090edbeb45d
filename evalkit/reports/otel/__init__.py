"""A run as OpenTelemetry spans, by the semantic conventions for generative AI; needs the extra `otel`.

`exporting` sends or writes them, `spans` builds a trace per run of a case, `messages` the JSON inside the attributes.
Conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai/ (status: development).
"""

from __future__ import annotations

from evalkit.reports.otel.exporting import build_spans as build_spans
from evalkit.reports.otel.exporting import render_otlp_lines as render_otlp_lines
from evalkit.reports.otel.exporting import send as send

__all__ = ["build_spans", "render_otlp_lines", "send"]
