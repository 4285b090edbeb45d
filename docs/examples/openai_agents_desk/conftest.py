from agents import RunConfig

import evalkit
from docs.examples.openai_agents_desk.desk import desk
from docs.examples.openai_agents_desk.model import scripted
from evalkit.adapters.openai_agents import run_agent


@evalkit.agent("openai_agents_desk")
async def openai_agents_desk(task: evalkit.Task) -> evalkit.Reply:
    return await run_agent(task, desk, run_config=RunConfig(model=scripted))  # without run_config=: the agent's own
