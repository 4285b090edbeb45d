"""The keys of agents that are a command or a URL."""

from __future__ import annotations

from msgspec.structs import replace

from evalkit.hooks import AgentForm
from evalkit.spec.case_reader import CaseKey, CaseReader
from evalkit.spec.process_keys import COMMAND, CWD, ENV, HEADERS, TIMEOUT, URL

_SPANS = CaseKey(
    CaseReader.read_boolean,
    {"type": "boolean"},
    "Judge the case by the OpenTelemetry spans that the program exports: its turns, calls and results.",
)
_SERVICE_SPANS = replace(
    _SPANS, doc="Judge the case by the OpenTelemetry spans that the service exports for the request."
)
FORMS = {
    "command": AgentForm(keys={"command": COMMAND, "cwd": CWD, "env": ENV, "timeout": TIMEOUT, "spans": _SPANS}),
    "url": AgentForm(keys={"url": URL, "headers": HEADERS, "timeout": TIMEOUT, "spans": _SERVICE_SPANS}),
}
