"""A run as OpenTelemetry spans, by the semantic conventions for generative AI; needs the extra `otel`.

`exporting` sends or writes them, `spans` builds a trace per run of a case, `messages` the JSON inside the attributes.
Conventions: https://opentelemetry.io/docs/specs/semconv/gen-ai/ (status: development).
"""
