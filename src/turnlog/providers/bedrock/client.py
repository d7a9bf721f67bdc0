"""The network part of Bedrock: addresses by region, its kind of stream, and its lists of models."""

from __future__ import annotations

import os
import re
from urllib.parse import quote

import msgspec
from msgspec import Struct

from turnlog.errors import ProviderError
from turnlog.providers.bedrock.eventstream import EventStreamBytes
from turnlog.providers.http import HttpClient, Page
from turnlog.providers.interface import Connection, PreparedRequest

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
"""The environment variables that name the region, the first one that does."""

_region = re.compile("[a-z0-9-]+")


def base_url(adapter: str, service: str, connection: Connection) -> str:
    """Return where a service of Bedrock is: at the endpoint that is given, else at AWS in the region.

    Raises:
        ProviderError: no region is named.
    """
    if connection.base_url:
        return connection.base_url.rstrip("/")
    region = next((found for name in REGION_VARIABLES if (found := os.environ.get(name, "").strip())), None)
    if region is None:
        named = " or ".join(REGION_VARIABLES)
        raise ProviderError(f"{adapter}: no region: set {named}, or give a base URL", provider=adapter)
    if not _region.fullmatch(region):
        raise ProviderError(f"{adapter}: {region!r} is not a region: set it as in 'us-east-1'", provider=adapter)
    return f"https://{service}.{region}.amazonaws.com"


class _Model(Struct, rename="camel"):
    model_id: str
    inference_types_supported: list[str] | None = None


class _Models(Page, kw_only=True):
    models: list[_Model] = msgspec.field(name="modelSummaries")


class _Profile(Struct, rename="camel"):
    inference_profile_id: str


class _Profiles(Page, kw_only=True):
    profiles: list[_Profile] = msgspec.field(name="inferenceProfileSummaries")
    token: str | None = msgspec.field(default=None, name="nextToken")


class BedrockClient(HttpClient):
    """The network of Bedrock: see `HttpClient`."""

    events = EventStreamBytes

    def _url(self, adapter: str, request: PreparedRequest, connection: Connection) -> str:
        method = "converse-stream" if request.stream else "converse"
        return f"{base_url(adapter, 'bedrock-runtime', connection)}/model/{quote(request.model, safe='')}/{method}"

    def list_models(self, adapter: str, connection: Connection) -> list[str]:
        """Ask for the models that write text on demand, and all inference profiles: see `HttpClient.list_models`."""
        base = base_url(adapter, "bedrock", connection)
        url = f"{base}/foundation-models?byOutputModality=TEXT"
        models = self._pages(adapter, url, "nextToken", _Models, connection)
        names = {model.model_id for page in models for model in page.models if _on_demand(model)}
        url = f"{base}/inference-profiles?maxResults=1000"
        profiles = self._pages(adapter, url, "nextToken", _Profiles, connection)
        return sorted(names | {profile.inference_profile_id for page in profiles for profile in page.profiles})


def _on_demand(model: _Model) -> bool:
    types = model.inference_types_supported
    return types is None or "ON_DEMAND" in types


CLIENT = BedrockClient()
