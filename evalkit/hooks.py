"""The extension points: what a feature may do, when it is asked, and the list of features.

A feature is a class derived from `Feature`. Its methods are its hooks: each has a default that does nothing, gets what
its parameters say, and returns records. `BUILT_IN` says of each feature what may ask for it (a key, a file, an option),
so that none is imported before. Packages of others stand in the entry points of the group `evalkit.features`, each an
`Entry`. Later versions add fields to the records that hooks get and return, never parameters.

Two things are asked once for each case, and so go by no list of plugins: the case carries its `CasePart`s, a run its
`RunPart`s. A case without features pays for none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from evalkit.errors import FeatureError, UsageError, did_you_mean
from evalkit.lazy import load
from evalkit.locks import create_lock

if TYPE_CHECKING:
    from evalkit.checks.expectation import Expectation
    from evalkit.errors import EvalkitError, Problem
    from evalkit.fields.reader import FieldReader
    from evalkit.functions.call_log import CallLog, PendingCall
    from evalkit.functions.mocks.answers import MockSet
    from evalkit.hosts.lint.api import RuleFamily
    from evalkit.jsonvalue import JsonDict
    from evalkit.records.case import Case, Declaration
    from evalkit.records.transcript import FunctionCall, Transcript
    from evalkit.records.verdict import CheckResult

GROUP = "evalkit.features"

# Facts of the gate itself, beside which those of features stand by their names.
FACTS = frozenset({"collected", "selected", "passed", "failed", "errors", "no_verdict", "skipped", "quarantined",
    "reasons", "pass_rate", "notes", "interval", "side_by_side", "changes", "how_sure"})  # fmt: skip
# Where keys stand.
Place = Literal["case", "input", "expected_output", "call", "function"]
CASE: Final = "case"
INPUT: Final = "input"
EXPECTED: Final = "expected_output"
CALL: Final = "call"
FUNCTION: Final = "function"


class Entry(Struct, frozen=True, kw_only=True):
    """What must be known of a feature before it is imported. A test compares it with what the feature says."""

    name: str
    target: str  # "module:Class"
    keys: Mapping[Place, tuple[str, ...]] = field(default_factory=dict)
    own_keys: tuple[str, ...] = ()  # those of a case that neither a suite nor `extends` hands down
    file: str = ""  # a file that holds in its folder and below
    misnamed: str = ""  # a pattern of names that are meant to be `file`
    file_advice: str = ""
    has_rules: bool = False  # of lint
    mutants: tuple[str, ...] = ()  # kinds
    has_schemas: tuple[str, ...] = ()  # kinds of `evalkit schema`
    was: Mapping[str, str] = field(default_factory=dict)  # fields of records that held its data before version 2


BUILT_IN = (
    Entry(
        name="policies",
        target="evalkit.features.policies.feature:Policies",
        keys={CASE: ("policies",)},
        own_keys=("policies",),
        file="policies.yaml",
        misnamed=r"polic(?:y|ies)\.ya?ml",
        file_advice="the rules over a suite's cases stand in policies.yaml",
        has_rules=True,
        has_schemas=("policies",),
        was={"verdict": "policies"},
    ),
    Entry(
        name="approvals",
        target="evalkit.features.approvals.feature:Approvals",
        keys={
            INPUT: ("approvals",),
            CALL: ("approval",),
            EXPECTED: ("expected_approvals",),
            FUNCTION: ("needs_approval",),
        },
        mutants=("deny_approval", "skip_approval"),
        was={"call": "approval"},
    ),
)


# ---- what a feature gets and returns ----


class Inherited(Struct, frozen=True):
    """What the files of a feature say that hold in a folder, and the problems of the files."""

    value: object = None
    problems: tuple[Problem, ...] = ()


class CaseDraft(Struct, frozen=True, kw_only=True):
    """A case that is being compiled. `reader` takes the problems."""

    reader: FieldReader
    data: Mapping[str, Any]
    declarations: Mapping[str, Declaration]
    mocks: MockSet | None
    inherited: Any = None  # the value of `Inherited`
    is_untrusted: bool = False


class JudgedRun(Struct, frozen=True, kw_only=True):
    """A run that is being judged: what happened, and the names of functions by their aliases."""

    case: Case
    transcript: Transcript
    aliases: Mapping[str, str]


class PartJudgement(Struct, frozen=True, kw_only=True):
    """What a feature says of a run: results, which fail it or leave it unmeasured, and JSON data for the verdict."""

    results: tuple[CheckResult, ...] = ()
    data: Any = None


class Forecast(Struct, frozen=True, kw_only=True):
    """The expected calls as if they had been made, before anything runs (`evalkit smoke`)."""

    judged: JudgedRun
    is_open: bool  # a run may make other calls
    is_guessed: bool  # some arguments are made up
    user_is_simulated: bool
    report: Callable[[str, str, int | None], None]  # code, message, index of the call
    note: Callable[[str], None]  # what can't be checked


class Table(Struct, frozen=True):
    """A table of a report: `alignments` are those of Markdown, "" or ":" at the end."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[int] = frozenset()  # columns to the right


