"""Half of a surrogate pair in the events of a reply."""

import json

import pytest
from tests.agent.wires import Anthropic, OpenAI

from turnlog.model import Text, ToolUse
from turnlog.model.cut_characters import CutCharacters
from turnlog.providers import get

FIRST, SECOND = rb"\ud83d", rb"\ude00"
WIRES = pytest.mark.parametrize(("adapter", "wire"), [("openai_chat", OpenAI), ("anthropic", Anthropic)])


def mended(*strings: bytes) -> list[str]:
    """Return the strings that events with one each have without halves."""
    cut = CutCharacters()
    return [json.loads(cut.joined(b'{"text":"%b"}' % string))["text"] for string in strings]


@pytest.mark.parametrize(
    ("strings", "said"),
    [
        ((b"A" + FIRST, SECOND + b"B"), ["A", "\U0001f600B"]),
        ((b"A" + FIRST, b"", b"so far", SECOND + b"B"), ["A", "", "so far", "\U0001f600B"]),
        ((b"A" + FIRST, SECOND + FIRST, SECOND), ["A", "\U0001f600", "\U0001f600"]),
        ((b"A" + FIRST.upper().replace(b"U", b"u"), SECOND), ["A", "\U0001f600"]),
        ((b"A" + FIRST + b"B", SECOND + b"C"), ["A\ufffdB", "\ufffdC"]),
        ((b"A" + FIRST, b"B" + SECOND), ["A", "B\ufffd"]),
        ((SECOND + b"A" + FIRST + FIRST,), ["\ufffdA\ufffd"]),
        ((FIRST + SECOND, rb"\u00e9\\ud83d \\\ud83dx"), ["\U0001f600", "é\\ud83d \\\ufffdx"]),
    ],
)
def test_halves_become_characters_or_are_replaced(strings: tuple[bytes, ...], said: list[str]) -> None:
    """Two that were cut apart are one character again; what is no half keeps its spelling."""
    assert mended(*strings) == said


def test_an_event_without_halves_is_the_same() -> None:
    """Also where it has escapes that are none."""
    event = rb'{"text":"\u00e9 \ud83d\ude00 \\ud83d"}'
    assert CutCharacters().joined(event) == event


@WIRES
def test_a_stream_that_is_cut_between_halves_is_read(adapter: str, wire: type[OpenAI | Anthropic]) -> None:
    """The reply has the character, and what is shown of it too."""
    events = wire().events("Hello")
    [place] = [number for number, event in enumerate(events) if b"Hello" in event]
    event = events[place]
    events[place : place + 1] = [event.replace(b"Hello", b"A" + FIRST), event.replace(b"Hello", SECOND + b"B")]

    response = get(adapter).aggregate(events)

    assert response.error is None
    assert response.content == (Text(text="A\U0001f600B"),)


@WIRES
def test_a_reply_with_half_of_a_pair_is_read(adapter: str, wire: type[OpenAI | Anthropic]) -> None:
    """Whole or in a stream: U+FFFD stands for what is no character."""
    whole = b"".join(wire(streamed=False).reply("A?B").chunks)
    for events in ([whole], wire().events("A?B")):
        response = get(adapter).aggregate([event.replace(b"A?B", b"A" + FIRST + b"B") for event in events])

        assert response.error is None
        assert response.content == (Text(text="A\ufffdB"),)
    assert (
        "".join(str(delta.content) for delta in get(adapter).deltas(whole.replace(b"A?B", SECOND)) if delta.content)
        == "\ufffd"
    )


@pytest.mark.parametrize("said", [rb"A\ud83dB", rb"A\ud83d", rb"\ude00A"])
def test_arguments_with_half_of_a_pair_are_the_same_streamed_and_whole(said: bytes) -> None:
    """They are text in a stream, and JSON in a whole reply."""
    calls = (("toolu_1", "f", json.dumps({"x": "A?B"})),)
    [whole] = Anthropic(streamed=False).reply("", calls).chunks
    events = [event.replace(b"A?B", said.replace(b"\\", b"\\\\")) for event in Anthropic().events("", calls)]
    streamed, at_once = (get("anthropic").aggregate(given) for given in (events, [whole.replace(b"A?B", said)]))
    assert streamed.content == at_once.content
    assert streamed.error is None
    [_, call] = streamed.content
    assert isinstance(call, ToolUse)
    assert not call.extra
