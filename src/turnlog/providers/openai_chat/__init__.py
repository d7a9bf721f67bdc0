"""OpenAI's Chat Completions, and every endpoint that speaks them (https://platform.openai.com/docs/api-reference/chat)."""

from turnlog.providers.openai_chat.adapter import OpenAIChat

__all__ = ["OpenAIChat"]