class Summary(Struct, frozen=True, kw_only=True):
    """What a feature says at the end of a run: lines beside the gate's reasons, facts for machines."""

    notes: tuple[str, ...] = ()
    facts: Any = None


class CaseReport(Struct, frozen=True, kw_only=True):
    """What reports say of a case: lines below its trace, properties for JUnit files."""

    remarks: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()


# ---- parts of a case and of a run ----


class CasePart(Struct, frozen=True):
    """What a feature has compiled for a case. Picklable; its methods are called for this case alone."""

    judges_unmeasured: ClassVar[bool] = False  # `judge` is asked of runs that could not be measured, too

    def start(self, log: CallLog) -> RunPart | None:
        """A run begins: return what takes part in it."""
        return None

    def judge(self, run: JudgedRun) -> PartJudgement | None:
        """A run is over, and the checks of `expected_output` have been made. An exception is an error of the case."""
        return None

    def is_current(self, data: Any) -> bool:
        """Return whether a verdict with this `data` would be the same now: `--evalkit-resume`."""
        return True

    def list_call_keys(self, function: str) -> set[str]:
        """Return the keys by which it tells calls of `function` apart: `result_contains`, `approval`, ..."""
        return set()

    def looks_at_arguments(self) -> bool:
        """Return whether it depends on more of calls than their names and outcomes."""
        return False

    def forecast(self, forecast: Forecast) -> None:
        """Report what the expected calls can't keep."""


class RunPart:
    """The part of a feature in one run. Called under the lock of the call log."""

    feature: ClassVar[str]

    def answer(self, call: PendingCall) -> EvalkitError | None:
        """A call is about to be answered by its mock. Change it if need be; return the error that it gets instead."""
        return None

    def finish(self, transcript: Transcript, expectations: Sequence[Expectation | None]) -> Transcript:
        """The run is over: return its record, as it is to be judged."""
        return transcript

    def find_unused(self) -> Iterable[str]:
        """Word a sentence for each entry of the case that no call used."""
        return ()


# ---- the hooks ----


class Feature:
    """The base of features."""

    name: ClassVar[str]
    # What its data in records must be, as msgspec takes types: run files are checked by it when they are read.
    verdict_data: ClassVar[Any] = Any
    call_data: ClassVar[Any] = Any

    # Once, when something asks for it

    def list_keys(self) -> Mapping[Place, Mapping[str, Any]]:
        """Return its keys by place: a `CaseKey` at `CASE`, `INPUT` and `FUNCTION`, an `ExpectedKey`, a `CallKey`."""
        return {}

    def list_definitions(self) -> Mapping[str, JsonDict]:
        """Return what the schemas of its keys refer to, by name."""
        return {}

    def list_schemas(self) -> Mapping[str, Callable[[Iterable[str]], JsonDict]]:
        """Return what `evalkit schema KIND` prints, by kind; the functions get the names of a project's operators."""
        return {}

    def list_rules(self) -> RuleFamily:
        """Return its rules of lint. Its entry says `has_rules`."""
        raise NotImplementedError

    # For each case that has something of it

    def inherit(self, folder: str, root: str) -> Inherited:
        """Read the feature's files that hold in `folder`."""
        return Inherited()

    def compile(self, draft: CaseDraft) -> CasePart | None:
        """Compile what the case says, or its folder; None if there is nothing."""
        return None

    def start_late(self, log: CallLog) -> RunPart | None:
        """Take part in a run of a case that says nothing, where a declaration or an adapter asks for it."""
        return None

    # At the end. `data` is what `PartJudgement.data` was, as JSON

    def add_up(self, runs: Sequence[Any]) -> Any:
        """Return the data of a case from those of its runs: what is kept of it until the end."""
        return None

    def summarize(self, outcomes: Sequence[tuple[str, Any]], is_whole: bool) -> Summary | None:
        """Sum up the cases, each its id and what `add_up` returned. `is_whole`: no case was left out."""
        return None

    def build_table(self, facts: Any) -> Table | None:
        """Return the table for reports of what `summarize` returned as facts."""
        return None

    def report_case(self, data: Any) -> CaseReport | None:
        """Return what reports say of one verdict."""
        return None

    def report_call(self, call: FunctionCall) -> str:
        """Return what a trace says of one call, in brackets: ``approval: denied``."""
        return ""

    def trace_call(self, call: FunctionCall) -> Mapping[str, str]:
        """Return the attributes of a call's span."""
        return {}

    # Tests of cases

    def list_mutants(self) -> Mapping[str, str]:
        """Return the kinds of its mutants, each with what happens in them."""
        return {}

    def mutate(self, transcript: Transcript, index: int) -> Iterator[Any]:
        """Yield the mutants of call number `index`."""
        return iter(())


