"""Calls of Gemini through the real SDK, against a local server that speaks its wire."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.providers.gemini_wire import MODEL, event, message, window
from tests.wires.server import Answer, WireServer, stream, whole

from turnlog import MissingPackageError, ProviderError
from turnlog.model import Delta, Text
from turnlog.providers import Connection, PreparedRequest, RawEvent, Reply
from turnlog.providers.gemini import Gemini

KEY = "key-of-a-test"
PIECES = [event({"text": "a"}), event({"text": "\u2028b"}), event(finish="STOP", news=1)]
WHOLE = json.dumps(json.loads(event({"text": "a\u2028b"}, finish="STOP")), indent=2).encode()
REFUSED = b'{"error":{"code":429,"message":"Quota exceeded.","status":"RESOURCE_EXHAUSTED"}}'

Call = Callable[..., Reply]


def _sync(request: PreparedRequest, connection: Connection, **callbacks: Any) -> Reply:
    return Gemini().call(request, connection, **callbacks)


def _async(request: PreparedRequest, connection: Connection, **callbacks: Any) -> Reply:
    return asyncio.run(Gemini().acall(request, connection, **callbacks))


@pytest.fixture(params=[_sync, _async], ids=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Return `call`, or `acall` run to its end."""
    return request.param


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what the SDK would read."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def _request(*, streams: bool = True, model: str = MODEL) -> PreparedRequest:
    return Gemini().prepare_request(window(message("user", "Hi \u2028.")), model=model, stream=streams)


def _connection(server: WireServer, **more: Any) -> Connection:
    return Connection(**{"api_key": KEY, "base_url": server.url, "timeout_s": 5.0, "retries_max": 0, **more})


def _error(reply: Reply) -> tuple[str, bool, int | None]:
    assert reply.response.stop_reason == "error"
    assert reply.response.error is not None
    return reply.response.error.message, reply.response.error.retryable, reply.response.error.status


# Replies


