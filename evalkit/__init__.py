"""evalkit: the pytest plugin that tells whether a tool-calling LLM agent still works.

One sentence is the architecture, and the folders repeat it::

    YAML file -> Case -> Transcript -> Verdict -> reports and gate

`spec` loads a file into a Case, `runner` runs the agent and has `checks` judge its Transcript into a Verdict,
`reports` and `gate` read Verdicts. Importing this package loads nothing else: the public names stand in
`evalkit.public`, which is loaded when one of them is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evalkit.public import *  # noqa: F403

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    import evalkit.public as public

    if name not in public.__all__:
        raise AttributeError(f"module 'evalkit' has no attribute {name!r}")
    value = getattr(public, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    import evalkit.public as public

    return sorted(["__version__", *public.__all__])
