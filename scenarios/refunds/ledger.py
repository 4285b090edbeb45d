"""The same desk on a real ledger: a file of SQLite, which the agent writes and the case reads."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import evalkit

LEDGER = Path(__file__).with_name("ledger.sqlite")


@evalkit.agent("refund_ledger")
def book(task: evalkit.Task) -> str:
    order_id = re.findall(r"[A-Z]-\d+", task.message)[0]
    with closing(sqlite3.connect(LEDGER)) as ledger, ledger:
        ledger.execute("DROP TABLE IF EXISTS refunds")
        ledger.execute("CREATE TABLE refunds (order_id TEXT, amount REAL)")
        ledger.execute("INSERT INTO refunds VALUES (?, ?)", (order_id, 15.5))
    return f"15.5 eur of {order_id} are on their way."
