"""Which provider answers a case: a cassette unless the run goes live, and one live provider per model, shared."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.agents.settings import TaskSettings
from evalkit.errors import MissingCassetteError, UsageError
from evalkit.model.settings import Settings

if TYPE_CHECKING:
    from evalkit.providers.base import Provider


_shared_providers: dict[str, Provider] = {}
_lock = threading.Lock()


RECORD_MODES = ("all", "missing", "stale")


def select_provider(case_id: str, run: int, settings: Settings, task_settings: TaskSettings) -> Provider:
    """The provider of one run of a case.

    Without `record`: the model that an option names, else the cassette. `record` records what ``missing`` or, beyond
    that, what ``stale`` says (a stale cassette is replayed first, and the run made again); ``all`` records everything.
    `settings.extra["provider"]`, a callable ``(case_id, run) -> Provider``, overrides the choice: that is how tests
    bring a script.
    """
    factory = settings.extra.get("provider")
    if factory is not None:
        provided: Provider = factory(case_id, run)
        return provided
    if settings.model and settings.record is None:
        from evalkit.providers.budget import MeteredProvider

        return MeteredProvider(get_shared_provider(settings.model), settings.model, settings)
    from evalkit.cassettes.model import CassetteProvider, build_cassette_name, build_run_path, find_cassette

    root = settings.root or Path.cwd()
    path = root / settings.cassettes / build_cassette_name(case_id)
    secrets = tuple(settings.extra.get("secrets", ()))
    if settings.record == "all" or (settings.record and not _has_cassette(path, run)):
        return _build_recording_provider(build_run_path(path, run), root, task_settings.model, settings)
    cassette = find_cassette(path)
    base = path if cassette is None else cassette
    return CassetteProvider(base, run=run, root=root, model=task_settings.model, secrets=secrets)


def _has_cassette(path: Path, run: int) -> bool:
    """Whether a file answers this run: its own, or a hand-written one that serves them all."""
    from evalkit.cassettes.model import build_run_path, find_cassette, load_cassette

    if find_cassette(build_run_path(path, run)) is not None:
        return True
    first = find_cassette(path)
    return first is not None and load_cassette(first).kind == "hand-written"


def _build_recording_provider(path: Path, root: Path, model: str | None, settings: Settings) -> Provider:
    from evalkit.cassettes.model import RecordingProvider
    from evalkit.providers.budget import MeteredProvider

    if model is None:
        raise MissingCassetteError(
            "recording needs a model: --evalkit-model=gemini:MODEL, or settings.model in the case or its suite"
        )
    display_path = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    live = MeteredProvider(get_shared_provider(model), model, settings)
    secrets = tuple(settings.extra.get("secrets", ()))
    return RecordingProvider(live, path, model=model, display_path=display_path, secrets=secrets)


def check_model(spec: str | None, prefix: str = "") -> None:
    """Raises UsageError for a model that can't be opened, its message after `whose`. Connects to nothing."""
    if spec is not None:
        try:
            get_shared_provider(spec)
        except UsageError as error:
            raise UsageError(f"{prefix}{error}") from None


def get_shared_provider(spec: str) -> Provider:
    """The one live provider of this process for `spec`; its connections are shared by all cases of a loop."""
    from evalkit.providers.table import open_provider

    with _lock:
        if spec not in _shared_providers:
            _shared_providers[spec] = open_provider(spec)
        return _shared_providers[spec]


async def aclose_shared() -> None:
    """Close what live providers hold for the running event loop. To be called before the loop ends."""
    with _lock:
        providers = list(_shared_providers.values())
    for provider in providers:
        await provider.aclose()
