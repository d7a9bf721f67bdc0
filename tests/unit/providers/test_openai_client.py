"""The network part of the wires that go through the `openai` SDK, against a local server."""

import asyncio
import subprocess
import sys
from collections.abc import Callable

import pytest
from tests.wires.server import Answer, WireServer, stream, whole

from turnlog.errors import ProviderError
from turnlog.providers import Connection
from turnlog.providers.openai_client import aopen_stream, list_models, open_stream

KEY = "sk-secret-of-a-test"


def connection(server: WireServer, *, timeout_s: float = 10, retries_max: int = 0, key: str | None = KEY) -> Connection:
    """Return a connection to a server."""
    return Connection(api_key=key, base_url=f"{server.url}/v1", timeout_s=timeout_s, retries_max=retries_max)


def call(given: Connection, streamed: bool, got: list[bytes]) -> None:
    """Send a body and gather the events as they come."""
    with open_stream("adapter", "/some/path", b'{"of": "a test"}', streamed, given) as events:
        got.extend(events)


def acall(given: Connection, streamed: bool, got: list[bytes]) -> None:
    """Do the same for asyncio."""

    async def run() -> None:
        async with aopen_stream("adapter", "/some/path", b'{"of": "a test"}', streamed, given) as events:
            async for event in events:
                got.append(event)

    asyncio.run(run())


both = pytest.mark.parametrize("call", [call, acall], ids=["sync", "async"])
Sending = Callable[[Connection, bool, list[bytes]], None]


def fails(call: Sending, answer: Answer, **settings: float) -> tuple[ProviderError, list[bytes]]:
    """Return the error that a call ends with, and the events that came before."""
    got: list[bytes] = []
    with WireServer(answer) as server:
        given = connection(server, timeout_s=settings.get("timeout_s", 10))
        with pytest.raises(ProviderError) as caught:
            call(given, settings.get("streamed", True) is True, got)
    assert KEY not in str(caught.value)
    assert caught.value.provider == "adapter"
    return caught.value, got


@both
def test_body_is_sent_byte_for_byte(call: Sending) -> None:
    """The SDK sends the bytes that it is given, to the path below the base URL, with the key."""
    with WireServer(stream([b"{}"])) as server:
        call(connection(server), True, [])
    [received] = server.received
    assert (received.method, received.path, received.body) == ("POST", "/v1/some/path", b'{"of": "a test"}')
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert received.headers["content-type"] == "application/json"


@both
def test_events_come_as_the_bytes_that_were_sent(call: Sending) -> None:
    """Spelling and whitespace of an event are kept; a line separator inside a string (U+2028) does not cut it."""
    events = ['{"a": "\u2028 \x85"}'.encode(), b'{ "b":1.50 }', b"not json"]
    got: list[bytes] = []
    with WireServer(stream(events, done=True)) as server:
        call(connection(server), True, got)
    assert got == events


@both
def test_stream_is_over_with_done(call: Sending) -> None:
    """An endpoint that keeps the connection open after `[DONE]` is not waited for."""
    answer = stream([b"{}"], done=True, hang=True)
    got: list[bytes] = []
    with WireServer(answer) as server:
        call(connection(server, timeout_s=5), True, got)
    assert got == [b"{}"]


@both
@pytest.mark.parametrize("streamed", [True, False])
def test_whole_reply_is_one_event(call: Sending, streamed: bool) -> None:
    """A JSON reply is one event, also where a stream was asked for."""
    got: list[bytes] = []
    with WireServer(whole(b'{\n "whole": true\n}')) as server:
        call(connection(server), streamed, got)
    assert got == [b'{\n "whole": true\n}']


@both
def test_empty_reply_is_no_event(call: Sending) -> None:
    """Nothing is not an event."""
    got: list[bytes] = []
    with WireServer(whole(b"")) as server:
        call(connection(server), False, got)
    assert got == []


@both
def test_stream_that_breaks_off_raises_after_what_came(call: Sending) -> None:
    """What had come is there, and the error may pass."""
    error, got = fails(call, stream([b"1", b"2"], cut=True))
    assert got == [b"1", b"2"]
    assert (error.retryable, error.status) == (True, None)


@both
def test_silent_stream_times_out(call: Sending) -> None:
    """The time-out counts between pieces of a reply."""
    error, got = fails(call, stream([b"1"], hang=True), timeout_s=0.2)
    assert got == [b"1"]
    assert error.retryable
    assert "did not answer in time" in str(error)


@both
def test_silent_endpoint_times_out_before_any_reply(call: Sending) -> None:
    """A whole reply that does not come times out too."""
    error, got = fails(call, Answer(hang=True), timeout_s=0.2, streamed=False)
    assert got == []
    assert error.retryable
    assert "did not answer in time" in str(error)


@both
@pytest.mark.parametrize(
    ("status", "headers", "retryable", "retry_after_s"),
    [
        (400, {}, False, None),
        (401, {}, False, None),
        (404, {}, False, None),
        (429, {"retry-after": "7"}, True, 7.0),
        (429, {"retry-after-ms": "250", "retry-after": "7"}, True, 0.25),
        (429, {"retry-after-ms": "soon"}, True, None),
        (500, {}, True, None),
        (503, {"retry-after": "1.5"}, True, 1.5),
    ],
)
def test_http_error_says_its_status_and_whether_it_may_pass(
    call: Sending, status: int, headers: dict[str, str], retryable: bool, retry_after_s: float | None
) -> None:
    """Statuses and waiting times of the endpoint are in the error, and what it said on one line."""
    body = b'{"error":{"message":"it  does\\nnot go","type":"x"}}'
    error, _ = fails(call, whole(body, status=status, headers=headers))
    assert (error.status, error.retryable, error.retry_after_s) == (status, retryable, retry_after_s)
    assert str(error) == f"adapter answered {status}: it does not go"


