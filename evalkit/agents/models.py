"""Which provider answers a case: a cassette unless the run goes live, and one live provider per model, shared."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.agents.settings import TaskSettings
from evalkit.model.settings import Settings

if TYPE_CHECKING:
    from evalkit.providers import Provider

_shared: dict[str, Provider] = {}
_lock = threading.Lock()


def provider_for(case_id: str, run: int, settings: Settings, in_force: TaskSettings) -> Provider:
    """The provider of one run of a case. `settings.extra["provider"]`, a callable ``(case_id, run) -> Provider``,
    overrides the choice: that is how tests bring a script."""
    chosen = settings.extra.get("provider")
    if chosen is not None:
        provided: Provider = chosen(case_id, run)
        return provided
    if settings.model:
        return shared_provider(settings.model)
    from evalkit.providers import CassetteProvider

    root = settings.root or Path.cwd()
    return CassetteProvider(root / settings.cassettes / cassette_name(case_id), run=run, root=root)


def cassette_name(case_id: str) -> str:
    """The cassette's path below the cassette folder: the case's own path, without ways out of the folder."""
    return "/".join(part for part in case_id.split("/") if part not in ("", ".", "..")) or "case.yaml"


def shared_provider(spec: str) -> Provider:
    """The one live provider of this process for `spec`; its connections are shared by all cases of a loop."""
    from evalkit.providers import open_provider

    with _lock:
        if spec not in _shared:
            _shared[spec] = open_provider(spec)
        return _shared[spec]


async def aclose_shared() -> None:
    """Close what live providers hold for the running event loop. To be called before the loop ends."""
    with _lock:
        providers = list(_shared.values())
    for provider in providers:
        await provider.aclose()
