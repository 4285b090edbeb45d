"""The records of what went over the wire: an exchange, its request, its reply, and what they hold."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import takewhile
from operator import is_not

from msgspec import Struct
from msgspec.structs import replace

from evalkit.jsonvalue import JsonDict, JsonValue
from evalkit.records.transcript import AgentValue, HostedCall, ModelCall, ModelTurn, Usage

# Who carries a call out: the application that sent the request, the service itself (a web search, a sandbox), or a
# server of tools that the service asks.
CLIENT, SERVICE, SERVER = ("client", "service", "server")


class Text(Struct, frozen=True):
    """A text: of the model in a reply; of `role` in a request's messages."""

    text: str
    role: str = "assistant"
    is_refusal: bool = False


class Thought(Struct, frozen=True):
    """Reasoning that the service shows, or keeps to itself and wants to see again."""

    text: str = ""


class Call(Struct, frozen=True, kw_only=True):
    """A call that the model asks for, or has had carried out. `kind` is the API's own name of its form.

    `malformed` says why the arguments could not be read; `arguments` is then the raw text. In a log they are None where
    they were not recorded. `choice` is the number of the reply of several to one request. `request_id` is the item in
    which the model asked to be allowed this very call.
    """

    name: str
    arguments: AgentValue
    call_id: str | None = None
    kind: str = "function"
    carrier: str = CLIENT
    malformed: str | None = None
    raw: str | None = None
    server: str | None = None
    choice: int = 0
    request_id: str | None = None

    def to_model_call(self) -> ModelCall:
        return ModelCall(
            name=self.name, arguments=self.arguments, call_id=self.call_id, malformed=self.malformed, raw=self.raw
        )


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to a call: of the application in a request, of the service itself in a reply. `call_id` and `name` are
    those of the call in the same history where the answer itself has none. `is_missing`: a log has only that it came.
    """

    value: JsonValue
    call_id: str | None = None
    name: str | None = None
    is_error: bool = False
    carrier: str = CLIENT
    is_missing: bool = False


class Unread(Struct, frozen=True):
    """What the API's module does not know. `what` names it for a user who says that it is harmless:
    ``openai_responses.item.foo_call``; `place` says where it stands, `excerpt` what it is."""

    what: str
    place: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.what} at {self.place}: {self.excerpt}"


Item = Text | Thought | Call | Answer | Unread


NAMELESS = "(no name)"  # of a call whose function nobody can tell
FULL_CONTEXT = "context_length_exceeded"  # OpenAI's code, which stands for those of all services


class FullContext(Struct, frozen=True):
    """How an API says that a request is more than the model's context window holds, or its bodies may: by `codes`;
    by `words`, patterns, where a service has no code of its own and refuses it as any malformed request."""

    codes: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()

    def fits(self, codes: Collection[str], message: str) -> bool:
        """Return whether a refusal says so."""
        return not self.codes.isdisjoint(codes) or any(re.search(pattern, message) for pattern in self.words)


def build_full_context_failure() -> Failure:
    """Build the failure of a reply that ended because the context window was full."""
    return Failure("the model's context window was full before the reply ended", 400, FULL_CONTEXT, is_midstream=True)


class Failure(Struct, frozen=True):
    """The failure of a service: an HTTP status, or an error event within a stream that began well."""

    message: str
    status: int | None = None
    code: str | None = None
    is_midstream: bool = False
    url: str = ""  # of the request of a client

    def __str__(self) -> str:
        return f"{self.url}: {self.message}" if self.url else self.message


class Request(Struct, frozen=True, kw_only=True):
    """A request to a model's service. `items` is its history, in order. `continues` is the id of what the service keeps
    of the conversation (``previous_response_id``, ``conversation``)."""

    items: tuple[Item, ...] = ()
    functions: tuple[str, ...] = ()
    hosted: tuple[str, ...] = ()  # kinds of tools that the service carries out
    forced_name: str | None = None
    model: str | None = None
    continues: str | None = None
    is_streamed: bool = False

    @property
    def new_answers(self) -> tuple[Answer, ...]:
        """The answers that stand behind the model's last reply."""
        answers: list[Answer] = []
        for item in self.items:
            if isinstance(item, Answer):
                answers.append(item)
            elif isinstance(item, Thought | Call | Unread) or (isinstance(item, Text) and item.role == "assistant"):
                answers.clear()
        return tuple(answers)


