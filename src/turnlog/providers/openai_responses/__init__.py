"""OpenAI's Responses API: https://developers.openai.com/api/reference/resources/responses (`POST /responses`).

Requests are stateless: nothing is stored at the provider, and reasoning goes back encrypted, as the items that it came
in. Each output item becomes blocks that hold all it takes to send the very same item back to the model that wrote it.
"""

from turnlog.providers.openai_responses.adapter import OpenAIResponses

__all__ = ["OpenAIResponses"]
