"""A program of a user, who has pyright look at it strictly: public types say what they are, and nothing is cast."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from datetime import datetime

from turnlog import AsyncTurnLog, Block, Bookmark, Text, Thread, ToolUse, Turn, TurnLog, Usage


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


async def later(url: str, question: str) -> str:
    """Ask on in another store, with asyncio."""
    async with await AsyncTurnLog.open(url) as log:
        turn = await log.add_turn(question, bookmark="main")
        return await log.text(turn)


def main(url: str) -> None:
    """Record a conversation, and show it."""
    with TurnLog.open(url) as log:
        log.add_turn("What is the capital of France?", bookmark="main")
        log.add_turn([Text(text="Paris.")], role="assistant", continues="main", model="m", usage={"output_tokens": 2})
        with log.group() as group:
            first = group.add_turn("And of Spain?", continues="main")
            group.add_turn("Madrid.", role="assistant", continues=first)
        head: Turn = log.turn("main")
        for turn in log.ancestry(head.id):
            shown = line(log, turn)
            print(shown.who, shown.name or "-", shown.model or "-", tokens(turn), tools(log.content(turn)), shown.text)
        bookmarks: list[Bookmark] = log.bookmarks()
        threads: list[Thread] = log.threads()
        print([bookmark.name for bookmark in bookmarks], len(threads), source(head))
        print([message.model or message.role for message in log.context("main").messages])
    print(asyncio.run(later("memory://", "And of Italy?")))


if __name__ == "__main__":
    main(sys.argv[1])