class Reply(Struct, frozen=True, kw_only=True):
    """A reply, whole or out of a stream. `end` is a finish reason of `ModelTurn`; `echo` is what goes back verbatim.

    `has_ended` is False of a stream that broke off, and of a reply that the service still works on.
    """

    items: tuple[Item, ...] = ()
    end: str = "stop"
    end_message: str | None = None
    usage: Usage | None = None
    model: str | None = None
    reply_id: str | None = None
    failure: Failure | None = None
    has_ended: bool = True
    raw: JsonDict | None = None
    echo: JsonValue = None

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, Text) and not item.is_refusal)

    @property
    def calls(self) -> tuple[Call, ...]:
        return tuple(item for item in self.items if isinstance(item, Call))

    def find_lost_call(self, names: Iterable[str]) -> Call | None:
        """Return the call that the service found malformed, and left out of the reply; None if nothing was left out.

        `names` are functions that the request declares: what the service says of the call may hold one.
        """
        if self.end != "malformed_call" or any(call.malformed for call in self.calls):
            return None
        text = self.end_message or "the service could not read the call"
        found = (name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text))
        return Call(name=next(found, NAMELESS), arguments=text, malformed=text, raw=text)

    def list_hosted(self) -> Iterator[tuple[Call, Answer | None]]:
        """Yield the calls that the application does not carry out, with their answers where the reply holds them."""
        answers = {item.call_id: item for item in self.items if isinstance(item, Answer)}
        for call in self.calls:
            if call.carrier != CLIENT:
                yield call, answers.get(call.call_id)

    def count_calls_before(self, call: Call) -> int:
        """Count the application's calls that stand before `call`."""
        return sum(other.carrier == CLIENT for other in takewhile(partial(is_not, call), self.calls))

    def to_turn(self, duration_ms: float = 0.0) -> ModelTurn:
        """Convert to a turn of the transcript: the application's calls, and apart those of the service."""
        hosted = tuple(
            HostedCall(
                call=call.to_model_call(),
                result=None if answer is None else answer.value,
                is_error=answer is not None and answer.is_error,
                position=self.count_calls_before(call),
            )
            for call, answer in self.list_hosted()
        )
        return ModelTurn(
            text=self.text,
            calls=tuple(call.to_model_call() for call in self.calls if call.carrier == CLIENT),
            finish_reason=self.end,
            finish_message=self.end_message,
            usage=self.usage,
            model=self.model,
            duration_ms=duration_ms,
            raw=self.raw,
            content=self.echo,
            hosted=hosted,
        )


class Exchange(Struct, frozen=True, kw_only=True):
    """A request to a model's service and the reply. `api` is the module that read them; "": none knows the API."""

    api: str
    url: str
    request: Request
    reply: Reply | None = None
    is_turn: bool = True  # False: token counts, embeddings, a list of models
    duration_ms: float = 0.0

    def mark_break(self) -> Exchange:
        """Return the exchange, whose response is read to its end, with a failure if the reply broke off there."""
        reply = self.reply
        if reply is None or reply.failure is not None or reply.has_ended or reply.end != "truncated":
            return self
        return replace(self, reply=replace(reply, failure=Failure("the stream broke off", is_midstream=True)))

    def list_unread(self) -> list[Unread]:
        """List what could not be read, in the request and in the reply."""
        items = (*self.request.items, *(() if self.reply is None else self.reply.items))
        return [item for item in items if isinstance(item, Unread)]
