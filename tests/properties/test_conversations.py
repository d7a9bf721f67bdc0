"""Conversations on their way to a wire: however they are cut, the whole is the same; and nothing vanishes."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.providers.carrying import conversation

from turnlog import UnsupportedContentError
from turnlog.model import Message, content_bytes
from turnlog.model.chunked import Chunked
from turnlog.providers import Capabilities

_OF = st.sampled_from([{}, {"provider": "here", "api": "test", "model": "m"}, {"provider": "x", "api": "x"}])

_IDS = st.sampled_from(["a", "b", "a.b", "a_2", "call_1", "call_2", "", "ü" * 70, "name:f"])
"""Few ids, so that they are used twice, and mapped to ones that are used too."""


def _id(name: str) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={name: _IDS})


def _document(media_type: str, data: str = "aGVsbG8=") -> dict[str, Any]:
    return {"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}}


_CALLS = st.builds(
    lambda id, name: {"type": "tool_use", "name": name, "input": {}} | id, _id("id"), st.sampled_from("fg")
)

_RESULTS = st.builds(
    lambda id, name, content: {"type": "tool_result", "content": content} | id | name,
    _id("tool_use_id"),
    st.fixed_dictionaries({}, optional={"name": st.sampled_from("fg")}),
    st.sampled_from(["", "ok", [{"type": "text", "text": ""}], [_document("image/png"), _document("text/csv")]]),
)

_OTHERS = st.sampled_from(
    [
        {"type": "text", "text": "a"},
        {"type": "text", "text": ""},
        {"type": "text", "text": "b", "citations": [1], "x": None},
        _document("image/png"),
        _document("application/json"),
        _document("text/plain", "/w=="),
        {"type": "thinking", "thinking": "hm"},
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "thinking", "thinking": "hm", "signature": "s", "provider": "here", "api": "test", "model": "m"},
        {"type": "native", "provider": "here", "block": {}},
        {"type": "native", "provider": "here", "api": "test", "model": "m", "block": {}},
    ]
)


@st.composite
def _messages(draw: st.DrawFn) -> list[Message]:
    """Return turns as nobody should write them: calls and results anywhere, of few ids, and all other blocks."""
    count = draw(st.integers(0, 8))
    found: list[Message] = []
    for number in range(count):
        content = draw(st.lists(st.one_of(_CALLS, _RESULTS, _OTHERS), max_size=4))
        found.append(
            Message(
                turn=f"t{number}",
                role=draw(st.sampled_from(["assistant", "user", "system", "assistant", "user"])),
                content_json=content_bytes(content),
                cache=draw(st.booleans()),
                **draw(_OF),
            )
        )
    return found


_CAPABILITIES = st.builds(
    Capabilities,
    documents=st.sampled_from([(), ("image/*",), ("*/*",)]),
    result_documents=st.sampled_from([(), ("image/*",)]),
    text_documents=st.booleans(),
    thinking=st.sampled_from(["all", "signed", "none"]),
    native=st.booleans(),
    system=st.sampled_from(["joined", "inline"]),
    tool_id_pattern=st.sampled_from([None, "[a-z_0-9]+", "[a-zA-Z0-9]{9}"]),
    tool_id_characters_max=st.sampled_from([12, 64]),
)


@given(_messages(), _CAPABILITIES, st.data())
def test_conversation_is_the_same_however_it_is_cut(
    messages: list[Message], capabilities: Capabilities, data: st.DataObject
) -> None:
    """Carried at once or piece by piece, messages, losses, system texts and cached turns are the same."""
    at_once = conversation(capabilities, "report").carry(Chunked(messages))
    growing = conversation(capabilities, "report")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(messages)))))
    for cut in (*cuts, len(messages)):
        carried = growing.carry(Chunked(messages[:cut]))
    assert carried == at_once


@given(_messages(), _CAPABILITIES, st.sampled_from([None, "error"]), st.data())
def test_refusal_is_the_same_however_it_is_cut(
    messages: list[Message], capabilities: Capabilities, on_loss: Any, data: st.DataObject
) -> None:
    """What is refused at once is refused in some piece too, and what is not, in none."""
    refused: list[bool] = []
    for cuts in ([], sorted(data.draw(st.sets(st.integers(0, len(messages)))))):
        growing = conversation(capabilities, on_loss)
        try:
            for cut in (*cuts, len(messages)):
                growing.carry(Chunked(messages[:cut]))
            refused.append(False)
        except UnsupportedContentError:
            refused.append(True)
    assert refused[0] == refused[1]


@given(_messages(), _CAPABILITIES)
def test_every_block_is_carried_or_in_the_report(messages: list[Message], capabilities: Capabilities) -> None:
    """A block is in what the wire gets, or the report names it: nothing is left out in silence."""
    marked = [
        msgspec.structs.replace(
            message,
            content_json=content_bytes(
                [
                    _marked(block, f"mark-{message.turn}-{place}-")
                    for place, block in enumerate(msgspec.json.decode(message.content_json))
                ]
            ),
        )
        for message in messages
    ]
    carried = conversation(capabilities, "report").carry(Chunked(marked))
    sent = b"".join(carried.messages).decode() + "".join(carried.system)
    lost = {(loss.turn, loss.index) for loss in carried.losses if loss.kind in ("dropped", "downgraded")}
    for message in marked:
        for place in range(len(message.content)):
            mark = f"mark-{message.turn}-{place}-"
            carried_as = mark in sent or b64encode(mark.encode()).decode().rstrip("=") in sent
            assert carried_as or (message.turn, place) in lost


def _marked(block: dict[str, Any], mark: str) -> dict[str, Any]:
    """Return a block that says a text of its own, in the place where blocks of its type say something."""
    match block["type"]:
        case "text":
            return block | {"text": mark}
        case "thinking":
            return block | {"thinking": mark}
        case "native":
            return block | {"block": {"is": mark}}
        case "tool_use":
            return block | {"input": {"is": mark}}
        case "tool_result":
            return block | {"content": [{"type": "text", "text": mark}]}
        case _:
            return block | {"source": block["source"] | {"data": b64encode(mark.encode()).decode()}}
