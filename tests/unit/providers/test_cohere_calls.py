"""Calls of Cohere's v2 chat, through the SDK, to a server that speaks its wire."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.providers.carrying import message
from tests.wires.server import Answer, WireServer, stream, whole

from turnlog import ProviderError
from turnlog.errors import MissingPackageError
from turnlog.model import ContextWindow, Text
from turnlog.providers import Connection, PreparedRequest, Reply, get
from turnlog.providers.cohere import client

KEY = "co-key-1234567890"
Caller = Callable[..., Reply]

EVENTS = [
    b'{"type":"message-start","id":"r1","delta":{"message":{"role":"assistant"}}}',
    b'{"type":"content-start","index":0,"delta":{"message":{"content":{"type":"text","text":""}}}}',
    b'{"type":"content-delta","index":0, "delta":{"message":{"content":{"text":"H\xe2\x80\xa8"}}}}',
    b'{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"i"}}}}',
    b'{"type":"content-end","index":0}',
    b'{"type":"message-end","delta":{"finish_reason":"COMPLETE"}}',
]
WHOLE = json.dumps(
    {"id": "r1", "finish_reason": "COMPLETE", "message": {"content": [{"type": "text", "text": "H\u2028i"}]}}, indent=1
).encode()
HI = (Text(text="H\u2028i"),)


def _acall(*arguments: Any, **keywords: Any) -> Reply:
    return asyncio.run(get("cohere").acall(*arguments, **keywords))


@pytest.fixture(params=[pytest.param(get("cohere").call, id="sync"), pytest.param(_acall, id="async")])
def call(request: pytest.FixtureRequest) -> Caller:
    """Give both ways to call."""
    return request.param


def prepared(*, streamed: bool = True) -> PreparedRequest:
    """Return a request whose body the SDK would spell otherwise."""
    window = ContextWindow(messages=[message("user", "caf\u00e9 \u2028")], options={})
    return get("cohere").prepare_request(window, model="m", stream=streamed, params={"temperature": 1.0, "new": []})


def to(server: WireServer, **fields: Any) -> Connection:
    """Return the connection to a server."""
    return Connection(**{"api_key": KEY, "base_url": server.url, "timeout_s": 20.0, "retries_max": 0} | fields)


def refusal(status: int, body: bytes = b'{"message":"no"}', **headers: str) -> Answer:
    """Return an answer that refuses."""
    return whole(body, status=status, headers={name.replace("_", "-"): value for name, value in headers.items()})


def failure(reply: Reply) -> tuple[str, bool, int | None]:
    """Return what went wrong, whether it may pass, and the status."""
    error = reply.response.error
    assert error is not None
    assert reply.response.stop_reason == "error"
    assert KEY not in error.message
    return error.message, error.retryable, error.status


# What is sent, and what comes


def test_stream_is_the_exact_bytes_both_ways(call: Caller) -> None:
    """The body is that of the request, and the events are those of the wire, with a separator of lines in one."""
    request = prepared()
    seen: list[bytes] = []
    shown: list[Any] = []
    with WireServer(stream(EVENTS, names=True)) as server:
        reply = call(request, to(server), on_event=seen.append, on_delta=shown.append)
    [received] = server.received
    assert (received.method, received.path, received.body) == ("POST", "/v2/chat", request.body)
    assert received.headers["authorization"] == f"Bearer {KEY}"
    assert (received.headers["content-type"], received.headers["content-length"]) == (
        "application/json",
        str(len(request.body)),
    )
    assert list(reply.events) == seen == EVENTS
    assert (reply.response.content, reply.response.stop_reason, reply.response.model) == (HI, "stop", "m")
    assert [delta.content for delta in shown] == ["H\u2028", "i"]


def test_whole_reply_is_one_event(call: Caller) -> None:
    """A reply that is not streamed is the exact bytes, too, and equal to a streamed one."""
    request = prepared(streamed=False)
    with WireServer(whole(WHOLE), stream(EVENTS)) as server:
        reply = call(request, to(server))
        streamed = call(prepared(), to(server))
    assert server.received[0].body == request.body
    assert reply.events == (WHOLE,)
    assert reply.response == streamed.response


def test_whole_reply_to_a_stream_is_one_event(call: Caller) -> None:
    """A server that does not stream is understood all the same."""
    with WireServer(whole(WHOLE)) as server:
        assert call(prepared(), to(server)).response.content == HI


def test_endpoint_without_a_key_gets_none(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK does not look for one in the environment."""
    monkeypatch.setenv("CO_API_KEY", KEY)
    monkeypatch.setenv("COHERE_API_KEY", KEY)
    with WireServer(stream(EVENTS)) as server:
        assert call(prepared(), to(server, api_key=None)).response.content == HI
    assert "authorization" not in server.received[0].headers


