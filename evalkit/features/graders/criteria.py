"""`judge`: criteria in words, which a model grades after the run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from evalkit.checks.absence import Demand
from evalkit.checks.evidence import Evidence
from evalkit.checks.expected_key import ExpectationDraft, ExpectedKey
from evalkit.checks.key_schemas import NAME as NAME_SCHEMA
from evalkit.checks.key_schemas import make_ref
from evalkit.checks.reader import ExpectationReader, check_references
from evalkit.checks.reasons import build_failure, build_reason, build_unmeasured, escape_surrogates
from evalkit.errors import KeyPath, format_path
from evalkit.features.graders.records import CODE, KEY, Grade, Grading
from evalkit.features.graders.rubric import RUBRIC_KEYS, Rubric, RubricError, parse_rubric
from evalkit.features.graders.values import GradeBook, OpenCriteria
from evalkit.features.graders.words import describe_criterion, describe_grade, describe_grader
from evalkit.jsonvalue import JsonDict, JsonObject
from evalkit.operators.base import Resolve
from evalkit.operators.late import quote_value
from evalkit.records.template import Reference, TemplateError, parse_template
from evalkit.records.verdict import FAILED, CheckResult


class JudgeCriteria(Demand, Struct, frozen=True):
    """`judge`: criteria in words, which a model grades after the run. Here its grades become results.

    Nothing here asks a model: `grading` does, and puts the grades into the transcript. A criterion without a grade is
    an error, never a pass. Criteria are words of the case's author. The values of templates in them are not: they are
    inserted as JSON, so that they can only be quoted text. `is_list`: each criterion has a place of its own.
    """

    criteria: tuple[Rubric, ...]
    path: KeyPath
    is_list: bool = True

    key = KEY
    is_late = True

    @property
    def user_turn(self) -> int | None:
        """The user turn up to which the run is graded; None: the whole of it."""
        return int(self.path[2]) if self.path[:2] == ("input", "turns") else None

    def judge(self, evidence: Evidence) -> list[CheckResult]:
        """Build a result for each criterion, or one that says why there are no grades."""
        place = format_path(self.path)
        book = GradeBook.get_current()
        grading = None if book is None else book.find_grading(place)
        if grading is None and book is not None:
            book.open_criteria.append(self._ask(evidence))
            return book.build_ungraded(self.criteria, place, evidence.mode)
        if grading is not None and grading.fault is not None:
            fault = grading.fault
            if fault.measured:
                return [build_failure(self.key, fault.code, f"{self.key}: {fault.message}", place)]
            return [build_unmeasured(self.key, f"can't be graded: {fault.message}", place, "run", fault.code)]
        # The values of templates are not known here, and not compared.
        if (
            grading is None
            or len(grading.grades) != len(self.criteria)
            or not all(map(is_grade_of, grading.grades, self.criteria))
        ):
            return [build_unmeasured(self.key, "can't be judged: no model has graded it", place, "run")]
        return [self._build_result(number, grade, grading) for number, grade in enumerate(grading.grades)]

    def _ask(self, evidence: Evidence) -> OpenCriteria:
        place = format_path(self.path)
        try:
            return OpenCriteria(place, self.render(evidence.resolve), self.user_turn)
        except TemplateError as error:
            return OpenCriteria(place, (), self.user_turn, str(error))

    def _build_result(self, number: int, grade: Grade, grading: Grading) -> CheckResult:
        grader = describe_grader(grading)
        words, explanation = describe_criterion(grade, self.criteria[number]), describe_grade(grade)
        # Reasons get the number of the user turn where the turns are judged, this message gets it here.
        turn = "" if self.user_turn is None else f"user turn {self.user_turn + 1}: "
        message = escape_surrogates(f"{turn}{words}{explanation}")
        if grade.passed:
            return CheckResult(check=self.key, message=message, note=grader)
        place = format_path((*self.path, number) if self.is_list else self.path)
        failure = f"{self.key}: not met: {words} ({grader}){explanation}"
        reason = build_reason(CODE, failure, place, expected=grade.criterion, actual=grade.reason)
        return CheckResult(check=self.key, status=FAILED, message=message, reasons=(reason,), note=grader)

    def render(self, resolve: Resolve) -> tuple[Rubric, ...]:
        """Return the criteria as the model gets them. Raises TemplateError for a reference that leads nowhere."""

        def render_part(part: str | Reference) -> str:
            return part if isinstance(part, str) else quote_value(resolve(part))

        return tuple(
            rubric
            if isinstance(rubric.text, str)
            else replace(rubric, text="".join(map(render_part, rubric.text.parts)))
            for rubric in self.criteria
        )


def is_grade_of(grade: Grade, rubric: Rubric) -> bool:
    """Return whether a grade was given to this criterion. The values of templates are not known here, nor compared."""
    if not isinstance(rubric.text, str):
        return True
    data = rubric.to_data()
    return grade.criterion == rubric.text and grade.rubric == (None if isinstance(data, str) else data)


def read_criteria(reader: ExpectationReader, path: KeyPath, value: object) -> JudgeCriteria | None:
    """Read a criterion, or a list of them. A mapping without `rubric` is words with a colon that nobody quoted."""
    is_list = isinstance(value, list)
    items = value if isinstance(value, list) else [value]
    criteria: list[Rubric] = []
    for index, item in enumerate(items):
        at = (*path, index) if is_list else path
        if isinstance(item, dict) and item and not item.keys() & set(RUBRIC_KEYS):  # tone: it is friendly
            data: object = "; ".join(
                f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
                for key, value in item.items()
            )
        elif (isinstance(item, dict) and item) or (isinstance(item, str) and item.strip()):
            data = item
        else:
            reader.report_wrong(at, item, "a criterion in words, or a mapping")
            continue
        check_references(reader, at, item)
        try:
            rubric = parse_rubric(data)
            text = parse_template(rubric.text) if isinstance(rubric.text, str) else rubric.text
            criteria.append(replace(rubric, text=text))
        except RubricError as error:
            reader.add_problem((*at, *error.path), f"{reader.format_place(at)}: {error}", at_key=error.at_key)
        except TemplateError as error:
            reader.add_problem(at, f"{reader.format_place(at)}: {error}")
    if not items:
        reader.report_empty_list(path, "list a criterion")
    return JudgeCriteria(tuple(criteria), path, is_list) if criteria else None


CRITERION: JsonDict = {
    "description": "A criterion in words; as a mapping with a scale, the rule of a panel, a quote that is wanted.",
    "oneOf": [
        NAME_SCHEMA,
        {
            "type": "object",
            "properties": {
                "rubric": {**NAME_SCHEMA, "description": "What is graded, in words."},
                "scale": {
                    "description": "Scores from the first number to the second, such as `1..5`.",
                    "oneOf": [
                        {"type": "string", "pattern": r"^\s*-?\d+\s*\.\.\s*-?\d+\s*$"},
                        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
                    ],
                },
                "at_least": {"type": "integer", "description": "The least score that meets the criterion."},
                "panel": {
                    "enum": ["majority", "all"],
                    "description": "How many of several graders must say that it is met.",
                },
                "quote": {"type": "boolean", "description": "A grade has to quote what decided."},
            },
            "required": ["rubric"],
            "additionalProperties": False,
            "dependentRequired": {"scale": ["at_least"], "at_least": ["scale"]},
        },
        {"type": "object", "propertyNames": {"not": {"enum": list(RUBRIC_KEYS)}}, "minProperties": 1},
    ],
}


class JudgeKey(ExpectedKey):
    """`judge`."""

    name = KEY
    schema: Mapping[str, Any] = {
        "oneOf": [make_ref("criterion"), {"type": "array", "items": make_ref("criterion"), "minItems": 1}]
    }
    doc = "Criteria in words: once all else holds, a model grades each (`--evalkit-grader`), or its recorded grades do."
    definitions: Mapping[str, JsonObject] = {"criterion": CRITERION}
    looks_at_response = True
    is_late = True

    def read(self, draft: ExpectationDraft, path: KeyPath, value: Any) -> JudgeCriteria | None:
        return read_criteria(draft.reader, path, value)

    def explain_open(self, result: CheckResult) -> str:
        return result.message.removeprefix("not judged: ")


KEYS = (JudgeKey(),)
