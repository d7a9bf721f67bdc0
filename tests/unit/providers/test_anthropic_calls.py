"""Calls of the Messages API: the real SDK against a server that speaks the wire, well and badly."""

import asyncio
import contextlib
import socket
from typing import Any

import msgspec
import pytest
from tests.unit.providers.messages_wire import (
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

from turnlog import ProviderError
from turnlog.model import CallError, Delta, Text
from turnlog.providers import Connection, PreparedRequest, Reply

EVENTS = reply(text(0, "hel", "lo"), end())
WHOLE = whole({"type": "text", "text": "hello"})
SAID = (Text(text="hello"),)
AT_ONCE = {"retry-after-ms": "1"}

both = pytest.mark.parametrize("how", ["call", "acall"])
streamed_or_not = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])


def request(*, streamed: bool = True, **params: Any) -> PreparedRequest:
    """Return a request."""
    return anthropic().prepare_request(window(message("user", "hi")), model=MODEL, params=params, stream=streamed)


def connection(server: WireServer, **changes: Any) -> Connection:
    """Return how to reach a server: without retries unless they are asked for."""
    given: dict[str, Any] = {"api_key": "sk-test", "base_url": server.url, "timeout_s": 20.0, "retries_max": 0}
    return Connection(**(given | changes))


def send(how: str, given: PreparedRequest, to: Connection, **callbacks: Any) -> Reply:
    """Send a request, sync or async."""
    adapter = anthropic()
    if how == "call":
        return adapter.call(given, to, **callbacks)
    return asyncio.run(adapter.acall(given, to, **callbacks))


def error_body(kind: str, said: str) -> bytes:
    """Return the body of an HTTP error."""
    return encoded({"type": "error", "error": {"type": kind, "message": said}, "request_id": "req_1"})


# What goes well


@both
@streamed_or_not
def test_a_call_sends_the_exact_body_and_returns_the_exact_events(how: str, streamed: bool) -> None:
    """Byte for byte in both directions, and the callbacks get each event and each piece in order."""
    given = request(streamed=streamed)
    events: list[bytes] = []
    deltas: list[Delta] = []
    with WireServer(stream(EVENTS, names=True) if streamed else answered(WHOLE)) as server:
        found = send(how, given, connection(server), on_event=events.append, on_delta=deltas.append)
    [received] = server.received
    assert (received.method, received.path, received.body) == ("POST", "/v1/messages", given.body)
    assert received.headers["authorization"] == "Bearer sk-test"
    assert received.headers["content-type"] == "application/json"
    assert found.events == tuple(events) == (tuple(EVENTS) if streamed else (WHOLE,))
    assert "".join(delta.content for delta in deltas if isinstance(delta.content, str)) == "hello"
    assert found.response == anthropic().aggregate([WHOLE], model=MODEL)
    assert (found.response.content, found.response.stop_reason, found.response.error) == (SAID, "stop", None)


@both
def test_characters_that_some_take_for_line_ends_do_not_break_an_event(how: str) -> None:
    """U+2028 and its like may stand in JSON as they are."""
    said = "a\u2028b\u0085c\x7fd"
    events = reply(text(0, said), end())
    with WireServer(stream(events, names=True)) as server:
        found = send(how, request(), connection(server))
    assert (found.events, found.response.content) == (tuple(events), (Text(text=said),))


@both
def test_a_stream_is_over_with_its_last_event(how: str) -> None:
    """A server that keeps the connection open afterwards is not waited for."""
    with WireServer(stream(EVENTS, names=True, hang=True)) as server:
        found = send(how, request(), connection(server))
    assert (found.response.error, found.events[-1]) == (None, EVENTS[-1])


