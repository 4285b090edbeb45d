"""Agreement of a grader with people: it grades values that people have labelled, and the grades are compared.

Rows of a CSV or JSON-lines file: `criterion` (words, or a mapping with `rubric`), `value`, and `label`, what a person
says of it. Grades are those in the file (`grade`, with its `reason`), else recorded ones beside it, else the grader's.
Each value is graded by a request of its own, like a value of `$judge`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from evalkit.errors import (
    BudgetSpentError,
    EvalkitError,
    Location,
    MissingCassetteError,
    Problem,
    SpecError,
    UsageError,
    did_you_mean,
    format_file_path,
)
from evalkit.features.graders.agreement import Agreement, measure_agreement
from evalkit.features.graders.gate import GraderAgreement
from evalkit.features.graders.grader import Grader, build_grading_request, open_graders
from evalkit.features.graders.grading import ask_grader, build_redactor
from evalkit.features.graders.recorded import describe_grading_request
from evalkit.features.graders.records import OPERATOR, Grade, Grading
from evalkit.features.graders.rubric import Rubric, RubricError, parse_rubric
from evalkit.features.graders.settings import JUDGE_CHECK
from evalkit.hooks import EndedRun
from evalkit.jsonvalue import JsonDict, JsonObject, JsonValue, describe_value
from evalkit.models.cassettes.fingerprint import adopt_draw, compute_fingerprint
from evalkit.models.cassettes.model import Cassette, RecordingProvider, load_cassette
from evalkit.models.cassettes.paths import find_cassette
from evalkit.models.providers.base import Provider
from evalkit.records.settings import DEFAULT_DEADLINE_S, Settings
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.spec.table_files import CsvRows, JsonLinesRows

_REQUIRED = ("criterion", "value", "label")
_RUBRIC_COLUMNS = ("scale", "at_least", "panel", "quote")
_READERS: dict[str, Callable[[str, str], CsvRows | JsonLinesRows]] = {
    ".csv": CsvRows,
    ".jsonl": JsonLinesRows,
    ".ndjson": JsonLinesRows,
}
_WORDS = {
    **dict.fromkeys(("pass", "passed", "met", "true", "yes", "1"), True),
    **dict.fromkeys(("fail", "failed", "not met", "false", "no", "0"), False),
}
_FORM = "pass or fail"


class LabelledValue(Struct, frozen=True):
    """A row: a value, the criterion, and what a person says: a score where there is a scale, else whether it is met.

    `grade` is the recorded one that stands in the file itself.
    """

    location: Location
    name: str
    rubric: Rubric
    value: JsonValue
    label: bool | int
    grade: Grade | None = None

    @property
    def is_met(self) -> bool:
        """True if the criterion is met, as the person says."""
        return self.label if isinstance(self.label, bool) else self.rubric.is_score_enough(self.label)


class GradedValue(Struct, frozen=True):
    """A row with its grading; without a grade, `problem` says why."""

    row: LabelledValue
    grade: Grade | None
    grading: Grading
    problem: str = ""


class CheckOutcome(Struct, frozen=True):
    """The agreement of a grader with people. `scores` is the weighted one of scores, where all rows have one scale."""

    graded: tuple[GradedValue, ...]
    decisions: Agreement
    matrix: tuple[tuple[int, int], tuple[int, int]]  # person: met, not met; in columns the grader
    scores: Agreement | None = None
    score_matrix: tuple[tuple[int, ...], ...] = ()
    scale: tuple[int, int] | None = None

    @property
    def disagreements(self) -> list[GradedValue]:
        """Rows of which the grader decides otherwise than the person."""
        return [graded for graded in self.graded if graded.grade and graded.grade.passed is not graded.row.is_met]

    @property
    def ungraded(self) -> list[GradedValue]:
        """Rows that could not be graded."""
        return [graded for graded in self.graded if graded.grade is None]


# ---- the file ----


def read_labels(path: Path, criterion: str | None = None, *, name: str | None = None) -> list[LabelledValue]:
    """Read the rows; `criterion` is that of rows without one, `name` that of the file in messages.

    Raises SpecError with every problem and its line.
    """
    name = name or path.as_posix()
    open_file = _READERS.get(path.suffix)
    if open_file is None:
        raise UsageError(f"{name}: labels are a file in {', '.join(_READERS)}")
    if not path.is_file():
        raise UsageError(f"{name}: there is no such file")
    rows: list[LabelledValue] = []
    problems: list[Problem] = []
    for scanned in open_file(str(path), name).scan():
        location = Location(name, scanned.line)
        try:
            if scanned.problem:
                raise ValueError(scanned.problem)
            rows.append(_read_row(scanned.values, location, criterion, len(rows) + 1))
        except (ValueError, RubricError) as error:
            problems.append(Problem(location, str(error)))
    if problems:
        raise SpecError(problems)
    if not rows:
        raise UsageError(f"{name}: no row is in it; a row has {', '.join(_REQUIRED)}")
    return rows


def _read_row(values: JsonDict, location: Location, criterion: str | None, number: int) -> LabelledValue:
    words = values.get("criterion") or criterion
    for name in _REQUIRED:
        if name not in values and not (name == "criterion" and words):
            advice = "; or name it for all rows: --criterion" if name == "criterion" else ""
            raise ValueError(f"there is no '{name}'{did_you_mean(name, list(values)) or advice}")
    details = {name: values[name] for name in _RUBRIC_COLUMNS if values.get(name) not in (None, "")}
    rubric = parse_rubric({"rubric": words, **details} if details and isinstance(words, str) else words)
    grade = None
    if values.get("grade") not in (None, ""):
        label = _read_label(values["grade"], rubric, "grade")
        passed = label if isinstance(label, bool) else rubric.is_score_enough(label)
        score = None if isinstance(label, bool) else label
        grade = Grade(criterion=str(rubric.text), passed=passed, score=score, reason=str(values.get("reason") or ""))
    name = str(values.get("id") or number)
    return LabelledValue(location, name, rubric, values["value"], _read_label(values["label"], rubric, "label"), grade)


def _read_label(value: JsonValue, rubric: Rubric, column: str) -> bool | int:
    if rubric.scale is None:
        met = _WORDS.get(str(value).strip().casefold())
        if met is None:
            raise ValueError(f"'{column}' is {_FORM}, got {describe_value(value)}")
        return met
    low, high = rubric.scale
    if type(value) is int and low <= value <= high:
        return value
    raise ValueError(f"'{column}' is a whole number of the scale {rubric.format_scale()}, got {describe_value(value)}")


# ---- grades ----


class RememberedGrades:
    """Answers requests that were recorded before, each recorded turn once; others are for `live`, if there is one."""

    name = "cassette"

    def __init__(
        self, cassette: Cassette | None, live: Provider | None, secrets: tuple[str, ...], next_step: str
    ) -> None:
        self._live = live
        self._secrets = secrets
        self._next_step = next_step
        self._turns: dict[str, deque[ModelTurn]] = {}
        self._draws: list[JsonObject] = []  # what differs in the settings of the recorded requests
        for turn in cassette.turns if cassette is not None else ():
            if turn.request is not None:
                if (draw := {"settings": turn.request.get("settings")}) not in self._draws:
                    self._draws.append(draw)
                self._turns.setdefault(str(turn.request.get("fingerprint")), deque()).append(turn.reply)

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Return the recorded answer, else the live one. Raises MissingCassetteError where there is neither."""
        now = describe_grading_request(request, self._secrets)
        for asked in (now, *(adopt_draw(now, draw) for draw in self._draws)):
            if recorded := self._turns.get(compute_fingerprint(asked)):
                return recorded.popleft()
        if self._live is None:
            raise MissingCassetteError(f"it is not graded, or was graded as something else. {self._next_step}")
        return await self._live.turn(request)

    async def aclose(self) -> None:
        """Do nothing: live providers are shared."""


