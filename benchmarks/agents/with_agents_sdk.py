"""The agent with the OpenAI Agents SDK: `python with_agents_sdk.py ask|note|resume|fork`."""

import asyncio
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents.extensions.memory import AdvancedSQLiteSession
from openai import AsyncOpenAI
from tools import FRENCH, MODEL, NOTE, QUESTION, TOOLS

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=os.environ["BASE_URL"], api_key="none")
agent = Agent(
    name="agent",
    model=OpenAIChatCompletionsModel(MODEL, client),
    tools=[function_tool(tool) for tool in TOOLS],
)


async def main(command: str) -> None:
    """Run one command."""
    session = AdvancedSQLiteSession(session_id="main", db_path="agent.db", create_tables=True)
    if command == "fork":
        await session.create_branch_from_turn(2)
    said = {"ask": QUESTION, "note": NOTE, "fork": FRENCH, "resume": []}[command]
    result = await Runner.run(agent, said, session=session)
    await session.store_run_usage(result)
    print(result.final_output)


asyncio.run(main(sys.argv[1]))
