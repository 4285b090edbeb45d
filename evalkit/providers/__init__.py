"""Where model turns come from: services, cassettes, scripts; and how calls are read from text and streams.

Every source is a `Provider`, so that the function-calling loop can't tell a recording from the real thing.
Each name is imported when first used, so that a provider nobody opens costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evalkit.lazily import imported_on_use

if TYPE_CHECKING:
    from evalkit.providers.cassette import CassetteProvider as CassetteProvider
    from evalkit.providers.cassettefile import Cassette as Cassette
    from evalkit.providers.cassettefile import load_cassette as load_cassette
    from evalkit.providers.cassettefile import parse_cassette as parse_cassette
    from evalkit.providers.opening import open_provider as open_provider
    from evalkit.providers.opening import parse_model_spec as parse_model_spec
    from evalkit.providers.protocol import Provider as Provider
    from evalkit.providers.scripted import ScriptedProvider as ScriptedProvider

_HOMES = {
    "Cassette": "cassettefile",
    "CassetteProvider": "cassette",
    "Provider": "protocol",
    "ScriptedProvider": "scripted",
    "load_cassette": "cassettefile",
    "open_provider": "opening",
    "parse_cassette": "cassettefile",
    "parse_model_spec": "opening",
}

__all__ = [*_HOMES]

__getattr__ = imported_on_use(__name__, _HOMES)
