"""Other distributions that install a package `evalkit`: their files replace ours."""

from __future__ import annotations

from importlib.metadata import packages_distributions, version

import pytest

import evalkit


def refuse_overwritten_package() -> None:
    """Raise a usage error if `evalkit/__init__.py` is another distribution's."""
    own_name = "pytest-evalkit"
    if getattr(evalkit, "DISTRIBUTION", None) == own_name:
        return
    others = sorted({*packages_distributions().get("evalkit", ())} - {own_name})
    named = " and ".join(f"{name} {version(name)}" for name in others) or "another distribution"
    raise pytest.UsageError(
        f"evalkit: {named} installs a package 'evalkit' too, and has overwritten files of {own_name}; uninstall it, "
        f"and install {own_name} again: pip uninstall {' '.join([*others, own_name])}; pip install {own_name}"
    )
