"""What a command must not show or write: the secrets of the environment, and what the project calls one."""

from __future__ import annotations

import os
from pathlib import Path

from evalkit.model.redaction import Redactor, find_secrets
from evalkit.project import read_project_table, read_value


def build_redactor(root: Path) -> Redactor:
    """For values of secret variables, known shapes of tokens, and the `secret_keys` of the project at `root`."""
    table = read_project_table(root)
    keys = read_value("secret_keys", table["secret_keys"], "tool.evalkit.secret_keys") if "secret_keys" in table else ()
    return Redactor(find_secrets(os.environ), keys)
