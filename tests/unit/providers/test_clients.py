"""The network of every wire, against a local server that speaks it: what goes out and comes in, and all that fails."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.golden.wire_cases import MODELS, WIRES, deltas_of, events_of
from tests.wires.eventstream import eventstream
from tests.wires.postcard import Postcard
from tests.wires.server import Answer, WireServer, stream, whole

from turnlog.errors import ProviderError
from turnlog.model import CallError, ContextWindow, Delta, Message, content_bytes
from turnlog.providers import Connection, PreparedRequest, Provider, RawEvent, Reply, get, proxies, wire
from turnlog.providers.registry import BUILT_IN
from turnlog.providers.sending import PIECE_BYTES, WHOLE_BYTES_MAX

KEY = "key-of-a-test"
LONG = "\u00fc" * 60
"""The name of a host, whose encoded form is longer than names can be."""
SILENCE_S = 0.8
"""How long a reply is waited for, and a connection too: on a busy machine that may take a while also on loopback."""
REFUSED = b'{"error":{"message":"Slow down.","type":"rate_limit_error"}}'
KEY_VARIABLES = [get(name).key_variable for name in sorted(BUILT_IN)]

BEDROCK = "/model/eu.anthropic.claude-sonnet-4-5-20250929-v1%3A0"
PATHS = {
    "anthropic": ("/v1/messages", "/v1/messages"),
    "bedrock": (f"{BEDROCK}/converse-stream", f"{BEDROCK}/converse"),
    "cerebras": ("/chat/completions", "/chat/completions"),
    "cohere": ("/v2/chat", "/v2/chat"),
    "gemini": (
        "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
        "/v1beta/models/gemini-2.5-pro:generateContent",
    ),
    "openai_chat": ("/chat/completions", "/chat/completions"),
    "openai_responses": ("/responses", "/responses"),
}
"""Where requests go, for a stream and for a whole reply. The name of a model is one segment of the path."""

Call = Callable[..., Reply]


@contextmanager
def closing_server() -> Iterator[str]:
    """Serve on loopback: the start of each request is read, and the connection closed. Give the base URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def close_all() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(1000)

        thread = threading.Thread(target=close_all, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


def _sync(adapter: Provider, request: PreparedRequest, connection: Connection, **callbacks: Any) -> Reply:
    return adapter.call(request, connection, **callbacks)


def _async(adapter: Provider, request: PreparedRequest, connection: Connection, **callbacks: Any) -> Reply:
    return asyncio.run(adapter.acall(request, connection, **callbacks))


def _at_once(checks: Iterable[Callable[[], None]]) -> None:
    """Make checks that wait for long side by side, and raise what one of them did."""
    with ThreadPoolExecutor() as threads:
        for done in [threads.submit(check) for check in checks]:
            done.result()


@pytest.fixture(params=[_sync, _async], ids=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Return `call`, or `acall` run to its end."""
    return request.param


@pytest.fixture(params=sorted(BUILT_IN))
def adapter(request: pytest.FixtureRequest) -> Provider:
    """Return each adapter."""
    return get(request.param)


@pytest.fixture(autouse=True)
def keys_of_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set keys and endpoints in the environment that nothing here is to use."""
    for name in (*KEY_VARIABLES, "GOOGLE_API_KEY", "CO_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "key-of-somebody")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-somebody")


def _case(adapter: Provider) -> Path:
    return WIRES / "replies" / adapter.name / "parallel-calls"


def _request(adapter: Provider, *, streams: bool = True) -> PreparedRequest:
    asked = Message(turn="t", role="user", content_json=content_bytes("Hi \u2028."))
    return adapter.prepare_request(
        ContextWindow(messages=(asked,), options={}), model=MODELS.get(adapter.name, "m"), stream=streams
    )


def _who(adapter: Provider, server: WireServer) -> str:
    """Return how errors name a provider at another endpoint than its own."""
    return f"{adapter.provider} at {server.url.rstrip('/')}"


def _connection(server: WireServer, **more: Any) -> Connection:
    return Connection(**{"api_key": KEY, "base_url": server.url, "timeout_s": 5.0, "retries_max": 0, **more})


def _stream(adapter: Provider, events: Sequence[bytes] | None = None, **ends: Any) -> Answer:
    given = events_of(_case(adapter)) if events is None else events
    if adapter.name == "bedrock":
        return eventstream(given, **ends)
    named = adapter.name in ("anthropic", "openai_responses", "cohere")
    return stream(given, names=named, done=not ends and adapter.api == "chat_completions", **ends)


def _error(reply: Reply) -> CallError:
    assert reply.response.stop_reason == "error"
    assert reply.response.error is not None
    return reply.response.error


# Replies


def test_stream_is_handed_out_as_it_came(adapter: Provider, call: Call) -> None:
    """Events are the bytes of the wire, the body is the exact one, and what is shown and added up the golden one."""
    seen: list[RawEvent] = []
    deltas: list[Delta] = []
    expected = events_of(_case(adapter))
    with WireServer(_stream(adapter)) as server:
        request = _request(adapter)
        reply = call(adapter, request, _connection(server), on_event=seen.append, on_delta=deltas.append)
        [received] = server.received
    assert list(reply.events) == seen == list(expected)
    assert reply.response == adapter.aggregate(expected, model=MODELS[adapter.name])
    assert reply.response.error is None
    assert deltas == deltas_of(adapter.name, expected)
    assert (received.method, received.path, received.body) == ("POST", PATHS[adapter.name][0], request.body)
    assert received.headers["content-type"] == "application/json"
    key = ("x-goog-api-key", KEY) if adapter.name == "gemini" else ("authorization", f"Bearer {KEY}")
    assert [(name, value) for name, value in received.headers.items() if KEY in value] == [key]
    assert "of-somebody" not in repr(received.headers)


def test_whole_reply_is_one_event(adapter: Provider, call: Call) -> None:
    """A reply that is not streamed comes as it is, and adds up to the same."""
    text = (_case(adapter) / "whole.json").read_bytes()
    with WireServer(whole(text)) as server:
        request = _request(adapter, streams=False)
        reply = call(adapter, request, _connection(server))
        sent = [(received.path, received.body) for received in server.received]
    assert sent == [(PATHS[adapter.name][1], request.body)]
    assert reply.events == (text,)
    assert reply.response == adapter.aggregate([text], model=MODELS[adapter.name])


def test_json_to_a_request_for_a_stream_is_one_event(adapter: Provider, call: Call) -> None:
    """An endpoint that does not stream is understood all the same."""
    text = (_case(adapter) / "whole.json").read_bytes()
    with WireServer(whole(text)) as server:
        reply = call(adapter, _request(adapter), _connection(server))
    assert reply.events == (text,)
    assert reply.response == adapter.aggregate([text], model=MODELS[adapter.name])


SSE = [name for name in sorted(BUILT_IN) if name != "bedrock"]
"""The wires whose streams are lines of text."""


@pytest.mark.parametrize("name", SSE)
@pytest.mark.parametrize("streams", [True, False], ids=["stream asked", "whole asked"])
@pytest.mark.parametrize("kind", ["text/plain", "application/problem+json", "text/event-stream", None])
def test_whole_reply_of_any_media_type_is_one_event(name: str, streams: bool, kind: str | None) -> None:
    """What it is called does not count: it was paid for."""
    adapter = get(name)
    text = (_case(adapter) / "whole.json").read_bytes().strip()
    answer = Answer(headers={} if kind is None else {"content-type": kind}, chunks=[text])
    for call in (_sync, _async):
        with WireServer(answer) as server:
            reply = call(adapter, _request(adapter, streams=streams), _connection(server))
        assert reply.events == (text,)
        assert reply.response == adapter.aggregate([text], model=MODELS[name])


@pytest.mark.parametrize("name", SSE)
@pytest.mark.parametrize("streams", [True, False], ids=["stream asked", "whole asked"])
@pytest.mark.parametrize("kind", ["text/plain", "application/json", "text/event-stream", None])
def test_stream_of_any_media_type_is_its_events(name: str, streams: bool, kind: str | None) -> None:
    """Also where none was asked for."""
    adapter = get(name)
    answer = replace(_stream(adapter), headers={} if kind is None else {"content-type": kind})
    for call in (_sync, _async):
        with WireServer(answer) as server:
            reply = call(adapter, _request(adapter, streams=streams), _connection(server))
        assert list(reply.events) == list(events_of(_case(adapter)))
        assert reply.response.error is None


@pytest.mark.parametrize("name", SSE)
@pytest.mark.parametrize("ends", [{}, {"cut": True}], ids=["end", "cut"])
def test_error_between_events_is_told(name: str, call: Call, ends: dict[str, bool]) -> None:
    """Servers that fail while they stream write it as a line of JSON, which is no data. The same call helps no more."""
    adapter = get(name)
    first, *_ = events_of(_case(adapter))
    error = b'{"error":{"code":400,"message":"context window exceeded","type":"invalid_request_error"}}'
    answer = _stream(adapter, [first])
    answer = replace(answer, chunks=[*answer.chunks[:1], error + b"\n\n"], **ends)
    with WireServer(answer) as server:
        reply = call(adapter, _request(adapter), _connection(server))
    assert reply.events == (first, error)
    told = _error(reply)
    if not ends:
        assert ("context window exceeded" in told.message, told.retryable) == (True, False)


@pytest.mark.parametrize("name", SSE)
def test_body_that_is_no_reply_is_kept(name: str, call: Call) -> None:
    """The error says how it begins."""
    adapter = get(name)
    with WireServer(Answer(headers={"content-type": "text/plain"}, chunks=[b"upstream is away\n"])) as server:
        reply = call(adapter, _request(adapter), _connection(server))
    assert reply.events == (b"upstream is away",)
    assert "sent an event that cannot be read: 'upstream is away'" in _error(reply).message


def test_key_of_another_provider_never_goes_to_this_one(adapter: Provider, call: Call) -> None:
    """An adapter under another name has no endpoint of its own: without a base URL nothing is sent."""
    other = type(adapter)(provider="other")
    with pytest.raises(ProviderError, match="'other' has no base URL: set one"):
        other.models(Connection(api_key=KEY))
    error = _error(call(other, _request(other), Connection(api_key=KEY)))
    assert error.message == "'other' has no base URL: set one"


class _OwnNetwork(Postcard):
    def _models(self, connection: Connection) -> list[str]:
        return [connection.who]


def test_key_of_another_provider_never_goes_to_an_adapter_with_a_network_of_its_own(call: Call) -> None:
    """The base class sees to it, before it asks for models or sends anything."""
    other = _OwnNetwork(provider="other")
    with pytest.raises(ProviderError, match="'other' has no base URL: set one"):
        other.models(Connection(api_key=KEY))
    error = _error(call(other, _request(other), Connection(api_key=KEY)))
    assert error.message == "'other' has no base URL: set one"
    assert other.models(Connection(api_key=KEY, base_url="http://here")) == ["other at http://here"]


def test_reply_of_another_endpoint_is_recorded_under_its_name(adapter: Provider, call: Call) -> None:
    """Whoever speaks a wire of somebody else."""
    other = type(adapter)(provider="other")
    with WireServer(_stream(adapter)) as server:
        request = _request(other)
        reply = call(other, request, _connection(server))
    assert request.provider == reply.response.provider == "other"
    assert reply.response.error is None


def test_endpoint_without_a_key_gets_none(adapter: Provider, call: Call) -> None:
    """No key is sent, also where the environment has one."""
    with WireServer(_stream(adapter)) as server:
        assert call(adapter, _request(adapter), _connection(server, api_key=None)).response.error is None
        [received] = server.received
    assert "of-somebody" not in repr(received.headers)
    assert KEY not in repr(received.headers)


@pytest.mark.parametrize("name", ["anthropic", "openai_chat", "openai_responses", "cerebras"])
def test_headers_for_the_provider_of_an_sdk_go_to_no_other(
    name: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may hold a secret, and go where its key goes: to the endpoint that stands under that provider's name."""
    for variable in ("ANTHROPIC_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS"):
        monkeypatch.setenv(variable, "X-Mine: secret-of-somebody")
    own, other = get(name), type(get(name))(provider="other")
    with WireServer(_stream(own), _stream(own), whole(b'{"data":[]}')) as server:
        for adapter in (own, other):
            assert call(adapter, _request(adapter), _connection(server)).response.error is None
        assert other.models(_connection(server)) == []
        given = [received.headers.get("x-mine") for received in server.received]
    assert given == [None if name == "cerebras" else "secret-of-somebody", None, None]


# Refusals


def test_refusal_is_told_with_status_and_wait(adapter: Provider, call: Call) -> None:
    """A 429 that is not tried again says how long to wait."""
    with WireServer(whole(REFUSED, status=429, headers={"retry-after": "7"})) as server:
        reply = call(adapter, _request(adapter), _connection(server))
    error = _error(reply)
    assert error.message == f"{_who(adapter, server)} answered 429: Slow down."
    assert (error.retryable, error.status, error.retry_after_s) == (True, 429, 7)
    assert (reply.events, reply.response.content) == ((), ())


@pytest.mark.parametrize(
    ("encoding", "charset", "said"),
    [
        ("utf-16", "", "zu groß"),
        ("utf-16-be", "", "zu groß"),
        ("utf-8-sig", "", "zu groß"),
        ("latin-1", "; charset=iso-8859-1", "zu groß"),
        ("utf-8", "; charset=iso-8859-1", "zu groß"),
        ("latin-1", "", "zu gro\ufffd"),
        ("latin-1", "; charset=hex", "zu gro\ufffd"),
        ("latin-1", "; charset=nothing", "zu gro\ufffd"),
    ],
)
def test_refusal_is_read_in_its_encoding(encoding: str, charset: str, said: str) -> None:
    """As its first bytes say, or its headers where it is no UTF-8."""
    body = '{"error":{"message":"zu groß"}}'.encode(encoding)
    refused = Answer(status=400, headers={"content-type": "application/json" + charset}, chunks=[body])
    adapter = get("gemini")
    with WireServer(refused) as server:
        error = _error(_sync(adapter, _request(adapter), _connection(server)))
    assert error.message == f"{_who(adapter, server)} answered 400: {said}"


@pytest.mark.parametrize("status", [429, 500])
def test_what_may_pass_is_tried_again(adapter: Provider, call: Call, status: int) -> None:
    """The same bytes go out again."""
    refused = whole(REFUSED, status=status, headers={"retry-after": "0", "retry-after-ms": "1"})
    with WireServer(refused, _stream(adapter)) as server:
        request = _request(adapter)
        reply = call(adapter, request, _connection(server, retries_max=1))
        assert [received.body for received in server.received] == [request.body] * 2
    assert reply.response.error is None


def test_a_large_body_goes_out_as_a_small_one_does(adapter: Provider, call: Call) -> None:
    """In pieces, of small parts and large ones, with its length told; and all of it again where it is tried again."""
    parts = [b"".join(b"%d," % number for number in range(100)), b"x" * PIECE_BYTES, b"y" * WHOLE_BYTES_MAX, b"z"]
    refused = whole(REFUSED, status=503, headers={"retry-after": "0", "retry-after-ms": "1"})
    with WireServer(refused, _stream(adapter)) as server:
        request = msgspec.structs.replace(_request(adapter), messages=parts)
        reply = call(adapter, request, _connection(server, retries_max=1))
        assert [received.body for received in server.received] == [request.body] * 2
    lengths = {
        (received.headers.get("content-length"), "transfer-encoding" in received.headers)
        for received in server.received
    }
    assert lengths == {(str(len(request.body)), False)}
    assert reply.response.error is None


def test_retries_come_to_an_end(adapter: Provider, call: Call) -> None:
    """After the last one the refusal is told."""
    answers = [whole(REFUSED, status=503, headers={"retry-after": "0", "retry-after-ms": "1"})] * 4
    with WireServer(*answers) as server:
        reply = call(adapter, _request(adapter), _connection(server, retries_max=2))
        assert len(server.received) == 3
    assert _error(reply).message == f"{_who(adapter, server)} answered 503: Slow down."


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, b'{"error":{"message":"API key not valid: key-of-a-test"}}', "API key not valid: \u2026"),
        (403, b"<html>\nForbidden\n</html>", "Forbidden"),
        (401, b"\xff", "\ufffd"),
    ],
    ids=["key", "html", "no text"],
)
def test_what_will_not_pass_is_not_tried_again(
    adapter: Provider, call: Call, status: int, body: bytes, said: str
) -> None:
    """A refusal for good is told in one line, whatever its body is, without the key."""
    with WireServer(whole(body, status=status), _stream(adapter)) as server:
        reply = call(adapter, _request(adapter), _connection(server, retries_max=3))
        assert len(server.received) == 1
    error = _error(reply)
    assert error.message == f"{_who(adapter, server)} answered {status}: {said}"
    assert (error.retryable, error.status) == (False, status)


