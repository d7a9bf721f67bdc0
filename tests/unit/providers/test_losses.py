"""What a request loses beside its messages: here tools whose names a wire does not take."""

from __future__ import annotations

import pytest

from turnlog import UnsupportedContentError
from turnlog.model import ContextWindow, Message, Tool, content_bytes
from turnlog.providers import Provider, get, get_as

WINDOW = ContextWindow(messages=[Message(turn="t", role="user", content_json=content_bytes("hi"))], options={})
NAMED = Tool(name="home___weather")


def lost(adapter: Provider, name: str) -> bool:
    """Return whether a tool of a name is refused, and lost where it may be; another one is offered beside it."""
    tools = [Tool(name=name), NAMED]
    request = adapter.prepare_request(WINDOW, tools, model="m", on_loss="report")
    kinds = [(loss.kind, loss.block) for loss in request.loss_report.entries if repr(name) in loss.why]
    if not kinds:
        adapter.prepare_request(WINDOW, tools, model="m", on_loss="error")
        return False
    with pytest.raises(UnsupportedContentError, match="call it otherwise") as raised:
        adapter.prepare_request(WINDOW, tools, model="m")
    assert (kinds, raised.value.block) == ([("dropped", "tool")], "tool")
    assert f'"name":"{name}"'.encode() not in request.body
    assert b'"home___weather"' in request.body
    return True


@pytest.mark.parametrize("name", ["anthropic", "bedrock", "gemini", "openai_chat", "openai_responses"])
def test_a_tool_whose_name_the_provider_refuses_is_refused_before(name: str) -> None:
    """The call would fail. Nothing is renamed: the model is to see the name that the log has."""
    adapter = get(name)
    assert [lost(adapter, odd) for odd in ("", "a b", "ü", "x" * 129)] == [True] * 4
    assert not lost(adapter, "x" * 64)
    assert lost(adapter, "x" * 65) == (name in ("bedrock", "gemini", "openai_chat"))


def test_gemini_takes_names_of_its_own_form() -> None:
    """They begin with a letter or an underscore, and may have dots and colons."""
    adapter = get("gemini")
    assert [lost(adapter, name) for name in ("21st___build", "-a", ".a")] == [True] * 3
    assert [lost(adapter, name) for name in ("_1", "fs.read:2", "a-b")] == [False] * 3
    assert [lost(get("openai_chat"), name) for name in ("21st___build", "fs.read:2")] == [False, True]


def test_names_go_to_endpoints_of_openais_wires_as_they_are() -> None:
    """Which names an endpoint under a name of its own takes is not known."""
    adapters = [get_as("openai_chat", "other"), get_as("openai_responses", "other"), get("cerebras")]
    assert [lost(adapter, "fs.read") for adapter in adapters] == [False] * 3
