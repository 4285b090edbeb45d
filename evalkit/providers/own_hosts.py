"""Where evalkit itself listens: requests there are a case's function calls, no traffic to be recorded or replayed."""

from __future__ import annotations

OWN_HOSTS: set[str] = set()  # "127.0.0.1:PORT" of every functions server that is up
