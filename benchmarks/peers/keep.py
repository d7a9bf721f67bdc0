"""Keeps a conversation with one library, and says what that took: `python keep.py LIBRARY FOLDER TEXTS`.

TEXTS is a file with a JSON array: what user and assistant say by turns. Each library is used as its pages say,
with its own settings; one whose unit is an exchange is given the two texts of it, and half of its time is a turn's.
Needs nothing but the library, and imports no other.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sqlite3
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROLES = ("user", "assistant")


class Kept:
    """A conversation in a store. `append` is durable on return; `load` opens the store anew and reads all of it."""

    unit = 1
    """How many turns are appended at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, turns: list[tuple[str, str]]) -> None:
        """Append turns, each with its role."""
        raise NotImplementedError

    def load(self) -> list[str]:
        """Return the text of each turn."""
        raise NotImplementedError

    def again(self) -> list[str]:
        """Return the text of each turn, with what is open already."""
        return self.load()


class Turnlog(Kept):
    def __init__(self, folder: Path) -> None:
        from turnlog import TurnLog

        super().__init__(folder)
        self.open: Callable[[], Any] = lambda: TurnLog.open(f"sqlite:///{folder / 'log.db'}")
        self.log, self.head = self.open(), None

    def append(self, turns: list[tuple[str, str]]) -> None:
        [(role, text)] = turns
        self.head = self.log.add_turn(text, role=role, continues=self.head).id

    def load(self) -> list[str]:
        with self.open() as log:
            return self.texts(log)

    def again(self) -> list[str]:
        return self.texts(self.log)

    def texts(self, log: Any) -> list[str]:
        return [message.content[0].text for message in log.context(self.head).messages]


class RawSQLite(Kept):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.connection = self.open()
        self.connection.execute("CREATE TABLE turns (position INTEGER PRIMARY KEY, line TEXT NOT NULL)")

    def open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.folder / "raw.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    def append(self, turns: list[tuple[str, str]]) -> None:
        [(role, text)] = turns
        self.connection.execute("INSERT INTO turns (line) VALUES (?)", (json.dumps({"role": role, "content": text}),))

    def load(self) -> list[str]:
        connection = self.open()
        rows = connection.execute("SELECT line FROM turns ORDER BY position")
        texts = [json.loads(line)["content"] for (line,) in rows]
        connection.close()
        return texts


