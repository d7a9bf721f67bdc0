"""AsyncTurnLog against TurnLog."""

import asyncio
import inspect
from pathlib import Path

import pytest

from turnlog import AsyncTurnLog, TurnLog, UnknownTurnError


def _public(kind: type) -> dict[str, object]:
    return {name: member for name, member in vars(kind).items() if not name.startswith("_") and callable(member)}


def test_async_log_has_every_method_of_the_log() -> None:
    """What TurnLog can do, AsyncTurnLog can."""
    assert _public(AsyncTurnLog).keys() == _public(TurnLog).keys()


def test_async_methods_take_the_same_arguments() -> None:
    """A call is moved between the two by adding await."""
    for name in sorted(_public(TurnLog)):
        ours, theirs = (
            [(p.name, p.kind, p.default) for p in inspect.signature(getattr(kind, name)).parameters.values()]
            for kind in (AsyncTurnLog, TurnLog)
        )
        assert ours == theirs, name


def test_async_log_gives_what_the_log_gives(tmp_path: Path) -> None:
    """Turns, windows, events and bookmarks are equal through either; concurrent appends are all recorded."""
    url = f"sqlite:///{tmp_path}/log.db"

    async def record() -> tuple[object, ...]:
        async with await AsyncTurnLog.open(url) as log:
            root = await log.add_turn("hello", bookmark="main")
            replies = await asyncio.gather(*(log.add_turn(f"reply {n}", continues=root.id) for n in range(20)))
            assert len({reply.id for reply in replies}) == 20
            events = [recorded async for recorded in log.events()]
            return await log.turn("main"), await log.context("main"), await log.threads(), events

    recorded = asyncio.run(record())
    with TurnLog.open(url) as log:
        assert recorded == (log.turn("main"), log.context("main"), log.threads(), list(log.events()))
        assert len(recorded[3]) == 21  # type: ignore[arg-type]


def test_async_log_raises_what_the_log_raises() -> None:
    """An error comes out of the await as it is."""

    async def ask() -> None:
        async with await AsyncTurnLog.open("memory://") as log:
            await log.turn("nope")

    with pytest.raises(UnknownTurnError, match="no turn or bookmark 'nope'"):
        asyncio.run(ask())
