"""A run as OpenTelemetry spans."""
