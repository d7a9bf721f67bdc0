"""Which tool a model is to call, on every wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.model import ContextWindow, Message, Tool, content_bytes
from turnlog.providers import get

ASKED = [Message(turn="t1", role="user", content_json=content_bytes("hi"))]
LOOK = Tool(name="look", description="Look.", input_schema=Raw(b'{"type":"object","properties":{}}'))


def choice(adapter: str, tool_choice: Any, *, search: Any = False, tools: Any = (LOOK,)) -> dict[str, Any]:
    """Return the body of a request with a choice."""
    window = ContextWindow(messages=ASKED, options={"search": search})
    request = get(adapter).prepare_request(window, tools, model="model-1", params={"tool_choice": tool_choice})
    return json.loads(request.body)


RECORDS = [
    ("anthropic", {"type": "tool", "name": "NAME"}),
    ("openai_chat", {"type": "function", "function": {"name": "NAME"}}),
    ("openai_chat", {"type": "custom", "custom": {"name": "NAME"}}),
    (
        "openai_chat",
        {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "NAME"}}]},
        },
    ),
    ("openai_responses", {"type": "function", "name": "NAME"}),
    ("openai_responses", {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "NAME"}]}),
    ("cerebras", {"type": "function", "function": {"name": "NAME"}}),
    ("gemini", {"mode": "ANY", "allowedFunctionNames": ["NAME"]}),
    ("bedrock", {"tool": {"name": "NAME"}}),
]


def named(record: dict[str, Any], name: str) -> Any:
    return json.loads(json.dumps(record).replace("NAME", name))


@pytest.mark.parametrize(("adapter", "record"), RECORDS)
def test_record_may_only_name_tools_that_are_offered(adapter: str, record: dict[str, Any]) -> None:
    """One that names an offered tool goes as it is; another is refused, as a bare name is."""
    assert json.dumps(named(record, "look")) in json.dumps(choice(adapter, named(record, "look")))
    with pytest.raises(ContentError, match=r"params\.tool_choice: 'gone' is no tool that is offered"):
        choice(adapter, named(record, "gone"))


@pytest.mark.parametrize(
    ("adapter", "sent"),
    [("anthropic", {"type": "tool", "name": "web_search"}), ("openai_responses", {"type": "web_search"})],
)
@pytest.mark.parametrize("tools", [(), (LOOK,)], ids=["alone", "beside tools"])
def test_search_can_be_chosen_where_it_is_a_tool(adapter: str, sent: dict[str, str], tools: Any) -> None:
    """By its name, and by the record of the wire; only while search is on."""
    assert choice(adapter, "web_search", search=True, tools=tools)["tool_choice"] == sent
    assert choice(adapter, sent, search=True, tools=tools)["tool_choice"] == sent
    for chosen in ("web_search", sent):
        with pytest.raises(ContentError, match=r"params\.tool_choice"):
            choice(adapter, chosen, tools=(LOOK,))


@pytest.mark.parametrize("search", ["yes", 1, {"on": True}])
def test_search_that_is_no_boolean_is_refused(search: Any) -> None:
    """It is not taken for no."""
    with pytest.raises(ContentError, match=r"options\.search: expected true or false"):
        choice("anthropic", "auto", search=search)