# ---- the list of features, and loading ----


class FeatureList(Struct, frozen=True):
    """The features of this environment in their order, the package of each, and which has a key."""

    entries: tuple[Entry, ...]
    packages: Mapping[str, str]  # by name of a feature
    owners: Mapping[tuple[Place, str], str]  # by place and key: name of a feature

    @classmethod
    def build(cls, found: Iterable[tuple[Entry, str]]) -> FeatureList:
        """Build the list of entries, each with its package. UsageError where two claim the same."""
        packages: dict[str, str] = {}
        owners: dict[tuple[Place, str], str] = {}
        entries = []
        for entry, package in found:
            if entry.name in FACTS:
                raise UsageError(f"{package} has a feature '{entry.name}', as a fact of the gate is named; rename it")
            if entry.name in packages:
                raise UsageError(f"{packages[entry.name]} and {package} both have a feature '{entry.name}'")
            packages[entry.name] = package
            for place, keys in entry.keys.items():
                for key in keys:
                    other = owners.setdefault((place, key), entry.name)
                    if other != entry.name:
                        raise UsageError(
                            f"{packages[other]} (feature '{other}') and {package} (feature '{entry.name}') both have "
                            f"the key '{key}' of {place}; uninstall one of them"
                        )
            entries.append(entry)
        return cls(tuple(entries), packages, owners)


_LOADED: dict[str, Feature] = {}
_LOCK = create_lock()


@cache
def get_built_in() -> FeatureList:
    """Return the features of evalkit itself."""
    return FeatureList.build((entry, "evalkit") for entry in BUILT_IN)


@cache
def get_features() -> FeatureList:
    """Return all features, those of other packages after the built-in ones. UsageError for entries that don't go.

    This looks through all packages that are installed: what asks for a built-in feature does without it.
    """
    from importlib.metadata import entry_points

    found = [(entry, "evalkit") for entry in BUILT_IN]
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        package = "?" if point.dist is None else point.dist.name
        try:
            entry = point.load()
        except Exception as error:
            message = f"the feature '{point.name}' of {package} can't be loaded: {type(error).__name__}: {error}"
            raise UsageError(message) from error
        if not isinstance(entry, Entry):
            raise UsageError(f"the entry point '{point.name}' of {package} is not an Entry of evalkit.hooks: {entry!r}")
        found.append((entry, package))
    return FeatureList.build(found)


def list_entries() -> tuple[Entry, ...]:
    """Return what is known of all features without importing them."""
    return get_features().entries


def find_entry(name: str) -> tuple[Entry, str] | None:
    """Return what is known of a feature, and its package; None if it is not installed."""
    for features in (get_built_in, get_features):
        if name in features().packages:
            return next(entry for entry in features().entries if entry.name == name), features().packages[name]
    return None


