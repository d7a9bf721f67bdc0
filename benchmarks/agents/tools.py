"""The three tools of the agent. The last one has an effect; with KILL in the environment the process ends behind it."""

import os
import signal
from pathlib import Path


def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"21 °C and clear in {city}"


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def write_note(text: str) -> str:
    """Write a note down."""
    with Path("notes.txt").open("a", encoding="utf-8") as notes:
        notes.write(text + "\n")
    if "KILL" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return "written"


TOOLS = [weather, add, write_note]
QUESTION = "What is the weather in Rome, and what is 2 + 3?"
NOTE = "Write that down."
FRENCH = "In French, please."
MODEL = "model-1"