# What goes wrong


def test_hung_server_times_out(call: Caller) -> None:
    """Before anything has come, or in the middle; it is not asked again, but may be."""
    with WireServer(Answer(hang=True), stream(EVENTS[:3], hang=True)) as server:
        silent = call(prepared(), to(server, timeout_s=0.2, retries_max=3))
        midway = call(prepared(), to(server, timeout_s=0.2, retries_max=3))
    assert len(server.received) == 2
    for reply in (silent, midway):
        said, retryable, status = failure(reply)
        assert said.startswith("cohere did not answer in time: ")
        assert (retryable, status) == (True, None)
    assert (silent.events, midway.events) == ((), tuple(EVENTS[:3]))
    assert midway.response.content == (Text(text="H\u2028"),)


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("headers", [{}, {"retry_after": "0"}, {"retry_after": "60", "retry_after_ms": "1"}])
def test_too_many_requests_are_tried_again(
    call: Caller, streamed: bool, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the pause that the provider asks for, or one that doubles."""
    monkeypatch.setattr(client, "PAUSE_S_FIRST", 0.001)
    answers = [refusal(429, **headers), refusal(503, **headers), stream(EVENTS) if streamed else whole(WHOLE)]
    with WireServer(*answers) as server:
        reply = call(prepared(streamed=streamed), to(server, retries_max=2))
    assert reply.response.content == HI
    assert {received.body for received in server.received} == {prepared(streamed=streamed).body}
    assert len(server.received) == 3


def test_too_many_requests_are_reported(call: Caller) -> None:
    """With the pause that the provider asks for; one that is too long is not made."""
    with WireServer(refusal(429, retry_after="2.5"), refusal(429, retry_after="61")) as server:
        first = call(prepared(), to(server))
        second = call(prepared(), to(server, retries_max=5))
    assert len(server.received) == 2
    assert failure(first) == ("cohere answered 429: no", True, 429)
    assert [reply.response.error.retry_after_s for reply in (first, second) if reply.response.error] == [2.5, 61.0]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refusal(500), ("cohere answered 500: no", True, 500)),
        (refusal(502, "<h1>Passerelle erron\xe9e</h1>".encode("latin-1")), None),
        (refusal(504, b""), ("cohere answered 504: nothing more", True, 504)),
        (refusal(400, b'{"id":"e","message":"invalid request"}'), ("cohere answered 400: invalid request", False, 400)),
        (
            refusal(401, b'{"message":"invalid token co-key-1234567890"}'),
            ("cohere answered 401: invalid token \u2026", False, 401),
        ),
        (refusal(498, b'"bad"'), ("cohere answered 498: bad", False, 498)),
    ],
)
def test_refusals_are_reported(call: Caller, answer: Answer, expected: tuple[str, bool, int] | None) -> None:
    """With the status, what was said, and whether it may pass; never with the key."""
    with WireServer(answer) as server:
        reply = call(prepared(), to(server))
    assert failure(reply) == (expected or ("cohere answered 502: <h1>Passerelle erron\ufffde</h1>", True, 502))
    assert (reply.events, reply.response.content) == ((), ())


def test_stream_that_breaks_off_keeps_what_came(call: Caller) -> None:
    """Cut in the middle of the connection, or ended too soon; it is not tried again."""
    with WireServer(stream(EVENTS[:4], cut=True), stream(EVENTS[:4])) as server:
        cut = call(prepared(), to(server, retries_max=3))
        ended = call(prepared(), to(server, retries_max=3))
    assert len(server.received) == 2
    assert failure(cut)[0].startswith("cohere cannot be reached, or broke off: ")
    assert failure(ended) == ("the stream of cohere ended without its message-end", True, None)
    assert cut.response.content == ended.response.content == HI
    assert list(cut.events) == list(ended.events) == EVENTS[:4]


def test_malformed_event_is_reported_and_the_rest_kept(call: Caller) -> None:
    """Whether or not somebody watches."""
    events = [*EVENTS[:3], b'{"type":"content-delta"', b'{"type":"new","delta":1}', *EVENTS[3:]]
    with WireServer(stream(events), stream(events)) as server:
        unseen = call(prepared(), to(server))
        seen = call(prepared(), to(server), on_delta=lambda _: None)
    assert unseen == seen
    assert failure(unseen)[0] == 'cohere sent an event that cannot be read: \'{"type":"content-delta"\''
    assert (list(unseen.events), unseen.response.content) == (events, HI)


def test_whole_reply_that_is_no_json_is_reported(call: Caller) -> None:
    """A page in place of a reply, or nothing."""
    page = Answer(headers={"content-type": "text/html"}, chunks=[b"<html>"])
    with WireServer(page, whole(b"")) as server:
        shown = call(prepared(streamed=False), to(server))
        empty = call(prepared(streamed=False), to(server))
    assert failure(shown)[0] == "cohere sent an event that cannot be read: '<html>'"
    assert failure(empty)[0] == "the stream of cohere ended without its message-end"


def test_server_that_is_not_there_is_reported(call: Caller) -> None:
    """It may be there later."""
    with WireServer() as server:
        gone = to(server)
    said, retryable, status = failure(call(prepared(), gone))
    assert said.startswith("cohere cannot be reached, or broke off: ")
    assert (retryable, status) == (True, None)


@pytest.mark.parametrize("url", ["nowhere", "ftp://127.0.0.1", "http://[::1", "http://127.0.0.1:port"])
def test_bad_base_url_is_reported(call: Caller, url: str) -> None:
    """Trying again does not help."""
    said, retryable, _ = failure(call(prepared(), Connection(api_key=KEY, base_url=url)))
    assert (said, retryable) == (f"cohere: {url!r} is not a base URL: give http(s)://\u2026", False)


@pytest.mark.parametrize("key", [f"{KEY}\n", f"{KEY}\u00e9", f"a\r\nx: {KEY}"])
def test_key_that_cannot_be_sent_is_reported(call: Caller, key: str) -> None:
    """Without saying it."""
    with WireServer() as server:
        said, retryable, _ = failure(call(prepared(), to(server, api_key=key)))
    assert said.startswith("the API key for cohere has a line end or another character that cannot be sent")
    assert (retryable, server.received) == (False, [])


def test_error_of_the_caller_is_not_touched(call: Caller) -> None:
    """What is raised while an event is taken is the caller's own."""

    def fail(event: bytes) -> None:
        raise UnicodeDecodeError("utf-8", event, 0, 1, "mine")

    with WireServer(stream(EVENTS)) as server, pytest.raises(UnicodeDecodeError, match="mine"):
        call(prepared(), to(server), on_event=fail)


def test_cancelled_call_leaves_nothing_open() -> None:
    """What had come before is the caller's, by `on_event`."""
    seen: list[bytes] = []

    async def main() -> None:
        came = asyncio.Event()

        def take(event: bytes) -> None:
            seen.append(event)
            came.set()

        with WireServer(stream(EVENTS[:1], hang=True)) as server:
            task = asyncio.create_task(get("cohere").acall(prepared(), to(server), on_event=take))
            await came.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert seen == EVENTS[:1]


def test_missing_package_says_which_extra_installs_it(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK is an extra."""
    monkeypatch.setitem(sys.modules, "cohere", None)
    assert failure(call(prepared(), Connection(api_key=KEY)))[0] == (
        "provider 'cohere' needs the package cohere: pip install 'turnlog[cohere]'"
    )
    with pytest.raises(MissingPackageError):
        get("cohere").models(Connection(api_key=KEY))


# Models


def test_models_are_those_that_chat() -> None:
    """From all pages, sorted, each once."""
    pages = [
        b'{"models":[{"name":"b","endpoints":["chat"]},{"name":"a"}],"next_page_token":"t2"}',
        b'{"models":[{"name":"c"},{"name":"a"}],"next_page_token":""}',
    ]
    with WireServer(refusal(429, retry_after_ms="1"), *map(whole, pages)) as server:
        assert get("cohere").models(to(server, retries_max=1)) == ["a", "b", "c"]
    assert [received.path for received in server.received][1:] == [
        "/v1/models?page_size=1000&endpoint=chat",
        "/v1/models?page_size=1000&page_token=t2&endpoint=chat",
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(401, b'{"message":"invalid api token"}'), "cohere answered 401: invalid api token"),
        (whole(b'{"data":[]}'), "cohere sent no list of models: check the base URL"),
        (whole(b"<html>"), "cohere sent a reply that cannot be read: check the base URL"),
    ],
)
def test_models_that_cannot_be_had_are_an_error(answer: Answer, said: str) -> None:
    """A key that is refused, or another server."""
    with WireServer(answer) as server, pytest.raises(ProviderError) as caught:
        get("cohere").models(to(server))
    assert str(caught.value) == said