def test_what_was_sent_to_one_address_is_not_sent_to_another(adapter: Provider, call: Call) -> None:
    """A redirection is an answer like any other: whoever set the address up is told of it."""
    with WireServer(_stream(adapter)) as other:
        moved = whole(b"", status=307, headers={"location": other.url})
        with WireServer(moved, moved) as server:
            error = _error(call(adapter, _request(adapter), _connection(server)))
            assert len(server.received) == 1
        assert other.received == []
    assert (error.status, error.retryable) == (307, False)
    told = f"answered 307: it redirects to {other.url}, which is not followed: check the base URL"
    assert error.message == f"{_who(adapter, server)} {told}"


def test_models_are_not_asked_for_elsewhere(adapter: Provider) -> None:
    """Nor is the key shown to another address there."""
    with WireServer() as other, WireServer(whole(b"", status=308, headers={"location": other.url})) as server:
        with pytest.raises(ProviderError, match="answered 308: it redirects to ") as caught:
            adapter.models(_connection(server))
        assert (len(server.received), other.received, caught.value.retryable) == (1, [], False)


def test_a_provider_that_asks_for_a_long_wait_is_not_waited_for(adapter: Provider, call: Call) -> None:
    """What it asks for is told, and neither a call nor a listing of models tries again."""
    busy = whole(REFUSED, status=429, headers={"retry-after": "3600"})
    with WireServer(busy, busy) as server:
        error = _error(call(adapter, _request(adapter), _connection(server, retries_max=2)))
        assert (error.retry_after_s, len(server.received)) == (3600, 1)
        with pytest.raises(ProviderError) as caught:
            adapter.models(_connection(server, retries_max=2))
        assert (caught.value.retry_after_s, len(server.received)) == (3600, 2)


