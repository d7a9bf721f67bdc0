"""Calls of Cohere's v2 chat, to a server that speaks its wire: what is its own, beside what all wires do."""

from __future__ import annotations

from typing import Any

from tests.wires import server
from tests.wires.server import WireServer

from turnlog.providers import Connection, get

KEY = "co-key-1234567890"


def to(found: WireServer, **fields: Any) -> Connection:
    """Return the connection to a server."""
    return Connection(**{"api_key": KEY, "base_url": f"{found.url}/", "timeout_s": 20.0, "retries_max": 0} | fields)


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
