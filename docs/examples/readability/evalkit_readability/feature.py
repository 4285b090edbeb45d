"""The feature: how its keys are read, its agents, how a run is judged by it, what is said at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evalkit.api import (
    AgentForm,
    AgentRequest,
    AgentUnderTest,
    CaseDraft,
    CaseKey,
    CasePart,
    CaseReader,
    CaseReport,
    Feature,
    JudgedRun,
    Operator,
    Options,
    PartJudgement,
    SessionPart,
    Summary,
    build_agent,
    build_failure,
    build_pass,
)
from evalkit.entries import CASE, VALUE, Place
from evalkit.hosts.lint.api import RuleFamily
from evalkit.hosts.reports.api import ReportFile
from evalkit_readability import lint
from evalkit_readability.operator import OPERATOR
from evalkit_readability.report import render_sentences
from evalkit_readability.sentences import count_words, find_longest

KEY = "readability"
LIMIT = "max_words"
ROW = CaseKey(
    CaseReader.read_mapping,
    {
        "type": "object",
        "properties": {LIMIT: {"type": "integer", "minimum": 1}},
        "required": [LIMIT],
        "additionalProperties": False,
    },
    "How long sentences of the reply may be: `{max_words: 20}`.",
)
FORM = AgentForm(keys={"says": CaseKey(CaseReader.read_text, {"type": "string"}, "What the agent says, each time.")})


class CaseReadability(CasePart, frozen=True):
    """What a case says: the most words that a sentence of its reply may have."""

    max_words: int

    def judge(self, run: JudgedRun) -> PartJudgement:
        longest = find_longest(run.transcript.response)
        words = count_words(longest)
        if words <= self.max_words:
            result = build_pass(KEY, f"{words} words in the longest sentence")
        else:
            message = f"a sentence has {words} words, more than {self.max_words}: {longest}"
            result = build_failure(KEY, "long_sentence", message, f"{KEY}.{LIMIT}")
        return PartJudgement(results=(result,), data={"longest": words})


class Readability(Feature):
    """Replies in short sentences."""

    name = KEY
    verdict_data = dict[str, int]

    def list_keys(self) -> Mapping[Place, Mapping[str, CaseKey | Operator]]:
        return {CASE: {KEY: ROW}, VALUE: {OPERATOR.name: OPERATOR}}

    def list_rules(self) -> RuleFamily:
        return lint.FAMILY

    def configure(self, options: Options) -> SessionPart:
        return ReportFile(options.read("sentences"), render_sentences, title="the list of sentences", label="sentences")

    def list_agent_forms(self) -> Mapping[str, AgentForm]:
        return {"says": FORM}

    def build_agent(self, request: AgentRequest) -> AgentUnderTest:
        text = request.form["says"]
        return build_agent(f"says '{text}'", lambda task: text)

    def compile(self, draft: CaseDraft) -> CasePart | None:
        keys = draft.data[KEY] or {}
        draft.reader.check_keys((KEY,), keys, (LIMIT,))
        limit = draft.reader.read_count((KEY, LIMIT), keys.get(LIMIT))
        return None if limit is None else CaseReadability(limit)

    def add_up(self, runs: Sequence[Any]) -> int:
        longest: int = max(run["longest"] for run in runs)
        return longest

    def summarize(self, outcomes: Sequence[tuple[str, Any]], is_whole: bool) -> Summary:
        case_id, words = max(outcomes, key=lambda outcome: outcome[1])
        return Summary(notes=(f"the longest sentence has {words} words: {case_id}",), facts={"longest": words})

    def report_case(self, data: Any) -> CaseReport:
        return CaseReport(properties=(("evalkit_longest_sentence", str(data["longest"])),))
