"""Registers the agent of this suite that is written in Python."""

from __future__ import annotations

import csv

import evalkit


@evalkit.agent("statement")
def file_statement(task: evalkit.Task) -> str:
    """File each line of a statement that was booked in March."""
    statement = next(part for part in task.parts if part.kind == "file")
    for row in csv.DictReader(statement.content.decode().splitlines()):
        if row["date"].startswith("2026-03"):
            task.call("file_expense", category=row["category"], amount=float(row["amount"]), date=row["date"])
    return "I have filed them."
