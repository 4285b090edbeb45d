"""The gate: a pure function from a run, a policy and perhaps a baseline to met, missed or not measured, with reasons.

What counts. Each selected case counts once. `passed` and `failed` are measured; `error`, an interrupted case and one
without any verdict are not. Cases skipped on request and quarantined ones leave both sides of the rate. `missed` means
missed even if every unmeasured case would pass; `not_measured` means that the run can't tell. All rates are exact.
"""
