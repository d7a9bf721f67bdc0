"""The examples in the documents of the four systems that turnlog takes in, run as they stand there."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from turnlog import TurnLog
from turnlog.ids import is_id, parse_id
from turnlog.interop import canonical, geppetto, gmi
from turnlog.interop.geppetto import KEY_TOOL_CONFIG, PAYLOAD_KEY_TEXT, BlockKind, InMemoryToolRegistry, ToolConfig

GIVEN = "03DXL6W8Q53VJHS6I91Q9R7M3"


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give an empty log."""
    with TurnLog.open("memory://") as log:
        yield log


# gpt2099


def test_a_text_is_added_without_metadata(log: TurnLog) -> None:
    """`"Hello world" | schema add-turn {}` returns id, hash and metadata."""
    record = log.add_turn("Hello world").to_record()
    assert is_id(record["id"])
    assert record["hash"].startswith("sha256-")
    assert record["meta"]["role"] == "user"
    assert log.context(record["id"]).to_json() == (
        b'{"messages":[{"role":"user","content":[{"type":"text","text":"Hello world"}],"cache":false}],"options":{}}'
    )


def test_a_turn_is_added_with_metadata(log: TurnLog) -> None:
    """Bookmark, cache, the turn to continue by its id, pointer, servers and search."""
    first = log.add_turn("before", id=GIVEN)
    assert first.id == parse_id(GIVEN)
    turn = log.add_turn(
        "content",
        bookmark="session-1",
        cache=True,
        continues=GIVEN,
        provider_ptr="kilo",
        servers=["filesystem"],
        search=True,
    )
    assert log.turn("session-1") == turn
    assert turn.continues == (first.id,)
    assert turn.meta.cache
    assert log.context("session-1").options == {"provider_ptr": "kilo", "servers": ["filesystem"], "search": True}


def test_options_are_merged_as_in_the_example(log: TurnLog) -> None:
    """Base options, a delta, and those of the current turn."""
    log.add_turn("one", bookmark="research-session", provider_ptr="nano", servers=["filesystem"])
    log.add_turn("two", continues="research-session", servers=["filesystem", "web-search"], search=True)
    log.add_turn("three", continues="research-session", provider_ptr="kilo", tool_mode="auto")
    assert log.context("research-session").options == {
        "provider_ptr": "kilo",
        "servers": ["filesystem", "web-search"],
        "search": True,
        "tool_mode": "auto",
    }


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "string"},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}},
        {"type": "tool_use", "name": "read", "input": {"path": "a"}},
        {"type": "tool_use", "name": "read", "input": {"path": "a"}, "id": "t1"},
        {"type": "tool_result", "content": [{"type": "text", "text": "ok"}], "name": "read"},
        {
            "type": "tool_result",
            "content": [{"type": "text", "text": "ok"}],
            "tool_use_id": "t1",
            "name": "read",
            "is_error": True,
        },
    ],
)
def test_each_block_of_the_schema_is_content(log: TurnLog, block: dict[str, object]) -> None:
    """With and without what is optional; it comes back as it is."""
    turn = log.add_turn(msgspec.json.encode([block]), json=True)
    [message] = msgspec.json.decode(log.context(turn.id).to_json())["messages"]
    assert message["content"] == [block]


# AgentOS


@pytest.mark.parametrize("mode", ["fail_open", "fail_closed"])
@pytest.mark.parametrize("selection", ["all", "discovered"])
def test_the_whole_interface_is_one_input(log: TurnLog, mode: str, selection: str) -> None:
    """Each property of the document, recorded and read again."""
    given = {
        "interactionId": "i-1",
        "userId": "u-1",
        "sessionId": "s-1",
        "type": "text",
        "content": "How are the tides?",
        "timestamp": "2026-02-10T17:00:00+00:00",
        "userContextOverride": {"language": "de"},
        "taskContextOverride": {"goal": "sail"},
        "metadata": {
            "options": {
                "temperature": 0.5,
                "preferredModelId": "m",
                "preferredProviderId": "p",
                "toolChoice": "auto",
                "responseFormat": {"type": "text"},
            },
            "userFeedback": {"stars": 5},
            "explicitPersonaSwitchId": "captain",
            "conversationHistoryForPrompt": [{"role": "user", "content": "Hi."}],
            "rollingSummary": {"text": "They greeted.", "json": {"turns": 1}},
            "promptProfile": {"id": "concise", "systemInstructions": "Be brief.", "reason": "asked"},
            "executionPolicy": {"plannerVersion": "1", "toolFailureMode": mode, "toolSelectionMode": selection},
            "capabilityDiscovery": {
                "query": "tides",
                "kind": "tool",
                "selectedToolNames": ["tides"],
                "promptContext": "There is a tide table.",
                "fallbackReason": "none",
                "result": {"score": 1},
            },
        },
    }
    turn = gmi.record(log, given)
    assert gmi.input_of(log, turn.id) == gmi.read_input(given)


# Geppetto


def test_blocks_are_made_and_read_as_in_the_guide() -> None:
    """A seed with system and user blocks, and the text of a reply by the payload keys."""
    seed = geppetto.Turn()
    geppetto.append_block(seed, geppetto.new_system_text_block("You are a helpful assistant."))
    geppetto.append_block(seed, geppetto.new_user_text_block("What is the weather in Paris?"))
    geppetto.append_block(seed, geppetto.new_assistant_text_block("Mild."))
    texts = [
        block.payload[PAYLOAD_KEY_TEXT]
        for block in seed.blocks
        if block.kind is BlockKind.LLM_TEXT and isinstance(block.payload[PAYLOAD_KEY_TEXT], str)
    ]
    assert texts == ["Mild."]


def test_registry_is_in_the_context_and_configuration_in_the_turn() -> None:
    """As in the guide: the turn has no tool, and who calls has all."""
    registry = InMemoryToolRegistry()
    turn = geppetto.Turn()
    KEY_TOOL_CONFIG.set(turn.data, ToolConfig(enabled=True, tool_choice="auto"))
    with geppetto.with_registry(registry):
        assert geppetto.registry_from() is registry
    assert geppetto.registry_from() is None
    assert [identity for identity, _ in turn.data.range()] == ["geppetto.tool_config@v1"]


# fen


def test_a_tool_has_the_schema_of_the_document(log: TurnLog) -> None:
    """`{:type :object :properties {...} :required [...]}`, and a call and its result of it are messages."""
    tool = canonical.Tool(
        name="read",
        description="Read a file.",
        parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    )
    messages: list[canonical.Message] = [
        canonical.UserMessage(content="Read it.", timestamp=1),
        canonical.AssistantMessage(
            content=[canonical.ToolCall(id="c1", name=tool.name, arguments={"path": "a"})],
            stop_reason="tool-use",
            timestamp=2,
        ),
        canonical.ToolResultMessage(
            content=[canonical.TextContent(text="text")],
            tool_call_id="c1",
            tool_name=tool.name,
            is_error=False,
            timestamp=3,
        ),
    ]
    context = canonical.AgentContext(max_tokens=100, messages=messages, tools=[tool])
    assert canonical.parse_context(canonical.to_json(context)) == context
    head = canonical.record(log, messages)[-1]
    assert canonical.messages(log, head.id)[0] == messages
