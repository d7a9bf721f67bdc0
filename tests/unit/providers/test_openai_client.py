"""What the wires that go through the `openai` SDK have of their own on the network, against a local server."""

import asyncio
from collections.abc import Callable

import pytest
from tests.wires.server import WireServer, stream, whole

from turnlog.errors import ProviderError
from turnlog.model import ContextWindow
from turnlog.providers import Connection, PreparedRequest, get
from turnlog.providers.openai_client import OpenAIClient

KEY = "sk-secret-of-a-test"
CLIENT = OpenAIClient("/some/path")


def request(streamed: bool) -> PreparedRequest:
    """Return a request."""
    return get("openai_chat").prepare_request(ContextWindow(messages=(), options={}), model="m", stream=streamed)


def connection(server: WireServer) -> Connection:
    """Return a connection to a server."""
    return Connection(api_key=KEY, base_url=f"{server.url}/v1", timeout_s=5, retries_max=0)


def call(given: Connection, streamed: bool, got: list[bytes]) -> None:
    """Send a body and gather the events as they come."""
    with CLIENT.open_stream("adapter", request(streamed), given) as events:
        got.extend(events)


def acall(given: Connection, streamed: bool, got: list[bytes]) -> None:
    """Do the same for asyncio."""

    async def run() -> None:
        async with CLIENT.aopen_stream("adapter", request(streamed), given) as events:
            async for event in events:
                got.append(event)

    asyncio.run(run())


both = pytest.mark.parametrize("call", [call, acall], ids=["sync", "async"])
Sending = Callable[[Connection, bool, list[bytes]], None]


@both
def test_body_goes_to_the_path_below_the_base_url(call: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that was given goes with it, and nothing of the user's OpenAI account: it may be another's endpoint."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer another")
    with WireServer(stream([b"{}"])) as server:
        call(connection(server), True, [])
    [received] = server.received
    assert (received.method, received.path, received.body) == ("POST", "/v1/some/path", request(True).body)
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["content-type"] == "application/json"
    assert received.headers.keys().isdisjoint({"openai-organization", "openai-project"})


@both
def test_stream_is_over_with_done(call: Sending) -> None:
    """An endpoint that keeps the connection open after `[DONE]` is not waited for."""
    got: list[bytes] = []
    with WireServer(stream([b"{}"], done=True, hang=True)) as server:
        call(connection(server), True, got)
    assert got == [b"{}"]


@both
def test_empty_reply_is_no_event(call: Sending) -> None:
    """Nothing is not an event."""
    got: list[bytes] = []
    with WireServer(whole(b"")) as server:
        call(connection(server), False, got)
    assert got == []


@both
@pytest.mark.parametrize(("asked", "retry_after_s"), [("250", 0.25), ("soon", 7.0), ("nan", 7.0), ("-1", 7.0)])
def test_waiting_time_may_be_in_milliseconds(call: Sending, asked: str, retry_after_s: float) -> None:
    """OpenAI has a header of its own for it, which goes before the one that all have, where it says something."""
    refusal = whole(b"{}", status=429, headers={"retry-after-ms": asked, "retry-after": "7"})
    with WireServer(refusal) as server, pytest.raises(ProviderError, match="adapter answered 429") as caught:
        call(connection(server), True, [])
    assert caught.value.retry_after_s == retry_after_s


def test_consumer_that_stops_early_closes_the_stream() -> None:
    """Who leaves the block has nothing left open; what it raises passes as it is."""
    with WireServer(stream([b"1", b"2"], hang=True), stream([b"1", b"2"], hang=True)) as server:
        with CLIENT.open_stream("adapter", request(True), connection(server)) as events:
            assert next(events) == b"1"

        async def first() -> bytes:
            async with CLIENT.aopen_stream("adapter", request(True), connection(server)) as events:
                async for event in events:
                    return event
            raise AssertionError

        assert asyncio.run(first()) == b"1"


@pytest.mark.parametrize("body", [b"[]", b"<p>", b'{"data":[{}]}', b""])
def test_models_of_another_kind_of_server_are_an_error(body: bytes) -> None:
    """What is no list of models is an error that speaks of the base URL."""
    with WireServer(whole(body)) as server, pytest.raises(ProviderError, match="check the base URL"):
        CLIENT.list_models("adapter", connection(server))