def build_recording_path(labels: Path) -> Path:
    """Return where the grades of a file of labels are recorded: ``labels.judge.yaml``."""
    return labels.with_name(f"{labels.stem}.judge.yaml")


def open_label_grader(labels: Path, settings: Settings, *, record: bool = False) -> Grader:
    """Open what grades the rows of a file: recorded grades, the grader of `settings`, or both.

    Without `record` a grader that is named grades anew. Raises UsageError where there is nothing to ask.
    """
    path = build_recording_path(labels)
    file = find_cassette(path)
    cassette = load_cassette(file, format_file_path(file, settings.root)) if file is not None else None
    spec, secrets = settings.grader, tuple(settings.extra.get("secrets", ()))
    next_step = f"Grade it: evalkit judge-check {labels} --grader={spec or 'gemini:MODEL'} --record"
    if record and spec is None:
        raise UsageError("--record needs the grader whose grades are recorded: --grader=gemini:MODEL")
    if spec is None:
        name = cassette.model if cassette is not None else None
        provider: Provider = RememberedGrades(cassette, None, secrets, next_step)
        return Grader(labels.as_posix(), provider, name, "recorded" if cassette is not None else None)
    live = open_graders(spec, settings)
    if not record:
        return Grader(labels.as_posix(), live, spec, is_live=True, seed=settings.seed)
    usable = cassette if cassette is not None and cassette.model == spec else None
    remembered = RememberedGrades(usable, live, secrets, next_step)
    recording = RecordingProvider(
        remembered,
        path,
        model=spec,
        display_path=format_file_path(path, settings.root),
        secrets=secrets,
        describe=describe_grading_request,
    )
    return Grader(labels.as_posix(), recording, spec, is_live=True, seed=settings.seed)


