"""Cohere's chat, version 2: `POST /v2/chat` (docs.cohere.com/reference/chat)."""

from turnlog.providers.cohere.adapter import Cohere

__all__ = ["Cohere"]
