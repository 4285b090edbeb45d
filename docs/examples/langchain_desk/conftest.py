import evalkit
from docs.examples.langchain_desk.desk import desk_with
from docs.examples.langchain_desk.model import scripted
from evalkit.adapters.langchain import chat_model, run_agent


@evalkit.agent("langchain_desk")
async def langchain_desk(task: evalkit.Task) -> evalkit.Reply:
    return await run_agent(task, desk_with(chat_model(task, scripted)))
