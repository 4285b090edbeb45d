"""The model that plays a simulated user: its recorded messages, as long as they fit, or the model that
`settings.simulator` names, else the case.

The model sees the conversation from the other side: what the agent says are its user's messages, and what it answers
are the messages of the user. What the agent says is data to it; nothing of it decides the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from evalkit.agents.model_choice import get_shared_provider
from evalkit.agents.pending_calls import parse_text
from evalkit.agents.side_model import SideModel
from evalkit.errors import MeasurementError, MissingCassetteError, ProviderError, format_file_path
from evalkit.features.simulated_users.records import SimulatorError
from evalkit.features.simulated_users.user import ROLE
from evalkit.jsonvalue import JsonObject
from evalkit.models.cassettes.fingerprint import describe_request
from evalkit.models.cassettes.model import (
    CassetteProvider,
    RecordingProvider,
    find_run_cassette,
)
from evalkit.models.cassettes.paths import build_run_path, locate_cassette
from evalkit.models.providers.base import Provider
from evalkit.models.providers.budget import MeteredProvider
from evalkit.records.case import Declaration
from evalkit.records.settings import DEFAULT_SEED, Settings, compute_cost
from evalkit.records.transcript import ModelRequest, ModelTurn, UserMessage
from evalkit.text.redact import redact_secrets

RECORDING = ".user.yaml"  # the ending of its recordings, beside the case's cassette: ``valid_001.user.yaml``
ANY_SIMULATOR = "--evalkit-simulator=gemini:MODEL"
RECORD_USER = f"pytest --evalkit --evalkit-record=missing {ANY_SIMULATOR}"
_MOST_TOKENS = 1000  # of a message, with the thoughts before it
# Short, and the facts last: small models forget what stands far above.
_INSTRUCTION = """\
You play a user who writes to an assistant. You are the user, and never the assistant: never offer help, never call \
functions, never write JSON. What the assistant writes does not change this.
Write only your next message, in one or two short sentences, without a name before it. Never make up numbers, codes, \
dates or addresses; if you are asked for what you don't know, say so.
As soon as you have what you want, and not before, write exactly this instead: {phrase}
What you want: {goal}
{who}What you know:
{facts}"""
_FIRST = "(The conversation begins. Write your first message.)"
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_LABEL = re.compile(r"\A\s*(?:user|customer|me)\s*:\s*", re.IGNORECASE)


class UserModel:
    """The model of one run. `model` and `cassette` are the origin of its messages."""

    def __init__(self, side_model: SideModel, run: int, model: str | None, cassette: str | None, name: str) -> None:
        self.model = model
        self.cassette = cassette
        self._side_model = side_model
        self._run = run
        self._name = name  # under which its price is looked up

    async def answer(
        self, system: str, exchanges: Sequence[tuple[str, str]], settings: Settings, deadline_s: float
    ) -> tuple[UserMessage, ModelTurn]:
        """Return the next message, and the reply that it was read from. Raises as `SideModel.turn` does."""
        request = build_user_request(system, exchanges, DEFAULT_SEED + self._run)
        try:
            reply = await self._side_model.turn(request, deadline_s)
        except MeasurementError:
            raise
        except Exception as error:  # of a client, or of a provider that a user brings
            raise ProviderError(f"{ROLE}'s model raised {type(error).__name__}: {error}") from error
        if reply.finish_reason == "length":
            raise SimulatorError("simulator_cut_off", f"{ROLE}'s model did not stop within {_MOST_TOKENS:,} tokens")
        if reply.finish_reason not in ("stop", "tool_calls") and not reply.text:
            raise ProviderError(f"{ROLE}'s model gave no answer: it ended with '{reply.finish_reason}'")
        cost_usd = compute_cost(reply.usage, (reply.model, self._name), settings.prices)
        message = UserMessage(
            text=clean_message(reply.text),
            is_written=True,
            usage=reply.usage,
            cost_usd=cost_usd,
            model=reply.model,
            duration_ms=reply.duration_ms,
        )
        return message, reply

    def save(self) -> None:
        """Write the recording, if there is one."""
        self._side_model.save()


def select_user_model(case_id: str, run: int, settings: Settings, own_model: str | None) -> UserModel:
    """Select the model that plays the user in one run of a case, which itself names `own_model`.

    A recording answers, unless the run goes live, where the agent does not repeat itself, or ``settings.record`` renews
    it. Without a recording the model is asked if an option names it, the run goes live or records; offline, a case
    alone sends nothing. `settings.extra["simulator"]`, a callable ``(case_id, run) -> Provider``, overrides the choice.
    Raises MissingCassetteError and MeasurementError with the next step.
    """
    factory = settings.extra.get("simulator")
    if factory is not None:
        provided: Provider = factory(case_id, run)
        return _build(case_id, run, provided, provided.name, None)
    root = settings.root or Path.cwd()
    base = locate_cassette(root / settings.cassettes, case_id, is_recording=settings.record is not None)
    secrets = tuple(settings.extra.get("secrets", ()))
    goes_live = settings.model is not None and settings.record is None
    spec = settings.simulator or own_model
    is_renewed = settings.record == "all" and bool(spec)
    recorded = None if goes_live or is_renewed else find_run_cassette(base, run, RECORDING, root)
    if recorded is not None:
        replay = CassetteProvider(
            root / recorded.file, root=root, model=spec, secrets=secrets, asker=ROLE, option="--evalkit-simulator"
        )
        return _build(case_id, run, replay, recorded.model if recorded.kind == "recorded" else None, recorded.kind)
    path = build_run_path(base, run, RECORDING)
    if spec is None or not (settings.simulator or goes_live or settings.record):
        raise _make_missing_error(format_file_path(path, root), goes_live=goes_live)
    provider: Provider = MeteredProvider(get_shared_provider(spec), spec, settings)
    if settings.record is not None:
        display_path = format_file_path(path, root)
        provider = RecordingProvider(provider, path, model=spec, display_path=display_path, secrets=secrets)
    return _build(case_id, run, provider, spec, None, is_live=True, secrets=secrets)


def _build(
    case_id: str,
    run: int,
    provider: Provider,
    name: str | None,
    cassette: str | None,
    *,
    is_live: bool = False,
    secrets: tuple[str, ...] = (),
) -> UserModel:
    shown_name = redact_secrets(name, secrets)
    side_model = SideModel(ROLE, case_id, provider, shown_name, describe_request, is_live=is_live)
    return UserModel(side_model, run, shown_name, cassette, name or "")


def _make_missing_error(file: str, *, goes_live: bool) -> MeasurementError:
    if goes_live:
        return MeasurementError(
            "the run goes live, and a recorded user answers another agent; name a model that plays the user: "
            f"{ANY_SIMULATOR}, or input.user.model"
        )
    return MissingCassetteError(
        f"no recording of the simulated user: {file} does not exist\nRecord it: {RECORD_USER}\n"
        "or write its messages there by hand:\n    turns:\n      - text: what the user says first"
    )


def build_instruction(goal: str, persona: str, facts: Mapping[str, str], phrase: str) -> str:
    """Build the instruction of the model that plays the user."""
    listed_facts = "\n".join(f"- {name.replace('_', ' ')}: {value}" for name, value in facts.items())
    who = f"Who you are: {persona}\n" if persona else ""
    return _INSTRUCTION.format(phrase=phrase, goal=goal, who=who, facts=listed_facts or "- nothing else")


def build_user_request(system: str, exchanges: Sequence[tuple[str, str]], seed: int) -> ModelRequest:
    """Build the request for the next message, with the conversation as the user's side sees it."""
    messages: list[JsonObject] = [{"role": "user", "text": _FIRST}]
    for message, reply in exchanges:
        messages += [
            {"role": "model", "turn": ModelTurn(text=message)},
            {"role": "user", "text": reply or "(no answer)"},
        ]
    return ModelRequest(
        system=system, messages=tuple(messages), temperature=0.0, seed=seed, max_output_tokens=_MOST_TOKENS
    )


def clean_message(text: str) -> str:
    """Return a message without thoughts before it, a name before it and quotation marks around it."""
    text = _LABEL.sub("", _THOUGHTS.sub("", text).strip()).strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        return text[1:-1].strip()
    return text


def has_calls(text: str, reply: ModelTurn | None, functions: Sequence[Declaration]) -> bool:
    """Return whether a message calls functions, natively or as text."""
    return bool(reply is not None and reply.calls) or bool(parse_text(text, functions).calls)
