"""Runs that happened elsewhere: logs, spans and exports of other systems, read as conversations."""
