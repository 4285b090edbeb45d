"""What an agent is handed: the input, the functions, the model, and nothing of the expectations."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterable, Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evalkit.agents.clock import WaitingTime
from evalkit.agents.reply import Reply
from evalkit.agents.settings import TaskSettings
from evalkit.errors import EvalkitError, FunctionError, UsageError
from evalkit.model.transcript import FunctionCall, ModelCall, ModelRequest, ModelTurn

if TYPE_CHECKING:
    from evalkit.agents.instruction import Instruction
    from evalkit.agents.model_session import ModelSession
    from evalkit.agents.remote.functions_server import FunctionsServer
    from evalkit.agents.task_functions import TaskFunctions
    from evalkit.cassettes.http.player import Player
    from evalkit.functions.dispatcher import FakeDispatcher
    from evalkit.providers.base import Provider
    from evalkit.providers.budget import ClientBudget
    from evalkit.providers.turns import Chunk


T = TypeVar("T")


class Task:
    """One run of one case, as the agent sees it. The same object for every user turn of a conversation.

    `input` is the case's input (a private copy, without mocks); `message` the text of what the user says now;
    `messages` the conversation so far, in the forms of `ModelRequest.messages`; `state` a dictionary for the
    agent's own use that lives as long as the case.
    """

    def __init__(
        self,
        dispatcher: FakeDispatcher,
        *,
        input: Mapping[str, Any],
        settings: TaskSettings,
        open_model: Callable[[], Provider],
        case_id: str = "",
        run: int = 0,
    ) -> None:
        self.input = input
        self.message = ""
        self.messages: list[Mapping[str, Any]] = []
        self.state: dict[str, Any] = {}
        self.settings = settings
        self.model = settings.model
        self.case_id = case_id
        self.run_index = run
        self.instruction_used: str | None = None
        self.warnings: list[str] = []  # what the function-calling loop has to say, for the transcript's warnings
        self.waiting_time = WaitingTime()
        self._dispatcher = dispatcher
        dispatcher.task = self
        self.queueing_time = WaitingTime()  # for its turn at a model's service, because of a limit or a retry
        self._open_model = open_model
        self._opened_session: ModelSession | None = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.http_player: Player | None = None  # None where requests of the agent's own client go out as they are
        self.client_budget: ClientBudget | None = None  # for agents whose own client goes live

    @property
    def _session(self) -> ModelSession:
        """The model's side. Made when it is first needed: there are agents without a model."""
        with self._lock:
            if self._opened_session is None:
                from evalkit.agents.model_session import ModelSession

                self._opened_session = ModelSession(
                    self._open_model, self.settings, self.waiting_time, self.queueing_time, self.case_id
                )
                if self.http_player is not None:
                    from evalkit.cassettes.http.interception import bypass_interception

                    self._opened_session.interception_bypass = bypass_interception
            return self._opened_session

    @cached_property
    def functions(self) -> TaskFunctions:
        """The functions by name, and their declarations in the forms that model APIs take."""
        from evalkit.agents.task_functions import TaskFunctions

        return TaskFunctions(self._dispatcher, self.call, self.acall)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry `case_id`."""
        return logging.LoggerAdapter(logging.getLogger("evalkit.agent"), {"case_id": self.case_id})

    @property
    def calls(self) -> tuple[FunctionCall, ...]:
        """The function calls of this run so far."""
        return self._dispatcher.calls

    @property
    def turns(self) -> tuple[ModelTurn, ...]:
        """The model turns of this run so far; one that is still coming, as far as it has come."""
        return () if self._opened_session is None else self._opened_session.turns

    @property
    def provider(self) -> Provider | None:
        """Where the turns come from; None as long as no turn was asked for."""
        return None if self._opened_session is None else self._opened_session.provider

    @property
    def fault(self) -> EvalkitError | None:
        """Why the run can't be measured, if it can't."""
        return None if self._opened_session is None else self._opened_session.fault

    @property
    def clock_ms(self) -> float:
        """The run's clock: recorded model time and mocked latency, in milliseconds."""
        return self._dispatcher.virtual_ms + sum(turn.duration_ms for turn in self.turns)

    def begin_turn(self, user: Any, *, index: int = 0) -> None:
        """Start user turn `index`, in which the user says `user` (a text, an email, other data)."""
        self.message = format_message(user)
        self.messages.append({"role": "user", "text": self.message})
        self._dispatcher.user_turn = index
        self.bind_event_loop()

    def bind_event_loop(self) -> None:
        """From now on `wait` waits on the running event loop."""
        self._loop = asyncio.get_running_loop()

    def declare(self, declarations: Iterable[Any]) -> None:
        """Add functions that an instruction file declares: they are checked and offered like the case's own."""
        self._dispatcher.declare(declarations)

    def call(self, name: str, /, **arguments: Any) -> Any:
        """Call a function through the dispatcher and return what it answers. Raises FunctionError when it fails."""
        with self.waiting_time.measure():
            return self._dispatcher.call(name, arguments, **self.get_attribution(name, arguments))

    async def acall(self, name: str, /, **arguments: Any) -> Any:
        """`call` for async agents."""
        with self.waiting_time.measure():
            return await self._dispatcher.acall(name, arguments, **self.get_attribution(name, arguments))

    def get_attribution(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Turn, channel and id of the model's call that code is carrying out by this call, if it is one.

        Asked once for each call, of patched functions too.
        """
        return (
            {}
            if self._opened_session is None
            else self._opened_session.get_attribution(name, arguments, self._dispatcher)
        )

    def describe_functions(self) -> list[dict[str, Any]]:
        """Every function that can be called, as JSON: what an agent elsewhere is told of them."""
        from evalkit.functions.dispatcher import describe_functions

        return describe_functions(self._dispatcher)

    def serve(self) -> FunctionsServer:
        """``async with task.serve() as served:`` the functions are at ``served.functions_url`` and ``served.mcp_url``.

        For agents that reach their functions over HTTP or MCP.
        """
        from evalkit.agents.remote.functions_server import FunctionsServer

        return FunctionsServer(self)

    async def execute_remote_call(self, call: ModelCall, *, turn: int | None = None) -> dict[str, Any]:
        """Dispatch a call that came over a wire: ``{"result": ...}``, or ``{"error": {"type": ..., "message": ...}}``
        where it fails.
        """
        from evalkit.functions.call_log import build_error_result

        origin: Any = {"turn": turn, "channel": call.channel, "call_id": call.call_id, "malformed": call.malformed}
        try:
            with self.waiting_time.measure():
                return {"result": await self._dispatcher.acall(call.name, call.arguments, **origin)}
        except EvalkitError as error:
            return build_error_result(error)

    async def execute_call(
        self,
        call: ModelCall,
        *,
        turn: int | None,
        offered_names: Container[str] | None = None,
        real: Callable[[], Any] | None = None,
        refusal: FunctionError | None = None,
        as_is: bool = False,
    ) -> Any:
        """Dispatch one call of model turn `turn` that a framework's own loop carries out. Raises FunctionError when it
        fails. For the rest see `FakeDispatcher.carry_out`.
        """
        with nullcontext() if as_is else self.waiting_time.measure():
            return await self._dispatcher.execute_call(
                call, turn=turn, offered_names=offered_names, real=real, refusal=refusal, as_is=as_is
            )

    async def execute_calls(
        self, turn: ModelTurn, *, offered_names: Container[str] | None = None
    ) -> list[tuple[ModelCall, Any]]:
        """Dispatch every call of the latest model turn, concurrently, and give the answers in reply order.

        A failed call is answered ``{"error": {"type": ..., "message": ...}}``. `offered` are the names that the model
        was told of: all others are unknown functions.
        """
        index = self._session.finish_turn()
        with self.waiting_time.measure():
            return await self._dispatcher.acall_batch(turn.calls, turn=index, offered_names=offered_names)

    async def turn(self, request: ModelRequest) -> ModelTurn:
        """Ask the model. The turn is recorded; where it comes from (cassette, service) is the run's business.

        Raises MissingCassetteError, StaleCassetteError or ProviderError.
        """
        return await self._session.turn(request)

    def stream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Ask the model, and hand on its reply piece by piece: ``chunk.feed(accumulator)``.

        The turn is recorded when the stream ends. A call that the agent makes while it still comes belongs to the
        turn if it is whole by then. A provider that does not stream gives its reply in whole pieces. Raises what `turn`
        raises.
        """
        return self._session.stream(request)

    async def run_instruction(
        self,
        instruction: Instruction | str | Path,
        *,
        message: str | None = None,
        require_last: str | None = None,
        missing_code: str = "required_call_missing",
    ) -> Reply:
        """Run the function-calling loop over an instruction (or its file) and answer the user's message.

        `message` replaces the text of the user's message. With `require_last`, the run must end with a successful
        call of that function; otherwise its stop reason is `missing_code`.
        """
        from evalkit.agents.instruction import Instruction, load_instruction
        from evalkit.agents.loop import run_loop

        if not isinstance(instruction, Instruction):
            instruction = load_instruction(instruction)
        return await run_loop(self, instruction, message=message, require_last=require_last, missing_code=missing_code)

    def wait(self, awaitable: Awaitable[T]) -> T:
        """Await from a sync agent: ``reply = task.wait(task.run_instruction(...))``."""
        loop = self._loop
        if loop is None or not loop.is_running():
            raise UsageError("task.wait(...) works while the agent runs, and this task's run is over")
        try:
            inside = asyncio.get_running_loop() is loop
        except RuntimeError:
            inside = False
        if inside:
            _close(awaitable)
            raise UsageError("task.wait(...) is for sync agents; in an async agent write 'await' instead")
        return asyncio.run_coroutine_threadsafe(_await(awaitable), loop).result()

    def record_fault(self, error: EvalkitError) -> None:
        """Remember that the run could not be measured, however it ends."""
        self._session.fault = self.fault or error

    def record_framework_turn(self, turn: ModelTurn, *, waited_ms: float = 0.0) -> int:
        """Add a turn whose calls a framework carries out with `carry_out`, and give its index."""
        self.waiting_time.add(waited_ms / 1000)
        return self._session.record(turn)

    def claim_turn(self, index: int, calls: tuple[ModelCall, ...]) -> None:
        """A framework carries out `calls`, as it reads those of this turn, with `carry_out`."""
        self._session.claim(index, calls)

    def replace_last_turn(self, turn: ModelTurn) -> None:
        """Put `turn` on record in place of the latest one: what was read in its text is known now."""
        self._session.replace_last_turn(turn)

    def record_turn(self, turn: ModelTurn, *, waited_ms: float = 0.0) -> None:
        """Add a turn that the agent's own model client took; it waited so long for it."""
        self._session.add(turn)
        self.waiting_time.add(waited_ms / 1000)


async def _await(awaitable: Awaitable[T]) -> T:
    return await awaitable


def _close(awaitable: Awaitable[Any]) -> None:
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()


# A case's input as the agent may see it, and as the text of a user's message.

# What belongs to the test and not to the world that the agent lives in: the answers, and what the user will say next.
HIDDEN_KEYS = frozenset({"mock_function_responses", "mock_responses", "turns"})


def copy_visible_input(data: Mapping[str, Any]) -> dict[str, Any]:
    """A private copy of a case's `input` without the mocks: what an agent changes in it, no other run sees."""
    return {key: _copy(value) for key, value in data.items() if key not in HIDDEN_KEYS}


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copy(item) for item in value]
    return value


