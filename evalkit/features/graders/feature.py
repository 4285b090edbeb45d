"""The hooks of graders. What asks a model is imported when one is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from evalkit.checks.expected_key import ExpectedKey
from evalkit.features.graders.criteria import JudgeKey
from evalkit.features.graders.records import NAME, OPERATOR, Gradings
from evalkit.features.graders.values import JUDGE_OPERATOR
from evalkit.hooks import EXPECTED, VALUE, EndedRun, Feature, GateFinding, OpenRun, Place, RunReport
from evalkit.jsonvalue import JsonDict
from evalkit.lazy import LazyModule
from evalkit.operators.base import Operator
from evalkit.records.settings import Settings
from evalkit.records.transcript import Transcript
from evalkit.stats.accounting import SideUsage

if TYPE_CHECKING:
    from evalkit.features.graders import gate, grader, grading, labels, lint, results
    from evalkit.features.graders import settings as settings_of_graders
    from evalkit.gate.outcomes import GateEvidence
    from evalkit.hosts.lint.api import RuleFamily
else:
    gate = LazyModule("evalkit.features.graders.gate")
    grader = LazyModule("evalkit.features.graders.grader")
    grading = LazyModule("evalkit.features.graders.grading")
    labels = LazyModule("evalkit.features.graders.labels")
    lint = LazyModule("evalkit.features.graders.lint")
    results = LazyModule("evalkit.features.graders.results")
    settings_of_graders = LazyModule("evalkit.features.graders.settings")


class Graders(Feature):
    """Models that say whether criteria in words are met."""

    name = NAME
    transcript_data = Gradings
    about_mutants = "no criterion of judge was graded anew, and none could catch one"

    def list_keys(self) -> Mapping[Place, Mapping[str, ExpectedKey | Operator]]:
        return {EXPECTED: {JudgeKey.name: JudgeKey()}, VALUE: {OPERATOR: JUDGE_OPERATOR}}

    def list_rules(self) -> RuleFamily:
        return lint.FAMILY

    def read_setting(self, key: str, value: object) -> Any:
        return settings_of_graders.read_setting(key, value)

    def read_demands(self, options: Mapping[str, Any]) -> JsonDict:
        return settings_of_graders.read_demands(options.get(settings_of_graders.JUDGE_CHECK))

    def describe_models(self, settings: Settings) -> str:
        return f"{(settings.grader or '').partition('?')[0]} grades what has no recorded grade"

    def check_models(self, settings: Settings) -> None:
        grader.check_graders(settings.grader, settings)

    async def grade(self, run: OpenRun) -> Transcript:
        return await grading.grade_run(run)

    def account(self, transcript: Transcript) -> SideUsage | None:
        return results.account(transcript)

    def describe_usage(self, total: SideUsage) -> str:
        return results.describe_usage(total)

    def report_run(self, transcript: Transcript) -> RunReport | None:
        return results.report_run(transcript)

    def add_up(self, runs: Sequence[Any]) -> Any:
        return gate.add_up(runs)

    def measure(self, run: EndedRun) -> JsonDict | None:
        return labels.measure(run)

    def decide(self, evidence: GateEvidence) -> Iterator[GateFinding]:
        return gate.decide(evidence)
