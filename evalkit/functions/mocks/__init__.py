"""Mocks."""
