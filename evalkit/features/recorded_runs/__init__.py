"""Runs that happened elsewhere, judged in place of an agent's, and made into cases. docs/judge-traces.md."""
