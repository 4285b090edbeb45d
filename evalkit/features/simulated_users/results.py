"""What a simulated user took in a run, and what reports say of it."""

from __future__ import annotations

from msgspec import convert

from evalkit.features.simulated_users.records import NAME, Simulation
from evalkit.hooks import RunReport
from evalkit.records.transcript import Transcript, UserMessage
from evalkit.stats.accounting import SideUsage

HAND_WRITTEN = "hand-written"


def read_simulation(transcript: Transcript) -> Simulation:
    """Return what a transcript that has data of it says of the user."""
    return convert(transcript.features[NAME], Simulation)


def list_written(transcript: Transcript) -> list[UserMessage]:
    """Return the messages that a model wrote, also the last words."""
    last_words = read_simulation(transcript).last_words
    said = transcript.messages if last_words is None else (*transcript.messages, last_words)
    return [message for message in said if message.is_written]


def account(transcript: Transcript) -> SideUsage:
    """Return what the model took that played the user, recorded or asked. What a person wrote took nothing."""
    simulation = read_simulation(transcript)
    is_models = simulation.player == "model" and simulation.cassette != HAND_WRITTEN
    written = list_written(transcript) if is_models else []
    counts = {"conversations": 1, "messages": len(transcript.messages), "written": len(written)}
    is_live = simulation.model is not None and simulation.cassette is None
    taken = (SideUsage(usage=message.usage, cost_usd=message.cost_usd) for message in written)
    return sum(taken, SideUsage(counts=counts, is_live=is_live))


def describe_usage(total: SideUsage) -> str:
    """Return ``simulated users: 12 messages of models in 4 conversations; 4,200 tokens in and 310 out, 0.012 USD``."""
    if not total.counts["written"]:
        return ""
    messages, conversations = total.counts["written"], total.counts["conversations"]
    said = f"{messages:,} message{'s' * (messages != 1)} of models"
    return f"simulated users: {said} in {conversations:,} conversation{'s' * (conversations != 1)}; {total.describe()}"


def report_run(transcript: Transcript) -> RunReport:
    """Return who played the user of a run, the tokens and money it took, and with what it ended the conversation."""
    simulation, taken = read_simulation(transcript), account(transcript)
    origin = f" ({simulation.cassette})" if simulation.cassette else ""
    facts = {"simulated user": (simulation.model or simulation.player) + origin}
    if taken.counts["written"] and taken.usage is not None:
        facts["the user's tokens"] = f"{taken.usage.input_tokens:,} in, {taken.usage.output_tokens:,} out"
    if taken.cost_usd:
        facts["the user's cost"] = f"${taken.cost_usd:.6f}"
    last_words = simulation.last_words.text if simulation.last_words is not None else ""
    return RunReport(facts=facts, speaker="simulated", played_by=simulation.player, last_words=last_words)
