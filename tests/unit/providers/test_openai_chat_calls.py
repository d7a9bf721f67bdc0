"""Chat Completions over the network: the real SDK against a local server that speaks the wire."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.providers.carrying import message
from tests.wires.server import Answer, WireServer, stream, whole

from turnlog.errors import ProviderError
from turnlog.model import CallError, ContextWindow, Delta, Text, ToolUse, Usage
from turnlog.providers import Connection, PreparedRequest, Reply
from turnlog.providers.openai_chat import OpenAIChat

ADAPTER = OpenAIChat()
WINDOW = ContextWindow(messages=(message("user", "Grüße\u2028"),), options={})


def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> bytes:
    """Return a chunk of a stream, spelled as the wire does it."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "r", "model": "m", "choices": [choice]} | fields, ensure_ascii=False).encode()


HELLO = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "hel\u2028"}),
    chunk({"content": "lo"}),
    chunk({}, "stop"),
    json.dumps({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 2}}).encode(),
]


def prepare(*, streamed: bool = True) -> PreparedRequest:
    """Prepare the request of these tests, as a recorded call does."""
    return ADAPTER.prepare_request(WINDOW, model="m", params=ADAPTER.call_params, stream=streamed)


def call(request: PreparedRequest, connection: Connection, **callbacks: Any) -> Reply:
    """Call without asyncio."""
    return ADAPTER.call(request, connection, **callbacks)


def acall(request: PreparedRequest, connection: Connection, **callbacks: Any) -> Reply:
    """Call with asyncio."""
    return asyncio.run(ADAPTER.acall(request, connection, **callbacks))


Calling = Callable[..., Reply]
both = pytest.mark.parametrize("call", [call, acall], ids=["sync", "async"])


def ask(
    call: Calling,
    *answers: Answer,
    streamed: bool = True,
    timeout_s: float = 10,
    retries_max: int = 0,
    **callbacks: Any,
) -> tuple[Reply, WireServer]:
    """Send the request of these tests to a server with some answers; check what it received."""
    request = prepare(streamed=streamed)
    with WireServer(*answers) as server:
        connection = Connection(
            api_key="sk-test", base_url=f"{server.url}/v1", timeout_s=timeout_s, retries_max=retries_max
        )
        reply = call(request, connection, **callbacks)
    for received in server.received:
        assert (received.method, received.path) == ("POST", "/v1/chat/completions")
        assert received.body == request.body
        assert received.headers["authorization"] == "Bearer sk-test"
    return reply, server


@both
def test_streamed_reply_comes_piece_by_piece(call: Calling) -> None:
    """Events and deltas come as they are sent, and add up to the response."""
    events: list[bytes] = []
    deltas: list[Delta] = []
    reply, server = ask(call, stream(HELLO, done=True), on_event=events.append, on_delta=deltas.append)
    assert reply.events == tuple(HELLO)
    assert events == HELLO
    assert [delta.content for delta in deltas] == ["hel\u2028", "lo"]
    assert reply.response.content == (Text(text="hel\u2028lo"),)
    assert reply.response.usage == Usage(input_tokens=4, output_tokens=2)
    assert reply.response.stop_reason == "stop"
    assert json.loads(server.received[0].body)["stream_options"] == {"include_usage": True}


@both
def test_whole_reply_is_one_event(call: Calling) -> None:
    """Without a stream the reply is one event, kept as it was sent."""
    message_ = {"role": "assistant", "content": "hello"}
    body = json.dumps({"model": "m", "choices": [{"index": 0, "message": message_, "finish_reason": "stop"}]}, indent=1)
    deltas: list[Delta] = []
    reply, server = ask(call, whole(body.encode()), streamed=False, on_delta=deltas.append)
    assert reply.events == (body.encode(),)
    assert reply.response.content == (Text(text="hello"),)
    assert deltas == [Delta(type="text", content="hello")]
    assert json.loads(server.received[0].body)["stream"] is False


@both
def test_refused_call_is_a_reply_with_the_error(call: Calling) -> None:
    """A rate limit is reported with its waiting time once no retries are left."""
    refusal = whole(b'{"error":{"message":"slow down"}}', status=429, headers={"retry-after": "7"})
    reply, _ = ask(call, refusal)
    assert reply.events == ()
    assert (reply.response.stop_reason, reply.response.model) == ("error", "m")
    assert reply.response.error == CallError(
        message="openai_chat answered 429: slow down", retryable=True, status=429, retry_after_s=7.0
    )


@both
def test_rate_limit_is_overcome_by_retries(call: Calling) -> None:
    """The SDK waits as long as it is told, and sends the same bytes again."""
    refusal = whole(b"{}", status=429, headers={"retry-after-ms": "1"})
    reply, server = ask(call, refusal, refusal, stream(HELLO, done=True), retries_max=2)
    assert reply.response.stop_reason == "stop"
    assert len(server.received) == 3


