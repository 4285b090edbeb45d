"""One run of a case as one trace: the agent, the model's turns and the calls below it, what the checks found.

A run file has durations on the run's clock and not when within the run a case began, so a trace begins when the run
did. Calls of one turn begin together; calls outside any turn follow each other after the turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from evalkit.model.transcript import FunctionCall, ModelTurn, Transcript, Usage
from evalkit.model.verdict import FAILED, NOT_RUN, PASSED, CheckResult, Reason, Verdict
from evalkit.reports.otel.messages import (
    answered,
    as_json,
    asked,
    definitions,
    error_message,
    error_type,
    finish_reason,
    replied,
    text_of,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span, SpanKind, Tracer

EVALUATION = "gen_ai.evaluation.result"
_NS_PER_MS = 1_000_000
# Kinds of our model specifications by the conventions' names for providers.
_PROVIDERS = {"gemini": "gcp.gemini", "openai": "openai"}
_SCORES = {PASSED: 1.0, FAILED: 0.0}


class Attempt(Struct, frozen=True):
    """One run of a case: what a trace is made of."""

    verdict: Verdict  # of the case
    transcript: Transcript
    status: str
    reasons: tuple[Reason, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    label: str = ""  # "run 2" of a repeated case, "check_warranty timeout" of the fault sweep


def attempts(verdict: Verdict) -> Iterator[Attempt]:
    """The runs of a case that happened, repetitions and those under faults each for itself."""
    runs = verdict.runs or (verdict,)
    for number, run in enumerate(runs, 1):
        if run.status != NOT_RUN:
            label = f"run {number}" if verdict.runs else ""
            yield Attempt(verdict, run.transcript, run.status, run.reasons, run.checks, label)
    for fault in verdict.faults:
        if fault.status != NOT_RUN:
            yield Attempt(verdict, fault.transcript, fault.status, fault.reasons, (), f"{fault.function} {fault.fault}")


class Trace:
    """Writes the spans of an attempt that begins at `start` (nanoseconds since 1970) with `tracer`."""

    def __init__(self, tracer: Tracer, attempt: Attempt, start: int, *, content: bool) -> None:
        self._tracer = tracer
        self._attempt = attempt
        self._start = start
        self._content = content
        self._under: Context
        model = attempt.transcript.model or ""
        kind, _, name = model.partition(":")
        self._model = {"gen_ai.request.model": name or kind} if model else {}
        provider = _PROVIDERS.get(kind) if name else None
        self._provider = {"gen_ai.provider.name": provider or attempt.transcript.cassette or "_OTHER"}

    def write(self) -> None:
        """All spans of the trace; the root ends last, with the agent's own time in it."""
        from opentelemetry.context import Context
        from opentelemetry.trace import set_span_in_context

        transcript = self._attempt.transcript
        self._under = Context()
        root = self._span(self._name("invoke_agent", self._agent), self._start, self._about_agent())
        self._under = set_span_in_context(root, Context())
        now = self._start
        for index, turn in enumerate(transcript.turns):
            now = self._turn(turn, now)
            now = max([now, *(self._call(call, now) for call in transcript.calls if call.turn == index)])
        for call in transcript.calls:
            if call.turn is None or call.turn >= len(transcript.turns):
                now = self._call(call, now)
        total = transcript.timing.total_ms if transcript.timing is not None else 0.0
        now = max(now, self._start + _nanoseconds(total))
        self._evaluations(root, now)
        if transcript.fault is not None:
            self._failed(root, transcript.fault.code, transcript.fault.message)
        root.end(now)

    @property
    def _agent(self) -> str:
        agent = self._attempt.verdict.case.get("agent")
        return agent if isinstance(agent, str) else ""

    @staticmethod
    def _name(operation: str, of: str) -> str:
        return f"{operation} {of}" if of else operation

    def _about_agent(self) -> dict[str, Any]:
        attempt, transcript = self._attempt, self._attempt.transcript
        verdict = attempt.verdict
        known = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": self._agent,
            "gen_ai.conversation.id": f"{verdict.case_id} {attempt.label}".rstrip(),
            "evalkit.case.id": verdict.case_id,
            "evalkit.case.run": attempt.label,
            "evalkit.case.description": verdict.description if self._content else "",
            "evalkit.case.category": verdict.category,
            "evalkit.case.tags": list(verdict.tags),
            "evalkit.status": attempt.status,
            "evalkit.stop_reason": transcript.stop_reason,
            "evalkit.instruction": transcript.instruction_used,
            "evalkit.cassette": transcript.cassette,
            "evalkit.cost_usd": transcript.cost_usd,
        }
        said: dict[str, Any] = {}
        if self._content:
            said["gen_ai.input.messages"] = as_json(asked(verdict, transcript.input))
            said["gen_ai.output.messages"] = as_json(answered(transcript.response, _ended(transcript)))
            if found := definitions(verdict):
                said["gen_ai.tool.definitions"] = as_json(found)
        given = {key: value for key, value in known.items() if value not in (None, "", [])}
        return {**given, **self._provider, **self._model, **_usage(transcript.usage), **said}

    def _span(self, name: str, start: int, attributes: Mapping[str, Any], kind: SpanKind | None = None) -> Span:
        """A span below the agent's; names of models and calls, ids and reasons come from the model, too."""
        from opentelemetry.trace import SpanKind

        return self._tracer.start_span(
            text_of(name), self._under, kind or SpanKind.INTERNAL, _encodable(attributes), start_time=start
        )

    def _turn(self, turn: ModelTurn, start: int) -> int:
        """A model turn; says when it ended."""
        from opentelemetry.trace import SpanKind

        model = turn.model or self._model.get("gen_ai.request.model", "")
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            **self._provider,
            **self._model,
            "gen_ai.response.finish_reasons": [finish_reason(turn)],
            **_usage(turn.usage),
        }
        if turn.model:
            attributes["gen_ai.response.model"] = turn.model
        if self._content:
            attributes["gen_ai.output.messages"] = as_json(replied(turn))
        span = self._span(self._name("chat", model), start, attributes, SpanKind.CLIENT)
        end = start + _nanoseconds(turn.duration_ms)
        span.end(end)
        return end

    def _call(self, call: FunctionCall, start: int) -> int:
        """A function call; says when it ended."""
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.type": "function",
            "evalkit.call.index": call.index,
            "evalkit.call.channel": call.channel,
        }
        more = {
            "gen_ai.tool.call.id": call.call_id,
            "evalkit.call.requested_name": call.requested_name,
            "evalkit.call.answered_by": call.answered_by,
            "evalkit.call.repairs": list(call.repairs),
        }
        attributes |= {key: value for key, value in more.items() if value}
        if self._content:
            attributes["gen_ai.tool.call.arguments"] = as_json(call.arguments)
            attributes["gen_ai.tool.call.result"] = as_json(call.result)
        span = self._span(self._name("execute_tool", call.name), start, attributes)
        problem = error_type(call)
        if problem is not None:
            self._failed(span, problem, error_message(call))
        end = start + _nanoseconds(call.duration_ms)
        span.end(end)
        return end

    def _evaluations(self, root: Span, at: int) -> None:
        """The verdict, and what each check found; of what a model graded, who it was."""
        attempt = self._attempt
        why = "\n".join(reason.message for reason in attempt.reasons)
        for name, status, explanation, note in (
            ("evalkit", attempt.status, why, ""),
            *((check.check, check.status, check.message, check.note) for check in attempt.checks),
        ):
            found: dict[str, Any] = {"gen_ai.evaluation.name": name, "gen_ai.evaluation.score.label": status}
            if status in _SCORES:
                found["gen_ai.evaluation.score.value"] = _SCORES[status]
            if explanation and self._content:
                found["gen_ai.evaluation.explanation"] = explanation
            if note:
                found["evalkit.note"] = note
            root.add_event(EVALUATION, _encodable(found), at)

    def _failed(self, span: Span, kind: str, message: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        span.set_attribute("error.type", text_of(kind))
        span.set_status(Status(StatusCode.ERROR, text_of(message) if self._content and message else None))


def _encodable(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of which each text is one that can be sent: UTF-8, and not too long."""
    return {
        key: text_of(value) if isinstance(value, str) else [*map(text_of, value)] if isinstance(value, list) else value
        for key, value in attributes.items()
    }


def _usage(usage: Usage | None) -> Mapping[str, int]:
    """Tokens; by the conventions output includes reasoning and input includes what was cached."""
    if usage is None:
        return {}
    counted = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens + usage.reasoning_tokens,
    }
    more = {
        "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
    }
    return counted | {key: tokens for key, tokens in more.items() if tokens}


def _ended(transcript: Transcript) -> str:
    return "stop" if transcript.stop_reason == "completed" else transcript.stop_reason


def _nanoseconds(milliseconds: float) -> int:
    return round(max(milliseconds, 0.0) * _NS_PER_MS)
