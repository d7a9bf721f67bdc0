"""The network of Gemini's wire: addresses, the header of the key, errors between events, and the list of models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.providers.gemini.wire import MODEL, event, message, window
from tests.wires.server import Answer, WireServer, stream, whole

from turnlog import ProviderError
from turnlog.model import Text
from turnlog.providers import Connection, PreparedRequest, Reply
from turnlog.providers.gemini import Gemini

KEY = "key-of-a-test"
PIECES = [event({"text": "a"}), event({"text": "\u2028b"}), event(finish="STOP", news=1)]
WHOLE = json.dumps(json.loads(event({"text": "a\u2028b"}, finish="STOP")), indent=2).encode()

Call = Callable[..., Reply]


def _sync(request: PreparedRequest, connection: Connection) -> Reply:
    return Gemini().call(request, connection)


def _async(request: PreparedRequest, connection: Connection) -> Reply:
    return asyncio.run(Gemini().acall(request, connection))


@pytest.fixture(params=[_sync, _async], ids=["sync", "async"])
def call(request: pytest.FixtureRequest) -> Call:
    """Return `call`, or `acall` run to its end."""
    return request.param


def _request(*, streams: bool = True, model: str = MODEL) -> PreparedRequest:
    return Gemini().prepare_request(window(message("user", "Hi \u2028.")), model=model, stream=streams)


def _connection(server: WireServer, **more: Any) -> Connection:
    return Connection(**{"api_key": KEY, "base_url": server.url, "timeout_s": 5.0, "retries_max": 0, **more})


@pytest.mark.parametrize(
    ("streams", "answer", "events", "path"),
    [
        (True, stream(PIECES), tuple(PIECES), f"{MODEL}:streamGenerateContent?alt=sse"),
        (True, whole(b"[" + b",".join(PIECES) + b"]"), (b"[" + b",".join(PIECES) + b"]",), None),
        (False, whole(WHOLE), (WHOLE,), f"{MODEL}:generateContent"),
    ],
    ids=["stream", "array in place of a stream", "whole"],
)
def test_reply_is_handed_out_as_it_came(
    call: Call, streams: bool, answer: Answer, events: tuple[bytes, ...], path: str | None
) -> None:
    """The URL says the model and whether to stream, the body is the exact one, events are the bytes of the wire."""
    with WireServer(answer) as server:
        request = _request(streams=streams)
        reply = call(request, _connection(server))
        [received] = server.received
    assert reply.events == events
    assert (reply.response.content, reply.response.stop_reason) == ((Text(text="a\u2028b"),), "stop")
    assert received.body == request.body
    assert received.headers["content-type"] == "application/json"
    assert received.headers["x-goog-api-key"] == KEY
    if path is not None:
        assert (received.method, received.path) == ("POST", f"/v1beta/models/{path}")


def test_endpoint_without_a_key_gets_none(call: Call) -> None:
    """Without a key no header says one."""
    with WireServer(stream(PIECES)) as server:
        assert call(_request(), _connection(server, api_key=None)).response.error is None
        [received] = server.received
    assert {"x-goog-api-key", "authorization"}.isdisjoint(received.headers)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("models/gemini-x", "models/gemini-x"),
        ("tunedModels/mine-1", "tunedModels/mine-1"),
        ("google/gemini-x", "models/google/gemini-x"),
        ("gemini-2.5:free", "models/gemini-2.5:free"),
    ],
)
def test_model_that_names_its_collection_goes_as_it_is(model: str, path: str) -> None:
    """Others are of `models`."""
    with WireServer(stream(PIECES)) as server:
        _sync(_request(model=model), _connection(server, base_url=server.url + "/"))
        assert server.received[0].path.startswith(f"/v1beta/{path}:streamGenerateContent")


@pytest.mark.parametrize(
    "model", ["x?y", "x#y", "a b", "../files", "models/../files", "a//b", "models/", "é", "%2e", ""]
)
def test_model_that_cannot_stand_in_a_path_is_an_error(call: Call, model: str) -> None:
    """Names that would ask for something else are not sent."""
    with WireServer() as server:
        reply = call(_request(model=model), _connection(server))
        assert server.received == []
    assert reply.response.error is not None
    assert reply.response.error.line() == f"gemini: {model!r} is not the name of a model: see `models`"


@pytest.mark.parametrize("ending", [b"", b"\n"])
@pytest.mark.parametrize("cut", [1, 10_000])
def test_error_between_events_is_one(call: Call, ending: bytes, cut: int) -> None:
    """The API writes an error into a stream line by line, without the form of an event."""
    error = json.dumps({"error": {"code": 503, "message": "Overloaded."}}, indent=2).encode()
    sent = b": note\n\ndata: " + PIECES[0] + b"\n\n" + error + ending
    chunks = [sent[place : place + cut] for place in range(0, len(sent), cut)]
    with WireServer(Answer(headers={"content-type": "text/event-stream"}, chunks=chunks)) as server:
        reply = call(_request(), _connection(server))
    assert reply.events == (PIECES[0], error)
    assert reply.response.content == (Text(text="a"),)
    assert reply.response.error is not None
    assert reply.response.error.line() == f"gemini at {server.url} answered 503: Overloaded. (retryable)"


def test_wait_in_the_body_counts_too(call: Call) -> None:
    """Google tells how long to wait in the details of the error, in whatever place."""
    details = [{"@type": "google.rpc.Help"}, {"@type": "google.rpc.RetryInfo", "retryDelay": "36.5s"}]
    body = json.dumps({"error": {"code": 429, "message": "No.", "details": details}}).encode()
    for answer in (body, b"[" + body + b"]"):
        with WireServer(whole(answer, status=429)) as server:
            reply = call(_request(), _connection(server))
        assert reply.response.error is not None
        assert reply.response.error.line() == f"gemini at {server.url} answered 429: No. (retryable after 36.5 s)"


# Models


def test_models_are_those_that_generate_content() -> None:
    """All pages are asked for; names are as they are used, sorted."""
    pages: list[dict[str, Any]] = [
        {
            "models": [
                {"name": "models/gemini-b", "supportedGenerationMethods": ["generateContent", "countTokens"]},
                {"name": "models/embedding", "supportedGenerationMethods": ["embedContent"]},
            ],
            "nextPageToken": "a/b=",
        },
        {"models": [{"name": "models/gemini-a"}, {"name": "tunedModels/mine"}]},
    ]
    with WireServer(*(whole(json.dumps(page).encode()) for page in pages)) as server:
        assert Gemini().models(_connection(server)) == ["gemini-a", "gemini-b", "tunedModels/mine"]
        assert [(received.method, received.path) for received in server.received] == [
            ("GET", "/v1beta/models?pageSize=1000"),
            ("GET", "/v1beta/models?pageSize=1000&pageToken=a%2Fb%3D"),
        ]
        assert {received.headers["x-goog-api-key"] for received in server.received} == {KEY}


def test_pages_that_begin_again_are_all_asked_for_once() -> None:
    """An endpoint that names the same next page for ever is not asked for ever."""
    page = whole(b'{"models":[{"name":"models/a"}],"nextPageToken":"again"}')
    with WireServer(page, page) as server:
        assert Gemini().models(_connection(server)) == ["a"]
        assert len(server.received) == 2


@pytest.mark.parametrize("body", [b"<html>", b'{"models":7}', b"[]", b""])
def test_list_of_something_else_is_an_error(body: bytes) -> None:
    """An endpoint that is no Gemini is told."""
    with (
        WireServer(whole(body)) as server,
        pytest.raises(ProviderError, match=r"^gemini at http://\S+ sent no list of models: check the base URL$"),
    ):
        Gemini().models(_connection(server))