@both
@pytest.mark.parametrize(("status", "retryable"), [(400, False), (401, False), (500, True), (503, True)])
def test_status_says_whether_to_try_again(call: Calling, status: int, retryable: bool) -> None:
    """The error of a reply has the status, and whether it may pass."""
    reply, _ = ask(call, whole(b'{"error":{"message":"no"}}', status=status))
    assert reply.response.error == CallError(
        message=f"openai_chat answered {status}: no", retryable=retryable, status=status
    )


@both
def test_stream_that_breaks_off_keeps_what_had_come(call: Calling) -> None:
    """A cut in the middle of a call leaves its text and the pieces of the call."""
    piece = {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"x":'}}
    events = [chunk({"content": "I look."}), chunk({"tool_calls": [piece]})]
    reply, _ = ask(call, stream(events, cut=True))
    assert reply.events == tuple(events)
    assert [type(block) for block in reply.response.content] == [Text, ToolUse]
    assert reply.response.stop_reason == "error"
    assert reply.response.error is not None
    assert reply.response.error.retryable
    assert "broke off" in reply.response.error.message


@both
def test_stream_that_ends_too_early_is_an_error(call: Calling) -> None:
    """A stream that closes in good order, but before its finish reason, did not come to its end."""
    reply, _ = ask(call, stream(HELLO[:2]))
    assert reply.response.stop_reason == "error"
    assert reply.response.error == CallError(
        message="the reply of openai_chat ended without its finish reason", retryable=True
    )


@both
def test_silent_stream_times_out_with_what_had_come(call: Calling) -> None:
    """The time-out is an error that may pass."""
    reply, _ = ask(call, stream(HELLO[:2], hang=True), timeout_s=0.2)
    assert reply.events == tuple(HELLO[:2])
    assert reply.response.content == (Text(text="hel\u2028"),)
    assert reply.response.error is not None
    assert reply.response.error.retryable
    assert "did not answer in time" in reply.response.error.message


@both
def test_malformed_and_unknown_events_do_not_end_the_stream(call: Calling) -> None:
    """What is broken is an error, what is unknown is not, and the rest is kept in either case."""
    reply, _ = ask(call, stream([HELLO[1], b'{"type":"ping"}', b'{"choices":[', *HELLO[2:]], done=True))
    assert reply.response.content == (Text(text="hel\u2028lo"),)
    assert reply.response.stop_reason == "error"
    assert reply.response.error is not None
    assert "cannot be read" in reply.response.error.message
    fine, _ = ask(call, stream([HELLO[1], b'{"type":"ping"}', *HELLO[2:]], done=True))
    assert fine.response.stop_reason == "stop"


@both
def test_error_event_is_the_error_of_the_reply(call: Calling) -> None:
    """An error that comes inside a stream, with status 200 before it, is reported."""
    reply, _ = ask(call, stream([HELLO[1], b'{"error":{"message":"overloaded","type":"server_error"}}']))
    assert reply.response.content == (Text(text="hel\u2028"),)
    assert reply.response.error == CallError(message="openai_chat reported an error: overloaded", retryable=True)


def test_cancelled_call_leaves_the_events_with_the_caller() -> None:
    """A task that is cancelled closes its connection; what had come went to the callback."""
    events: list[bytes] = []

    async def run() -> None:
        with WireServer(stream(HELLO[:2], hang=True)) as server:
            arrived = asyncio.Event()

            def on_event(event: bytes) -> None:
                events.append(event)
                if len(events) == 2:
                    arrived.set()

            connection = Connection(base_url=f"{server.url}/v1")
            task = asyncio.create_task(ADAPTER.acall(prepare(), connection, on_event=on_event))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())
    assert events == HELLO[:2]


def test_models_are_those_of_the_endpoint() -> None:
    """A models call goes to the same base URL, with the key."""
    with WireServer(whole(b'{"data":[{"id":"b"},{"id":"a"}]}')) as server:
        assert ADAPTER.models(Connection(api_key="k", base_url=server.url)) == ["a", "b"]
    assert server.received[0].path == "/models"
    assert server.received[0].headers["authorization"] == "Bearer k"


def test_key_of_another_provider_never_goes_to_openai() -> None:
    """An adapter under another name has no endpoint of its own: without a base URL nothing is sent."""
    adapter = OpenAIChat(provider="groq", key_variable="GROQ_API_KEY")
    with pytest.raises(ProviderError, match="'groq' has no base URL"):
        adapter.models(Connection(api_key="k"))
    request = adapter.prepare_request(WINDOW, model="m")
    with pytest.raises(ProviderError, match="'groq' has no base URL"), adapter._open(request, Connection(api_key="k")):
        pass
    assert adapter.key_variable == "GROQ_API_KEY"


def test_other_provider_is_named_in_request_and_reply() -> None:
    """An endpoint of another provider is recorded under its own name."""
    adapter = OpenAIChat(provider="groq")
    with WireServer(stream(HELLO, done=True)) as server:
        request = adapter.prepare_request(WINDOW, model="m")
        reply = adapter.call(request, Connection(base_url=server.url))
    assert (request.provider, reply.response.provider) == ("groq", "groq")
    assert server.received[0].path == "/chat/completions"