def load_feature(name: str) -> Feature:
    """Return a feature, imported if need be. KeyError for one that is not installed; FeatureError if it does not load.

    What does not belong to a feature, or not to its entry, is refused: nothing would ever ask for it.
    """
    feature = _LOADED.get(name)
    if feature is not None:
        return feature
    found = find_entry(name)
    if found is None:
        raise KeyError(name)
    entry, package = found
    module, _, attribute = entry.target.partition(":")
    try:
        cls: type[Feature] = getattr(load(module), attribute)
        feature = cls()
        _check_feature(feature, entry)
    except Exception as error:
        raise FeatureError(name, package, error) from error
    with _LOCK:
        return _LOADED.setdefault(name, feature)


def _check_feature(feature: Feature, entry: Entry) -> None:
    """Raise TypeError for a method that is not a hook, and for keys that differ from those of the entry."""
    for name in (name for cls in type(feature).__mro__ if cls not in (Feature, object) for name in vars(cls)):
        if not name.startswith("_") and not hasattr(Feature, name) and name != "name":
            raise TypeError(f"'{name}' is not a hook{did_you_mean(name, dir(Feature))}")
    keys = {place: tuple(rows) for place, rows in feature.list_keys().items()}
    if keys != dict(entry.keys):
        raise TypeError(f"its class has the keys {keys}, and its entry {dict(entry.keys)}")


def list_keys(place: Place) -> list[str]:
    """Return the names of the keys that features have at `place`."""
    return [key for at, key in get_features().owners if at == place]


def find_owner(place: Place, key: object) -> str | None:
    """Return the name of the feature that has this key."""
    if not isinstance(key, str):
        return None
    owner = get_built_in().owners.get((place, key))
    return get_features().owners.get((place, key)) if owner is None else owner


def find_key(place: Place, key: object) -> Any:
    """Return the key of a feature, which is loaded for it; None if no feature has it."""
    owner = find_owner(place, key)
    return None if owner is None else load_feature(owner).list_keys()[place][str(key)]


@cache
def list_own_keys() -> frozenset[str]:
    """Return the keys of a case that are never handed down."""
    return frozenset(key for entry in list_entries() for key in entry.own_keys)


@cache
def list_files() -> tuple[Entry, ...]:
    """Return the features that have files."""
    return tuple(entry for entry in list_entries() if entry.file)


def list_schemas() -> list[str]:
    """Return the kinds of files of features that have a schema."""
    return [kind for entry in list_entries() for kind in entry.has_schemas]


def find_schema(kind: str) -> Callable[[Iterable[str]], JsonDict] | None:
    """Return what builds the schema of a kind of file; None if no feature has it."""
    owner = next((entry.name for entry in list_entries() if kind in entry.has_schemas), None)
    return None if owner is None else load_feature(owner).list_schemas()[kind]


def load_all() -> list[Feature]:
    """Load every feature: for schemas, the reference, and lists of rules."""
    return [load_feature(entry.name) for entry in list_entries()]


def iter_known(names: Iterable[str]) -> Iterator[tuple[str, Feature]]:
    """Yield the features of these names, in the order of the list. Data of one that is not installed is left alone."""
    wanted = set(names)
    if not wanted:
        return
    features = get_built_in() if wanted <= get_built_in().packages.keys() else get_features()
    for entry in features.entries:
        if entry.name in wanted:
            yield entry.name, load_feature(entry.name)


def inherit(name: str, folder: str, root: str) -> Inherited:
    """Read the files of a feature that hold in `folder`. FeatureError where it raises."""
    feature = load_feature(name)
    try:
        return feature.inherit(folder, root)
    except Exception as error:
        raise FeatureError(name, get_features().packages[name], error) from error


def compile_parts(draft: CaseDraft, inherited: Mapping[str, Inherited]) -> dict[str, CasePart]:
    """Compile what features have to do with a case: those whose keys it has, or whose files hold in its folder.

    FeatureError where one raises.
    """
    case_input = draft.data.get("input")
    owners = {find_owner(CASE, key) for key in draft.data} | set(inherited)
    owners |= {find_owner(INPUT, key) for key in (case_input if isinstance(case_input, Mapping) else ())}
    parts = {}
    for name, feature in iter_known(name for name in owners if name is not None):
        value = inherited[name].value if name in inherited else None
        try:
            part = feature.compile(replace(draft, inherited=value))
        except Exception as error:
            raise FeatureError(name, get_features().packages[name], error) from error
        if part is not None:
            parts[name] = part
    return parts
