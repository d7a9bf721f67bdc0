"""The network part of Cohere: addresses, and its list of models."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from turnlog.providers.http import HttpClient, Page
from turnlog.providers.interface import Connection, PreparedRequest
from turnlog.providers.wire import EventsUpToLast

HOME = "https://api.cohere.com"


class _Model(Struct):
    name: str


class _Models(Page, kw_only=True):
    models: list[_Model]
    token: str | None = msgspec.field(default=None, name="next_page_token")


class UpToEnd(EventsUpToLast):
    """Cuts out events up to the end of the message."""

    last = frozenset({"message-end"})


class CohereClient(HttpClient):
    """The network of Cohere: see `HttpClient`."""

    events = UpToEnd

    def _url(self, adapter: str, request: PreparedRequest, connection: Connection) -> str:
        del adapter, request
        return f"{_base(connection)}/v2/chat"

    def list_models(self, adapter: str, connection: Connection) -> list[str]:
        """Ask Cohere for the models that chat: see `HttpClient.list_models`."""
        url = f"{_base(connection)}/v1/models?page_size=1000&endpoint=chat"
        pages = self._pages(adapter, url, "page_token", _Models, connection)
        return sorted({model.name for page in pages for model in page.models})


def _base(connection: Connection) -> str:
    return (connection.base_url or HOME).rstrip("/")


CLIENT = CohereClient()
