"""Calls of the Responses API through the real SDK, against a local server that speaks its wire."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.providers.openai_responses.wire import (
    REASONING,
    called,
    dumped,
    prepared,
    response,
    said,
    spoken,
    stream_of,
)
from tests.wires.server import Answer, WireServer, stream, whole

from turnlog.errors import ProviderError
from turnlog.model import Delta, Text
from turnlog.providers import Connection, PreparedRequest, Reply
from turnlog.providers.openai_responses import OpenAIResponses

WHOLE = response(REASONING, said("Hello \u2028 there"), called("f", '{"x":1.50}'))
OVERLOADED = b'{"error":{"message":"Slow down","type":"requests","code":"rate_limit_exceeded"}}'


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Any:
    """Give a function that sends a request to a server, by `call` and by `acall`."""

    def send(server: WireServer, prepared: PreparedRequest, *, on_delta: Any = None, **connection: Any) -> Reply:
        adapter = OpenAIResponses()
        to = Connection(api_key="sk-secret", base_url=f"{server.url}/v1", **connection)
        if request.param == "sync":
            return adapter.call(prepared, to, on_delta=on_delta)
        return asyncio.run(adapter.acall(prepared, to, on_delta=on_delta))

    return send


def test_streamed_call_sends_the_exact_body_and_returns_the_raw_events(call: Any) -> None:
    """The server gets the body as prepared; the events are kept as they came, and shown as they come."""
    events, request, shown = stream_of(WHOLE), prepared(spoken("user", "Hi")), list[Delta]()
    with WireServer(stream(events, names=True)) as server:
        reply = call(server, request, on_delta=shown.append)
    [received] = server.received
    assert (received.method, received.path, received.body) == ("POST", "/v1/responses", request.body)
    assert received.headers["authorization"] == "Bearer sk-secret"
    assert reply.events == tuple(events)
    assert reply.response == OpenAIResponses().aggregate(events)
    assert reply.response.stop_reason == "tool_use"
    assert "".join(str(delta.content) for delta in shown if delta.type == "text") == "Hello \u2028 there"


def test_unstreamed_call_returns_the_same_response(call: Any) -> None:
    """A reply in one piece is one event, and the response is that of the stream."""
    request = prepared(spoken("user", "Hi"), stream=False)
    with WireServer(whole(dumped(WHOLE))) as server:
        reply = call(server, request)
    assert server.received[0].body == request.body
    assert reply.events == (dumped(WHOLE),)
    assert reply.response == OpenAIResponses().aggregate(stream_of(WHOLE))


def test_refused_call_is_tried_again_and_recovers(call: Any) -> None:
    """A 429 that asks to wait is tried again by the SDK with the same body."""
    request = prepared(spoken("user", "Hi"))
    with WireServer(
        whole(OVERLOADED, status=429, headers={"retry-after": "0"}), stream(stream_of(WHOLE), names=True)
    ) as server:
        reply = call(server, request)
    assert [received.body for received in server.received] == [request.body] * 2
    assert reply.response.error is None


@pytest.mark.parametrize(("status", "retryable"), [(429, True), (500, True), (400, False), (401, False)])
def test_refused_call_is_an_error_with_its_status(call: Any, status: int, retryable: bool) -> None:
    """An HTTP error is the error of the response, and says whether to try again and when."""
    with WireServer(whole(OVERLOADED, status=status, headers={"retry-after": "7"})) as server:
        reply = call(server, prepared(spoken("user", "Hi")), retries_max=0)
    assert (reply.events, reply.response.stop_reason) == ((), "error")
    error = reply.response.error
    assert error is not None
    assert (error.status, error.retryable, error.retry_after_s) == (status, retryable, 7.0)
    assert error.message == f"openai_responses answered {status}: Slow down"


def test_stream_that_breaks_off_keeps_what_had_arrived(call: Any) -> None:
    """A connection cut in the middle of a stream is a retryable error of a reply with its beginning."""
    with WireServer(stream(stream_of(response(said("Hello")))[:5], names=True, cut=True)) as server:
        reply = call(server, prepared(spoken("user", "Hi")))
    assert [block.text for block in reply.response.content if isinstance(block, Text)] == ["Hel"]
    assert reply.response.stop_reason == "error"
    assert reply.response.error is not None
    assert reply.response.error.retryable


def test_stream_that_hangs_times_out(call: Any) -> None:
    """A server that says nothing more is given up after the time-out, and what had arrived is kept."""
    with WireServer(stream(stream_of(response(said("Hello")))[:5], names=True, hang=True)) as server:
        reply = call(server, prepared(spoken("user", "Hi")), timeout_s=0.3, retries_max=0)
    assert [block.text for block in reply.response.content if isinstance(block, Text)] == ["Hel"]
    assert reply.response.error is not None
    assert "in time" in reply.response.error.message


def test_server_that_never_answers_times_out(call: Any) -> None:
    """A server that accepts the request and says nothing is given up after the time-out."""
    with WireServer(Answer(headers={"content-type": "application/json"}, hang=True)) as server:
        reply = call(server, prepared(spoken("user", "Hi"), stream=False), timeout_s=0.3, retries_max=0)
    assert (reply.events, reply.response.stop_reason) == ((), "error")


def test_malformed_and_unknown_events_do_not_end_a_call(call: Any) -> None:
    """What follows an event that cannot be read is read, whether somebody watches or not."""
    events, shown = stream_of(response(said("Hello"))), list[Delta]()
    broken = [*events[:4], b'{"type":"response.novelty","x":1}', b'{"type":', *events[4:]]
    with WireServer(stream(broken, names=True), stream(broken, names=True)) as server:
        watched = call(server, prepared(spoken("user", "Hi")), on_delta=shown.append)
        unwatched = call(server, prepared(spoken("user", "Hi")))
    assert watched == unwatched
    assert watched.events == tuple(broken)
    assert shown == [Delta(type="text", content="Hel"), Delta(type="text", content="lo")]
    assert watched.response.stop_reason == "error"
    assert [block.text for block in watched.response.content if isinstance(block, Text)] == ["Hello"]


def test_models_are_asked_for() -> None:
    """The names of the models are listed, sorted; a refusal raises."""
    models = whole(b'{"object":"list","data":[{"id":"o9"},{"id":"gpt-6"}]}')
    with WireServer(models, whole(OVERLOADED, status=401)) as server:
        to = Connection(api_key="sk-secret", base_url=f"{server.url}/v1")
        assert OpenAIResponses().models(to) == ["gpt-6", "o9"]
        with pytest.raises(ProviderError) as caught:
            OpenAIResponses().models(to)
    assert caught.value.status == 401
