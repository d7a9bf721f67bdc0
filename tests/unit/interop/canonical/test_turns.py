"""Canonical messages recorded as turns, and turns read as messages."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.facts import with_facts
from tests.unit.interop.canonical import made

from turnlog import TurnLog
from turnlog.errors import ContentError, CorruptionError, UnknownTurnError
from turnlog.interop import canonical
from turnlog.interop.canonical import (
    TOPIC,
    AssistantMessage,
    TextContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    draft_of,
    kept_of,
    record,
)
from turnlog.interop.canonical import Usage as CanonicalUsage
from turnlog.model import (
    STOP_REASONS,
    Block,
    Document,
    LossEntry,
    Native,
    ReplyFacts,
    Source,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
    decode_content,
)
from turnlog.record import Note
from turnlog.testing.strategies import contents
from turnlog.turn import Turn


def kept_events(log: TurnLog) -> list[bytes]:
    """Return what is kept beside turns."""
    return [log.payload(event.header.id) for event in log.events(topics=[TOPIC])]


def test_messages_come_back_equal(log: TurnLog) -> None:
    """Messages of each kind, with a value in every field, are read as they were recorded, without a loss."""
    turns = record(log, made.conversation(), bookmark="main")
    found, report = canonical.messages(log, "main")
    assert found == made.conversation()
    assert not report
    assert [turn.meta.role for turn in turns] == ["user", "assistant", "user", "user", "assistant"]


@given(st.lists(made.messages(), min_size=1, max_size=5))
def test_any_messages_come_back_equal(messages: list[canonical.Message]) -> None:
    """Any messages are read as they were recorded, without a loss."""
    with TurnLog.open("memory://") as log:
        turns = record(log, messages)
        assert len(turns) == len(messages)
        found, report = canonical.messages(log, turns[-1].id)
        assert found == messages
        assert [type(message.timestamp) for message in found] == [type(message.timestamp) for message in messages]
        assert not report


def test_each_message_is_a_turn_of_normalized_blocks(log: TurnLog) -> None:
    """Contents are text, thinking, tool calls and results as all of turnlog knows them."""
    turns = record(log, made.conversation())
    assert [decode_content(log.payload(turn.id)) for turn in turns[:3]] == [
        [Text(text="What is in a.txt?")],
        [
            Thinking(thinking="I read it.", signature="s1=="),
            Thinking(thinking="", signature="s2==", redacted=True),
            Text(text="I look."),
            ToolUse(id="call|1", name="read", input=Raw(b'{"path":"a.txt","from":1.5,"all":null}')),
        ],
        [
            ToolResult(
                tool_use_id="call|1",
                name="read",
                content=[Text(text="no such file"), Text(text="")],
                is_error=True,
            )
        ],
    ]


def test_turns_say_in_their_words_what_messages_say(log: TurnLog) -> None:
    """Api, stop reason, usage, error and time are those of turns."""
    turns = record(log, made.conversation())
    replied, failed = turns[1].meta, turns[4].meta
    assert (replied.provider, replied.api, replied.model) == ("anthropic", "messages", "claude-sonnet-4-5")
    assert replied.stop_reason == "tool_use"
    assert replied.usage == Usage(
        input_tokens=10, output_tokens=20, cache_read_input_tokens=30, cache_creation_input_tokens=40
    )
    assert (failed.stop_reason, failed.error, failed.api) == ("error", "overloaded", "openai-codex")
    assert turns[0].said_at.isoformat(timespec="milliseconds") == "2023-11-14T22:13:20.123+00:00"


def test_failed_messages_are_left_out_of_windows(log: TurnLog) -> None:
    """A message with the stop reason error or aborted is a turn that no window has."""
    aborted = AssistantMessage(content=[TextContent(text="I w")], timestamp=1, stop_reason="aborted")
    turns = record(log, [*made.conversation(), aborted])
    assert [message.turn for message in log.context(turns[-1].id).messages] == [turn.id for turn in turns[:4]]


def test_only_what_turns_have_no_place_for_is_kept_beside_them(log: TurnLog) -> None:
    """Details, a list of one text, counts that cannot be told from those of the turn: no content is repeated."""
    record(log, made.conversation())
    assert kept_events(log) == [
        b'{"details":{"shown":["red",null],"z":{"a":1}}}',
        b'{"blocks":true}',
        b'{"usage":{}}',
    ]
    assert kept_of(UserMessage(content="a", timestamp=1)) is None


def test_details_go_with_their_turn(log: TurnLog) -> None:
    """Erasing the turn of a tool result erases its details, and the report says that the message is gone."""
    turns = record(log, made.conversation())
    assert log.erase(turn=turns[2].id, reason="asked for").erasures
    [details, *_] = log.events(topics=[TOPIC])
    assert details.erased
    found, report = canonical.messages(log, turns[-1].id)
    assert found == made.conversation()[:2] + made.conversation()[3:]
    assert report.entries == (LossEntry(kind="dropped", turn=turns[2].id, block="turn", why="it was erased"),)


@pytest.mark.parametrize(
    ("told", "counted"),
    [
        (CanonicalUsage(input=10, output=5, cache_read=4, total_tokens=15), (6, 5, 4, 0)),
        (CanonicalUsage(input=10, output=5, cache_read=4, cache_write=6, total_tokens=15), (0, 5, 4, 6)),
        (CanonicalUsage(input=10, output=5, cache_read=4, total_tokens=19), (10, 5, 4, 0)),
        (CanonicalUsage(input=3, output=5, cache_read=4, total_tokens=8), (3, 5, 4, 0)),
        (CanonicalUsage(output=5), (0, 5, 0, 0)),
        (CanonicalUsage(total_tokens=9), (0, 0, 0, 0)),
    ],
)
def test_no_token_is_counted_twice(log: TurnLog, told: CanonicalUsage, counted: tuple[int, ...]) -> None:
    """Where the total says that cached tokens are part of the input, the turn counts them once; the message is kept."""
    [turn] = record(log, [AssistantMessage(content=[], timestamp=1, usage=told)])
    usage = turn.meta.usage
    assert isinstance(usage, Usage)
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    assert (usage.input_tokens, usage.output_tokens, read, written) == counted
    [message] = canonical.messages(log, turn.id)[0]
    assert isinstance(message, AssistantMessage)
    assert message.usage == told


def test_messages_continue_a_turn_and_move_its_bookmark(log: TurnLog) -> None:
    """More messages can follow later; the bookmark moves along."""
    record(log, made.conversation()[:2], bookmark="main")
    added = record(log, made.conversation()[2:], continues="main")
    assert log.turn("main").id == added[-1].id
    assert canonical.messages(log, "main")[0] == made.conversation()


def test_no_messages_record_nothing(log: TurnLog) -> None:
    """An empty list is no turn."""
    assert record(log, []) == []
    assert log.id is None


def test_malformed_message_records_nothing(log: TurnLog) -> None:
    """What is refused is refused with all that was given with it."""
    bad = ToolCall(id="c", name="n", arguments={"a": {1, 2}})
    with pytest.raises(ContentError, match=r"messages\[1\]\.content\[0\]\.arguments\.a: set is not JSON"):
        record(log, [made.conversation()[0], AssistantMessage(content=[bad], timestamp=1)])
    assert log.id is None


def test_unknown_parent_records_nothing(log: TurnLog) -> None:
    """The first message continues a turn that must be there."""
    with pytest.raises(UnknownTurnError):
        record(log, made.conversation(), continues="nowhere")
    assert kept_events(log) == []


@pytest.mark.parametrize("note", [b"[]", b'{"details":' + b"[" * 2000])
def test_damaged_note_is_an_error(log: TurnLog, note: bytes) -> None:
    """What is kept beside a turn and cannot be read is not passed over."""
    [turn] = record(log, made.conversation()[:1])
    log.add_group([Note(topic=TOPIC, payload=note, turn=turn.id)])
    with pytest.raises(CorruptionError, match=f"what is kept of message '{turn.id}' cannot be read"):
        canonical.messages(log, turn.id)


def test_branches_have_their_own_messages(log: TurnLog) -> None:
    """The messages of one branch have nothing of another."""
    [first, *_] = record(log, made.conversation()[:2])
    other = record(log, made.conversation()[3:4], continues=first.id)
    assert canonical.messages(log, other[-1].id)[0] == [made.conversation()[0], made.conversation()[3]]


def test_what_was_kept_before_a_thread_is_not_read(store_path: Path) -> None:
    """A log may have very many notes: those of other messages, recorded before the first one, are passed over."""
    asked: list[int] = []

    class Asked(TurnLog):
        def events(self, after: int = 0, **options: Any) -> Any:
            asked.append(after)
            return super().events(after, **options)

    message = UserMessage(content=[TextContent(text="a")], timestamp=1)
    with Asked.open(f"sqlite:///{store_path}") as log:
        record(log, [message] * 3)
        turns = record(log, [message] * 2)
        assert canonical.messages(log, turns[-1].id)[0] == [message] * 2
        assert asked == [turns[0].global_position]


def test_draft_of_a_message_is_a_turn(log: TurnLog) -> None:
    """One message can be made a draft and recorded among others."""
    draft = draft_of(UserMessage(content="a", timestamp=5), bookmark="main")
    log.add_group([draft])
    assert canonical.messages(log, "main")[0] == [UserMessage(content="a", timestamp=5)]


# Turns that were no messages


def losses(log: TurnLog, headish: str) -> list[tuple[str, str, int | None]]:
    """Return kind, block and index of what messages do not have of turns, all of which must be of the log."""
    report = canonical.messages(log, headish)[1]
    turns = {turn.id for turn in log.ancestry(headish)}
    assert {entry.turn for entry in report.entries} <= turns
    return [(entry.kind, entry.block, entry.index) for entry in report.entries]


def test_turn_with_results_and_text_is_several_messages(log: TurnLog) -> None:
    """Each result is a message, and the text is one; a result that names no tool has the name of its call."""
    call = log.add_turn([ToolUse(id="c1", name="ls", input=Raw(b"{}"))], role="assistant")
    both = [ToolResult(tool_use_id="c1", content="a"), Text(text="and now?")]
    turn = log.add_turn(both, continues=call.id)
    [_, result, said] = canonical.messages(log, turn.id)[0]
    assert result == ToolResultMessage(
        tool_call_id="c1",
        tool_name="ls",
        content=[TextContent(text="a")],
        is_error=False,
        timestamp=turn.time_ms,
    )
    assert said == UserMessage(content=[TextContent(text="and now?")], timestamp=turn.time_ms)
    assert losses(log, turn.id) == [("moved", "turn", None)]


def test_system_turns_are_no_messages(log: TurnLog) -> None:
    """A system turn is reported: only a context has a system prompt."""
    system = log.add_turn("Be brief.", role="system")
    turn = log.add_turn("hi", continues=system.id)
    assert canonical.messages(log, turn.id)[0] == [UserMessage(content="hi", timestamp=turn.time_ms)]
    assert losses(log, turn.id) == [("dropped", "system", None)]


def test_documents_become_text(log: TurnLog) -> None:
    """A document that is text is its text; another one is a line that says what it was."""

    def document(media_type: str, data: bytes) -> Document:
        return Document(source=Source(media_type=media_type, data=b64encode(data).decode()))

    turn = log.add_turn([document("text/plain", b"abc"), document("image/png", b"\x89")])
    [message] = canonical.messages(log, turn.id)[0]
    assert isinstance(message, UserMessage)
    assert message.content == [
        TextContent(text="abc"),
        TextContent(text="[a document of type image/png, 1 bytes, that cannot be shown here]"),
    ]
    assert losses(log, turn.id) == [("downgraded", "document", 0), ("dropped", "document", 1)]


def test_calls_and_results_without_ids_are_paired(log: TurnLog) -> None:
    """An id that is made up for a call is that of the result that answers it."""
    call = log.add_turn([ToolUse(name="ls", input=Raw(b"{}"))], role="assistant")
    turn = log.add_turn([ToolResult(name="ls", content="a")], continues=call.id)
    asked, answered = canonical.messages(log, turn.id)[0]
    assert isinstance(asked, AssistantMessage)
    assert isinstance(answered, ToolResultMessage)
    [block] = asked.content
    assert isinstance(block, ToolCall)
    assert block.id == answered.tool_call_id == f"{call.id}-0"
    assert losses(log, turn.id) == [("synthesised", "tool_id", 0), ("synthesised", "tool_id", 0)]


@pytest.mark.parametrize(
    ("given", "arguments", "lost"),
    [
        (b'{"a":1.50,"b":"\\u00e9"}', {"a": 1.5, "b": "é"}, ("downgraded", "tool_use.input", 0)),
        (b'{"a":1,"a":2}', {"a": 2}, ("downgraded", "tool_use.input", 0)),
        (b'{"a":1e999}', {}, ("dropped", "tool_use.input", 0)),
        (b'{"a":123456789012345678901234567890}', {}, ("dropped", "tool_use.input", 0)),
    ],
)
def test_arguments_that_are_spelled_in_another_way_are_named(
    log: TurnLog, given: bytes, arguments: object, lost: object
) -> None:
    """Arguments are decoded: what their spelling says is in the report, and what cannot be decoded is left out."""
    turn = log.add_turn([ToolUse(id="c", name="n", input=Raw(given))], role="assistant")
    [message] = canonical.messages(log, turn.id)[0]
    assert message.content == [ToolCall(id="c", name="n", arguments=arguments)]
    assert losses(log, turn.id) == [lost]


def test_escapes_in_arguments_are_no_loss(log: TurnLog) -> None:
    """The texts are the same."""
    turn = log.add_turn([ToolUse(id="c", name="n", input=Raw(b'{"a":"\\u00e9"}'))], role="assistant")
    [message] = canonical.messages(log, turn.id)[0]
    assert message.content == [ToolCall(id="c", name="n", arguments={"a": "é"})]
    assert losses(log, turn.id) == []


def test_words_that_messages_do_not_have_are_reported(log: TurnLog) -> None:
    """Api, stop reason, error, options and the like are named where messages have no place for them."""
    turn = log.add_turn(
        [Native(provider="g", block=Raw(b"{}")), Thinking(thinking="t", model="other")],
        role="assistant",
        reply=ReplyFacts(
            api="generate_content",
            stop_reason="refusal",
            raw_stop_reason="SAFETY",
            usage=Usage(output_tokens=1, reasoning_tokens=2),
        ),
        cache=True,
        search=True,
    )
    [message] = canonical.messages(log, turn.id)[0]
    assert isinstance(message, AssistantMessage)
    assert (message.stop_reason, message.api) == ("stop", None)
    assert message.usage == CanonicalUsage(input=0, output=3, cache_read=0, cache_write=0, total_tokens=3)
    assert losses(log, turn.id) == [
        ("dropped", "inherited", None),
        ("dropped", "cache", None),
        ("dropped", "raw_stop_reason", None),
        ("dropped", "native", 0),
        ("dropped", "thinking.model", 1),
        ("downgraded", "stop_reason", None),
        ("dropped", "api", None),
        ("downgraded", "usage", None),
    ]


@pytest.mark.parametrize(
    ("stop_reason", "said", "message_error", "lost"),
    [
        (None, "error", "broke", [("synthesised", "stop_reason", None)]),
        ("aborted", "aborted", None, [("dropped", "error", None)]),
        ("error", "error", "broke", []),
    ],
)
def test_error_texts_are_of_the_stop_reason_error(
    log: TurnLog, stop_reason: str | None, said: str, message_error: str | None, lost: list[object]
) -> None:
    """A message has an error message only with the stop reason error, and a turn with an error is one that failed."""
    turn = log.add_turn("", role="assistant", reply=ReplyFacts(stop_reason=stop_reason, error="broke"))
    [message] = canonical.messages(log, turn.id)[0]
    assert isinstance(message, AssistantMessage)
    assert (message.stop_reason, message.error_message) == (said, message_error)
    assert losses(log, turn.id) == lost


def one_spelling(blocks: list[Block], names: dict[str, str]) -> list[Block]:
    """Return blocks with each thing that has two spellings in one of them. See `reading`."""
    spelled: list[Block] = []
    for block in blocks:
        if isinstance(block, ToolUse) and isinstance(block.id, str):
            names[block.id] = block.name
        if isinstance(block, ToolResult):
            content = [Text(text=block.content)] if isinstance(block.content, str) else block.content
            name = block.name if isinstance(block.name, str) else names.get(str(block.tool_use_id), "")
            spelled.append(msgspec.structs.replace(block, content=content, name=name, is_error=block.is_error is True))
        else:
            spelled.append(block)
    return spelled


@st.composite
def turns(draw: st.DrawFn) -> dict[str, Any]:
    """Return what can be said of a turn, as arguments of `add_turn`."""
    said = {"content": draw(contents()), "role": draw(st.sampled_from(["user", "assistant", "system"]))}
    if said["role"] != "assistant":
        return said
    count = st.integers(0, 9)
    of_assistants = {
        "model": st.just("m"),
        "provider": st.just("p"),
        "api": st.sampled_from(["chat_completions", "responses", "messages", "openai-codex", "chat_v2"]),
        "stop_reason": st.sampled_from([*STOP_REASONS, "end_turn", "x"]),
        "usage": st.builds(
            Usage, input_tokens=count, cache_read_input_tokens=count, reasoning_tokens=st.just(0) | count
        ),
        "error": st.just("broke"),
        "cache": st.booleans(),
    }
    return said | draw(st.fixed_dictionaries({}, optional=of_assistants))


def meta_of(turn: Turn) -> list[object]:
    """Return what messages have a place for beside content."""
    names = ("role", "model", "provider", "api", "stop_reason", "usage", "error")
    return [turn.said_at, *(getattr(turn.meta, name) for name in names)]


@given(st.lists(turns(), min_size=1, max_size=4))
def test_any_turns_come_back_equal_or_are_named(turns: list[dict[str, Any]]) -> None:
    """A turn that the report does not name is equal when its message is recorded again."""
    with TurnLog.open("memory://") as log, TurnLog.open("memory://") as again:
        head = None
        for said in turns:
            head = log.add_turn(**with_facts(said), continues=head).id
        assert head is not None
        found, report = canonical.messages(log, head)
        named = {entry.turn for entry in report.entries}
        recorded = iter(record(again, found))
        names: dict[str, str] = {}
        for turn in log.ancestry(head):
            blocks = one_spelling(decode_content(log.payload(turn.id)), names)
            if turn.id not in named:
                other = next(recorded)
                assert meta_of(other) == meta_of(turn)
                assert decode_content(again.payload(other.id)) == blocks
            else:
                for _ in range(messages_of(blocks, turn.meta.role)):
                    next(recorded)
        assert next(recorded, None) is None


def messages_of(blocks: list[Block], role: str) -> int:
    """Return how many messages a turn is."""
    if role != "user":
        return int(role == "assistant")
    results = sum(isinstance(block, ToolResult) for block in blocks)
    return results + int(not results or any(isinstance(block, Text | Document) for block in blocks))
