"""The agent with llm: `python with_llm.py ask|note|resume|fork`. Each response is logged as soon as it is there."""

import sys

import llm
import sqlite_utils
from llm.cli import load_conversation
from llm.migrations import migrate
from tools import FRENCH, MODEL, NOTE, QUESTION, TOOLS

db = sqlite_utils.Database("agent.db")
migrate(db)
model = llm.get_model(MODEL)  # its address is in extra-openai-models.yaml
command = sys.argv[1]
conversation = model.conversation() if command == "ask" else load_conversation(None, database="agent.db")
match command:
    case "ask":
        chain = conversation.chain(QUESTION, tools=TOOLS)
    case "note":
        chain = conversation.chain(NOTE, tools=TOOLS)
    case "resume":
        chain = conversation.chain(messages=conversation.loaded_messages, tools=TOOLS)
    case _:
        before = conversation.loaded_messages[:4]
        chain = model.conversation().chain(messages=[*before, llm.user(FRENCH)], tools=TOOLS)
for response in chain.responses():
    text = response.text()
    response.log_to_db(db)
print(text)
