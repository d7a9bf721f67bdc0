"""Chat Completions over the network: where requests go, and where never."""

import pytest
from tests.unit.providers.carrying import message
from tests.unit.providers.openai_chat.wire import HOME, OTHER, chunk
from tests.wires.server import WireServer, stream, whole

from turnlog.model import ContextWindow, Text
from turnlog.providers import Connection
from turnlog.providers.openai_chat import OpenAIChat

WINDOW = ContextWindow(messages=(message("user", "hello"),), options={})


@pytest.mark.parametrize("adapter", [HOME, OTHER])
def test_request_goes_to_the_endpoint_under_the_name_of_its_provider(adapter: OpenAIChat) -> None:
    """An endpoint of another provider is recorded under its own name."""
    request = adapter.prepare_request(WINDOW, model="m")
    with WireServer(stream([chunk({"content": "hi"}, "stop")], done=True)) as server:
        reply = adapter.call(request, Connection(api_key="k", base_url=f"{server.url}/v1"))
    [received] = server.received
    assert (received.method, received.path, received.body) == ("POST", "/v1/chat/completions", request.body)
    assert received.headers["authorization"] == "Bearer k"
    assert reply.response.content == (Text(text="hi"),)
    assert request.provider == reply.response.provider == adapter.provider


def test_models_are_those_of_the_endpoint() -> None:
    """A models call goes to the same base URL, with the key."""
    with WireServer(whole(b'{"data":[{"id":"b"},{"id":"a"}]}')) as server:
        assert HOME.models(Connection(api_key="k", base_url=server.url)) == ["a", "b"]
    assert (server.received[0].path, server.received[0].headers["authorization"]) == ("/models", "Bearer k")
