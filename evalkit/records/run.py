"""A run, the verdicts of one invocation; the policy of a gate, and its decision."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct, field

from evalkit.errors import UsageError
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.lazy import LazyModule
from evalkit.records.codec import VERSION, always_written, decode, to_plain_json
from evalkit.records.verdict import Verdict

if TYPE_CHECKING:
    from evalkit.records import old_versions
else:
    old_versions = LazyModule("evalkit.records.old_versions")

FEATURES = "features"  # the key of a run's metadata under which stands what features measured of it, by name

GateStatus = Literal["met", "missed", "not_measured"]
MET: Final = "met"
MISSED: Final = "missed"
NOT_MEASURED: Final = "not_measured"


class Selection(Struct, frozen=True, kw_only=True):
    """The whole that was split, as each of its shards saw it. `places` are those of the shard's own cases in it."""

    count: int = 0
    fingerprint: str = ""  # of all case ids, in whatever order
    content: str = ""  # a fingerprint of their files and suites, as they were read
    places: tuple[int, ...] = ()


class Run(Struct, frozen=True, kw_only=True):
    """An invocation. `selected` are the ids that should have a verdict; one without is `not_run`."""

    verdicts: tuple[Verdict, ...] = ()
    collected: int = 0
    selected: tuple[str, ...] = ()
    started: str = ""  # ISO 8601, UTC
    ended: str = ""  # the same; "" of a session that was killed, and in files of older versions
    wall_s: float = 0.0
    evalkit: str = ""  # version of evalkit that wrote it
    shard: str | None = None  # "3/8"
    selection: Selection | None = None  # what the shards were made of; None for what is no shard
    interrupted: bool = False
    metadata: JsonObject = field(default_factory=dict)
    version: int = VERSION

    def to_json(self) -> JsonDict:
        """Return JSON data, whatever the agent passed: NaN as text, objects by their repr. `from_json` reads it."""
        data: JsonDict = to_plain_json(self)
        return data

    @staticmethod
    def from_json(data: JsonObject) -> Run:
        """Rebuild from `to_json` data, of an older version, too. A version that is not known is a UsageError."""
        data = old_versions.upgrade_run(data)
        if data.get("version") != VERSION:
            raise UsageError(
                f"run file version {data.get('version')!r} is newer than {VERSION}, the last that this evalkit reads"
            )
        return decode(Run, data)


class Policy(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The demands of a gate. Rates are percentages in [0, 100]."""

    min_pass_rate: str = always_written("99")  # decimal text, so that 99.9 is exact
    min_lower_bound: str | None = None  # of the Wilson 95 % interval
    category_floors: Mapping[str, str] = field(default_factory=dict)
    max_errors: int = always_written(0)
    max_skipped: int | None = None
    max_cost_usd: float | None = None
    max_latency_ms: float | None = None  # of the 95th percentile of runs, on the run's clock
    max_text_call_rate: str | None = None
    max_malformed_rate: str | None = None
    no_regressions: bool = always_written(default=False)  # against the baseline
    min_kappa: float | None = None  # agreement of the run's graders with people
    min_kappa_low: float | None = None  # the same of the lower end of its interval
    covered_criteria: tuple[str, ...] = ()  # patterns of criteria for which the labels of others stand


KEY = "key"  # of a note that is shown with -q, too


class GateNote(Struct, frozen=True):
    """What the gate says beside its reasons. `kind` is by what reports select notes: "interval", "failed", "reasons",
    "detail" (the terminal prints it with -v), the name of a change against the baseline, that of a feature's notes,
    KEY, or "" for all others."""

    text: str
    kind: str = ""


class GateDecision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`met`, `missed` or `not_measured`, why, and the exit status that says so (0, 1 or 6)."""

    status: str
    reasons: tuple[str, ...] = ()
    exit_status: int = always_written(0)
    facts: JsonObject = field(default_factory=dict)
    notes: tuple[GateNote, ...] = ()

    def list_notes(self, *, without: Collection[str] = ()) -> list[str]:
        """Return the texts of the notes but for those of some kinds."""
        return [note.text for note in self.notes if note.kind not in without]
