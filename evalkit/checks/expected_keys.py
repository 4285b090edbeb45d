"""The keys of `expected_output`. A new one is a class derived from `ExpectedKey`, and an entry of `_KEYS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalkit.checks.budgets import BUDGET_KEYS, IdenticalCallsKey
from evalkit.checks.expected_key import ExpectedKey
from evalkit.checks.judge_criteria import JudgeKey
from evalkit.checks.key_table import KeyTable
from evalkit.checks.legacy_keys import LEGACY_KEYS
from evalkit.checks.list_keys import (
    CallOrderKey,
    ExpectedCallsKey,
    ExtraCallsKey,
    ForbiddenCallsKey,
    GroundedCallsKey,
    IgnoredArgumentsKey,
    MinScoreKey,
    ValidArgumentsKey,
)
from evalkit.checks.response import RESPONSE_KEYS, ResponseJsonKey
from evalkit.checks.run_checks import (
    FinalCallKey,
    InstructionKey,
    ModelFailureKey,
    StopReasonKey,
)
from evalkit.hooks import EXPECTED, find_key

_KEYS: tuple[ExpectedKey, ...] = (
    ExpectedCallsKey(),
    CallOrderKey(),
    ExtraCallsKey(),
    ForbiddenCallsKey(),
    GroundedCallsKey(),
    ValidArgumentsKey(),
    IgnoredArgumentsKey(),
    FinalCallKey(),
    *RESPONSE_KEYS,
    ResponseJsonKey(),
    StopReasonKey(),
    ModelFailureKey(),
    InstructionKey(),
    *BUDGET_KEYS[:2],
    IdenticalCallsKey(),
    *BUDGET_KEYS[2:],
    MinScoreKey(),
    JudgeKey(),
    *LEGACY_KEYS,
)


_OWN: dict[str, ExpectedKey] = {key.name: key for key in _KEYS}
_TABLE = KeyTable(_OWN, EXPECTED)


def list_expected_keys() -> Mapping[str, ExpectedKey]:
    """Return the keys of `expected_output` by name, in their order; a project's own checks are not among them."""
    return _TABLE


def find_expected_key(name: object) -> ExpectedKey | None:
    """Return the key of `expected_output` that has this name; None if there is none."""
    return (_OWN.get(name) or find_key(EXPECTED, name)) if isinstance(name, str) else None


def merge_turn_keys(expected: Mapping[str, Any], case_expected: object) -> Mapping[str, Any]:
    """Add the keys about all turns from the case's own `expected_output` to those of a user turn."""
    if not isinstance(case_expected, Mapping):
        return expected
    found = ((name, find_expected_key(name), value) for name, value in case_expected.items())
    return {**{name: value for name, key, value in found if key is not None and key.in_every_turn}, **expected}
