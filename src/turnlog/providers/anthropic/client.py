"""The network part of the Messages API, through the `anthropic` SDK."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from turnlog.providers.http import timeouts
from turnlog.providers.interface import Connection, PreparedRequest
from turnlog.providers.raw_json import read_object
from turnlog.providers.sdk import SdkClient
from turnlog.providers.wire import EventsUpToLast, no_models

SAMPLING_VERSION = "2023-06-01"
"""The last API version that has `temperature`, `top_p` and `top_k`; later ones refuse a request with any of them
(https://docs.anthropic.com/en/api/versioning)."""

MODELS_A_PAGE = 1000
"""How many models are asked for at once: the most that the API gives."""


class UpToStop(EventsUpToLast):
    """Cuts out events up to the stop of the message."""

    last = frozenset({"message_stop"})


class AnthropicClient(SdkClient):
    """The network of the Messages API: see `SdkClient`."""

    brand = "Anthropic"
    path = "/v1/messages"
    events = UpToStop
    settings: ClassVar[dict[str, Any]] = {"open_telemetry": False}

    def _sdk(self) -> Any:
        import anthropic  # noqa: PLC0415

        return anthropic

    def _options(self, request: PreparedRequest | None, connection: Connection) -> dict[str, Any]:
        """Return the time-out, and the API version that has what the body says, where it is not the SDK's own."""
        said = {} if request is None else read_object(request.head + request.closing)
        sampled = said.keys() & {"temperature", "top_p", "top_k"}
        headers = {"anthropic-version": SAMPLING_VERSION} if sampled else {}
        return {"headers": headers, "timeout": timeouts(connection)}

    def list_models(self, adapter: str, connection: Connection) -> list[str]:
        """Ask the endpoint for its models, all pages of them: see `SdkClient.list_models`."""
        with self._client(adapter, connection) as client:

            def ask() -> list[str]:
                with no_models(adapter, connection, AttributeError, TypeError, ValueError, msgspec.ValidationError):
                    first = client.models.list(limit=MODELS_A_PAGE)
                    msgspec.convert(first.data, list[Any])  # the SDK takes any JSON: this may have no data
                    return sorted(msgspec.convert([model.id for model in first], list[str]))

            return self._tried(adapter, connection, ask)


CLIENT = AnthropicClient()
