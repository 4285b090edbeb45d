"""A reader of web pages that is fed by a token stream.

The model's reply comes in pieces, and so do the arguments of the calls in it: `{"ur`, `ls": ["https://sh`, `op.exam`.
A call is made as soon as it is whole, while the rest of the reply is still coming, and not a piece earlier: a URL that
is cut off is another URL. `evalkit.StreamAccumulator` says when that is. A stream that ends inside a call makes no
call; the user gets the error.
"""

from __future__ import annotations

from typing import Any

import evalkit
from evalkit.errors import FunctionError
from evalkit.models.streaming import StreamCall
from evalkit.records.transcript import ModelCall

PROMPT = """\
You answer questions about web pages. Fetch them with scrape_webpage, all that you need in one call, before you say
anything about them; never guess what a page says. Fetch only addresses that the user or a fetched page gave you. If a
page can't be fetched, say so."""
MALFORMED = "malformed_call"

Answer = tuple[StreamCall, Any]


@evalkit.agent("scraping")
async def scraping(task: evalkit.Task) -> evalkit.Reply:
    """Answer what the user asks: stream a reply, make its calls, send back what they gave, until there is no call."""
    for _ in range(task.settings.max_iterations):
        try:
            text, answers = await read_reply(task)
        except evalkit.IncompleteCall as error:
            return evalkit.Reply(str(error), stop_reason=MALFORMED)
        turn = task.turns[-1]
        task.messages.append({"role": "model", "turn": turn})
        if not answers:
            finished = turn.finish_reason in ("stop", "tool_calls")
            return evalkit.Reply(text, stop_reason="completed" if finished else turn.finish_reason)
        task.messages.append(answered(answers, in_text=not turn.calls))
    return evalkit.Reply("", stop_reason="max_iterations")


async def read_reply(task: evalkit.Task) -> tuple[str, list[Answer]]:
    """One streamed reply: its prose, and its calls with what they gave. Raises IncompleteCall."""
    functions = task.functions.declarations
    accumulator = evalkit.StreamAccumulator(functions)
    answers: list[Answer] = []
    request = evalkit.ModelRequest(
        system=PROMPT,
        messages=tuple(task.messages),
        functions=functions,
        temperature=task.settings.temperature,
        seed=task.settings.seed,
    )
    async for chunk in task.stream(request):
        chunk.feed(accumulator)
        answers += [(call, await carried_out(task, call)) for call in accumulator.take()]
    in_order = accumulator.close()
    answers += [(call, await carried_out(task, call)) for call in accumulator.take()]
    answers.sort(key=lambda answer: in_order.index(answer[0]))
    return accumulator.text.strip(), answers


async def carried_out(task: evalkit.Task, call: StreamCall) -> Any:
    """What a call gives, or the error that the model is told."""
    try:
        return await task.acall(call.name, **call.arguments)
    except FunctionError as error:
        return {"error": {"type": error.type, "message": error.message}}


def answered(answers: list[Answer], *, in_text: bool) -> dict[str, Any]:
    """The next message: results natively, or in text for a model that writes its calls as text."""
    if in_text:
        lines = (f"{call.name} gave: {value}" for call, value in answers)
        return {"role": "user", "text": "\n".join(lines)}
    results = [(ModelCall(name=call.name, arguments=call.arguments, call_id=call.id), value) for call, value in answers]
    return {"role": "function", "results": results}
