import evalkit
from docs.examples.claude_agent_sdk_desk.desk import desk
from docs.examples.claude_agent_sdk_desk.model import Scripted
from evalkit.adapters.claude_agent_sdk import run_agent


@evalkit.agent("claude_agent_sdk_desk")
async def claude_agent_sdk_desk(task: evalkit.Task) -> evalkit.Reply:
    return await run_agent(task, desk, transport=Scripted())  # without transport=: Claude Code itself
