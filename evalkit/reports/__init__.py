"""Run -> text. A report is a pure function of a run and options; only `runfile` and `journal` touch files."""

from __future__ import annotations

from evalkit.reports.runfile import load_run as load_run
from evalkit.reports.runfile import write_run as write_run

__all__ = ["load_run", "write_run"]
