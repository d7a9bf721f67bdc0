"""Transcripts of a conversation in the formats of others, with as many answers as there are texts."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
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


def chat_messages(texts: Sequence[str]) -> Iterator[Record]:
    """Give the messages of an application."""
    for text in texts:
        for role, said in (("user", "And?"), ("assistant", text)):
            yield {"role": role, "content": said}


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


def geppetto(texts: Sequence[str]) -> Iterator[Record]:
    """Give a run of Geppetto with one turn."""
    blocks = [
        {"kind": kind, "id": f"{kind}{number}", "payload": {"text": said}}
        for number, text in enumerate(texts)
        for kind, said in (("user", "And?"), ("llm_text", text))
    ]
    yield {"id": "r", "turns": [{"id": "t", "run_id": "r", "blocks": blocks}]}


def geppetto_call(text: str) -> Iterator[Record]:
    """Give a run of Geppetto with a call, whose answer is no text."""
    for record in geppetto(["Well."]):
        call = {"kind": "tool_call", "payload": {"id": "c", "name": "f", "args": {"input": text[: len(text) // 2]}}}
        answer = {"kind": "tool_use", "payload": {"id": "c", "result": {"pages": [text[len(text) // 2 :]]}}}
        record["turns"][0]["blocks"] += [call, answer]
        yield record


def codex_call(text: str) -> Iterator[Record]:
    """Give the lines of a session of Codex CLI with a call."""
    yield from codex(["Well."])
    arguments = json.dumps({"input": text}, ensure_ascii=False, separators=(",", ":"))
    call = {"type": "function_call", "name": "shell", "call_id": "c", "arguments": arguments}
    yield {"type": "response_item", "payload": call}


def codex_thought(text: str) -> Iterator[Record]:
    """Give the lines of a session of Codex CLI with what the model thought."""
    yield from codex(["Well."])
    parts = [{"type": "summary_text", "text": said} for said in ("So.", text)]
    yield {"type": "response_item", "payload": {"type": "reasoning", "id": "r", "summary": parts}}


def claude_code_prompt(text: str) -> Iterator[Record]:
    """Give the rows of a session of Claude Code with a sub-agent, whose prompt stands there twice."""
    said, *answered = claude_code(["Well."])
    yield said
    for row in answered:
        call = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": text}}
        yield row | {"message": row["message"] | {"content": [call]}}
    row = {"type": "user", "uuid": "s0", "parentUuid": None, "sessionId": "s", "isSidechain": True}
    yield row | {"message": {"role": "user", "content": text}}


def anthropic_export_twice(text: str) -> Iterator[list[Record]]:
    """Give the conversations of an export of claude.ai, which says the text twice."""
    for conversations in anthropic_export([text]):
        for message in conversations[0]["chat_messages"]:
            message["text"] = message["content"][0]["text"] + "\n\nWell."
            message["content"].append({"type": "text", "text": "Well."})
        yield conversations


def claude_code_blocks(text: str) -> Iterator[Record]:
    """Give the rows of a session of Claude Code in which a message has the text in thousands of blocks."""
    said, *answered = claude_code(["Well."])
    yield said
    for row in answered:
        blocks = [{"type": "text", "text": text[start : start + 7000]} for start in range(0, len(text), 7000)]
        yield row | {"message": row["message"] | {"content": blocks}}


def gemini_thought(text: str) -> Iterator[Record]:
    """Give a session of Gemini CLI with what the model thought."""
    for record in gemini_cli(["Well."]):
        record["messages"][1]["thoughts"] = [{"subject": "So", "description": text}]
        yield record


def gemini_result(text: str) -> Iterator[Record]:
    """Give a session of Gemini CLI with what a tool answered, which is no text."""
    for record in gemini_cli(["Well."]):
        answer = {"functionResponse": {"id": "c", "name": "f", "response": {"pages": [text]}}}
        record["messages"][1]["toolCalls"] = [{"id": "c", "name": "f", "args": {}, "result": [answer]}]
        yield record


def openai_export_call(text: str) -> Iterator[list[Record]]:
    """Give the conversations of an export of ChatGPT with a call."""
    for conversations in openai_export([json.dumps({"input": text}, ensure_ascii=False)]):
        conversations[0]["mapping"]["assistant0"]["message"]["recipient"] = "browser"
        yield conversations


ELSEWHERE: dict[str, Callable[[str], Iterator[Any]]] = {
    "anthropic-export, said twice": anthropic_export_twice,
    "claude-code, blocks": claude_code_blocks,
    "claude-code, prompt": claude_code_prompt,
    "codex, call": codex_call,
    "codex, thought": codex_thought,
    "gemini-cli, result": gemini_result,
    "gemini-cli, thought": gemini_thought,
    "geppetto, call": geppetto_call,
    "openai-export, call": openai_export_call,
}
"""Transcripts with a text somewhere else than in what is said."""

FORMATS: dict[str, Callable[[Sequence[str]], Iterator[Any]]] = {
    "anthropic-export": anthropic_export,
    "atif": atif,
    "chat-messages": chat_messages,
    "claude-code": claude_code,
    "codex": codex,
    "cursor": cursor,
    "gemini-cli": gemini_cli,
    "geppetto": geppetto,
    "openai-export": openai_export,
    "opencode": opencode,
}
"""By format, what gives the records of a transcript with these answers: they may be as large as they like."""

NOT_OF_RECORDS = ("llm", "xs")
"""Formats without: `write` makes the database of `llm`; in an export of cross.stream each text is a file of its own."""


def write_records(records: Iterable[Any], path: Path) -> None:
    """Write JSON lines."""
    with path.open("w") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def write(format: str, texts: Sequence[str], path: Path) -> None:
    """Write a transcript: JSON lines, of which some formats have one, or the database of `llm`."""
    if format != "llm":
        write_records(FORMATS[format](texts), path)
        return
    rows = [(f"{number:06}", "m", "And?", text, "c") for number, text in enumerate(texts)]
    with closing(llm(path, rows)):
        pass


def write_elsewhere(kind: str, text: str, path: Path) -> None:
    """Write a transcript of `ELSEWHERE`, or the database of `llm` with a call."""
    if kind != "llm, call":
        write_records(ELSEWHERE[kind](text), path)
        return
    with closing(llm(path, [("1", "m", "And?", "Well.", "c")])) as connection, connection:
        connection.execute(
            "CREATE TABLE tool_calls (id INTEGER PRIMARY KEY, response_id TEXT, name TEXT, arguments TEXT)"
        )
        arguments = json.dumps({"input": text}, ensure_ascii=False)
        connection.execute("INSERT INTO tool_calls VALUES (1, '1', 'f', ?)", (arguments,))


def llm(path: Path, responses: Sequence[tuple[str, ...]]) -> sqlite3.Connection:
    """Make a database of `llm` with responses, and return a connection to it."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("CREATE TABLE _llm_migrations (name)")
        connection.execute("CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT)")
        columns = "id TEXT PRIMARY KEY, model TEXT, prompt TEXT, response TEXT, conversation_id TEXT"
        connection.execute(f"CREATE TABLE responses ({columns})")
        connection.execute("INSERT INTO conversations VALUES ('c', 'A', 'm')")
        connection.executemany("INSERT INTO responses VALUES (?, ?, ?, ?, ?)", responses)
    return connection
