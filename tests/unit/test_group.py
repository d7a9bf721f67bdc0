"""`TurnLog.group`: several turns in one transaction, all of them or none."""

import asyncio
import inspect
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from turnlog import (
    AsyncTurnLog,
    HeadConflictError,
    InputError,
    MetaError,
    SecretError,
    TurnGroup,
    TurnLog,
    UnknownTurnError,
)
from turnlog.record import turn_draft
from turnlog.redaction import Found

KEY = "zq-this-is-the-key-0123456789"
OTHER = "of-a-hook-0123456789"


def found(text: str, what: str) -> list[Found]:
    """Return where a hook finds something."""
    at = text.find(what)
    return [] if at < 0 else [Found(start=at, end=at + len(what), kind="other")]


@pytest.fixture
def log(tmp_path: Path):
    """Give an empty log."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        yield log


def roles(log: TurnLog, headish: str) -> list[str]:
    """Return the roles of a window."""
    return [message.role for message in log.context(headish).messages]


def add_all(log: TurnLog, *turns: dict[str, Any]) -> TurnGroup:
    """Record turns in a group."""
    with log.group() as group:
        for turn in turns:
            group.add_turn(**turn)
    return group


def test_later_turns_continue_earlier_ones(log: TurnLog, tmp_path: Path) -> None:
    """By the ids that adding returns; the bookmark ends at the last one."""
    file = tmp_path / "soup.md"
    file.write_text("# Soup")
    with log.group() as group:
        paper = group.add_document(file, bookmark="main")
        question = group.add_turn("How long?", continues=paper)
        answer = group.add_turn("Twenty minutes.", role="assistant", continues=question)
        assert group.turns == []
        assert log.threads() == []
    assert [turn.id for turn in group.turns] == [paper, question, answer]
    assert log.turn("main").id == answer
    assert roles(log, "main") == ["user", "user", "assistant"]


def test_turns_are_recorded_in_one_transaction(log: TurnLog) -> None:
    """So that one sync to disk is enough for them: they stand one behind the other, whatever others record."""
    with log.group() as group:
        first = group.add_turn("a")
        log.add_turn("of somebody else")
        group.add_turn("b", continues=first)
    places = [log.event(turn.id).global_position for turn in group.turns]
    assert places[1] == places[0] + 1


def test_an_exception_in_the_block_records_nothing(log: TurnLog) -> None:
    """It is raised as it is."""
    group = TurnGroup(lambda: "")

    def break_off() -> None:
        nonlocal group
        with log.group() as group:
            group.add_turn("a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert log.threads() == []
    assert group.turns == []


def test_a_turn_that_is_wrong_in_itself_is_refused_where_it_is_added(log: TurnLog) -> None:
    """The block can catch that and go on."""
    with log.group() as group:
        group.add_turn("a", bookmark="main")
        with pytest.raises(MetaError, match="role"):
            group.add_turn("b", role="nobody")
    assert roles(log, "main") == ["user"]


def test_a_turn_that_cannot_be_recorded_records_none(log: TurnLog) -> None:
    """What only the log can tell is told at the end."""
    head = log.add_turn("x", bookmark="main").id
    log.add_turn("y", continues="main")
    good = {"content": "a", "bookmark": "other"}
    with pytest.raises(HeadConflictError):
        add_all(log, good, {"content": "b", "continues": "main", "bookmark": "main", "expected_head": head})
    with pytest.raises(UnknownTurnError):
        add_all(log, good, {"content": "b", "continues": "nowhere"})
    with pytest.raises(SecretError):
        add_all(log, good, {"content": "b", "inherited": {"api_key": "sk-" + "a1" * 20}})
    assert [bookmark.name for bookmark in log.bookmarks.all()] == ["main"]


def _keys_in_a_group(log: TurnLog) -> TurnGroup:
    with log.group() as group:
        group.add_turn(f"the key is {KEY}", bookmark="main", api_key=KEY)
        group.add_turn([{"type": "text", "text": f"{KEY} and {OTHER}"}], continues="main", api_key=KEY)
        group.add_turn(f"not said to be one: {KEY}", continues="main")
    return group


async def _keys_in_an_async_group(log: AsyncTurnLog) -> TurnGroup:
    async with log.group() as group:
        group.add_turn(f"the key is {KEY}", bookmark="main", api_key=KEY)
        group.add_turn([{"type": "text", "text": f"{KEY} and {OTHER}"}], continues="main", api_key=KEY)
        group.add_turn(f"not said to be one: {KEY}", continues="main")
    return group


@pytest.mark.parametrize("is_async", [False, True])
def test_a_key_is_redacted_in_a_group_as_alone(is_async: bool) -> None:
    """With what the hooks of the log find; and only in the turn that it is given with."""
    with TurnLog.open("memory://", redact=[lambda text, _: found(text, OTHER)]) as log:
        group = asyncio.run(_keys_in_an_async_group(AsyncTurnLog(log))) if is_async else _keys_in_a_group(log)
        texts = [log.text(turn) for turn in group.turns]
        alone = log.add_turn(f"{KEY} and {OTHER}", api_key=KEY)
        assert texts[1] == log.text(alone)
        assert [KEY in text for text in texts] == [False, False, True]
        assert [turn.meta.redacted for turn in group.turns] == [{"api-key": 1}, alone.meta.redacted, None]
        assert alone.meta.redacted == {"api-key": 1, "other": 1}


def test_a_draft_does_not_show_its_key() -> None:
    """A draft may be logged, or stand in a test that fails."""
    draft = turn_draft("hello", api_key=KEY)
    assert draft.api_key == KEY
    assert KEY not in repr(draft)
    assert "api_key='…'" in repr(draft)
    assert "api_key=None" in repr(turn_draft("hello"))


def test_a_group_takes_what_a_log_takes() -> None:
    """So that a call is moved into a group as it is."""
    alone, together = (inspect.signature(kind.add_turn).parameters for kind in (TurnLog, TurnGroup))
    assert list(map(str, together.values())) == list(map(str, alone.values()))


def test_nothing_is_added_behind_the_end(log: TurnLog) -> None:
    """A group is recorded once."""
    with log.group() as group:
        group.add_turn("a")
    with pytest.raises(InputError, match=r"begin another one with `log\.group\(\)`"):
        group.add_turn("b")
    assert len(log.threads()) == 1


def test_what_has_an_id_is_recorded_whoever_adds_it(log: TurnLog) -> None:
    """A thread that adds while the block ends is refused, or its turn is in the log."""
    for _ in range(5):
        added: list[str] = []

        def add(group: TurnGroup, added: list[str] = added) -> None:
            with suppress(InputError):
                while True:
                    added.append(group.add_turn("a"))

        with log.group() as group:
            thread = threading.Thread(target=add, args=(group,))
            thread.start()
            while len(added) < 50:
                time.sleep(0.001)
        thread.join()
        assert [turn.id for turn in group.turns] == added


def test_an_empty_group_records_nothing(log: TurnLog) -> None:
    """Not even the beginning of a log."""
    with log.group() as group:
        pass
    assert (group.turns, log.id) == ([], None)


def test_an_id_that_is_given_is_kept_and_can_come_again(log: TurnLog) -> None:
    """The same turns again are the stored ones, as with `add_turn`."""
    for _ in range(2):
        with log.group() as group:
            first = group.add_turn("a", id="03h9xzlq19cqw9p1k1ux0p8k1")
            group.add_turn("b", continues=first, id="03h9xzlrdwlvx6dp496b01poe")
    assert len(log.threads()) == 1
    assert len(log.thread(first)) == 2


def test_the_same_with_asyncio() -> None:
    """Adding takes no `await`; the end of the block does."""

    async def main() -> list[str]:
        async with await AsyncTurnLog.open("memory://") as log:
            async with log.group() as group:
                first = group.add_turn("a", bookmark="main")
                group.add_turn("b", continues=first)
            with suppress(ZeroDivisionError):
                async with log.group() as lost:
                    lost.add_turn("c", continues="main")
                    raise ZeroDivisionError
            window = await log.context("main")
            return [message.turn for message in window.messages if message.turn in {turn.id for turn in group.turns}]

    assert len(asyncio.run(main())) == 2
