import evalkit
from docs.examples.pydantic_ai_desk.desk import desk
from docs.examples.pydantic_ai_desk.model import scripted
from evalkit.adapters.pydantic_ai import run_agent


@evalkit.agent("pydantic_ai_desk")
async def pydantic_ai_desk(task: evalkit.Task) -> evalkit.Reply:
    return await run_agent(task, desk, model=scripted)  # without model=: the agent's own
