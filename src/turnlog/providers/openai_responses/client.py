"""The network of the Responses API: the `openai` SDK, at the path of this wire."""

from turnlog.providers.openai_client import OpenAIClient
from turnlog.providers.openai_responses.reply import ENDS
from turnlog.providers.wire import EventsUpToLast


class UpToEnd(EventsUpToLast):
    """Cuts out events up to the one that has the whole response, however it ended."""

    last = frozenset(ENDS)


class ResponsesClient(OpenAIClient):
    """The network of the Responses API: see `OpenAIClient`."""

    events = UpToEnd


CLIENT = ResponsesClient("/responses")
