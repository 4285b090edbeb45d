"""What a run used: model turns, tokens, money, time per turn, and how its function calls came.

A call came natively, was recovered from the model's text, or was malformed: arguments that are no JSON object, or a
reply that set out to call and could not be read. Calls that code made are no model's. Beside these stand unanswered
calls: asked for natively, and carried out by no code, as happens where the code knows a function under another name.
Unknown is never counted as zero: tokens and money are None as soon as a part of them is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field, to_builtins

from evalkit.hooks import iter_known
from evalkit.jsonvalue import JsonDict
from evalkit.records.run import Run
from evalkit.records.transcript import CACHE, FunctionCall, ModelCall, Transcript, Usage
from evalkit.records.verdict import Verdict, list_runs
from evalkit.text.format import format_usd

UNREADABLE = "(unreadable)"  # under this name stand replies whose call could not be read at all
UNNAMED = "(unnamed)"  # a model of which neither its service nor the run says the name
_MALFORMED = "malformed_call"


class Channels(Struct, frozen=True):
    """Counts of calls by the way they came, and shares of all (None where there are none). `mended` are among `text`.

    `unanswered` are none of them, and no part of the shares: nothing came of them.
    """

    native: int = 0
    text: int = 0
    malformed: int = 0
    mended: int = 0
    unanswered: int = 0

    @property
    def total(self) -> int:
        return self.native + self.text + self.malformed

    @property
    def native_rate(self) -> float | None:
        return self._share(self.native)

    @property
    def text_rate(self) -> float | None:
        """The fallback rate."""
        return self._share(self.text)

    @property
    def malformed_rate(self) -> float | None:
        return self._share(self.malformed)

    def _share(self, part: int) -> float | None:
        return part / self.total if self.total else None

    def __add__(self, other: Channels) -> Channels:
        return Channels(
            self.native + other.native,
            self.text + other.text,
            self.malformed + other.malformed,
            self.mended + other.mended,
            self.unanswered + other.unanswered,
        )


def nearest_rank(ordered: Sequence[float], share: float) -> float:
    """Return the value within which `share` (0 to 1) of the `ordered` ones lie: the nearest rank, always one of them.

    At least one value is needed. Source: Hyndman and Fan, Sample Quantiles in Statistical Packages (1996), no. 1.
    """
    return ordered[min(max(math.ceil(len(ordered) * share), 1), len(ordered)) - 1]


class SideUsage(Struct, frozen=True, kw_only=True):
    """What the models of one feature, which are not the agent's, took in a run, or in several. `+` adds runs.

    `counts` are of what they did, by names of the feature's own. `usage` and `cost_usd` are None if some is unknown.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    usage: Usage | None = Usage()
    cost_usd: float | None = 0.0
    is_live: bool = False  # a model was asked, which may answer otherwise another time

    def __add__(self, other: SideUsage) -> SideUsage:
        names = dict.fromkeys((*self.counts, *other.counts))
        usage, cost = other.usage, other.cost_usd
        return SideUsage(
            counts={name: self.counts.get(name, 0) + other.counts.get(name, 0) for name in names},
            usage=None if usage is None or self.usage is None else self.usage + usage,
            cost_usd=None if cost is None or self.cost_usd is None else self.cost_usd + cost,
            is_live=self.is_live or other.is_live,
        )

    def describe(self) -> str:
        """Return ``4,200 tokens in and 310 out, 0.012 USD``."""
        tokens = "tokens unknown"
        if self.usage is not None:
            output = self.usage.output_tokens + self.usage.reasoning_tokens
            tokens = f"{self.usage.input_tokens:,} tokens in and {output:,} out"
        return f"{tokens}, {'cost unknown' if self.cost_usd is None else format_usd(self.cost_usd)}"

    def to_json(self) -> JsonDict:
        """Return JSON data for the run file."""
        usage = None if self.usage is None else to_builtins(self.usage)
        return {**self.counts, "usage": usage, "cost_usd": self.cost_usd}


