"""Mappings that came from files: their one reader, and JSON Schema."""
