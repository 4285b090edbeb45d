"""What tests of features share with those of the plugin: a project of case files that runs through pytest itself."""

from __future__ import annotations

from tests.plugin.conftest import project

__all__ = ["project"]
