"""Long texts in requests: they are put in piece by piece, and no byte of a body is another one for it."""

import json
import sys
from typing import Any

import pytest

from turnlog.errors import ContentError
from turnlog.model import ContextWindow, Message
from turnlog.model.long_strings import PIECE
from turnlog.providers import Provider, get, interface, names
from turnlog.providers.bedrock import request

UNIT = 'line "q" \\ \t é 漢 😀 \x7f \x01 </x>\n'
TEXT = UNIT * (2 * PIECE // len(UNIT))


def message(turn: str, role: str, *blocks: dict[str, Any], is_ascii: bool = True, **fields: Any) -> Message:
    """Return a message that is spelled in ASCII or not."""
    return Message(turn=turn, role=role, content_json=json.dumps(blocks, ensure_ascii=is_ascii).encode(), **fields)


def text(said: str, **extra: Any) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": said, **extra}


CALL = {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": TEXT}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": TEXT}
WINDOW = ContextWindow(
    messages=(
        message("a", "user", text(TEXT)),
        message("b", "assistant", text(TEXT, citations=[TEXT]), text("x"), text(TEXT[::-1]), CALL, cache=True),
        message("c", "user", RESULT, text(TEXT), text(" " * 2 * PIECE), is_ascii=False, cache=True),
        message("d", "system", text(TEXT)),
        message("e", "user", text(TEXT), text(TEXT), is_ascii=False, document_name='a "name"'),
    ),
    options={},
)


@pytest.fixture(params=names())
def adapter(request: pytest.FixtureRequest) -> Provider:
    """Return each adapter."""
    return get(request.param)


def test_a_long_text_goes_into_a_body_as_a_short_one_does(adapter: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is spelled and whatever is beside it, with the same losses."""
    assert adapter.embeds_texts
    found = adapter.prepare_request(WINDOW, model="m")
    adapter.forget()
    monkeypatch.setattr(type(adapter), "embeds_texts", False)
    wanted = adapter.prepare_request(WINDOW, model="m")
    assert list(found.messages) == list(wanted.messages)
    assert found.loss_report == wanted.loss_report


def test_a_long_text_that_is_none_is_refused(adapter: Provider) -> None:
    """By one line, wherever in it that shows."""
    for wrong in (b"\xff", b"\\ud800"):
        inside = b"a" * 12 * PIECE
        content = b'[{"type":"text","text":"' + inside + wrong + inside + b'"}]'
        window = ContextWindow(messages=(Message(turn="t", role="user", content_json=content),), options={})
        with pytest.raises(ContentError, match="content: a text is malformed: "):
            adapter.prepare_request(window, model="m")


def test_what_is_too_large_is_not_kept(adapter: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer conversation is made anew then, and is the same."""
    encoded: list[str] = []
    encode = adapter._encode  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(adapter, "_encode", lambda carried: (encoded.append(carried.turn), encode(carried))[1])  # pyright: ignore[reportUnknownLambdaType, reportUnknownMemberType, reportUnknownArgumentType]
    first = message("a", "user", text("Hi."))
    longer = ContextWindow(messages=(first, message("b", "user", text("And?"))), options={})
    bodies: list[bytes] = []
    for most in (interface.CONVERSATION_BYTES_MAX, 10):
        monkeypatch.setattr(interface, "CONVERSATION_BYTES_MAX", most)
        adapter.forget()
        adapter.prepare_request(ContextWindow(messages=(first,), options={}), model="m")
        bodies.append(adapter.prepare_request(longer, model="m").body)
    assert encoded == ["a", "b", "a", "a", "b"]
    assert bodies[0] == bodies[1]


def test_large_turns_in_a_row_are_one_message_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the API takes no other conversation: in parts that are together what small ones are in one."""
    adapter = get("bedrock")
    found = adapter.prepare_request(WINDOW, model="m")
    adapter.forget()
    monkeypatch.setattr(request, "PIECE", sys.maxsize)
    wanted = adapter.prepare_request(WINDOW, model="m")
    roles = [message["role"] for message in json.loads(found.body)["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert (len(wanted.messages), found.body) == (3, wanted.body)
    assert any(isinstance(part, memoryview) for part in found.messages)
    assert b'"toolConfig"' in found.closing