def test_models_are_asked_for_again_where_that_may_help(adapter: Provider) -> None:
    """As often as the connection says."""
    busy = whole(REFUSED, status=503, headers={"retry-after": "0.01"})
    with WireServer(busy, busy, busy, busy) as server:
        with pytest.raises(ProviderError, match="answered 503"):
            adapter.models(_connection(server, retries_max=2))
        assert len(server.received) == 3


def test_where_a_redirection_leads_is_told_without_what_may_be_secret(adapter: Provider, call: Call) -> None:
    """Names, passwords and queries are not shown."""
    moved = whole(b"", status=302, headers={"location": "https://me:pw@other.example/v1?token=abc#x"})
    with WireServer(moved) as server:
        error = _error(call(adapter, _request(adapter), _connection(server)))
    assert "redirects to https://other.example/v1, which" in error.message


@pytest.mark.parametrize("streams", [True, False])
def test_a_web_page_is_no_reply(adapter: Provider, call: Call, streams: bool) -> None:
    """It is that of a server at a wrong address, most often: the same call makes no more of it."""
    page = Answer(headers={"content-type": "text/html; charset=utf-8"}, chunks=[b"\n<!DOCTYPE html><title>UI</title>"])
    with WireServer(page) as server:
        error = _error(call(adapter, _request(adapter, streams=streams), _connection(server)))
    told = "answered with a web page, and not with a reply: check the base URL"
    assert (error.message, error.retryable) == (f"{_who(adapter, server)} {told}", False)


