"""Textcalls."""
