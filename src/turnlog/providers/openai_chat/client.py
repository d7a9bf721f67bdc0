"""The network of Chat Completions: the `openai` SDK, at the path of this wire."""

from turnlog.providers.openai_client import OpenAIClient

CLIENT = OpenAIClient("/chat/completions")