@both
def test_key_that_an_endpoint_repeats_is_not_in_the_error(call: Sending) -> None:
    """Whatever the endpoint says, the key stays out of messages."""
    error, _ = fails(call, whole(f'{{"error":{{"message":"bad key {KEY}"}}}}'.encode(), status=401))
    assert str(error) == "adapter answered 401: bad key …"


@both
def test_error_that_is_not_json_is_reported(call: Sending) -> None:
    """A proxy's page is what it said."""
    error, _ = fails(call, Answer(status=502, headers={"content-type": "text/html"}, chunks=[b"<p>bad gateway"]))
    assert str(error) == "adapter answered 502: <p>bad gateway"


@both
def test_retryable_error_is_tried_again(call: Sending) -> None:
    """The SDK tries again as often as it may, with the same body."""
    refusal = whole(b'{"error":{"message":"wait"}}', status=429, headers={"retry-after-ms": "1"})
    got: list[bytes] = []
    with WireServer(refusal, refusal, stream([b"{}"])) as server:
        call(connection(server, retries_max=2), True, got)
    assert got == [b"{}"]
    assert [received.body for received in server.received] == [b'{"of": "a test"}'] * 3


@both
@pytest.mark.parametrize("url", ["no url", "ftp://127.0.0.1", "http://[::1"])
def test_bad_base_url_is_an_error_that_stays(call: Sending, url: str) -> None:
    """A base URL that is none is named, and not tried again."""
    with pytest.raises(ProviderError, match="is not a base URL") as caught:
        call(Connection(base_url=url, retries_max=0), True, [])
    assert not caught.value.retryable


@both
def test_unreachable_endpoint_is_an_error_that_may_pass(call: Sending) -> None:
    """No one listens."""
    with WireServer() as server:
        given = connection(server)
    with pytest.raises(ProviderError, match="cannot be reached") as caught:
        call(given, True, [])
    assert caught.value.retryable


@both
def test_no_key_sends_no_authorization(call: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that asks for no key gets none: not a made-up one, and not that of the environment."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with WireServer(stream([b"{}"])) as server:
        call(connection(server, key=None), True, [])
    assert "authorization" not in server.received[0].headers


@both
def test_account_of_the_environment_goes_to_no_other_endpoint(call: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's OpenAI organization and project, and a header for OpenAI, are not another endpoint's business."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer another")
    with WireServer(stream([b"{}"])) as server:
        call(connection(server), True, [])
    headers = server.received[0].headers
    assert "openai-organization" not in headers
    assert "openai-project" not in headers
    assert headers["authorization"] == f"Bearer {KEY}"


@both
@pytest.mark.parametrize("key", ["sk-1\n", "sk-é"])
def test_key_that_cannot_be_sent_is_refused_unseen(call: Sending, key: str) -> None:
    """A line end in a key, as from a file, is said, and the key is not."""
    with pytest.raises(ProviderError, match="cannot be sent") as caught:
        call(Connection(api_key=key, base_url="http://127.0.0.1:1"), True, [])
    assert "sk-" not in str(caught.value)


def test_consumer_that_stops_early_closes_the_stream() -> None:
    """Who leaves the block has nothing left open; what it raises passes as it is."""
    with WireServer(stream([b"1", b"2"], hang=True), stream([b"1", b"2"], hang=True)) as server:
        with open_stream("adapter", "/p", b"{}", True, connection(server)) as events:
            assert next(events) == b"1"

        async def first() -> bytes:
            async with aopen_stream("adapter", "/p", b"{}", True, connection(server)) as events:
                async for event in events:
                    return event
            raise AssertionError

        assert asyncio.run(first()) == b"1"


def test_models_are_named_in_order() -> None:
    """The names of a list of models, sorted."""
    with WireServer(whole(b'{"object":"list","data":[{"id":"b","object":"model"},{"id":"a"}]}')) as server:
        assert list_models("adapter", connection(server)) == ["a", "b"]
    [received] = server.received
    assert (received.method, received.path) == ("GET", "/v1/models")
    assert received.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("body", [b"[]", b"<p>", b'{"data":[{}]}', b""])
def test_models_of_another_kind_of_server_are_an_error(body: bytes) -> None:
    """What is no list of models is an error that speaks of the base URL."""
    with WireServer(whole(body)) as server, pytest.raises(ProviderError, match="check the base URL"):
        list_models("adapter", connection(server))


def test_models_with_a_bad_key_are_refused() -> None:
    """The status says why."""
    with (
        WireServer(whole(b'{"error":{"message":"bad key"}}', status=401)) as server,
        pytest.raises(ProviderError, match="answered 401: bad key"),
    ):
        list_models("adapter", connection(server))


def test_sdk_is_not_imported_before_a_call() -> None:
    """The SDK takes long to import, and most commands call no one."""
    program = (
        "import sys, turnlog.providers.openai_client; print([m for m in ('openai', 'httpx2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