class Accounting(Struct, frozen=True, kw_only=True):
    """`runs` counts repeats. `usage` and `cost_usd` are None if some of it is unknown: `without_usage` and
    `without_cost` say of how many runs with model turns. `latencies_ms` are those of the turns, sorted."""

    runs: int = 0
    turns: int = 0
    calls: Channels = Channels()
    functions: Mapping[str, Channels] = field(default_factory=dict)
    models: Mapping[str, Channels] = field(default_factory=dict)  # by the model of the turn that made the call
    usage: Usage | None = None
    cost_usd: float | None = None
    asked_models: tuple[str, ...] = ()  # whose turns took what was counted, as their services call them
    without_usage: int = 0
    without_cost: int = 0
    latencies_ms: tuple[float, ...] = ()
    cached_turns: int = 0  # of `turns`, those that the cache of replies answered
    saved_tokens: int = 0  # of `usage`, and of `cost_usd`, theirs
    saved_usd: float | None = None
    features: Mapping[str, SideUsage] = field(default_factory=dict)  # of features' models, in it alone
    sweeps: Accounting | None = None  # of passed cases that a live model ran again with one thing changed; in it alone

    @property
    def turns_per_call(self) -> float | None:
        """Model turns for each function call; None without calls."""
        return self.turns / self.calls.total if self.calls.total else None

    def compute_latency_ms(self, share: float) -> float | None:
        """Return the time within which `share` (0 to 1) of the turns came: the nearest rank. None without turns."""
        return nearest_rank(self.latencies_ms, share) if self.latencies_ms else None

    def to_json(self) -> JsonDict:
        """Return JSON data for the run file."""
        measures = {"usage": None if self.usage is None else to_builtins(self.usage), "cost_usd": self.cost_usd}
        cache = {"replies": self.cached_turns, "tokens": self.saved_tokens, "saved_usd": self.saved_usd}
        return {
            "runs": self.runs,
            "model_turns": self.turns,
            **measures,
            "runs_without_usage": self.without_usage,
            "runs_without_cost": self.without_cost,
            "latency_ms": {
                "median": self.compute_latency_ms(0.5),
                "p95": self.compute_latency_ms(0.95),
                "max": self.compute_latency_ms(1),
            },
            "calls": to_builtins(self.calls),
            "functions": {name: to_builtins(channels) for name, channels in sorted(self.functions.items())},
            "models": {name: to_builtins(channels) for name, channels in sorted(self.models.items())},
            **({} if not self.cached_turns else {"cache": cache}),
            **{name: usage.to_json() for name, usage in self.features.items()},
            **({} if self.sweeps is None else {"sweeps": self.sweeps.to_json()}),
        }


class Multiplier(Struct, frozen=True):
    """Factors by which one system needs more than another for a function call; None where unknown."""

    turns: float | None
    tokens: float | None


def cost_multiplier(accounting: Accounting, baseline: Accounting) -> Multiplier:
    """Divide `accounting` by `baseline`: model turns and tokens per function call, so that they need not have done as
    much.

    The number that tells what a detour costs: a system that falls back to text against the same system repaired.
    """
    return Multiplier(
        turns=_compute_ratio(accounting.turns_per_call, baseline.turns_per_call),
        tokens=_compute_ratio(_compute_tokens_per_call(accounting), _compute_tokens_per_call(baseline)),
    )


def _compute_tokens_per_call(accounting: Accounting) -> float | None:
    usage = accounting.usage
    if usage is None or not accounting.calls.total:
        return None
    return usage.count_tokens() / accounting.calls.total


def _compute_ratio(numerator: float | None, denominator: float | None) -> float | None:
    return numerator / denominator if numerator is not None and denominator else None


