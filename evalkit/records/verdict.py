"""The verdict on a run: statuses that never mix, reasons with stable codes, and a place for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import force_setattr

from evalkit.errors import LONGEST_WORD, KeyPath, shorten_words
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.lazy import LazyModule
from evalkit.records.codec import VERSION, always_written, decode, to_plain_json
from evalkit.records.transcript import FunctionCall, Transcript

if TYPE_CHECKING:
    from evalkit.records import old_versions
else:
    old_versions = LazyModule("evalkit.records.old_versions")

PASSED = "passed"
FAILED = "failed"
ERROR = "error"
NOT_RUN = "not_run"
STATUSES = (PASSED, FAILED, ERROR, NOT_RUN)


class Reason(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cause of a verdict."""

    code: str  # stable: "missing_call", "wrong_argument", ... (DESIGN "Public API")
    message: str  # one or more lines for a person
    place: str = ""  # path in the case: "expected_output.expected_function_calls[1].arguments.priority"
    location: str = ""  # file:line:col of that path, where there is a file
    call: int | None = None  # index of the actual call that it is about
    path: KeyPath = ()  # in that call's arguments or result
    expected: Any = None
    actual: Any = None

    def __post_init__(self) -> None:
        if len(self.message) > LONGEST_WORD:
            force_setattr(self, "message", shorten_words(self.message))


class CheckResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one check: `passed`, `failed`, `error` (evidence missing) or `not_judged`."""

    check: str  # the key in the case, e.g. "response_contains"
    status: str = always_written(PASSED)
    message: str = ""
    reasons: tuple[Reason, ...] = ()
    note: str = ""  # e.g. "contained, not equal"


class CallVerdict(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the trace: an actual call (or a missing one), the expectation it was compared with, the results."""

    call: FunctionCall | None  # None: expected, and never made
    status: str = always_written(PASSED)  # passed or failed
    expectation: str = ""  # place of the expectation that it met or came nearest to; "" when unexpected
    expected_name: str = ""
    results: tuple[CheckResult, ...] = ()


class Score(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Partial credit, for information. Over calls: precision, recall, F1; over arguments: accuracy. All in [0, 1]."""

    precision: float = always_written(1.0)
    recall: float = always_written(1.0)
    f1: float = always_written(1.0)
    argument_accuracy: float = always_written(1.0)


class ChangedRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A case that passed, run again with one thing changed.

    `not_run`: what the agent would do can't be measured offline. `transcript` is then left empty.
    """

    feature: str = ""  # that changed it; whoever runs it fills it in
    place: str  # what is changed: the name of a function, or a path of the input
    change: str  # the name of the change
    group: str = ""  # the heading under which tables count it, if it is not `change`
    path: str = ""  # in the results of the function
    status: str
    reasons: tuple[Reason, ...] = ()
    transcript: Transcript = field(default_factory=Transcript)


class Verdict(Struct, frozen=True, kw_only=True):
    """The outcome of a case, or of one run of a repeated case (`runs` holds those)."""

    case_id: str = ""
    status: str  # no default: a verdict that does not say it is damaged, and no pass
    reasons: tuple[Reason, ...] = ()
    calls: tuple[CallVerdict, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    transcript: Transcript = field(default_factory=Transcript)
    score: Score | None = None
    summary: str = ""
    description: str = ""
    category: str = ""
    tags: tuple[str, ...] = ()
    must_pass: bool = False
    quarantined: str | None = None  # the reason of an xfail that is in force
    runs: tuple[Verdict, ...] = ()
    changed_runs: tuple[ChangedRun, ...] = ()  # of a case that passed, where options ask for them
    runs_planned: int = 1
    min_pass: int = 1
    path: str = ""
    row: str = ""  # the place of the case's row: "scenarios/orders.csv:3"
    case: JsonObject = field(default_factory=dict)  # the merged case, as judged
    warnings: tuple[str, ...] = ()
    features: JsonDict = field(default_factory=dict)  # what features say of the run, by their names; JSON data
    version: int = VERSION

    @property
    def passed(self) -> bool:
        """True if the status is `passed`."""
        return self.status == PASSED

    def to_json(self) -> JsonDict:
        """Return JSON data, whatever the agent passed: NaN as text, objects by their repr. `from_json` reads it."""
        data: JsonDict = to_plain_json(self)
        return data

    @staticmethod
    def from_json(data: JsonObject) -> Verdict:
        """Rebuild from `to_json` data, of an older version, too."""
        return decode(Verdict, old_versions.upgrade_verdict(data))


def list_runs(verdict: Verdict) -> tuple[Verdict, ...]:
    """Return the runs of a repeated case; of any other one the verdict itself."""
    return verdict.runs or (verdict,)


def get_first_reason(verdict: Verdict) -> str:
    """Return the message or the code of the first reason, else the summary."""
    return next((reason.message or reason.code for reason in verdict.reasons), verdict.summary)
