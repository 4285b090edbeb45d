"""The model that plays a simulated user: its recorded messages, as long as they fit, or the model that
`settings.simulator` names, else the case.

The model sees the conversation from the other side: what the agent says are its user's messages, and what it answers
are the messages of the user. What the agent says is data to it; nothing of it decides the verdict.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

from evalkit.agents.model_choice import get_shared_provider
from evalkit.agents.side_model import SideModel
from evalkit.errors import MeasurementError, MissingCassetteError, ProviderError, format_file_path
from evalkit.features.simulated_users.players import Answer, UserPlayer
from evalkit.features.simulated_users.records import SimulatorError
from evalkit.features.simulated_users.user import ROLE, SimulatedUser, format_fact
from evalkit.hooks import RunView
from evalkit.jsonvalue import JsonObject
from evalkit.models.cassettes.fingerprint import describe_request
from evalkit.models.cassettes.model import CassetteProvider, RecordingProvider, find_run_cassette
from evalkit.models.cassettes.paths import build_run_path, locate_cassette
from evalkit.models.providers.base import Provider
from evalkit.models.providers.budget import MeteredProvider
from evalkit.models.providers.table import suggest_model
from evalkit.records.prices import compute_cost
from evalkit.records.settings import Settings, derive_seed
from evalkit.records.transcript import ModelRequest, ModelTurn, UserMessage
from evalkit.text.redact import redact_secrets

RECORDING = ".user.yaml"  # the ending of its recordings, beside the case's cassette: ``valid_001.user.yaml``
RECORD_USER = "pytest --evalkit --evalkit-record=missing --evalkit-simulator=gemini:MODEL"
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


class ModelPlayer(UserPlayer):
    """Plays the user by a model, or by its recording. `name` is the model whose price counts."""

    def __init__(
        self, user: SimulatedUser, run: RunView, provider: Provider, name: str | None, cassette: str | None = None,
        *, is_live: bool = False,
    ) -> None:  # fmt: skip
        self.model = redact_secrets(name, get_secrets(run.settings))
        self.cassette = cassette
        self._user = user
        self._name = name or ""
        self._instruction = build_instruction(user)
        self._side_model = SideModel(ROLE, run.case.id, provider, self.model, describe_request, is_live=is_live)

    async def answer(self, run: RunView) -> Answer:
        """Return the next message. Raises as `SideModel.turn` does."""
        request = build_user_request(self._instruction, run.exchanges, derive_seed(run.task.settings.seed, "user"))
        try:
            reply = await self._side_model.turn(request, run.deadline_s)
        except MeasurementError:
            raise
        except Exception as error:  # of a client, or of a provider that a user brings
            raise ProviderError(f"{ROLE}'s model raised {type(error).__name__}: {error}") from error
        if reply.finish_reason == "length":
            advice = "an option of its name allows more: KIND:MODEL?max_output_tokens=4000"
            problem = f"{ROLE}'s model did not stop within {_MOST_TOKENS:,} tokens; {advice}"
            raise SimulatorError("simulator_cut_off", problem)
        if reply.finish_reason not in ("stop", "tool_calls") and not reply.text:
            raise ProviderError(f"{ROLE}'s model gave no answer: it ended with '{reply.finish_reason}'")
        message = UserMessage(
            text=clean_message(reply.text),
            is_written=True,
            usage=reply.usage,
            cost_usd=compute_cost(reply.usage, (reply.model, self._name), run.settings.price_list),
            model=reply.model,
            duration_ms=reply.duration_ms,
        )
        return Answer(message, self._user.says_end(message.text), has_calls=bool(reply.calls))

    def save(self) -> None:
        self._side_model.save()


def open_player(user: SimulatedUser, run: RunView) -> ModelPlayer:
    """Open the model that plays the user in a run.

    A recording answers, unless the run goes live, where the agent does not repeat itself, or ``settings.record`` renews
    it. Without a recording the model is asked if an option names it, the run goes live or records; offline, a case
    alone sends nothing. `settings.extra["simulator"]`, a callable ``(case_id, run) -> Provider``, overrides the choice.
    Raises MissingCassetteError and MeasurementError with the next step.
    """
    settings, case_id, number = run.settings, run.case.id, run.task.run_index
    factory = settings.extra.get("simulator")
    if factory is not None:
        provided: Provider = factory(case_id, number)
        return ModelPlayer(user, run, provided, provided.name)
    base = locate_cassette(run.root / settings.cassettes, case_id, is_recording=settings.record is not None)
    secrets = get_secrets(settings)
    goes_live = settings.model is not None and settings.record is None
    spec = settings.simulator or user.model
    is_renewed = settings.record == "all" and bool(spec)
    recorded = None if goes_live or is_renewed else find_run_cassette(base, number, RECORDING, run.root)
    if recorded is not None:
        file, name = run.root / recorded.file, recorded.model if recorded.kind == "recorded" else None
        option = "--evalkit-simulator"
        replay = CassetteProvider(file, root=run.root, model=spec, secrets=secrets, asker=ROLE, option=option)
        return ModelPlayer(user, run, replay, name, recorded.kind)
    path = build_run_path(base, number, RECORDING)
    if spec is None or not (settings.simulator or goes_live or settings.record):
        raise _make_missing_error(format_file_path(path, run.root), settings if goes_live else None)
    provider: Provider = MeteredProvider(get_shared_provider(spec), spec, settings)
    if settings.record is not None:
        display_path = format_file_path(path, run.root)
        provider = RecordingProvider(provider, path, model=spec, display_path=display_path, secrets=secrets)
    return ModelPlayer(user, run, provider, spec, is_live=True)


def get_secrets(settings: Settings) -> tuple[str, ...]:
    """Return values that no recording holds."""
    return tuple(settings.extra.get("secrets", ()))


def _make_missing_error(file: str, live: Settings | None) -> MeasurementError:
    """`live`: the settings of a run that goes live."""
    if live is not None:
        option = quote(f"--evalkit-simulator={redact_secrets(suggest_model(live.model), get_secrets(live))}")
        return MeasurementError(
            "the run goes live, and a recorded user answers another agent; name a model that plays the user: "
            f"{option}, or input.user.model"
        )
    return MissingCassetteError(
        f"no recording of the simulated user: {file} does not exist\nRecord it: {RECORD_USER}\n"
        "or write its messages there by hand:\n    turns:\n      - text: what the user says first"
    )


def build_instruction(user: SimulatedUser) -> str:
    """Build the instruction of the model that plays the user."""
    facts = "\n".join(f"- {name.replace('_', ' ')}: {format_fact(value)}" for name, value in user.facts.items())
    who = f"Who you are: {user.persona}\n" if user.persona else ""
    return _INSTRUCTION.format(phrase=user.phrase, goal=user.goal, who=who, facts=facts or "- nothing else")


def build_user_request(system: str, exchanges: Sequence[tuple[str, str]], seed: int | None) -> ModelRequest:
    """Build the request for the next message, with the conversation as the user's side sees it."""
    messages: list[JsonObject] = [{"role": "user", "text": _FIRST}]
    for message, reply in exchanges:
        messages += [
            {"role": "model", "turn": ModelTurn(text=message)},
            {"role": "user", "text": reply or "(no answer)"},
        ]
    return ModelRequest(system=system, messages=tuple(messages), seed=seed, max_output_tokens=_MOST_TOKENS)


def clean_message(text: str) -> str:
    """Return a message without thoughts before it, a name before it and quotation marks around it."""
    text = _LABEL.sub("", _THOUGHTS.sub("", text).strip()).strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
        return text[1:-1].strip()
    return text