class Tally:
    """Counts verdict after verdict, so that their transcripts need not stay in memory."""

    def __init__(self) -> None:
        self._runs = self._turns = self._without_usage = self._without_cost = 0
        self._functions: dict[str, Channels] = {}
        self._models: dict[str, Channels] = {}
        self._usage: Usage | None = None
        self._cost: float | None = None
        self._asked: dict[str, None] = {}
        self._latencies: list[float] = []
        self._cached_turns = self._saved_tokens = 0
        self._saved_usd: float | None = None
        self._features: dict[str, SideUsage] = {}
        self._sweeps: Tally | None = None

    def add(self, verdict: Verdict) -> None:
        """Add one case, with all its runs."""
        for run in list_runs(verdict):
            self._add_run(run.transcript)
        for changed in verdict.changed_runs:
            if changed.transcript.turns and changed.transcript.cassette is None:
                self._sweeps = self._sweeps or Tally()
                self._sweeps._add_run(changed.transcript)

    def _add_run(self, transcript: Transcript) -> None:
        self._runs += 1
        self._turns += len(transcript.turns)
        self._latencies += [turn.duration_ms for turn in transcript.turns]
        for name, model, channels in iter_channels(transcript):
            self._functions[name] = self._functions.get(name, Channels()) + channels
            self._models[model] = self._models.get(model, Channels()) + channels
        self._asked |= dict.fromkeys(turn.model for turn in transcript.turns if turn.model is not None)
        if transcript.usage is not None:
            self._usage = transcript.usage if self._usage is None else self._usage + transcript.usage
        if transcript.cost_usd is not None:
            self._cost = (self._cost or 0.0) + transcript.cost_usd
        cached = [turn for turn in transcript.turns if turn.source == CACHE]
        self._cached_turns += len(cached)
        self._saved_tokens += sum(turn.usage.count_tokens() for turn in cached if turn.usage is not None)
        if transcript.saved_usd is not None:
            self._saved_usd = (self._saved_usd or 0.0) + transcript.saved_usd
        account_features(transcript, self._features)
        if transcript.turns:
            self._without_usage += transcript.usage is None
            self._without_cost += transcript.cost_usd is None

    def to_accounting(self) -> Accounting:
        """Return the sums so far."""
        return Accounting(
            runs=self._runs,
            turns=self._turns,
            calls=sum(self._functions.values(), Channels()),
            functions=dict(self._functions),
            models=dict(self._models),
            usage=None if self._without_usage else self._usage,
            cost_usd=None if self._without_cost else self._cost,
            asked_models=tuple(self._asked),
            without_usage=self._without_usage,
            without_cost=self._without_cost,
            latencies_ms=tuple(sorted(self._latencies)),
            cached_turns=self._cached_turns,
            saved_tokens=self._saved_tokens,
            saved_usd=self._saved_usd,
            features=dict(self._features),
            sweeps=None if self._sweeps is None else self._sweeps.to_accounting(),
        )


def account_features(transcript: Transcript, sums: dict[str, SideUsage] | None = None) -> dict[str, SideUsage]:
    """Add what the models of features took in a run to `sums`, by the names of the features. Return these."""
    sums = {} if sums is None else sums
    for name, feature in iter_known(transcript.features):
        try:
            usage = feature.account(transcript)
        except Exception:
            usage = SideUsage(usage=None, cost_usd=None)  # unknown, which is not zero
        if usage is not None:
            sums[name] = sums.get(name, SideUsage()) + usage
    return sums


def account(run: Run | Iterable[Verdict]) -> Accounting:
    """Add up the usage of a run, or of verdicts."""
    tally = Tally()
    for verdict in run.verdicts if isinstance(run, Run) else run:
        tally.add(verdict)
    return tally.to_accounting()


def iter_channels(transcript: Transcript) -> Iterator[tuple[str, str, Channels]]:
    """Yield for each call of a model its function, its model and how it came.

    A turn's model is what its service calls it, else the one that the run asked for.
    """
    requested_model = (transcript.model or "").partition("?")[0]
    default = requested_model.partition(":")[2] or requested_model or UNNAMED
    models = [turn.model or default for turn in transcript.turns]
    for call in transcript.calls:
        if call.channel in ("native", "text") and not call.is_refused:
            is_of_turn = call.turn is not None and 0 <= call.turn < len(models)
            yield call.name, models[call.turn or 0] if is_of_turn else default, _read_channel(call)
    if not models:
        return
    for turn, model in zip(transcript.turns, models, strict=True):
        if turn.finish_reason == _MALFORMED and not turn.calls:
            yield UNREADABLE, model, Channels(malformed=1)
    for index, request in _find_unanswered(transcript):
        channels = Channels(malformed=1) if request.malformed is not None else Channels(unanswered=1)
        yield request.name, models[index], channels


def _find_unanswered(transcript: Transcript) -> Iterator[tuple[int, ModelCall]]:
    """Yield native calls of the model that no record answers, with the number of their turn.

    A record is one of the same turn, or one that code made.
    """
    calls_by_turn: dict[int | None, list[FunctionCall]] = {}
    for call in transcript.calls:
        if call.is_refused:
            continue
        calls_by_turn.setdefault(call.turn, []).append(call)
    code_calls = calls_by_turn.pop(None, [])
    for index, turn in enumerate(transcript.turns):
        for request in turn.calls:
            answers = calls_by_turn.get(index, []), code_calls
            match = next(
                (
                    (calls, call)
                    for calls in answers
                    for call in calls
                    if (request.name in (call.name, call.requested_name) and call.channel != "text")
                ),
                None,
            )
            if match is not None:
                match[0].remove(match[1])
            else:
                yield index, request


def _read_channel(call: FunctionCall) -> Channels:
    if call.problem == _MALFORMED:
        return Channels(malformed=1)
    if call.channel == "text":
        return Channels(text=1, mended=int(bool(call.repairs)))
    return Channels(native=1)
