"""The network of all wires that go through the `openai` SDK."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from turnlog.providers.interface import Connection, PreparedRequest
from turnlog.providers.sdk import SdkClient
from turnlog.providers.wire import no_models


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]


_models = msgspec.json.Decoder(_Models)


class OpenAIClient(SdkClient):
    """The network of one of OpenAI's wires: see `SdkClient`."""

    brand = "OpenAI"

    def __init__(self, path: str) -> None:
        """Name the wire by its path below the base URL: `/chat/completions`, `/responses`."""
        self.path = path

    def _sdk(self) -> Any:
        import openai  # noqa: PLC0415

        return openai

    def _options(self, request: PreparedRequest | None, connection: Connection) -> dict[str, Any]:
        """Return headers: the key that was given and no other, and nothing of the user's OpenAI account to others."""
        del request
        nothing = self._sdk().Omit()
        key = f"Bearer {connection.api_key}" if connection.api_key else nothing
        account = () if connection.base_url is None else ("OpenAI-Organization", "OpenAI-Project")
        return {"headers": {"Authorization": key, **dict.fromkeys(account, nothing)}}

    def list_models(self, adapter: str, connection: Connection) -> list[str]:
        """Ask the endpoint for its models: see `SdkClient.list_models`."""
        import httpx2  # noqa: PLC0415

        with self._client(adapter, connection) as client:
            ask = partial(client.get, "/models", cast_to=httpx2.Response, options=self._options(None, connection))
            response = self._tried(adapter, connection, ask)
        with no_models(adapter, connection):
            return sorted(model.id for model in _models.decode(response.content).data)
