"""Run -> text. A report is a pure function of a run and options; only `run_file` touches files."""
