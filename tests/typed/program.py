"""A program of a user, who has pyright look at it strictly: public types say what they are, and nothing is cast."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from datetime import datetime

from turnlog import (
    Ask,
    AsyncTurnLog,
    Block,
    Bookmark,
    Call,
    Pointer,
    Policy,
    ReplyFacts,
    RunFinished,
    Text,
    Thinking,
    Thread,
    Tool,
    ToolResult,
    ToolUse,
    Turn,
    TurnLog,
    UnreadableCall,
    Usage,
)


@dataclass(frozen=True)
class Line:
    """What the program shows of a turn."""

    who: str
    name: str | None
    model: str | None
    at: datetime
    text: str


def line(log: TurnLog, turn: Turn) -> Line:
    """Return a line of a turn."""
    name: str | None = turn.head
    return Line(who=turn.role, name=name, model=turn.model, at=turn.said_at, text=log.text(turn))


def tokens(turn: Turn) -> int:
    """Return the tokens that a turn took."""
    usage: Usage | None = turn.meta.usage
    return 0 if usage is None else usage.total_tokens


def tools(blocks: list[Block]) -> list[str]:
    """Return the names of the tools that a turn calls."""
    return [block.name for block in blocks if isinstance(block, ToolUse)]


def source(turn: Turn) -> str | None:
    """Return the session that an imported turn is of."""
    origin = turn.meta.origin
    return None if origin is None else origin.session


def settings(log: TurnLog) -> list[str]:
    """Return which models and servers are set up."""
    address: str | None = None
    for provider in log.providers.all():
        address = provider.base_url
    found = [f"{pointer.name}: {pointer.model}" for pointer in log.pointers.all()]
    limits: list[float | None] = [server.timeout_s for server in log.servers.all()]
    return [*found, str(address), str(limits)]


def made(log: TurnLog, headish: str) -> list[str | None]:
    """Return how the tool calls of a turn ended, and who denied what."""
    return [attempt.ending or attempt.by for call in log.tool_calls.of(headish) for attempt in call.attempts]


def failed(block: ToolResult) -> bool | None:
    """Return whether a tool has told of an error."""
    told: bool | None = block.is_error
    return told


def shape(tool: Tool) -> bytes:
    """Return the schema of what a tool returns, nothing where it has none."""
    return bytes(tool.output_schema)


def signed(block: Thinking) -> str:
    """Return the signature of what was thought."""
    signature: str | None = block.signature
    return signature or "unsigned"


def named(log: TurnLog) -> list[str]:
    """Return what has a name, each reached as the others are."""
    head = log.turn("main")
    bookmark: Bookmark = log.bookmarks.set("aside", head.id, expected_head=False)
    pointer: Pointer = log.pointers.set("milli", "anthropic", "some-model", params={"max_tokens": 9})
    server = log.servers.set("fs", ["serve"])
    provider = log.providers.set("local", adapter="openai_chat", base_url="http://localhost:1/v1")
    hold = log.holds.set("case 7", thread=head.id)
    assert log.bookmarks.get("aside") == bookmark
    assert (log.pointers.get("milli"), log.servers.get("fs"), log.holds.get("case 7")) == (pointer, server, hold)
    calls: list[Call | UnreadableCall] = log.calls.all()
    kept: str | None = None
    log.add_turn("Beside.", continues="main", bookmark=False, subject=kept)
    return [bookmark.name, pointer.name, server.name, provider.name, hold.name, *(call.id for call in calls)]


def imported(log: TurnLog, path: str) -> str:
    """Return what an import has done."""
    report = log.import_transcript("codex", path)
    heads: tuple[str, ...] = report.heads
    return f"{report.turns_added} {len(heads)} {[problem.what for problem in report.problems]}"


async def imported_later(log: AsyncTurnLog, path: str) -> int:
    """Return how many turns an import found there."""
    return (await log.import_transcript("codex", path)).turns_known


async def asked(log: AsyncTurnLog, question: str, replies: Ask) -> str:
    """Ask, and return what was answered."""
    careful = Policy(approve="never", iterations_max=1, time_max_s=30.0)
    async with log.run_events(question, provider="anthropic", model="m", policy=careful, ask=replies) as events:
        async for event in events:
            if isinstance(event, RunFinished):
                return event.result.text
    return ""


async def later(url: str, question: str, path: str) -> str:
    """Ask on in another store, with asyncio."""
    async with await AsyncTurnLog.open(url) as log:
        turn = await log.add_turn(question, bookmark="main")
        said = await log.text(turn)
        answer = await asked(log, "And of Malta?", Ask(replay={}, params={"max_tokens": 9}))
        known = await imported_later(log, path)
        return f"{said} {[bookmark.name for bookmark in await log.bookmarks.all()]} {answer!r} {known}"


def main(url: str, path: str) -> None:
    """Record a conversation, and show it."""
    with TurnLog.open(url) as log:
        log.add_turn("What is the capital of France?", bookmark="main")
        log.add_turn(
            [Text(text="Paris.")],
            role="assistant",
            continues="main",
            reply=ReplyFacts(model="m", usage={"output_tokens": 2}),
        )
        with log.group() as group:
            first = group.add_turn("And of Spain?", continues="main")
            group.add_turn("Madrid.", role="assistant", continues=first)
        head: Turn = log.turn("main")
        for turn in log.ancestry(head.id):
            shown = line(log, turn)
            print(shown.who, shown.name or "-", shown.model or "-", tokens(turn), tools(log.content(turn)), shown.text)
        bookmarks: list[Bookmark] = log.bookmarks.all()
        threads: list[Thread] = log.threads()
        print([bookmark.name for bookmark in bookmarks], len(threads), source(head))
        print(settings(log), made(log, "main"), signed(Thinking(thinking="Hm.")))
        print(failed(ToolResult()), shape(Tool(name="f")))
        print(named(log))
        print([message.model or message.role for message in log.context("main").messages])
        print(imported(log, path))
    print(asyncio.run(later("memory://", "And of Italy?", path)))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
