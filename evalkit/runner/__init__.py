"""Running one case: `run_case` plans it, runs its agent once per repeat with `agent_call`, and has `judge` decide."""
