"""Passed cases run again, with the live model's replies streamed or whole. docs/live-models.md."""
