"""The agent with pydantic-ai: `python with_pydantic_ai.py ask|note|resume|fork`."""

import os
import sys
from pathlib import Path

from pydantic_ai import Agent, ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tools import FRENCH, MODEL, NOTE, QUESTION, TOOLS

provider = OpenAIProvider(base_url=os.environ["BASE_URL"], api_key="none")
agent = Agent(OpenAIChatModel(MODEL, provider=provider), tools=TOOLS)
command = sys.argv[1]
kept = Path("agent.json")
history = ModelMessagesTypeAdapter.validate_json(kept.read_bytes()) if kept.exists() else []
if command == "fork":
    history, kept = history[:4], Path("french.json")
said = {"ask": QUESTION, "note": NOTE, "fork": FRENCH, "resume": None}[command]
result = agent.run_sync(said, message_history=history)
kept.write_bytes(result.all_messages_json())
print(result.output)
