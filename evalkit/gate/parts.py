"""Parts of a run: cases whose ids end in the same label, ``[agent=b]``, since a feature runs each case several times.

Each part is judged by the rules of the gate on its own, so that a good one hides no bad one. The first is the
reference: it is the baseline of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from evalkit.errors import FeatureError
from evalkit.gate.outcomes import CaseOutcome, GateEvidence, count_outcomes
from evalkit.hooks import Comparison, GateFinding, compare_parts, list_dividing
from evalkit.jsonvalue import JsonObject
from evalkit.records.case import split_variant
from evalkit.records.run import NOT_MEASURED


def read_labels(metadata: JsonObject) -> tuple[str, ...]:
    """Return the labels of a run's parts, the reference first; nothing for a run that has no parts."""
    listed = next((metadata[name] for name in list_dividing() if name in metadata), None)
    entries = listed if isinstance(listed, (list, tuple)) else ()
    labels = (entry.get("label") for entry in entries if isinstance(entry, Mapping))
    return tuple(label for label in labels if isinstance(label, str) and label)


def split_evidence(evidence: GateEvidence, labels: Sequence[str]) -> list[GateEvidence]:
    """Return the evidence on each part, the reference first, and on cases that are in none; without parts, all of it.

    The baseline of the reference is that of the run, whose cases may have no labels; that of the others is the
    reference.
    """
    ids_by_label: dict[str, list[str]] = {}
    for case_id in evidence.selected:
        ids_by_label.setdefault(split_variant(case_id)[1], []).append(case_id)
    if not any(ids_by_label):
        return [evidence]
    ordered = [label for label in dict.fromkeys((*labels, *filter(None, ids_by_label))) if label in ids_by_label]
    reference = labels[0] if labels else ordered[0]
    parts = []
    for label in (*ordered, *([""] if "" in ids_by_label else [])):
        ids = ids_by_label[label]
        baseline, source = evidence.baseline, evidence.baseline_place
        if label not in ("", reference):
            baseline, source = rename_label(evidence.outcomes, reference, label), f"with {reference}"
        elif label and baseline is not None:
            baseline = {**rename_label(baseline, "", label), **rename_label(baseline, label, label)}
        parts.append(
            replace(
                evidence,
                selected=tuple(ids),
                outcomes={case_id: evidence.outcomes[case_id] for case_id in ids if case_id in evidence.outcomes},
                counts=count_outcomes(evidence.outcomes, ids, evidence.counts.elsewhere),
                collected=len(ids) + evidence.collected - len(evidence.selected),
                baseline=baseline,
                baseline_place=source,
                label=label,
            )
        )
    return parts


def rename_label(outcomes: Mapping[str, CaseOutcome], label: str, new_label: str) -> dict[str, CaseOutcome]:
    """Return the outcomes of the part `label` under the ids that their cases have under `new_label`."""
    pairs = ((split_variant(case_id), outcome) for case_id, outcome in outcomes.items())
    return {f"{plain_id}[{new_label}]": outcome for (plain_id, old_label), outcome in pairs if old_label == label}


def judge_parts(parts: Sequence[GateEvidence]) -> Comparison:
    """Return what the feature says that has divided the run; of a run without parts nothing."""
    if not parts[0].label:
        return Comparison()
    try:
        return compare_parts(list_dividing()[0], parts)
    except FeatureError as error:
        return Comparison(findings=(GateFinding(NOT_MEASURED, str(error)),))