@both
def test_text_that_names_the_last_event_is_not_it(how: str) -> None:
    """Only the type of an event says that it is the last."""
    pieces = encoded(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "message_stop"}}
    )
    began = encoded({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
    note = encoded({"type": "new", "about": "message_stop"})
    events = [start(), began, note, pieces, *end()]
    with WireServer(stream(events, names=True)) as server:
        found = send(how, request(), connection(server))
    assert (found.events, found.response.content) == (tuple(events), (Text(text="message_stop"),))


@both
def test_a_whole_reply_to_a_request_for_a_stream_is_taken(how: str) -> None:
    """Some endpoints do not stream."""
    with WireServer(answered(WHOLE)) as server:
        found = send(how, request(), connection(server))
    assert (found.events, found.response.content) == ((WHOLE,), SAID)


@both
@streamed_or_not
def test_a_reply_that_does_not_say_what_it_is_is_what_was_asked_for(how: str, streamed: bool) -> None:
    """Some endpoints send no media type."""
    chunks = stream(EVENTS).chunks if streamed else [WHOLE]
    with WireServer(Answer(chunks=chunks)) as server:
        found = send(how, request(streamed=streamed), connection(server))
    assert (found.events, found.response.content) == (tuple(EVENTS) if streamed else (WHOLE,), SAID)


@both
def test_a_stream_in_answer_to_a_request_for_a_whole_reply_is_taken(how: str) -> None:
    """And some always stream."""
    with WireServer(stream(EVENTS, names=True)) as server:
        found = send(how, request(streamed=False), connection(server))
    assert (found.events, found.response.content) == (tuple(EVENTS), SAID)


@both
def test_unknown_events_are_returned_and_say_nothing(how: str) -> None:
    """They are part of the record, pings too."""
    events = [encoded({"type": "new_event", "x": 1}), EVENTS[0], encoded({"type": "ping"}), *EVENTS[1:]]
    with WireServer(stream(events, names=True)) as server:
        found = send(how, request(), connection(server))
    assert (found.events, found.response.content, found.response.error) == (tuple(events), SAID, None)


@pytest.mark.parametrize("name", ["temperature", "top_p", "top_k"])
def test_sampling_parameters_are_sent_as_of_the_version_that_has_them(name: str) -> None:
    """Later API versions refuse them; any other body is sent as of the SDK's own version."""
    with WireServer(answered(WHOLE), answered(WHOLE)) as server:
        send("call", request(streamed=False, **{name: 1}), connection(server))
        send("call", request(streamed=False, metadata={name: 1}), connection(server))
    versions = [received.headers["anthropic-version"] for received in server.received]
    assert versions[0] == "2023-06-01"
    assert versions[1] > versions[0]


def test_an_endpoint_without_a_key_gets_none_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK would take one from the environment."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-the-user")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "token-of-the-user")
    with WireServer(answered(WHOLE)) as server:
        found = send("call", request(streamed=False), connection(server, api_key=None))
    assert found.response.error is None
    assert "of-the-user" not in str(server.received[0].headers)


# Errors before a reply


@both
@streamed_or_not
def test_a_refused_call_is_tried_again(how: str, streamed: bool) -> None:
    """The SDK retries what may pass, with the same bytes."""
    given = request(streamed=streamed)
    busy = answered(error_body("rate_limit_error", "slow down"), status=429, headers=AT_ONCE)
    with WireServer(busy, stream(EVENTS, names=True) if streamed else answered(WHOLE)) as server:
        found = send(how, given, connection(server, retries_max=1))
    assert (found.response.content, found.response.error) == (SAID, None)
    assert [received.body for received in server.received] == [given.body, given.body]


@both
@streamed_or_not
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, "invalid_request_error", False),
        (401, "authentication_error", False),
        (404, "not_found_error", False),
        (413, "request_too_large", False),
        (429, "rate_limit_error", True),
        (500, "api_error", True),
        (503, "api_error", True),
        (529, "overloaded_error", True),
    ],
)
def test_an_http_error_is_the_error_of_the_response(
    how: str, streamed: bool, status: int, kind: str, retryable: bool
) -> None:
    """With what the provider said, the status, and whether to try again."""
    with WireServer(answered(error_body(kind, "no\nway"), status=status)) as server:
        response = send(how, request(streamed=streamed), connection(server)).response
    assert response.error == CallError(
        message=f"anthropic answered {status}: no way", status=status, retryable=retryable
    )
    assert (response.stop_reason, response.content, response.model) == ("error", (), MODEL)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [({"retry-after": "7"}, 7.0), ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5), ({}, None)],
)
def test_how_long_to_wait_is_reported(headers: dict[str, str], expected: float | None) -> None:
    """The finer of the two headers counts."""
    with WireServer(answered(error_body("rate_limit_error", "x"), status=429, headers=headers)) as server:
        error = send("call", request(), connection(server)).response.error
    assert error is not None
    assert (error.status, error.retry_after_s) == (429, expected)


