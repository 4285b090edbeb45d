"""The state that a run ends with: a probe reads it, `state` and `state_contains` judge it. docs/mocks.md."""
