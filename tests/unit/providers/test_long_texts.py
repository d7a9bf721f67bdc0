"""Long texts in requests: they are put in piece by piece, and no byte of a body is another one for it."""

import json
import random
import sys
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from turnlog.errors import ContentError
from turnlog.model import ContextWindow, Message
from turnlog.model.chunked import Chunked
from turnlog.model.pieces import PIECE
from turnlog.providers import Provider, get, interface
from turnlog.providers.bedrock import request
from turnlog.providers.registry import BUILT_IN

UNIT = 'line "q" \\ \t é 漢 😀 \x7f \x01 </x>\n'
TEXT = UNIT * ((PIECE + PIECE // 8) // len(UNIT))


def message(turn: str, role: str, *blocks: dict[str, Any], is_ascii: bool = True, **fields: Any) -> Message:
    """Return a message that is spelled in ASCII or not."""
    return Message(turn=turn, role=role, content_json=json.dumps(blocks, ensure_ascii=is_ascii).encode(), **fields)


def text(said: str, **extra: Any) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": said, **extra}


def call(id: str) -> dict[str, Any]:
    """Return a tool call."""
    return {"type": "tool_use", "id": id, "name": "f", "input": {"a": TEXT}}


def result(id: str, content: Any, **fields: Any) -> dict[str, Any]:
    """Return the result of a call."""
    return {"type": "tool_result", "tool_use_id": id, "content": content, **fields}


def document(media_type: str, content: bytes) -> dict[str, Any]:
    """Return a document."""
    return {
        "type": "document",
        "source": {"type": "base64", "media_type": media_type, "data": b64encode(content).decode()},
    }


BYTES = random.Random(1).randbytes(PIECE + PIECE // 8)
INSIDE = [text(TEXT), document("image/png", BYTES), document("text/csv", TEXT.encode()), document("video/mp4", BYTES)]
WINDOW = ContextWindow(
    messages=(
        message("a", "user", text(TEXT)),
        message("b", "assistant", text(TEXT, citations=[TEXT]), text("x"), text(TEXT[::-1]), call("c1"), cache=True),
        message("c", "user", result("c1", TEXT), text(TEXT), text(" " * 2 * PIECE), is_ascii=False, cache=True),
        message("d", "system", text(TEXT)),
        message("e", "user", text(TEXT), text(TEXT), is_ascii=False, document_name='a "name"'),
    ),
    options={},
)
LARGE = ContextWindow(
    messages=(
        *WINDOW.messages,
        message("f", "user", *(document(each, BYTES) for each in ("image/png", "application/pdf", "video/mp4"))),
        message("g", "user", document("text/plain", TEXT.encode()), document("text/plain", BYTES), document_name="n"),
        message("h", "assistant", *map(call, ("c2", "c3", "c4", "c5", "c6")), result("c6", TEXT)),
        message("i", "user", text(TEXT), result("c3", INSIDE), result("c2", "x"), result("c4", TEXT, is_error=True)),
        message("j", "user", result("c5", INSIDE[::-1], is_error=True), result("c9", TEXT), text(TEXT)),
        message("k", "assistant", call("c7"), result("c7", INSIDE), is_ascii=False),
    ),
    options={},
)


INPUTS: list[dict[str, Any]] = [
    {"input": {"a": TEXT}},
    {"input": {TEXT: [{"b": TEXT, "c": TEXT[::-1]}, 1.0], "d": "x"}},
    {"input": {"a": TEXT}, "spelled_arguments": json.dumps({"a": TEXT}, indent=1)},
    {"input": {}, "malformed_arguments": TEXT},
    {"input": {"input": TEXT}, "call_type": "custom"},
    {"input": {"a": TEXT}, "call_type": "custom"},
]
THOUGHTS: list[dict[str, Any]] = [{"signature": "s"}, {"signature": TEXT}, {}, {"further": TEXT}]


def own(adapter: Provider, *, is_ascii: bool) -> ContextWindow:
    """Return a window with what a model has said itself: calls and thoughts of all kinds."""
    messages: list[Message] = []
    whose = {"provider": adapter.provider, "api": adapter.api, "model": "m"}
    for place, (given, thought) in enumerate(zip(INPUTS, THOUGHTS * 2, strict=False)):
        thinking = {"type": "thinking", "thinking": f"{place}{TEXT}", **whose, **thought}
        called = {"type": "tool_use", "id": f"c{place}", "name": "f", **given}
        messages += (
            message(f"a{place}", "assistant", thinking, called, is_ascii=is_ascii, **whose),
            message(f"b{place}", "user", result(f"c{place}", "x")),
            message(f"c{place}", "assistant", thinking, text("Well."), called | {"id": f"d{place}"}, is_ascii=is_ascii),
            message(f"d{place}", "user", result(f"d{place}", "y")),
        )
    return ContextWindow(messages=tuple(messages), options={})


@pytest.fixture(params=sorted(BUILT_IN))
def adapter(request: pytest.FixtureRequest) -> Provider:
    """Return each adapter."""
    return get(request.param)


def test_a_long_text_goes_into_a_body_as_a_short_one_does(adapter: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is spelled and whatever is beside it, with the same losses."""
    assert adapter.embeds_texts, f"set embeds_texts on {type(adapter).__name__}: else large texts are in memory often"
    found = adapter.prepare_request(LARGE, model="m")
    adapter.forget()
    monkeypatch.setattr(type(adapter), "embeds_texts", False)
    wanted = adapter.prepare_request(LARGE, model="m")
    assert list(found.messages) == list(wanted.messages)
    assert found.loss_report == wanted.loss_report


@pytest.mark.parametrize("is_ascii", [True, False])
def test_long_calls_and_thoughts_go_into_a_body_as_short_ones_do(
    adapter: Provider, monkeypatch: pytest.MonkeyPatch, *, is_ascii: bool
) -> None:
    """The input of a call as it is spelled, as JSON or as a text of it, and what was thought by that very model."""
    window = own(adapter, is_ascii=is_ascii)
    found = adapter.prepare_request(window, model="m")
    adapter.forget()
    monkeypatch.setattr(type(adapter), "embeds_texts", False)
    wanted = adapter.prepare_request(window, model="m")
    assert list(found.messages) == list(wanted.messages)
    assert found.loss_report == wanted.loss_report


def test_a_conversation_with_long_texts_goes_on(adapter: Provider) -> None:
    """Turn by turn, also where results stand beside their calls, as it does when it is made at once."""
    for count in range(1, len(LARGE.messages) + 1):
        window = msgspec.structs.replace(LARGE, messages=Chunked(LARGE.messages[:count]))
        found = adapter.prepare_request(window, model="m")
        wanted = get(adapter.name).prepare_request(window, model="m")
        assert list(found.messages) == list(wanted.messages), count
        assert found.loss_report == wanted.loss_report


def test_a_long_text_that_is_none_is_refused(adapter: Provider) -> None:
    """By one line, wherever in it that shows."""
    for wrong in (b"\xff", b"\\ud800"):
        inside = b"a" * 12 * PIECE
        content = b'[{"type":"text","text":"' + inside + wrong + inside + b'"}]'
        window = ContextWindow(messages=(Message(turn="t", role="user", content_json=content),), options={})
        with pytest.raises(ContentError, match="content: a text is malformed: "):
            adapter.prepare_request(window, model="m")


@pytest.mark.parametrize(
    "around",
    [
        (b'"is_error":true,"content":"', b'"'),
        (b'"content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"', b'"}}]'),
        (b'"content":[{"type":"document","source":{"type":"base64","media_type":"image/png","data":"', b'"}}]'),
        (b'"content":[{"type":"document","source":{"type":"base64","media_type":"video/mp4","data":"', b'"}}]'),
    ],
)
def test_a_long_result_that_is_none_is_refused(adapter: Provider, around: tuple[bytes, bytes]) -> None:
    """By one line too, whether or not the wire can say that it is an error, and has a place for documents in it."""
    asked = message("a", "assistant", call("c1"))
    for wrong in (b"\xff", b"\\ud800"):
        inside = (b"a" * 12 * PIECE + wrong).join(around)
        content = b'[{"type":"tool_result","tool_use_id":"c1",' + inside + b"}]"
        window = ContextWindow(messages=(asked, Message(turn="t", role="user", content_json=content)), options={})
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
