"""Cohere, through its v2 chat: `POST /v2/chat` (docs.cohere.com/reference/chat, and the types of the `cohere` SDK)."""

from turnlog.providers.cohere.adapter import Cohere

__all__ = ["Cohere"]