@pytest.mark.parametrize("name", SSE)
def test_a_stream_that_is_called_a_page_is_read(name: str, call: Call) -> None:
    """Servers are there that do not set their media type."""
    adapter = get(name)
    answer = replace(_stream(adapter), headers={"content-type": "text/html"})
    with WireServer(answer) as server:
        reply = call(adapter, _request(adapter), _connection(server))
    assert list(reply.events) == list(events_of(_case(adapter)))


def test_how_much_of_a_body_was_sent_is_told(adapter: Provider) -> None:
    """Where a server closes the connection before it has read all, as some do that refuse a request by its length."""
    request = msgspec.structs.replace(_request(adapter), messages=[b"x" * 20_000_000])
    with closing_server() as url:
        error = _error(_async(adapter, request, Connection(api_key=KEY, base_url=url, timeout_s=5.0)))
    size = f"{len(request.body):,} bytes of the request, which may be too large for it"
    assert re.search(rf", after [\d,]+ of {re.escape(size)}$", error.message)
    assert error.retryable


# Proxies


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("foo://127.0.0.1:1", "cannot be used: give http://HOST:PORT, or socks5://HOST:PORT"),
        ("http://me:pw@127.0.0.1:99999", "cannot be used: give http://HOST:PORT, or socks5://HOST:PORT"),
        ("socks5://127.0.0.1:1", "is a SOCKS proxy, for which the package socksio is needed: pip install socksio"),
    ],
)
def test_proxy_that_cannot_be_used_is_named(
    adapter: Provider, call: Call, monkeypatch: pytest.MonkeyPatch, address: str, said: str
) -> None:
    """By its variable; nothing is sent."""
    monkeypatch.setattr(proxies, "find_spec", {}.get)
    monkeypatch.setenv("ALL_PROXY", address)
    with WireServer() as server:
        error = _error(call(adapter, _request(adapter), _connection(server)))
        assert server.received == []
    assert (error.message, error.retryable) == (f"the proxy of ALL_PROXY {said}", False)


