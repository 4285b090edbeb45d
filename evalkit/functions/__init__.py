"""Functions that an agent may call: declarations, mocks, the fake dispatcher that answers and records, patching.

Each name is imported when first used; and jsonschema, when a schema or value is beyond the everyday.
"""
