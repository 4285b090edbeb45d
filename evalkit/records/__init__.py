"""Frozen data that every room shares. Standard library and msgspec only; nothing here reads files, runs or judges."""
