"""Which tool a model is to call, on every wire."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from turnlog.errors import ContentError, UnsupportedContentError
from turnlog.model import ContextWindow, Message, Tool, content_bytes
from turnlog.providers import get
from turnlog.providers.registry import BUILT_IN
from turnlog.providers.tool_choice import unforced

ASKED = [Message(turn="t1", role="user", content_json=content_bytes("hi"))]
LOOK = Tool(name="look", description="Look.", input_schema=Raw(b'{"type":"object","properties":{}}'))


def choice(adapter: str, tool_choice: Any, *, search: Any = False, tools: Any = (LOOK,)) -> dict[str, Any]:
    """Return the body of a request with a choice."""
    window = ContextWindow(messages=ASKED, options={"search": search})
    request = get(adapter).prepare_request(window, tools, model="model-1", params={"tool_choice": tool_choice})
    return json.loads(request.body)


FREE: list[tuple[Any, Any]] = [
    ("auto", "auto"),
    ("NONE", "NONE"),
    ("required", "auto"),
    ("look", "auto"),
    ({"type": "auto", "disable_parallel_tool_use": True}, {"type": "auto", "disable_parallel_tool_use": True}),
    ({"type": "any", "disable_parallel_tool_use": True}, {"type": "auto", "disable_parallel_tool_use": True}),
    ({"type": "tool", "name": "look"}, {"type": "auto"}),
    ({"type": "function", "function": {"name": "look"}}, "auto"),
    ({"type": "function", "name": "look"}, "auto"),
    (
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function"}]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "function"}]}},
    ),
    (
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
    ),
    ({"mode": "ANY"}, {"mode": "AUTO"}),
    ({"mode": "ANY", "allowedFunctionNames": ["look"]}, {"mode": "VALIDATED", "allowedFunctionNames": ["look"]}),
    ({"mode": "VALIDATED", "allowedFunctionNames": ["a"]}, {"mode": "VALIDATED", "allowedFunctionNames": ["a"]}),
    ({"any": {}}, {"auto": {}}),
    ({"tool": {"name": "look"}}, {"auto": {}}),
    ({"auto": {}}, {"auto": {}}),
    (7, "auto"),
]
"""Choices, and what they come to once the call that they ask for was made."""


@pytest.mark.parametrize(("asked", "free"), FREE)
def test_what_forces_a_call_does_so_once(asked: Any, free: Any) -> None:
    """What else a record says holds on."""
    assert unforced(asked) == free


OPENAI = {"auto": "auto", "none": "none", "required": "required"}
FUNCTION = {"type": "function", "function": {"name": "look"}}
CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "anthropic": (
        "tool_choice",
        {
            "auto": {"type": "auto"},
            "none": {"type": "none"},
            "required": {"type": "any"},
            "look": {"type": "tool", "name": "look"},
        },
    ),
    "bedrock": (
        "toolConfig.toolChoice",
        {"auto": {"auto": {}}, "none": None, "required": {"any": {}}, "look": {"tool": {"name": "look"}}},
    ),
    "cerebras": ("tool_choice", OPENAI | {"look": FUNCTION}),
    "cohere": ("tool_choice", {"auto": None, "none": "NONE", "required": "REQUIRED", "look": "REQUIRED"}),
    "gemini": (
        "toolConfig.functionCallingConfig",
        {
            "auto": {"mode": "AUTO"},
            "none": {"mode": "NONE"},
            "required": {"mode": "ANY"},
            "look": {"mode": "ANY", "allowedFunctionNames": ["look"]},
        },
    ),
    "openai_chat": ("tool_choice", OPENAI | {"look": FUNCTION}),
    "openai_responses": ("tool_choice", OPENAI | {"look": {"type": "function", "name": "look"}}),
}
"""Where the body of each wire has the choice, and how it is spelled: by a word, or the name of a tool."""


def prepared(adapter: str, *, params: Any = None, on_loss: Any = None, tools: Any = (LOOK,), **options: Any) -> Any:
    """Return a request."""
    window = ContextWindow(messages=ASKED, options=options)
    return get(adapter).prepare_request(window, tools, model="model-1", params=params, on_loss=on_loss)


def chosen(adapter: str, **given: Any) -> Any:
    """Return what the body of a request says of the choice."""
    found = json.loads(prepared(adapter, **given).body)
    for name in CHOICES[adapter][0].split("."):
        found = found.get(name, {})
    return found or None


@pytest.mark.parametrize("adapter", sorted(BUILT_IN))
def test_choice_is_a_word_or_a_tool(adapter: str) -> None:
    """Each wire has its own spelling of both; a parameter says it, else the window's mode, in which `any` is a word."""
    spelled = CHOICES[adapter][1]
    for word, expected in spelled.items():
        assert chosen(adapter, params={"tool_choice": word}) == expected
        assert chosen(adapter, tool_mode=word) == expected
        assert chosen(adapter, params={"tool_choice": word}, tool_mode="none") == expected
    assert chosen(adapter, tool_mode="any") == chosen(adapter, params={"tool_choice": "ANY"}) == spelled["required"]
    assert chosen(adapter) is None


@pytest.mark.parametrize("adapter", sorted(BUILT_IN))
def test_parameter_that_chooses_what_is_not_offered_is_refused(adapter: str) -> None:
    """It names a tool that nobody knows."""
    with pytest.raises(ContentError, match=r"params\.tool_choice: .*'gone'"):
        prepared(adapter, params={"tool_choice": "gone"})


@pytest.mark.parametrize("adapter", sorted(BUILT_IN))
@pytest.mark.parametrize(
    ("tools", "mode", "why"),
    [
        ((LOOK,), "SIDEWAYS", "it is neither a choice of the wire nor a tool that is offered"),
        ((), "required", "no tools are offered"),
    ],
)
def test_mode_that_means_nothing_is_left_out(adapter: str, tools: Any, mode: str, why: str) -> None:
    """It is inherited, and may be meant for another provider: it is reported, or refused."""
    given: dict[str, Any] = {"tools": tools, "tool_mode": mode}
    assert chosen(adapter, **given) is None
    [entry] = prepared(adapter, **given).loss_report.entries
    assert (entry.kind, entry.block, entry.why) == ("dropped", "tool_choice", f"tool_mode {mode!r}: {why}")
    with pytest.raises(UnsupportedContentError, match="tool_mode"):
        prepared(adapter, on_loss="error", **given)


def test_choice_stands_beside_what_else_gemini_configures() -> None:
    """In one record of the wire. Beside search alone there is nothing to choose."""
    beside = {"retrievalConfig": {"languageCode": "de"}}
    body = json.loads(prepared("gemini", params={"toolConfig": beside, "tool_choice": "auto"}).body)
    assert body["toolConfig"] == beside | {"functionCallingConfig": {"mode": "AUTO"}}
    assert "toolConfig" not in json.loads(prepared("gemini", tools=(), search=True, tool_mode="auto").body)


RECORDS = [
    ("anthropic", {"type": "tool", "name": "NAME"}),
    ("anthropic", {"type": "tool", "name": "NAME", "disable_parallel_tool_use": True}),
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
"""The records of each wire that name tools."""

WORDS_ALONE = ("cohere",)
"""Wires whose choices are words, and no records."""


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
