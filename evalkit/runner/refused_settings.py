"""What a service refuses of a request, as the setting that says it, and where that stands."""

from __future__ import annotations

from evalkit.agents.task_settings import TaskSettings
from evalkit.errors import ProviderError
from evalkit.models.providers.base import REFUSED_SETTINGS
from evalkit.records.case import Case
from evalkit.records.settings import REQUEST_SETTINGS, Settings

_REFUSALS = (400, 422)


def explain_refused_setting(error: ProviderError, case: Case, settings: Settings, in_force: TaskSettings) -> str:
    """Explain which setting to change; "" where none is refused. A service that names no key may mean any of them."""
    said = [name for name in REQUEST_SETTINGS if getattr(in_force, name) is not None]
    if not said or (error.refused_key is None and error.status not in _REFUSALS):
        return ""
    if error.refused_key is None:
        places = ", ".join(f"{name} ({_locate(name, case, settings)})" for name in said)
        return f"If it is a setting that the model refuses, these are in the request: {places}"
    name = REFUSED_SETTINGS.get(error.refused_key)
    if name not in said:
        return ""
    advice = f"leave it out there, or write 'settings: {{{name}: null}}' in the case"
    if name in settings.from_flags:
        advice = "leave it out"
    return f"{name} is set by {_locate(name, case, settings)}: {advice}"


def _locate(name: str, case: Case, settings: Settings) -> str:
    """Return where a setting is said: an option, a file, the project."""
    if name in settings.from_flags:
        return f"--evalkit-{name.replace('_', '-')}"
    if getattr(case.settings, name) is not None:
        return f"{case.locate(('settings', name))}, settings.{name}"
    return f"'{name}' in [tool.evalkit]"
