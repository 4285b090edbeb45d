"""A person who approves calls, whom the case plays: `input.approvals`. docs/mocks.md."""