def test_proxy_that_is_not_there_is_named(adapter: Provider, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not the provider that cannot be reached."""
    with WireServer() as gone:
        monkeypatch.setenv("HTTP_PROXY", gone.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    there = Connection(api_key=KEY, base_url="http://provider.example", retries_max=0)
    error = _error(call(adapter, _request(adapter), there))
    assert error.message.endswith(", through the proxy of HTTP_PROXY")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with WireServer(_stream(adapter)) as server:
        assert call(adapter, _request(adapter), _connection(server)).response.error is None


# Silence and cuts


def test_silence_times_out(adapter: Provider) -> None:
    """A server that says nothing is given up: each way of asking waits for as long, and all at once."""

    def silent(call: Call, streams: bool) -> None:
        answer = Answer(headers={"content-type": "text/event-stream" if streams else "application/json"}, hang=True)
        with WireServer(answer) as server:
            reply = call(adapter, _request(adapter, streams=streams), _connection(server, timeout_s=SILENCE_S))
        error = _error(reply)
        assert error.message.startswith(f"{_who(adapter, server)} did not answer in time: ")
        assert (error.retryable, error.status) == (True, None)

    _at_once(partial(silent, call, streams) for call in (_sync, _async) for streams in (True, False))


def test_a_connection_is_waited_for_less_long_than_a_reply(
    adapter: Provider, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here to a server that never says the first word of TLS."""
    monkeypatch.setattr(wire, "CONNECT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        there = Connection(api_key=KEY, base_url=f"https://127.0.0.1:{listening.getsockname()[1]}", retries_max=0)
        error = _error(call(adapter, _request(adapter), there))
    assert error.message.endswith("cannot be reached: there was no connection within 0.2 s")
    assert (error.retryable, error.status) == (True, None)


@pytest.mark.parametrize(
    ("ends", "said"),
    [({"hang": True}, "did not answer in time: "), ({"cut": True}, "cannot be reached, or broke off: ")],
    ids=["silence", "cut"],
)
def test_what_came_before_a_stream_broke_off_is_kept(adapter: Provider, ends: dict[str, bool], said: str) -> None:
    """It is an error that may pass, and is not tried again on its own: the model would be asked twice."""
    come = events_of(_case(adapter))[:-1]

    def broken(call: Call) -> None:
        with WireServer(_stream(adapter, come, **ends), _stream(adapter)) as server:
            reply = call(adapter, _request(adapter), _connection(server, timeout_s=SILENCE_S, retries_max=2))
            assert len(server.received) == 1
        error = _error(reply)
        assert error.message.startswith(f"{_who(adapter, server)} {said}")
        assert error.retryable
        assert list(reply.events) == list(come)
        assert reply.response.content == adapter.aggregate(come, model=MODELS[adapter.name]).content != ()

    _at_once(partial(broken, call) for call in (_sync, _async))


@pytest.mark.parametrize("name", ["anthropic", "cohere", "openai_responses"])
@pytest.mark.parametrize("end", ["hang", "cut"])
def test_a_stream_is_over_with_its_terminal_event(name: str, end: str, call: Call) -> None:
    """However the connection ends behind it, if it does, the reply is whole."""
    adapter = get(name)
    come = events_of(_case(adapter))
    with WireServer(_stream(adapter, **{end: True})) as server:
        reply = call(adapter, _request(adapter), _connection(server, timeout_s=SILENCE_S))
    assert list(reply.events) == list(come)
    assert reply.response == adapter.aggregate(come, model=MODELS[name])
    assert reply.response.error is None


def test_server_that_is_not_there_is_an_error(adapter: Provider, call: Call) -> None:
    """Nobody listens at an address that was just given back."""
    with WireServer() as server:
        connection = _connection(server)
    error = _error(call(adapter, _request(adapter), connection))
    assert error.message.startswith(f"{_who(adapter, server)} cannot be reached, or broke off: ")
    assert (error.retryable, error.status) == (True, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"base_url": "nowhere"}, "{}: 'nowhere' is not a base URL: give http(s)://\u2026"),
        (
            {"base_url": "http://ann:secret@h:99999?key"},
            "{}: 'http://h:99999\u2026' is not a base URL: give http(s)://\u2026",
        ),
        ({"base_url": "http://a..b"}, "{}: 'http://a..b' is not a base URL: give http(s)://\u2026"),
        ({"base_url": f"http://{LONG}"}, f"{{}}: 'http://{LONG}' is not a base URL: give http(s)://\u2026"),
        ({"api_key": "a\nb"}, "the API key for {} has a line end or another character that cannot be sent"),
    ],
    ids=["base URL", "login", "host", "host that is too long when it is encoded", "key"],
)
def test_connection_that_cannot_be_used_is_an_error(
    adapter: Provider, call: Call, change: dict[str, Any], said: str
) -> None:
    """Settings that make no request are told as they are."""
    with WireServer() as server:
        reply = call(adapter, _request(adapter), _connection(server, **change))
        assert server.received == []
    error = _error(reply)
    assert error.message.startswith(said.format(adapter.name))
    assert not error.retryable


