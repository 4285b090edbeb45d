"""Which agent of several acts in a context: its own code says it (`Task.act_as`), adapters say it of a framework's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from msgspec import Struct

from evalkit.errors import UsageError
from evalkit.hooks import AgentChange

RecordChange = Callable[[AgentChange], None]


class ActingAgent(Struct, eq=False):
    """The agent that acts in a context. `function`: it acts by this function of its own, which may ask other agents.

    `reached` are the agents to which the run has passed within the context.
    """

    name: str | None
    function: str | None
    reached: set[str]


_ACTING: ContextVar[ActingAgent | None] = ContextVar("evalkit_acting_agent", default=None)


def get_acting() -> ActingAgent | None:
    """Return the agent that acts in this context; None where nobody has said one."""
    return _ACTING.get()


def get_acting_agent() -> str | None:
    """Return the name of the agent that acts in this context; None where nobody has said one."""
    acting = _ACTING.get()
    return None if acting is None else acting.name


@contextmanager
def act(acting: ActingAgent) -> Iterator[None]:
    """Make `acting` the agent of the context inside."""
    token = _ACTING.set(acting)
    try:
        yield
    finally:
        _ACTING.reset(token)


@contextmanager
def act_as(name: str, record: RecordChange) -> Iterator[None]:
    """Make `name` the agent of the turns and calls inside. Inside another agent's context it is a delegation."""
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"an agent is called by its name, a text such as 'billing'; got {name!r}")
    outer = _ACTING.get()
    if outer is not None and outer.name != name:
        record(AgentChange(source=outer.name, target=name, returns=True))
    with act(ActingAgent(name, None, {name})):
        yield


def hand_over(target: str, record: RecordChange) -> None:
    """Pass the run from the agent that acts in this context to `target`, which acts in it from now on."""
    acting = _ACTING.get()
    if acting is None or acting.name is None:
        raise UsageError(
            f"task.hand_over({target!r}) does not know from whom: write it inside 'with task.act_as(\"NAME\"):'"
        )
    if not isinstance(target, str) or not target.strip():
        raise UsageError(f"task.hand_over(...) takes the name of an agent, a text such as 'billing'; got {target!r}")
    record(AgentChange(source=acting.name, target=target))
    acting.name = target
