"""Transcripts of a conversation in the formats of others, with as many answers as there are texts."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def claude_code(texts: Sequence[str]) -> Iterator[Record]:
    """Give the rows of a session of Claude Code."""
    parent = None
    for number, text in enumerate(texts):
        row: Record = {"type": "user", "uuid": f"u{number}", "parentUuid": parent, "sessionId": "s"}
        yield row | {"message": {"role": "user", "content": "And?"}}
        said = {"id": f"m{number}", "role": "assistant", "content": [{"type": "text", "text": text}]}
        row = {"type": "assistant", "uuid": f"a{number}", "parentUuid": f"u{number}", "sessionId": "s"}
        yield row | {"message": said}
        parent = f"a{number}"


def codex(texts: Sequence[str]) -> Iterator[Record]:
    """Give the lines of a session of Codex CLI."""
    yield {"type": "session_meta", "payload": {"id": "s"}}
    for text in texts:
        for role, kind, said in (("user", "input_text", "And?"), ("assistant", "output_text", text)):
            message = {"type": "message", "role": role, "content": [{"type": kind, "text": said}]}
            yield {"type": "response_item", "payload": message}


def cursor(texts: Sequence[str]) -> Iterator[Record]:
    """Give the lines of a transcript of Cursor's agent."""
    for text in texts:
        for role, said in (("user", "And?"), ("assistant", text)):
            yield {"role": role, "message": {"content": [{"type": "text", "text": said}]}}


def opencode(texts: Sequence[str]) -> Iterator[Record]:
    """Give the documents of a session of OpenCode."""
    yield {"id": "ses_1", "slug": "a", "version": "1"}
    for number, text in enumerate(texts):
        for role, said in (("user", "And?"), ("assistant", text)):
            id = f"{number:06}-{role[::-1]}"  # in this order
            yield {"id": f"msg_{id}", "sessionID": "ses_1", "role": role}
            yield {"id": f"prt_{id}", "sessionID": "ses_1", "messageID": f"msg_{id}", "type": "text", "text": said}


def atif(texts: Sequence[str]) -> Iterator[Record]:
    """Give a trajectory."""
    steps = [
        {"step_id": 2 * number + at, "source": source, "message": said}
        for number, text in enumerate(texts)
        for at, (source, said) in enumerate((("user", "And?"), ("agent", text)))
    ]
    yield {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps}


def gemini_cli(texts: Sequence[str]) -> Iterator[Record]:
    """Give a session of Gemini CLI."""
    messages = [
        {"id": f"{kind}{number}", "type": kind, "content": said}
        for number, text in enumerate(texts)
        for kind, said in (("user", "And?"), ("gemini", text))
    ]
    yield {"sessionId": "s", "projectHash": "h", "messages": messages}


def openai_export(texts: Sequence[str]) -> Iterator[list[Record]]:
    """Give the conversations of an export of ChatGPT."""
    nodes: dict[str, Record] = {"root": {"parent": None, "message": None}}
    parent = "root"
    for number, text in enumerate(texts):
        for role, said in (("user", "And?"), ("assistant", text)):
            name = f"{role}{number}"
            message = {"id": name, "author": {"role": role}, "content": {"content_type": "text", "parts": [said]}}
            nodes[name] = {"parent": parent, "message": message}
            parent = name
    yield [{"title": "A", "conversation_id": "c", "mapping": nodes}]


def anthropic_export(texts: Sequence[str]) -> Iterator[list[Record]]:
    """Give the conversations of an export of claude.ai, which says each text once."""
    messages = [
        {"uuid": f"{sender}{number}", "sender": sender, "content": [{"type": "text", "text": said}]}
        for number, text in enumerate(texts)
        for sender, said in (("human", "And?"), ("assistant", text))
    ]
    yield [{"uuid": "c", "name": "A", "chat_messages": messages}]


FORMATS: dict[str, Callable[[Sequence[str]], Iterator[Any]]] = {
    "anthropic-export": anthropic_export,
    "atif": atif,
    "claude-code": claude_code,
    "codex": codex,
    "cursor": cursor,
    "gemini-cli": gemini_cli,
    "openai-export": openai_export,
    "opencode": opencode,
}


def write(format: str, texts: Sequence[str], path: Path) -> None:
    """Write a transcript: JSON lines, of which some formats have one, or the database of `llm`."""
    if format != "llm":
        with path.open("w") as file:
            file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in FORMATS[format](texts))
        return
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE _llm_migrations (name)")
        connection.execute("CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT)")
        columns = "id TEXT PRIMARY KEY, model TEXT, prompt TEXT, response TEXT, conversation_id TEXT"
        connection.execute(f"CREATE TABLE responses ({columns})")
        connection.execute("INSERT INTO conversations VALUES ('c', 'A', 'm')")
        rows = [(f"{number:06}", "m", "And?", text, "c") for number, text in enumerate(texts)]
        connection.executemany("INSERT INTO responses VALUES (?, ?, ?, ?, ?)", rows)
