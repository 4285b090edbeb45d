"""The same cases with several agents, models or prompts, side by side: `--evalkit-compare`. docs/compare.md."""
