"""Frozen data that every room shares. Standard library only; nothing here reads files, runs or judges."""
