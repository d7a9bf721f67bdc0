"""The network of the adapter: addresses, and the header of the key (Gemini API, v1beta)."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec
from msgspec import Struct

from turnlog.errors import ProviderError
from turnlog.providers.http import HttpClient, Page
from turnlog.providers.interface import Connection, PreparedRequest

BASE_URL = "https://generativelanguage.googleapis.com"

_WITH_COLLECTION = ("models/", "tunedModels/")
_SEGMENT = r"(?!\.{1,2}(?:/|$))[A-Za-z0-9._~:@+=,-]+"
_path = re.compile(f"{_SEGMENT}(?:/{_SEGMENT})*")
"""What can stand in a path as it is (RFC 3986 §3.3), and does not lead elsewhere."""


class _Model(Struct, frozen=True, rename="camel"):
    name: str
    supported_generation_methods: list[str] | None = None


class _Models(Page, kw_only=True):
    models: list[_Model] = msgspec.field(default_factory=list[_Model])
    token: str | None = msgspec.field(default=None, name="nextPageToken")


class GeminiClient(HttpClient):
    """The network of the Gemini API: see `HttpClient`."""

    key_header: ClassVar[tuple[str, str]] = ("x-goog-api-key", "")

    def _url(self, adapter: str, request: PreparedRequest, connection: Connection) -> str:
        model = request.model
        if not _path.fullmatch(model):
            raise ProviderError(f"{adapter}: {model!r} is not the name of a model: see `models`", provider=adapter)
        path = model if model.startswith(_WITH_COLLECTION) else f"models/{model}"
        method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        return f"{_base(connection)}/{path}:{method}"

    def list_models(self, adapter: str, connection: Connection) -> list[str]:
        """Ask the API for the models that generate content: see `HttpClient.list_models`."""
        pages = self._pages(adapter, f"{_base(connection)}/models?pageSize=1000", "pageToken", _Models, connection)
        models = (model for page in pages for model in page.models)
        return sorted({model.name.removeprefix("models/") for model in models if _generates(model)})


def _base(connection: Connection) -> str:
    return f"{(connection.base_url or BASE_URL).rstrip('/')}/v1beta"


def _generates(model: _Model) -> bool:
    methods = model.supported_generation_methods
    return methods is None or "generateContent" in methods


CLIENT = GeminiClient()
