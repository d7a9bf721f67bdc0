"""How deep content is nested at most when it is recorded, and turns in a log already that are nested deeper."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.forging import exported

from turnlog import TurnLog
from turnlog.errors import ContentError
from turnlog.model import Block, Native, Text, ToolEndMeta, ToolUse, TurnMeta
from turnlog.record.drafts import TurnDraft, turn_draft
from turnlog.record.turns import plan_turn
from turnlog.sources import Sources

DEPTH_MAX = 500


def _parsed(content: bytes) -> list[Block]:
    return msgspec.json.decode(content, type=list[Text | ToolUse | Native])


def _call(levels: int) -> bytes:
    """Return content with a call that is nested so deeply, the list included."""
    inside = levels - 3
    return b'[{"type":"text","text":"see"},{"type":"tool_use","id":"c","name":"f","input":{"a":%b}}]' % (
        b"[" * inside + b"]" * inside
    )


def _as_json(log: TurnLog, content: bytes) -> None:
    log.add_turn(content, json=True)


def _as_blocks(log: TurnLog, content: bytes) -> None:
    log.add_turn(_parsed(content))


def _in_group(log: TurnLog, content: bytes) -> None:
    with log.group() as group:
        group.add_turn(content, json=True)


def _as_draft(log: TurnLog, content: bytes) -> None:
    log.add_group([turn_draft(content, json=True)])


def _as_result(log: TurnLog, content: bytes) -> None:
    turn = log.add_turn([ToolUse(id="c", name="f", input=msgspec.Raw(b"{}"))], role="assistant")
    log.tool_calls.end(ToolEndMeta(turn=turn.id, block=0, attempt=1, ending="result"), _parsed(content))


@pytest.mark.parametrize("add", [_as_json, _as_blocks, _in_group, _as_draft, _as_result])
def test_content_has_a_bound_of_depth(add: Callable[[TurnLog, bytes], Any]) -> None:
    """On each way in, to the level, and with its place. What has the bound can be read."""
    with TurnLog.open("memory://") as log:
        add(log, _call(DEPTH_MAX))
        before = len(list(log.events()))
        with pytest.raises(ContentError, match=r"\.input: content is nested 500 levels deep at most$") as found:
            add(log, _call(DEPTH_MAX + 1))
        assert found.value.field == "content[1].input"
        with pytest.raises(ContentError, match=r"^content"):
            add(log, b'[{"type":"native","provider":"p","block":%b}]' % (b"[" * 700 + b"]" * 700))
        topics = {event.header.topic for event in list(log.events())[before:]}
        assert topics <= ({"gpt.turn"} if add is _as_result else set())
        assert log.verify().clean


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 20_000])
def test_deeper_content_in_a_log_is_sound_and_read(levels: int) -> None:
    """However much room there is: as it stands, in its window, in an export, and where that is restored."""
    content = _call(levels)
    with TurnLog.open("memory://") as log:
        log.add_turn("first", bookmark="main")
        log.add_group([TurnDraft(payload=content, meta=TurnMeta(role="assistant"), continues=("main",))])
        log.add_turn("last", continues="main")
        assert log.verify().clean

        def read() -> None:
            called = ToolUse(id="c", name="f", input=msgspec.Raw(content.partition(b'"input":')[2][:-2]))
            assert log.content("main~1")[1] == called
            assert [len(message.content) for message in log.context("main").messages] == [1, 2, 1]

        read()
        _deep(400, read)
        with TurnLog.open("memory://") as other:
            other.import_turnlog(io.BytesIO(exported(log)))
            assert other.verify().clean
            assert other.payload("main~1") == content


def test_deeper_content_that_is_not_as_the_log_has_it_is_found() -> None:
    """Also where it stands below what is read at once."""
    with TurnLog.open("memory://") as log:
        for damaged in (_call(2000).replace(b"[]", b"[ ]"), _call(2000).replace(b"[]", b"[}")):
            draft = TurnDraft(payload=damaged, meta=TurnMeta(role="assistant"))
            with pytest.raises(ContentError):
                log.add_group([draft])
            log.store.write(lambda t, draft=draft: plan_turn(t, draft, t.placed(draft.payload), Sources()))
        spelled, malformed = log.verify().damage
        assert spelled.what == "its content is not in the form of the log"
        assert malformed.what.startswith("its content is malformed: content: not valid JSON")


def test_a_native_block_is_named_too() -> None:
    """By its field."""
    deep = Native(provider="p", block=msgspec.Raw(b"[" * 499 + b"]" * 499))
    with TurnLog.open("memory://") as log, pytest.raises(ContentError, match=r"^content\[0\]\.block: "):
        log.add_turn([deep])


def _deep(frames: int, then: Callable[[], None]) -> None:
    if frames:
        _deep(frames - 1, then)
    else:
        assert sys.getrecursionlimit() <= 1000
        then()
