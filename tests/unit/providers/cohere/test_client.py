"""Calls of Cohere's v2 chat, to a server that speaks its wire: what is its own, beside what all wires do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.providers.carrying import message
from tests.unit.providers.cohere.wire import MODEL, STREAM, add_up, whole
from tests.wires import server
from tests.wires.server import Answer, WireServer

from turnlog import ProviderError
from turnlog.model import ContextWindow
from turnlog.providers import Connection, PreparedRequest, Reply, get

KEY = "co-key-1234567890"
Caller = Callable[..., Reply]


def _acall(*arguments: Any, **keywords: Any) -> Reply:
    return asyncio.run(get("cohere").acall(*arguments, **keywords))


@pytest.fixture(params=[pytest.param(get("cohere").call, id="sync"), pytest.param(_acall, id="async")])
def call(request: pytest.FixtureRequest) -> Caller:
    """Give both ways to call."""
    return request.param


def prepared(*, streamed: bool) -> PreparedRequest:
    """Return a request."""
    window = ContextWindow(messages=[message("user", "caf\u00e9 \u2028")], options={})
    return get("cohere").prepare_request(window, model=MODEL, stream=streamed, params={"temperature": 1.0})


def to(found: WireServer, **fields: Any) -> Connection:
    """Return the connection to a server."""
    return Connection(**{"api_key": KEY, "base_url": f"{found.url}/", "timeout_s": 20.0, "retries_max": 0} | fields)


@pytest.mark.parametrize(
    ("streamed", "answer", "events"),
    [(True, server.stream(STREAM, names=True), STREAM), (False, server.whole(whole()), [whole()])],
)
def test_request_is_the_exact_bytes(call: Caller, streamed: bool, answer: Answer, events: list[bytes]) -> None:
    """They go to the chat, with the key; a reply that is not streamed is equal to a streamed one."""
    request = prepared(streamed=streamed)
    with WireServer(answer) as found:
        reply = call(request, to(found))
    [received] = found.received
    assert (received.method, received.path, received.body) == ("POST", "/v2/chat", request.body)
    assert (received.headers["authorization"], received.headers["content-type"]) == (
        f"Bearer {KEY}",
        "application/json",
    )
    assert (list(reply.events), reply.response) == (events, add_up(*STREAM))


def test_endpoint_without_a_key_gets_none(call: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is looked for in the environment."""
    monkeypatch.setenv("CO_API_KEY", KEY)
    with WireServer(server.stream(STREAM)) as found:
        assert call(prepared(streamed=True), to(found, api_key=None)).response.error is None
    assert "authorization" not in found.received[0].headers


def test_models_are_those_that_chat() -> None:
    """From all pages, sorted, each once; a page that leads to itself is the last."""
    pages = [
        b'{"models":[{"name":"b","endpoints":["chat"]},{"name":"a"}],"next_page_token":"t2"}',
        b'{"models":[{"name":"c"},{"name":"a"}],"next_page_token":"t/3"}',
        b'{"models":[],"next_page_token":"t/3"}',
    ]
    with WireServer(*map(server.whole, pages)) as found:
        assert get("cohere").models(to(found)) == ["a", "b", "c"]
    assert [received.path for received in found.received] == [
        "/v1/models?page_size=1000&endpoint=chat",
        "/v1/models?page_size=1000&endpoint=chat&page_token=t2",
        "/v1/models?page_size=1000&endpoint=chat&page_token=t%2F3",
    ]
    assert {received.headers["authorization"] for received in found.received} == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            server.whole(b'{"message":"invalid api token"}', status=401),
            "answered 401: invalid api token",
        ),
        (server.whole(b'{"data":[]}'), "sent no list of models: check the base URL"),
        (
            Answer(headers={"content-type": "text/html"}, chunks=[b"<html>"]),
            "sent no list of models: check the base URL",
        ),
    ],
)
def test_models_that_cannot_be_had_are_an_error(answer: Answer, said: str) -> None:
    """A key that is refused, or another server."""
    with WireServer(answer) as found, pytest.raises(ProviderError) as caught:
        get("cohere").models(to(found))
    assert str(caught.value) == f"cohere at {found.url} {said}"
