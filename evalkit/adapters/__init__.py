"""Agents of frameworks as agents under test: the agent object goes in unchanged, the case's functions answer its tools.

One package per framework, each an extra of its own, each with one public coroutine function of the same shape::

    from evalkit.adapters.pydantic_ai import run_agent

    @evalkit.agent("support")
    async def support(task: evalkit.Task) -> evalkit.Reply:
        return await run_agent(task, support_agent)

``async def run_agent(task, agent, *, message=None, as_is=(), **framework_options) -> Reply``

- `agent` is shared by all cases of the process, and never changed: what a run needs stands around it for that run
  alone.
- `message` is what the user says; by default ``task.message``. `framework_options` go to the framework's own run
  function. In a conversation (``input.turns``) the framework's history is kept from turn to turn, by task.
- Every tool is answered by the dispatcher, under the name and with the arguments that the model wrote. The real tool
  runs only for ``{$real: true}``; a tool that nothing mocks is an unmocked call. The tools' own declarations are added
  to the case's (a case's declaration of the same name wins).
- Tools named in `as_is` run themselves unless the case mocks them: those whose code only asks another agent.
- A mocked failure is raised where the real tool would raise: what comes of it is the framework's business.
- The model is the agent's own, of its own class, unless ``task.model`` names one that the framework can open, or the
  case's cassette of model turns answers.
- Turns, calls and tokens are recorded; the calls of one reply share their turn. A turn that the HTTP cassette has seen
  already is not counted twice. An agent used as a tool, and a hand-off, is a call of its name; the tools of the agent
  behind it are answered like the first one's.
- The final output is the reply's text; if it is structured, its JSON, with the data under ``data["output"]``. Limits
  and guardrails of the framework become the reply's stop reason (``max_iterations``, ``blocked``, ``interrupted``
  where a person must decide, ...).

``with answered_by(task, as_is=()):`` does the same for agents that the user's own code runs in there, out of reach of
`run_agent`. ``task_model(task)`` is the task's own model for an agent of the framework: offline it answers from the
case's cassette, written by hand or recorded, with ``--evalkit-model`` live; limits, budget and ``--evalkit-record``
hold as for instruction files.

`common` has the part that they share: `TaskRecorder` (one per task), `AgentRunRecorder` (one per run of an agent with
its model: ``begin_request()``, ``record_reply(turn)``, ``await call(...)``), `ActiveRuns`, `to_reply`, and
`require_extra` around the imports of a framework, which happen inside the functions that need them.
"""
