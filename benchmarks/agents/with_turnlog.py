"""The agent with turnlog: `python with_turnlog.py ask|note|resume|fork`."""

import os
import sys

from tools import FRENCH, MODEL, NOTE, QUESTION, TOOLS

from turnlog import Policy, TurnLog

with TurnLog.open("sqlite:///agent.db") as log:
    log.providers.set("openai_chat", base_url=os.environ["BASE_URL"])
    log.pointers.set("agent", "openai_chat", MODEL)
    match sys.argv[1]:
        case "ask":
            result = log.run(QUESTION, pointer="agent", bookmark="main", tools=TOOLS, policy=Policy(approve="auto"))
            log.bookmarks.set("asked", result.head.id)
        case "note":
            result = log.run(NOTE, continues="main", bookmark="main", tools=TOOLS, policy=Policy(approve="auto"))
        case "resume":
            result = log.run(continues="main", tools=TOOLS, policy=Policy(approve="auto", on_interrupted="report"))
        case _:
            result = log.run(FRENCH, continues="asked", bookmark="french", tools=TOOLS, policy=Policy(approve="auto"))
    print(result.text)