def test_call_that_is_cancelled_closes_its_connection(adapter: Provider) -> None:
    """A task that is cancelled within a stream leaves nothing open, and what had come was told."""
    come = events_of(_case(adapter))[:1]
    seen: list[RawEvent] = []

    async def cancelled(server: WireServer) -> None:
        arrived = asyncio.Event()

        def on_event(one: RawEvent) -> None:
            seen.append(one)
            arrived.set()

        task = asyncio.create_task(adapter.acall(_request(adapter), _connection(server), on_event=on_event))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with WireServer(_stream(adapter, come, hang=True)) as server:
        asyncio.run(cancelled(server))
    assert seen == list(come)


# Models


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses", "cerebras"])
def test_models_of_an_endpoint_that_speaks_as_openai_does(name: str) -> None:
    """They are asked for below the same base URL, with the key, and sorted."""
    with WireServer(whole(b'{"object":"list","data":[{"id":"b","object":"model"},{"id":"a"}]}')) as server:
        assert get(name).models(_connection(server)) == ["a", "b"]
    [received] = server.received
    assert (received.method, received.path) == ("GET", "/models")
    assert received.headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("answer", "said", "status"),
    [
        (whole(b'{"error":{"message":"key-of-a-test is no key"}}', status=400), "answered 400: \u2026 is no key", 400),
        (whole(b"<html>"), "sent no list of models: check the base URL", None),
        (whole(b'{"models":7,"data":7,"modelSummaries":7}'), "sent no list of models: check the base URL", None),
        (
            whole(b'{"models":[{"nam":"x"}],"data":[{"nam":"x"}],"modelSummaries":[{"nam":"x"}]}'),
            "sent no list of models: check the base URL",
            None,
        ),
        (whole(b""), "sent no list of models: check the base URL", None),
        (whole(b"[]"), "sent no list of models: check the base URL", None),
        (whole(b"{", status=500), "answered 500: {", 500),
    ],
    ids=["refused", "html", "something else", "no models", "nothing", "a list", "broken"],
)
def test_refused_list_of_models_is_an_error(adapter: Provider, answer: Answer, said: str, status: int | None) -> None:
    """A key that is no good, or an endpoint that is another's, is told in a line."""
    with WireServer(answer) as server, pytest.raises(ProviderError) as caught:
        adapter.models(_connection(server))
    assert str(caught.value) == f"{_who(adapter, server)} {said}"
    assert caught.value.status == status


