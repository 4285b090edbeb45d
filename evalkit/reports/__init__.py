"""Run -> text. A report is a pure function of a run and options; only `runfile` and `journal` touch files."""