class JSONLines(Kept):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.file = (folder / "chat.jsonl").open("a")

    def append(self, turns: list[tuple[str, str]]) -> None:
        [(role, text)] = turns
        self.file.write(json.dumps({"role": role, "content": text}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def load(self) -> list[str]:
        with (self.folder / "chat.jsonl").open() as file:
            return [json.loads(line)["content"] for line in file]


class Eventsourcing(Kept):
    def __init__(self, folder: Path) -> None:
        from eventsourcing.application import Application
        from eventsourcing.domain import Aggregate, event

        class Conversation(Aggregate):
            def __init__(self) -> None:
                self.turns: list[list[str]] = []

            @event("Said")
            def say(self, role: str, text: str) -> None:
                self.turns.append([role, text])

        super().__init__(folder)
        variables = {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(folder / "events.db")}
        self.open: Callable[[], Any] = lambda: Application(env=variables)
        self.application: Any = self.open()
        self.conversation: Any = Conversation()

    def append(self, turns: list[tuple[str, str]]) -> None:
        [turn] = turns
        self.conversation.say(*turn)
        self.application.save(self.conversation)

    def load(self) -> list[str]:
        application = self.open()
        turns = application.repository.get(self.conversation.id).turns
        application.close()
        return [text for _, text in turns]


class AgentsSDK(Kept):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.loop = asyncio.new_event_loop()
        self.session = self.open()

    def open(self) -> Any:
        from agents import SQLiteSession

        return SQLiteSession("main", self.folder / "session.db")

    def append(self, turns: list[tuple[str, str]]) -> None:
        items = [{"role": role, "content": text} for role, text in turns]
        self.loop.run_until_complete(self.session.add_items(items))

    def load(self) -> list[str]:
        session = self.open()
        texts = self.texts(session)
        session.close()
        return texts

    def again(self) -> list[str]:
        return self.texts(self.session)

    def texts(self, session: Any) -> list[str]:
        return [item["content"] for item in self.loop.run_until_complete(session.get_items())]


class AgentsSDKAdvanced(AgentsSDK):
    def open(self) -> Any:
        from agents.extensions.memory import AdvancedSQLiteSession

        return AdvancedSQLiteSession(session_id="main", db_path=self.folder / "session.db", create_tables=True)


class LLM(Kept):
    """As llm's own commands do it: each response is logged with what led to it."""

    unit = 2

    def __init__(self, folder: Path) -> None:
        import llm
        from llm.migrations import migrate
        from sqlite_utils import Database

        class Said(llm.Model):
            model_id = "said"
            answer = ""

            def execute(self, *_: object, **__: object) -> Any:
                yield self.answer

        super().__init__(folder)
        self.database = Database(folder / "logs.db")
        migrate(self.database)
        self.model = Said()
        self.conversation = self.model.conversation()

    def append(self, turns: list[tuple[str, str]]) -> None:
        (_, question), (_, self.model.answer) = turns
        response = self.conversation.prompt(question)
        response.text()
        response.log_to_db(self.database)

    def load(self) -> list[str]:
        from llm.logs import LogStore
        from sqlite_utils import Database

        database = Database(self.folder / "logs.db")
        [thread] = [row["id"] for row in database["threads"].rows]
        messages = LogStore(database).thread_messages(thread)
        database.close()
        return [message.parts[0].text for message in messages]


class LangGraph(Kept):
    unit = 2

    def __init__(self, folder: Path) -> None:
        from langgraph.graph import START, MessagesState, StateGraph

        super().__init__(folder)
        self.answer = ""
        builder = StateGraph(MessagesState)
        builder.add_node("answer", lambda _: {"messages": [("assistant", self.answer)]})
        builder.add_edge(START, "answer")
        self.builder = builder
        self.graph = self.open()

    def open(self) -> Any:
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = sqlite3.connect(self.folder / "checkpoints.db", check_same_thread=False)
        return self.builder.compile(checkpointer=SqliteSaver(connection))

    def append(self, turns: list[tuple[str, str]]) -> None:
        (_, question), (_, self.answer) = turns
        self.graph.invoke({"messages": [("user", question)]}, self.thread, durability="sync")

    @property
    def thread(self) -> Any:
        return {"configurable": {"thread_id": "main"}}

    def load(self) -> list[str]:
        return self.texts(self.open())

    def again(self) -> list[str]:
        return self.texts(self.graph)

    def texts(self, graph: Any) -> list[str]:
        return [message.content for message in graph.get_state(self.thread).values["messages"]]


LIBRARIES: dict[str, type[Kept]] = {
    "turnlog": Turnlog,
    "raw sqlite3": RawSQLite,
    "JSON lines": JSONLines,
    "eventsourcing": Eventsourcing,
    "Agents SDK, SQLiteSession": AgentsSDK,
    "Agents SDK, AdvancedSQLiteSession": AgentsSDKAdvanced,
    "llm": LLM,
    "LangGraph": LangGraph,
}


def main() -> None:
    """Keep the texts but for a unit, load them anew and as they are open, append the last ones, and load them again."""
    library, folder, file = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    texts: list[str] = json.loads(file.read_text())
    kept = LIBRARIES[library](folder)
    turns = [(ROLES[number % 2], text) for number, text in enumerate(texts)]
    units = [turns[start : start + kept.unit] for start in range(0, len(turns), kept.unit)]
    seconds: list[float] = []
    cpu_s = time.process_time()
    for unit in units[:-1]:
        start = time.perf_counter()
        kept.append(unit)
        seconds.append((time.perf_counter() - start) / kept.unit)
    cpu_s = (time.process_time() - cpu_s) / (len(turns) - kept.unit)
    start = time.perf_counter()
    loaded = kept.load()
    cold_s = time.perf_counter() - start
    assert loaded == texts[: -kept.unit], f"{library} gave other texts back"
    kept.again()
    start = time.perf_counter()
    kept.append(units[-1])
    loaded = kept.again()
    more_s = time.perf_counter() - start
    assert loaded == texts, f"{library} gave other texts back"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    found = {
        "append_ms": statistics.median(seconds) * 1e3,
        "append_cpu_us": cpu_s * 1e6,
        "cold_us": cold_s * 1e6 / (len(texts) - kept.unit),
        "more_ms": more_s * 1e3,
        "bytes": size / len(texts),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