def format_message(user: Any) -> str:
    """What the user says, as text: a string as it is, an email with its headers, other data as JSON."""
    if user is None:
        return ""
    if isinstance(user, str):
        return user
    if not isinstance(user, Mapping):
        return json.dumps(user, ensure_ascii=False, default=str)
    if isinstance(user.get("message"), str) and len(user) == 1:
        return str(user["message"])
    if isinstance(user.get("email"), Mapping) and len(user) == 1:
        return _format_email(user["email"])
    if "body" in user and {"subject", "from"} & set(user):
        return _format_email(user)
    return _format_mixed(user)


def _format_mixed(user: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in user.items() if key not in ("message", "email")}
    parts = [
        format_message({key: user[key]}) for key in ("message", "email") if key in user and _is_plain(key, user[key])
    ]
    structured = {key: value for key, value in user.items() if key not in rest and not _is_plain(key, value)}
    data = json.dumps({**structured, **rest}, ensure_ascii=False, default=str, indent=2) if structured or rest else ""
    return "\n\n".join([*parts, *([data] if data else [])])


def _is_plain(key: str, value: Any) -> bool:
    return isinstance(value, str if key == "message" else Mapping)


def _format_email(email: Mapping[str, Any]) -> str:
    headers = [f"{key.capitalize()}: {value}" for key, value in email.items() if key != "body" and value is not None]
    return "\n".join([*headers, "", str(email.get("body", "") or "")])
