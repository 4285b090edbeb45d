"""What features use of recorded runs: spans that are read."""

from __future__ import annotations

from evalkit.hosts.traces.log_formats import UnreadableLogError, parse_json
from evalkit.hosts.traces.span_files import list_spans

__all__ = ["UnreadableLogError", "list_spans", "parse_json"]
