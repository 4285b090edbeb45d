"""Rules of agents that cases name: who is to make a call, and how a run is to pass from one to another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from evalkit.checks.handoffs import ARROW, KINDS
from evalkit.errors import KeyPath, did_you_mean
from evalkit.lint.facts.project import CaseFacts, ProjectFacts
from evalkit.lint.finding import WARNING, Finding, Rule

CASE_AGENT = Rule("L516", "case-agent", WARNING, "A case names an agent that nothing in the code has the name of.")
RULES = (CASE_AGENT,)

# Where agents get their names: in evalkit's own words, and in those of frameworks.
_NAMING = re.compile(r"""(?:act_as|hand_over|add_node)\(\s*["']([^"']+)["']|\bname\s*=\s*["']([^"']+)["']""")


def check(facts: ProjectFacts) -> Iterator[Finding]:
    """Check the names of agents in cases whose agent is Python; those of programs and services can't be told."""
    texts = facts.code.texts
    known = {first or second for text in texts for first, second in _NAMING.findall(text)}
    for case in facts.cases:
        if not texts or isinstance(case.agent, Mapping):
            continue
        for name, path in list_agents(case):
            whole = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
            if "{{" in name or any(whole.search(text) for text in texts):
                continue
            yield CASE_AGENT.report(
                case.locate(path),
                f"the case names the agent '{name}', and no code has this name{did_you_mean(name, known)}",
                "write the name that the agent has in its framework, or in task.act_as(...)",
            )


def list_agents(case: CaseFacts) -> Iterator[tuple[str, KeyPath]]:
    """Yield the names of agents in a case, with their places."""
    for call in case.list_calls():
        names = call.data.get("by")
        for name in names if isinstance(names, list) else [names]:
            if isinstance(name, str):
                yield name, (*call.root, "by")
    for output, path in case.list_expectations():
        for key in KINDS:
            listed = output.get(key)
            for handoff in listed if isinstance(listed, list) else [listed]:
                for name in str(handoff).split(ARROW) if isinstance(handoff, str) else ():
                    if name.strip():
                        yield name.strip(), (*path, key)
