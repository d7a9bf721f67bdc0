"""OpenAI's Chat Completions, and every endpoint that speaks them.

`requests` goes from carried messages to the wire, `replies` from its events to a response; `adapter` puts the two and
the network together.
"""

from turnlog.providers.openai_chat.adapter import OpenAIChat

__all__ = ["OpenAIChat"]