def test_stream_is_handed_out_as_it_came(call: Call) -> None:
    """Events are the bytes of the wire, the body is the exact one, and the URL says what is asked for."""
    events: list[RawEvent] = []
    deltas: list[Delta] = []
    pieces = [piece.decode().encode() for piece in PIECES]
    with WireServer(stream(pieces)) as server:
        request = _request()
        reply = call(request, _connection(server), on_event=events.append, on_delta=deltas.append)
        [received] = server.received
    assert reply.events == tuple(events) == tuple(pieces)
    assert reply.response.content == (Text(text="a\u2028b"),)
    assert (reply.response.stop_reason, reply.response.error) == ("stop", None)
    assert [delta.content for delta in deltas] == ["a", "\u2028b"]
    assert received.body == request.body
    assert (received.method, received.path) == ("POST", f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse")
    assert received.headers["x-goog-api-key"] == KEY
    assert received.headers["content-type"] == "application/json"


def test_whole_reply_is_one_event(call: Call) -> None:
    """A reply that is not streamed comes as it is, whitespace included, and adds up to the same."""
    with WireServer(whole(WHOLE)) as server:
        request = _request(streams=False)
        reply = call(request, _connection(server))
        [received] = server.received
    assert reply.events == (WHOLE,)
    assert reply.response.content == (Text(text="a\u2028b"),)
    assert received.body == request.body
    assert (received.method, received.path) == ("POST", f"/v1beta/models/{MODEL}:generateContent")


def test_line_separators_inside_of_events_are_no_line_ends(call: Call) -> None:
    """JSON may hold U+2028 as it is; events may come in any pieces."""
    piece = '{"candidates":[{"content":{"parts":[{"text":"a\u2028\x85b"}]},"finishReason":"STOP"}]}'.encode()
    bytes_one_by_one = [bytes([byte]) for byte in b"data: " + piece + b"\r\n\r\n"]
    answer = Answer(headers={"content-type": "text/event-stream"}, chunks=bytes_one_by_one)
    with WireServer(answer) as server:
        assert call(_request(), _connection(server)).events == (piece,)


def test_json_to_a_stream_request_is_one_event(call: Call) -> None:
    """An endpoint that does not stream is understood all the same."""
    array = b"[" + b",".join(PIECES) + b"]"
    with WireServer(whole(array)) as server:
        reply = call(_request(), _connection(server))
    assert reply.events == (array,)
    assert reply.response.content == (Text(text="a\u2028b"),)


def test_reply_that_asks_to_be_continued_is_not_continued(call: Call) -> None:
    """One call is one request, also where the SDK would send another."""
    ended = event({"text": "a"}, finish="CONTINUATION")
    with WireServer(stream([ended])) as server:
        reply = call(_request(), _connection(server))
        assert len(server.received) == 1
    assert reply.response.stop_reason == "length"


def test_endpoint_without_a_key_gets_none(call: Call) -> None:
    """Without a key no key is sent, also where the environment has one."""
    with pytest.MonkeyPatch.context() as environment, WireServer(stream(PIECES)) as server:
        environment.setenv("GOOGLE_API_KEY", "another")
        assert call(_request(), _connection(server, api_key=None)).response.error is None
        [received] = server.received
    assert "x-goog-api-key" not in received.headers
    assert "authorization" not in received.headers


def test_environment_does_not_change_where_a_call_goes(
    call: Call, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Settings of the SDK for other services and versions are not looked at, and nothing is printed about them."""
    monkeypatch.setenv("GOOGLE_API_KEY", "another")
    monkeypatch.setenv("GEMINI_API_KEY", "yet another")
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    monkeypatch.setenv("GOOGLE_GENAI_API_VERSION", "v2")
    with WireServer(stream(PIECES)) as server:
        assert call(_request(), _connection(server)).response.error is None
        [received] = server.received
    assert received.path.startswith("/v1beta/models/")
    assert received.headers["x-goog-api-key"] == KEY
    assert capfd.readouterr() == ("", "")


# Failures


def test_refusal_is_told_with_status_and_wait(call: Call) -> None:
    """A 429 that is not tried again says how long to wait."""
    with WireServer(whole(REFUSED, status=429, headers={"retry-after": "7"})) as server:
        reply = call(_request(), _connection(server))
    assert _error(reply) == ("gemini answered 429: Quota exceeded.", True, 429)
    assert reply.response.error is not None
    assert reply.response.error.retry_after_s == 7
    assert (reply.events, reply.response.content) == ((), ())


def test_wait_in_the_body_counts_too(call: Call) -> None:
    """Google tells how long to wait in the details of the error."""
    details = [{"@type": "google.rpc.Help"}, {"@type": "google.rpc.RetryInfo", "retryDelay": "36.5s"}]
    body = json.dumps({"error": {"code": 429, "message": "No.", "details": details}}).encode()
    with WireServer(whole(body, status=429)) as server:
        reply = call(_request(), _connection(server))
    assert reply.response.error is not None
    assert reply.response.error.retry_after_s == 36.5


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_sdk_tries_again_after_what_may_pass(call: Call, status: int) -> None:
    """The same bytes go out again, after as long as the server says."""
    with WireServer(whole(REFUSED, status=status, headers={"retry-after": "0"}), stream(PIECES)) as server:
        request = _request()
        reply = call(request, _connection(server, retries_max=1))
        assert [received.body for received in server.received] == [request.body] * 2
    assert reply.response.content == (Text(text="a\u2028b"),)


@pytest.mark.parametrize("headers", [{}, {"retry-after": "3600"}], ids=["no wait asked for", "an hour asked for"])
def test_wait_before_a_retry_is_short_where_none_is_asked_for_that_can_be_kept(headers: dict[str, str]) -> None:
    """Without a wait that the server asks for, or with one that is too long, the next try comes soon."""
    with WireServer(whole(REFUSED, status=503, headers=headers), stream(PIECES)) as server:
        reply = _sync(_request(), _connection(server, retries_max=1))
        assert len(server.received) == 2
    assert reply.response.error is None


def test_retries_come_to_an_end(call: Call) -> None:
    """After the last one the refusal is told."""
    answers = [whole(REFUSED, status=503, headers={"retry-after": "0"})] * 4
    with WireServer(*answers) as server:
        reply = call(_request(), _connection(server, retries_max=2))
        assert len(server.received) == 3
    assert _error(reply) == ("gemini answered 503: Quota exceeded.", True, 503)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, b'{"error":{"message":"API key not valid: key-of-a-test"}}', "API key not valid: …"),
        (404, b'[{"error":{"code":404,"message":"No such model."}}]', "No such model."),
        (403, b"<html>\nForbidden\n</html>", "<html> Forbidden </html>"),
        (401, b"\xff", "\ufffd"),
        (302, b"", "nothing more"),
    ],
)
def test_what_will_not_pass_is_not_tried_again(call: Call, status: int, body: bytes, said: str) -> None:
    """A refusal for good is told in one line, whatever its body is, without the key."""
    with WireServer(whole(body, status=status), stream(PIECES)) as server:
        reply = call(_request(), _connection(server, retries_max=3))
        assert len(server.received) == 1
    assert _error(reply) == (f"gemini answered {status}: {said}", False, status)


@pytest.mark.parametrize("streams", [True, False])
def test_silence_times_out(call: Call, streams: bool) -> None:
    """A server that says nothing is given up."""
    answer = Answer(headers={"content-type": "text/event-stream" if streams else "application/json"}, hang=True)
    with WireServer(answer) as server:
        reply = call(_request(streams=streams), _connection(server, timeout_s=0.2))
    message, retryable, status = _error(reply)
    assert message.startswith("gemini did not answer in time: ")
    assert (retryable, status) == (True, None)


def test_silence_within_a_stream_times_out(call: Call) -> None:
    """What came before is kept."""
    with WireServer(stream(PIECES[:1], hang=True)) as server:
        reply = call(_request(), _connection(server, timeout_s=0.3))
    assert _error(reply)[0].startswith("gemini did not answer in time: ")
    assert reply.events == (PIECES[0],)
    assert reply.response.content == (Text(text="a"),)


def test_cut_within_a_stream_keeps_what_came(call: Call) -> None:
    """A connection that breaks off is an error that may pass; it is not tried again on its own."""
    with WireServer(stream(PIECES[:2], cut=True), stream(PIECES)) as server:
        reply = call(_request(), _connection(server, retries_max=2))
        assert len(server.received) == 1
    message, retryable, _ = _error(reply)
    assert message.startswith("gemini cannot be reached, or broke off: ")
    assert retryable
    assert reply.response.content == (Text(text="a\u2028b"),)


def test_stream_without_its_end_is_an_error(call: Call) -> None:
    """A stream that ends early, but in order, is cut as well."""
    with WireServer(stream(PIECES[:2])) as server:
        reply = call(_request(), _connection(server))
    assert _error(reply) == ("gemini: the reply ended without its finishReason", True, None)


def test_server_that_is_not_there_is_an_error(call: Call) -> None:
    """Nobody listens at an address that was just given back."""
    with WireServer() as server:
        connection = _connection(server)
    message, retryable, status = _error(call(_request(), connection))
    assert message.startswith("gemini cannot be reached, or broke off: ")
    assert (retryable, status) == (True, None)


def test_event_that_is_not_json_is_an_error(call: Call) -> None:
    """Events around it are kept, in their bytes and in the content."""
    with WireServer(stream([PIECES[0], b'{"candidates":[', PIECES[1], PIECES[2]])) as server:
        reply = call(_request(), _connection(server))
    assert _error(reply) == ("gemini sent an event that cannot be read: '{\"candidates\":['", True, None)
    assert reply.response.content == (Text(text="a\u2028b"),)
    assert len(reply.events) == 4


def test_unknown_events_are_handed_out_and_passed_over(call: Call) -> None:
    """What the API may send one day is an event, and no content."""
    with WireServer(stream([b'{"ping":1}', *PIECES])) as server:
        reply = call(_request(), _connection(server))
    assert (reply.events[0], reply.response.error) == (b'{"ping":1}', None)
    assert reply.response.content == (Text(text="a\u2028b"),)


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_error_between_events_is_one(call: Call, ending: bytes) -> None:
    """The API writes an error into a stream line by line, without the form of an event."""
    error = json.dumps({"error": {"code": 503, "message": "Overloaded."}}, indent=2).encode()
    chunks = [b": note\n\ndata: " + PIECES[0] + b"\n\n", error + ending]
    with WireServer(Answer(headers={"content-type": "text/event-stream"}, chunks=chunks)) as server:
        reply = call(_request(), _connection(server))
    assert _error(reply) == ("gemini answered 503: Overloaded.", True, 503)
    assert reply.events == (PIECES[0], error)
    assert reply.response.content == (Text(text="a"),)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"base_url": "nowhere"}, "gemini: 'nowhere' is not a base URL: give http(s)://…"),
        ({"api_key": "a\nb"}, "the API key for gemini has a line end or another character"),
    ],
)
def test_connection_that_cannot_be_used_is_an_error(call: Call, change: dict[str, Any], told: str) -> None:
    """Settings that make no request are told as they are, and not tried again."""
    with WireServer() as server:
        reply = call(_request(), _connection(server, **change))
        assert server.received == []
    message, retryable, _ = _error(reply)
    assert message.startswith(told)
    assert not retryable


def test_model_that_cannot_stand_in_a_path_is_an_error(call: Call) -> None:
    """The SDK refuses names that would ask for something else."""
    with WireServer() as server:
        reply = call(_request(model="x?y"), _connection(server))
        assert server.received == []
    assert _error(reply) == ("gemini: invalid model parameter.", False, None)


def test_call_that_is_cancelled_closes_its_connection() -> None:
    """A task that is cancelled within a stream leaves nothing open."""
    events: list[RawEvent] = []

    async def cancelled(server: WireServer) -> None:
        arrived = asyncio.Event()

        def on_event(one: RawEvent) -> None:
            events.append(one)
            arrived.set()

        task = asyncio.create_task(Gemini().acall(_request(), _connection(server), on_event=on_event))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with WireServer(stream(PIECES[:1], hang=True)) as server:
        asyncio.run(cancelled(server))
    assert events == [PIECES[0]]


# Models


def test_models_are_those_that_generate_content() -> None:
    """All pages are asked for; names are as they are used, sorted."""
    pages: list[dict[str, Any]] = [
        {
            "models": [
                {"name": "models/gemini-b", "supportedGenerationMethods": ["generateContent", "countTokens"]},
                {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
            ],
            "nextPageToken": "next",
        },
        {"models": [{"name": "models/gemini-a"}]},
    ]
    with WireServer(*(whole(json.dumps(page).encode()) for page in pages)) as server:
        assert Gemini().models(_connection(server)) == ["gemini-a", "gemini-b"]
        assert [received.path.partition("?")[0] for received in server.received] == ["/v1beta/models"] * 2
        assert "pageToken=next" in server.received[1].path
        assert server.received[0].headers["x-goog-api-key"] == KEY


@pytest.mark.parametrize(
    ("answer", "told", "status"),
    [
        (
            whole(b'{"error":{"message":"key-of-a-test is no key"}}', status=400),
            "gemini answered 400: … is no key",
            400,
        ),
        (whole(b"<html>"), "gemini sent no list of models: check the base URL", None),
        (whole(b'{"models":7}'), "gemini sent no list of models: check the base URL", None),
        (whole(b"{", status=500), "gemini answered 500: {", 500),
    ],
)
def test_refused_list_of_models_is_an_error(answer: Answer, told: str, status: int | None) -> None:
    """A key that is no good, or an endpoint that is no Gemini, is told."""
    with WireServer(answer) as server, pytest.raises(ProviderError, match=rf"^{told}") as caught:
        Gemini().models(_connection(server))
    assert caught.value.status == status
    assert "\n" not in str(caught.value)


# Without the SDK


def test_sdk_is_imported_for_calls_only() -> None:
    """Preparing and reading need no SDK, and do not wait for its import."""
    program = (
        "import sys\n"
        "from turnlog.providers import get\n"
        "adapter = get('gemini')\n"
        "adapter.aggregate([b'{}'])\n"
        "assert not [name for name in sys.modules if name.startswith(('google.genai', 'httpx2'))]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_missing_sdk_is_told_by_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without the package says what to install."""
    monkeypatch.setitem(sys.modules, "google.genai", None)
    monkeypatch.delitem(sys.modules, "turnlog.providers.gemini.client", raising=False)
    monkeypatch.delattr("turnlog.providers.gemini.client", raising=False)
    with pytest.raises(MissingPackageError, match=r"need the package google-genai: install turnlog\[gemini\]"):
        Gemini().models(Connection())
    reply = Gemini().call(_request(), Connection())
    assert _error(reply)[0] == "calls to Gemini need the package google-genai: install turnlog[gemini]"