def test_an_error_that_is_no_json_is_shortened() -> None:
    """Such as the page of a proxy."""
    with WireServer(
        Answer(status=502, headers={"content-type": "text/html"}, chunks=[b"<html>" + b"x" * 9_999])
    ) as server:
        error = send("call", request(), connection(server)).response.error
    assert error is not None
    assert error.message.startswith("anthropic answered 502: <html>xxx")
    assert len(error.message) < 600


def test_the_key_is_in_no_error() -> None:
    """Not even where the endpoint repeats it."""
    with WireServer(answered(error_body("authentication_error", "bad key sk-test!"), status=401)) as server:
        error = send("call", request(), connection(server)).response.error
    assert error is not None
    assert error.message == "anthropic answered 401: bad key …!"


@both
@pytest.mark.parametrize("key", ["sk-secret\n", "sk-s\u00e9cret"])
def test_a_key_that_cannot_be_sent_is_said_so(how: str, key: str) -> None:
    """Without showing it, and without a request."""
    with WireServer() as server:
        error = send(how, request(), connection(server, api_key=key)).response.error
    assert error is not None
    assert "API key for anthropic" in error.message
    assert ("cret" in error.message, error.retryable, server.received) == (False, False, [])


@both
@streamed_or_not
def test_no_answer_in_time_is_an_error(how: str, streamed: bool) -> None:
    """It may pass."""
    with WireServer(Answer(headers={"content-type": "text/event-stream"}, hang=True)) as server:
        response = send(how, request(streamed=streamed), connection(server, timeout_s=0.2)).response
    assert response.error is not None
    assert response.error.message.startswith("anthropic did not answer in time")
    assert (response.error.retryable, response.stop_reason) == (True, "error")


@both
def test_an_endpoint_that_is_not_there_is_an_error(how: str) -> None:
    """It may pass."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        error = send(how, request(), Connection(api_key="k", base_url=url, retries_max=0)).response.error
    assert error is not None
    assert error.message.startswith("anthropic cannot be reached")
    assert error.retryable


@both
@pytest.mark.parametrize("url", ["nowhere", "ftp://x.test", "http://x:y"])
def test_a_url_that_is_none_is_an_error(how: str, url: str) -> None:
    """It does not pass, and the message shows it."""
    error = send(how, request(), Connection(api_key="k", base_url=url, retries_max=0)).response.error
    assert error is not None
    assert (url in error.message, error.retryable) == (True, False)


# Errors within a reply


@both
def test_a_stream_that_breaks_off_keeps_what_came(how: str) -> None:
    """The text so far is in the response, and the connection's error."""
    with WireServer(stream(EVENTS[:3], names=True, cut=True)) as server:
        found = send(how, request(), connection(server))
    assert (found.events, found.response.content) == (tuple(EVENTS[:3]), (Text(text="hel"),))
    assert found.response.error is not None
    assert found.response.error.message.startswith("anthropic cannot be reached, or broke off")
    assert (found.response.error.retryable, found.response.stop_reason) == (True, "error")


@both
def test_a_stream_that_ends_within_an_event_keeps_what_came(how: str) -> None:
    """What came of the event is an event too."""
    first, second = stream(EVENTS[:3], names=True), b"event: content_block_delta\ndata: " + EVENTS[3][:30]
    cut = Answer(headers=first.headers, chunks=[*first.chunks, second])
    with WireServer(cut) as server:
        found = send(how, request(), connection(server))
    assert found.events == (*EVENTS[:3], EVENTS[3][:30])
    assert found.response.content == (Text(text="hel"),)
    assert found.response.error is not None
    assert found.response.error.retryable


@both
def test_a_stream_that_stalls_is_an_error(how: str) -> None:
    """The time-out is for each next piece."""
    with WireServer(stream(EVENTS[:3], names=True, hang=True)) as server:
        response = send(how, request(), connection(server, timeout_s=0.2)).response
    assert response.content == (Text(text="hel"),)
    assert response.error is not None
    assert response.error.message.startswith("anthropic did not answer in time")


