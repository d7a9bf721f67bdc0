"""Calls of the Messages API: the real SDK against a server. `../test_clients.py` has what is the same for all wires."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.unit.providers.anthropic.wire import (
    MODEL,
    anthropic,
    encoded,
    end,
    message,
    reply,
    start,
    text,
    whole,
    window,
)
from tests.wires.server import Answer, WireServer, stream
from tests.wires.server import whole as answered

from turnlog.model import CallError, Text
from turnlog.providers import Connection, PreparedRequest, Reply

SAID = "hel\u2028lo\x85"
"""Characters that some take for line ends may stand in JSON as they are."""
EVENTS = reply(text(0, SAID[:4], SAID[4:]), end())
WHOLE = whole({"type": "text", "text": SAID})

both = pytest.mark.parametrize("how", ["call", "acall"])
streamed_or_not = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])


def request(*, streamed: bool = True, **params: Any) -> PreparedRequest:
    """Return a request."""
    return anthropic().prepare_request(window(message("user", "hi")), model=MODEL, params=params, stream=streamed)


def connection(server: WireServer, **changes: Any) -> Connection:
    """Return how to reach a server, without retries."""
    given: dict[str, Any] = {"api_key": "sk-test", "base_url": server.url, "timeout_s": 20.0, "retries_max": 0}
    return Connection(**(given | changes))


def send(how: str, given: PreparedRequest, to: Connection, **callbacks: Any) -> Reply:
    """Send a request, sync or async."""
    adapter = anthropic()
    if how == "call":
        return adapter.call(given, to, **callbacks)
    return asyncio.run(adapter.acall(given, to, **callbacks))


@both
@pytest.mark.parametrize("note", [b'{"type":"new","about":"message_stop"}', b'{"type":"message_stop"'])
def test_a_stream_is_over_with_its_last_event(how: str, note: bytes) -> None:
    """A server that keeps the connection open is not waited for. What only names the last event is not it."""
    events = [start(), note, *text(0, "message_stop"), *end()]
    with WireServer(stream(events, names=True, hang=True)) as server:
        found = send(how, request(), connection(server))
    assert (found.events, found.response.content) == (tuple(events), (Text(text="message_stop"),))


@both
@pytest.mark.parametrize(
    ("streamed", "answer", "events"),
    [
        (True, answered(WHOLE), [WHOLE]),
        (False, stream(EVENTS, names=True), EVENTS),
        (True, Answer(chunks=stream(EVENTS).chunks), EVENTS),
        (False, Answer(chunks=[WHOLE]), [WHOLE]),
    ],
    ids=["whole for stream", "stream for whole", "stream of no type", "whole of no type"],
)
def test_a_reply_is_what_it_says_or_else_what_was_asked_for(
    how: str, streamed: bool, answer: Answer, events: list[bytes]
) -> None:
    """Some endpoints do not stream, some always do, and some send no media type."""
    with WireServer(answer) as server:
        found = send(how, request(streamed=streamed), connection(server))
    assert (found.events, found.response.content) == (tuple(events), (Text(text=SAID),))


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_sampling_parameters_are_sent_as_of_the_version_that_has_them(name: str) -> None:
    """Later API versions refuse them; any other body is sent as of the SDK's own version."""
    with WireServer(answered(WHOLE), answered(WHOLE)) as server:
        send("call", request(streamed=False, **{name: 1}), connection(server))
        send("call", request(streamed=False, metadata={name: 1}), connection(server))
    versions = [received.headers["anthropic-version"] for received in server.received]
    assert versions[0] == "2023-06-01"
    assert versions[1] > versions[0]


@pytest.mark.parametrize(
    ("status", "headers", "wait_s"),
    [
        (429, {"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        (429, {"retry-after": "7"}, 7.0),
        (529, {}, None),
    ],
)
def test_an_error_says_how_long_to_wait(status: int, headers: dict[str, str], wait_s: float | None) -> None:
    """Of the two headers that the API has for it the finer one counts; 529 is its own status for too much to do."""
    body = encoded({"type": "error", "error": {"type": "x", "message": "no\nway"}, "request_id": "req_1"})
    with WireServer(answered(body, status=status, headers=headers)) as server:
        error = send("call", request(), connection(server)).response.error
    message = f"anthropic at {server.url} answered {status}: no way"
    assert error == CallError(message=message, status=status, retryable=True, retry_after_s=wait_s)


@both
@streamed_or_not
def test_an_answer_that_is_no_reply_is_an_error(how: str, streamed: bool) -> None:
    """Such as a text, or nothing at all."""
    text = Answer(headers={"content-type": "text/plain"}, chunks=[b"hello"])
    with WireServer(text, Answer(headers={"content-type": "application/json"})) as server:
        first, second = (send(how, request(streamed=streamed), connection(server)) for _ in range(2))
    assert first.response.error is not None
    assert "cannot be read: 'hello': JSON is malformed" in first.response.error.message
    assert second.response.error is not None
    assert second.events == ()


# Models


def page(*names: str, more: bool = False) -> Answer:
    """Return the answer of a page of models."""
    models = [
        {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
        for name in names
    ]
    listed = {"data": models, "has_more": more, "first_id": names[0], "last_id": names[-1]}
    return answered(msgspec.json.encode(listed))


def test_models_are_listed_from_all_pages() -> None:
    """Sorted, whatever order they come in."""
    with WireServer(page("claude-b", "claude-c", more=True), page("claude-a")) as server:
        assert anthropic().models(connection(server)) == ["claude-a", "claude-b", "claude-c"]
    assert [received.method for received in server.received] == ["GET", "GET"]
    assert [received.path.partition("?")[0] for received in server.received] == ["/v1/models", "/v1/models"]
    assert "after_id=claude-c" in server.received[1].path
    assert server.received[0].headers["authorization"] == "Bearer sk-test"
