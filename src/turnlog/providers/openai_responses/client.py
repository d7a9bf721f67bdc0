"""The network of the Responses API: the `openai` SDK, at the path of this wire."""

from turnlog.providers.openai_client import OpenAIClient

CLIENT = OpenAIClient("/responses")