@both
def test_malformed_events_do_not_end_a_stream(how: str) -> None:
    """With callbacks as without: the rest is kept, and the response says what was wrong."""
    events = [*EVENTS[:3], b'{"type":', *EVENTS[3:]]
    deltas: list[Delta] = []
    with WireServer(stream(events, names=True)) as server:
        found = send(how, request(), connection(server), on_delta=deltas.append)
    assert (found.events, found.response.content) == (tuple(events), SAID)
    assert found.response.error is not None
    assert "cannot be read" in found.response.error.message
    assert len(deltas) == 3


@both
def test_an_error_event_is_the_error_of_the_response(how: str) -> None:
    """Providers report what goes wrong within a stream as an event."""
    with WireServer(stream([*EVENTS[:3], error_body("overloaded_error", "Overloaded")], names=True)) as server:
        found = send(how, request(), connection(server))
    assert found.response.content == (Text(text="hel"),)
    assert found.response.error == CallError(
        message="anthropic broke off: Overloaded (overloaded_error)", retryable=True
    )


@both
@streamed_or_not
def test_an_answer_that_is_no_reply_is_an_error(how: str, streamed: bool) -> None:
    """Such as a page, or nothing at all."""
    page = Answer(headers={"content-type": "text/html"}, chunks=[b"<html>"])
    with WireServer(page, Answer(headers={"content-type": "application/json"})) as server:
        first, second = (send(how, request(streamed=streamed), connection(server)) for _ in range(2))
    assert first.response.error is not None
    assert "cannot be read: '<html>'" in first.response.error.message
    assert second.response.error is not None
    assert second.events == ()


def test_a_call_that_is_cancelled_leaves_its_events_with_the_caller() -> None:
    """The connection is closed, and what came is there to be recorded."""
    events: list[bytes] = []

    async def run() -> None:
        seen = asyncio.Event()

        def on_event(event: bytes) -> None:
            events.append(event)
            if len(events) == 3:
                seen.set()

        with WireServer(stream(EVENTS[:3], names=True, hang=True)) as server:
            task = asyncio.create_task(anthropic().acall(request(), connection(server), on_event=on_event))
            await seen.wait()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            assert task.cancelled()

    asyncio.run(run())
    assert anthropic().aggregate(events).content == (Text(text="hel"),)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, ZeroDivisionError])
def test_what_a_callback_raises_ends_the_call(failure: type[BaseException]) -> None:
    """The connection is closed, and the exception is the caller's."""

    def on_event(event: bytes) -> None:
        raise failure

    with WireServer(stream(EVENTS, names=True)) as server, pytest.raises(failure):
        send("call", request(), connection(server), on_event=on_event)


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
    assert "after_id=claude-c" in server.received[1].path
    assert server.received[0].headers["authorization"] == "Bearer sk-test"


def test_models_that_are_refused_raise() -> None:
    """The error says why, without the key."""
    with (
        WireServer(answered(error_body("authentication_error", "invalid sk-test"), status=401)) as server,
        pytest.raises(ProviderError, match="anthropic answered 401: invalid …") as raised,
    ):
        anthropic().models(connection(server))
    assert (raised.value.status, raised.value.retryable) == (401, False)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(headers={"content-type": "text/html"}, chunks=[b"<html>"]),
        answered(b"not json"),
        answered(b"[]"),
        answered(b"null"),
        answered(b'{"data":[1]}'),
        answered(b'{"data":[{"name":"x"}]}'),
        answered(b'{"models":[]}'),
    ],
)
def test_what_is_no_list_of_models_raises(answer: Answer) -> None:
    """As another server's page at a wrong base URL."""
    with WireServer(answer) as server, pytest.raises(ProviderError, match="sent no list of models") as raised:
        anthropic().models(connection(server))
    assert raised.value.provider == "anthropic"


def test_models_of_an_endpoint_that_is_not_there_raise() -> None:
    """It may pass."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ProviderError, match="cannot be reached") as raised:
            anthropic().models(Connection(api_key="k", base_url=url, retries_max=0))
    assert raised.value.retryable