# Imports


def test_preparing_and_reading_import_no_network(adapter: Provider) -> None:
    """SDKs and HTTP libraries take long to import, and most commands call nobody."""
    program = (
        "import sys\n"
        "from turnlog.providers import get\n"
        "adapter = get(sys.argv[1])\n"
        "adapter.aggregate([b'{}'])\n"
        "print(*{name.partition('.')[0] for name in sys.modules}.intersection(sys.argv[2:]))\n"
    )
    heavy = ("anthropic", "httpx", "httpx2", "openai")
    done = subprocess.run(
        [sys.executable, "-c", program, adapter.name, *heavy], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == "\n"


_TICKING = """
import asyncio, sys
from turnlog.model import ContextWindow, Message, content_bytes
from turnlog.providers import Connection, get

adapter = get(sys.argv[1])
asked = Message(turn="t", role="user", content_json=content_bytes("Hi."))
request = adapter.prepare_request(ContextWindow(messages=(asked,), options={}), model=sys.argv[2], stream=False)
async def main():
    ticks = []

    async def tick():
        while True:
            await asyncio.sleep(0.001)
            ticks.append(None)

    task = asyncio.create_task(tick())
    reply = await adapter.acall(request, Connection(api_key="k", base_url=sys.argv[3], retries_max=0))
    task.cancel()
    print(len(ticks), reply.response.error and reply.response.error.message)

asyncio.run(main())
"""


def test_first_call_does_not_hold_the_event_loop_up(adapter: Provider) -> None:
    """An SDK takes a second to import, and certificates to load: other tasks go on meanwhile."""
    text = (_case(adapter) / "whole.json").read_bytes()
    with WireServer(whole(text)) as server:
        done = subprocess.run(
            [sys.executable, "-c", _TICKING, adapter.name, MODELS[adapter.name], server.url],
            check=True,
            timeout=60,
            capture_output=True,
            text=True,
        )
    ticks, error = done.stdout.split(maxsplit=1)
    assert error == "None\n"
    assert int(ticks) >= 10


def test_a_call_takes_no_thread_of_asyncio(adapter: Provider) -> None:
    """They may be full of what waits for the call."""

    async def ask(server: WireServer) -> Reply:
        with ThreadPoolExecutor(1) as threads:
            loop, answered = asyncio.get_running_loop(), threading.Event()
            loop.set_default_executor(threads)
            waiting = loop.run_in_executor(None, answered.wait)
            try:
                return await asyncio.wait_for(adapter.acall(_request(adapter), _connection(server)), 30)
            finally:
                answered.set()
                await waiting

    with WireServer(_stream(adapter)) as server:
        assert asyncio.run(ask(server)).response.error is None


def test_calls_read_the_authorities_to_trust_once(
    adapter: Provider, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes longer than a request."""

    def refuse(*args: Any, **more: Any) -> None:
        raise AssertionError("they were read")

    with WireServer(_stream(adapter), _stream(adapter)) as server:
        for _ in range(2):
            reply = call(adapter, _request(adapter), _connection(server))
            assert reply.response.error is None
            monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", refuse)
