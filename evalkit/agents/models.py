"""Which provider answers a case: a cassette unless the run goes live, and one live provider per model, shared."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from evalkit.agents.settings import TaskSettings
from evalkit.errors import MissingCassetteError, UsageError
from evalkit.model.settings import Settings

if TYPE_CHECKING:
    from evalkit.providers.protocol import Provider

_shared: dict[str, Provider] = {}
_lock = threading.Lock()


RECORD_MODES = ("all", "missing", "stale")


def provider_for(case_id: str, run: int, settings: Settings, in_force: TaskSettings) -> Provider:
    """The provider of one run of a case.

    Without `record`: the model that an option names, else the cassette. `record` records what ``missing`` or, beyond
    that, what ``stale`` says (a stale cassette is replayed first, and the run made again); ``all`` records everything.
    `settings.extra["provider"]`, a callable ``(case_id, run) -> Provider``, overrides the choice: that is how tests
    bring a script.
    """
    chosen = settings.extra.get("provider")
    if chosen is not None:
        provided: Provider = chosen(case_id, run)
        return provided
    if settings.model and settings.record is None:
        from evalkit.agents.live import MeteredProvider

        return MeteredProvider(shared_provider(settings.model), settings.model, settings)
    from evalkit.providers.cassette import CassetteProvider
    from evalkit.providers.cassettefile import find_cassette, path_of_run

    root = settings.root or Path.cwd()
    path = root / settings.cassettes / cassette_name(case_id)
    secrets = tuple(settings.extra.get("secrets", ()))
    if settings.record == "all" or (settings.record and not _has_cassette(path, run)):
        return _recording(path_of_run(path, run), root, in_force.model, settings)
    found = find_cassette(path)
    base = path if found is None else found
    return CassetteProvider(base, run=run, root=root, model=in_force.model, secrets=secrets)


def _has_cassette(path: Path, run: int) -> bool:
    """Whether a file answers this run: its own, or a hand-written one that serves them all."""
    from evalkit.providers.cassettefile import find_cassette, load_cassette, path_of_run

    if find_cassette(path_of_run(path, run)) is not None:
        return True
    first = find_cassette(path)
    return first is not None and load_cassette(first).kind == "hand-written"


def _recording(path: Path, root: Path, model: str | None, settings: Settings) -> Provider:
    from evalkit.agents.live import MeteredProvider
    from evalkit.providers.recording import RecordingProvider

    if model is None:
        raise MissingCassetteError(
            "recording needs a model: --evalkit-model=gemini:MODEL, or settings.model in the case or its suite"
        )
    shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()
    live = MeteredProvider(shared_provider(model), model, settings)
    secrets = tuple(settings.extra.get("secrets", ()))
    return RecordingProvider(live, path, model=model, shown_as=shown, secrets=secrets)


def cassette_name(case_id: str) -> str:
    """The cassette's path below the cassette folder: the case's own path, without ways out of the folder."""
    name = "/".join(part for part in case_id.split("/") if part not in ("", ".", "..")) or "case"
    return name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"


def check_model(spec: str | None, whose: str = "") -> None:
    """Raises UsageError for a model that can't be opened, its message after `whose`. Connects to nothing."""
    if spec is not None:
        try:
            shared_provider(spec)
        except UsageError as error:
            raise UsageError(f"{whose}{error}") from None


def shared_provider(spec: str) -> Provider:
    """The one live provider of this process for `spec`; its connections are shared by all cases of a loop."""
    from evalkit.providers.opening import open_provider

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
