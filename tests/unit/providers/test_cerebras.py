"""Cerebras: where it differs from Chat Completions."""

from tests.unit.providers.carrying import message

from turnlog.model import ContextWindow
from turnlog.providers import Connection, get
from turnlog.providers.cerebras import Cerebras

WINDOW = ContextWindow(messages=(message("user", "hello"),), options={})


def test_cerebras_is_found_by_its_name() -> None:
    """The adapter has its own names, key and endpoint."""
    adapter = get("cerebras")
    assert isinstance(adapter, Cerebras)
    assert (adapter.name, adapter.provider, adapter.api) == ("cerebras", "cerebras", "chat_completions")
    assert (adapter.key_variable, dict(adapter.call_params)) == ("CEREBRAS_API_KEY", {})
    assert adapter._at_endpoint(Connection()).base_url == "https://api.cerebras.ai/v1"
    assert adapter._at_endpoint(Connection(base_url="http://here")).base_url == "http://here"
