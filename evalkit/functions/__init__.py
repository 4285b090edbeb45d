"""Functions that an agent may call: declarations, mocks, the fake dispatcher that answers and records, patching."""
