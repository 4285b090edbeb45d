import evalkit
from docs.examples.google_adk_desk.desk import desk
from docs.examples.google_adk_desk.model import scripted
from evalkit.adapters.google_adk import run_agent


@evalkit.agent("google_adk_desk")
async def google_adk_desk(task: evalkit.Task) -> evalkit.Reply:
    return await run_agent(task, desk, model=scripted)  # without model=: the agent's own
