"""What a message of Chat Completions says that its requests have no place for is in the loss report."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.providers.carrying import message, result
from tests.unit.providers.openai_chat.wire import HOME, OTHER, aggregate, prepare, recorded, sent, whole

from turnlog.errors import UnsupportedContentError
from turnlog.providers.openai_chat import OpenAIChat

CITED = [{"type": "url_citation", "url_citation": {"url": "https://x.example/"}}]
AUDIO = {"id": "audio-1", "data": "AA", "transcript": "Hi"}
CUSTOM = {"id": "c1", "type": "custom", "custom": {"name": "sum", "input": "4 + 4"}}


def lost(reply: dict[str, Any], adapter: OpenAIChat, on_loss: Any = None) -> list[tuple[str, str, str, int | None]]:
    """Return what is lost of a reply on its way back to its model."""
    turn = recorded(aggregate(whole(reply), adapter=adapter))
    request = prepare(turn, adapter=adapter, typed=False, on_loss=on_loss)
    return [(entry.kind, entry.turn, entry.block, entry.index) for entry in request.loss_report.entries]


@pytest.mark.parametrize("adapter", [HOME, OTHER], ids=["openai", "other"])
@pytest.mark.parametrize(
    ("reply", "names"),
    [
        ({"content": "a", "annotations": CITED}, ["annotations"]),
        ({"content": "a", "mood": "calm", "executed_tools": [{"type": "search"}]}, ["mood", "executed_tools"]),
        ({"content": "a", "extra_content": {"google": {"thought_signature": "s"}}}, []),
        ({"content": "a", "extra_content": {"google": {}}, "thought_signature": "s"}, ["thought_signature"]),
        ({"content": "a", "annotations": [], "mood": None}, []),
    ],
    ids=["citations", "unknown", "signature", "signature and unknown", "nothing"],
)
def test_what_does_not_go_back_to_its_model_is_reported(
    reply: dict[str, Any], names: list[str], adapter: OpenAIChat
) -> None:
    """Each field by its name, with the turn and the block that it stands with."""
    assert lost(reply, adapter) == [("dropped", "reply", name, 0) for name in names]


def test_what_does_not_go_back_to_its_model_is_not_refused() -> None:
    """No provider would take it: where nothing may be lost, it is reported too."""
    assert lost({"content": "a", "annotations": CITED}, HOME, "error") == [("dropped", "reply", "annotations", 0)]


@pytest.mark.parametrize(
    ("audio", "adapter", "names"),
    [
        (AUDIO, HOME, []),
        (AUDIO, OTHER, ["audio"]),
        ({"data": "AA", "transcript": "Hi"}, HOME, ["audio"]),
    ],
    ids=["by its id", "to another endpoint", "without an id"],
)
def test_audio_that_only_its_text_is_sent_of_is_reported(
    audio: dict[str, Any], adapter: OpenAIChat, names: list[str]
) -> None:
    """OpenAI takes audio back by its id; of any other the transcript is sent."""
    assert lost({"content": None, "audio": audio}, adapter) == [("dropped", "reply", name, 0) for name in names]


def test_field_of_a_message_beside_a_call_names_the_place_of_the_call() -> None:
    """Where there is no text, the fields of the message stand with its first block."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    reply = {"reasoning_content": "Hm", "tool_calls": [call], "mood": "calm"}
    assert lost(reply, OTHER)[0] == ("dropped", "reply", "mood", 0)


@pytest.mark.parametrize("adapter", [HOME, OTHER], ids=["openai", "other"])
@pytest.mark.parametrize("name", ["images", "audio"])
def test_reply_that_says_nothing_beside_its_fields_is_reported(name: str, adapter: OpenAIChat) -> None:
    """Its turn has no message in a request to its model, and is refused for another one where nothing may be lost."""
    reply = {"content": None, name: {"data": "AA"}}
    turn = recorded(aggregate(whole(reply), adapter=adapter))
    assert lost(reply, adapter, "error") == [("dropped", "reply", name, 0)]
    assert sent(message("user", "Draw."), turn, adapter=adapter) == [{"role": "user", "content": "Draw."}]
    request = prepare(turn, adapter=adapter, model="another")
    assert [(entry.kind, entry.block) for entry in request.loss_report.entries] == [("dropped", "native")]
    with pytest.raises(UnsupportedContentError, match="native"):
        prepare(turn, adapter=adapter, model="another", on_loss="error")


def test_result_of_a_custom_call_has_no_type_of_its_own() -> None:
    """Chat Completions has one form of results for calls of every type."""
    turns = (recorded(aggregate(whole({"tool_calls": [CUSTOM]}, "tool_calls"))), message("user", result("c1", "8")))
    assert sent(*turns)[1] == {"role": "tool", "tool_call_id": "c1", "content": "8"}
