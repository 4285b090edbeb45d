"""`python -m evalkit` is the `evalkit` command, of the Python that is asked."""

from __future__ import annotations

from evalkit.cli import main

if __name__ == "__main__":
    main()