async def grade_labels(
    rows: Sequence[LabelledValue], grader: Grader, settings: Settings, *, anew: bool = False
) -> list[GradedValue]:
    """Grade the rows, one after the other; `anew`: those too whose grade stands in the file. Save what is recorded."""
    graded: list[GradedValue] = []
    budget_problem = ""
    for row in rows:
        if row.grade is not None and not anew:
            graded.append(GradedValue(row, row.grade, Grading(place=OPERATOR)))
            continue
        if budget_problem:
            graded.append(GradedValue(row, None, Grading(place=OPERATOR), budget_problem))
            continue
        evidence = {"values": {"1": {"value": row.value}}}
        scope = "the value that has the number of the criterion, and nothing else"
        request = build_grading_request([row.rubric], scope, evidence, build_redactor(settings))
        deadline_s = settings.deadline_s or DEFAULT_DEADLINE_S
        try:
            grading = await ask_grader(grader, request, [row.rubric], OPERATOR, settings, deadline_s)
        except BudgetSpentError as error:
            budget_problem = str(error)
            graded.append(GradedValue(row, None, Grading(place=OPERATOR), budget_problem))
            continue
        problem = grading.fault.message if grading.fault is not None else ""
        graded.append(GradedValue(row, next(iter(grading.grades), None), grading, problem))
    grader.save()
    return graded


# ---- agreement ----


def measure_grader(graded: Sequence[GradedValue]) -> CheckOutcome:
    """Compare the grades with the labels."""
    pairs = [(item.row, item.grade) for item in graded if item.grade is not None]
    matrix = [[0, 0], [0, 0]]
    for row, grade in pairs:
        matrix[not row.is_met][not grade.passed] += 1
    outcome = CheckOutcome(
        tuple(graded),
        measure_agreement(matrix),
        ((matrix[0][0], matrix[0][1]), (matrix[1][0], matrix[1][1])),
    )
    scales = {row.rubric.scale for row, _ in pairs}
    scale = scales.pop() if len(scales) == 1 else None
    if scale is None:
        return outcome
    low, high = scale
    size = high - low + 1
    scores = [[0] * size for _ in range(size)]
    for row, grade in pairs:
        if grade.score is not None:
            scores[int(row.label) - low][grade.score - low] += 1
    return replace(
        outcome,
        scores=measure_agreement(scores, is_scale=True),
        score_matrix=tuple(map(tuple, scores)),
        scale=scale,
    )


def measure_by_criterion(graded: Sequence[GradedValue]) -> Iterator[tuple[str, CheckOutcome]]:
    """Yield the agreement for each criterion."""
    by_criterion: dict[str, list[GradedValue]] = {}
    for item in graded:
        by_criterion.setdefault(str(item.row.rubric.text), []).append(item)
    for criterion, members in by_criterion.items():
        yield criterion, measure_grader(members)


def find_obstacles(outcome: CheckOutcome) -> list[str]:
    """Say why the agreement was not measured."""
    obstacles = []
    if outcome.ungraded:
        obstacles.append(f"{len(outcome.ungraded)} of {len(outcome.graded)} values were not graded")
    if outcome.decisions.kappa is None and outcome.decisions.items:
        obstacles.append("person and grader gave all values the same grade, of which kappa says nothing: label others")
    return obstacles


def measure(run: EndedRun) -> JsonDict | None:
    """Return the agreement of the graders of a run with people, as JSON data; None where none is demanded."""
    labels = (run.options.get(JUDGE_CHECK) or {}).get("labels")
    if labels is None or (run.policy.min_kappa is None and run.policy.min_kappa_low is None):
        return None
    data: JsonDict = to_builtins(measure_recorded_agreement(labels, run.settings))
    return data


def measure_recorded_agreement(labels: str, settings: Settings) -> GraderAgreement:
    """Measure how far the grader whose grades of `labels` are recorded agrees with people. Asks nobody.

    A grade counts only if the same request would be sent now: the same instruction, criterion and value.
    """
    path = (settings.root or Path.cwd()) / labels
    settings = replace(settings, grader=None, record=None)
    try:
        rows = read_labels(path, name=labels)
        if any(row.grade is not None for row in rows):
            return GraderAgreement(labels=labels, problem=f"grades stand in {labels} itself, and may be anybody's")
        grader = open_label_grader(path, settings)
        graded = asyncio.run(grade_labels(rows, grader, settings))
    except EvalkitError as error:
        return GraderAgreement(labels=labels, problem=str(error).partition("\n")[0])
    outcome = measure_grader(graded)
    decisions, obstacles = outcome.decisions, find_obstacles(outcome)
    return GraderAgreement(
        labels=labels,
        grader=grader.name or "",
        criteria=tuple(dict.fromkeys(row.rubric.describe() for row in rows)),
        items=decisions.items,
        kappa=decisions.kappa,
        low=decisions.low,
        problem=obstacles[0] if obstacles else "",
    )


def find_shortfalls(outcome: CheckOutcome, demands: Mapping[str, float]) -> list[str]:
    """Say which demands are missed: `min_kappa`, and `min_kappa_low` of the lower end of the interval."""
    decisions, missed = outcome.decisions, []
    for name, value, words in (
        ("min_kappa", decisions.kappa, "kappa"),
        ("min_kappa_low", decisions.low, "the lower end of kappa's interval"),
    ):
        if name in demands and value is not None and value < demands[name]:
            missed.append(f"{words} is {value:.2f}, at least {demands[name]:g} is demanded")
    return missed
