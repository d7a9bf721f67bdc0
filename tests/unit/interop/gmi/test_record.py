"""Inputs of GMI turns recorded as turns, and read again."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from base64 import b64decode
from typing import Any

import pytest
from hypothesis import assume, given
from tests.sealed_log import SealsInMemory
from tests.unit.interop.gmi import made

from turnlog import TurnLog
from turnlog.errors import ErasedError, IdConflictError, MetaError, SecretError, UnknownTurnError
from turnlog.interop.gmi import TOPIC, bookmark_of, input_of, nearest_input, read_input, record
from turnlog.model import Document, Origin, Source, Text, ToolResult, ToolUse, decode_content
from turnlog.record.findings import Hook


def without_keys(given: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON of an input without its keys, and without metadata that had nothing else."""
    metadata = given.get("metadata")
    if not isinstance(metadata, dict) or "userApiKeys" not in metadata:
        return given
    rest = {name: value for name, value in metadata.items() if name != "userApiKeys"}
    without = {name: value for name, value in given.items() if name != "metadata"}
    return {**without, "metadata": rest} if rest else without


def counts(log: TurnLog) -> tuple[int, int]:
    """Return the number of turns and of notes."""
    return log.stats().turns, len(list(log.events(topics=[TOPIC])))


def test_every_field_comes_back(log: TurnLog) -> None:
    """An input with a value in every field is read as it was recorded, but for its keys."""
    turn = record(log, made.full())
    assert input_of(log, turn.id) == read_input(without_keys(made.full()))
    assert input_of(log, "chat-1") == input_of(log, turn.id)


@given(made.inputs())
def test_any_input_comes_back_equal(given: dict[str, Any]) -> None:
    """Whatever its content, its nulls and its own keys are."""
    with TurnLog.open("memory://") as log:
        try:
            turn = record(log, given)
        except (MetaError, SecretError) as error:
            # Names that no bookmark can have, times beyond the years of UTC, and options that look like keys.
            assume(error.field not in ("sessionId", "timestamp", "userId"))
            assume(not isinstance(error, SecretError))
            raise
        read = input_of(log, turn.id)
        expected = read_input(without_keys(given))
        assert read == expected
        assert read.model_dump(mode="json", by_alias=True, exclude_unset=True)["content"] == given["content"]
        assert record(log, given) == turn
        assert counts(log) == (1, 1)


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("text", "user"),
        ("multimodal_content", "user"),
        ("tool_response", "user"),
        ("system_message", "system"),
        ("lifecycle_event", "system"),
    ],
)
def test_each_type_is_a_turn(log: TurnLog, kind: str, role: str) -> None:
    """System messages and events of the life cycle are system turns, all others are of the user."""
    turn = record(log, made.text(content="x", kind=kind))
    assert (turn.meta.role, turn.meta.subject) == (role, "ada")
    assert decode_content(log.payload(turn.id)) == [Text(text="x")]
    assert input_of(log, turn.id).type == kind


def test_parts_are_blocks_that_a_model_can_read(log: TurnLog) -> None:
    """Text is text, bytes are documents with what is said of them, and all else is its JSON text."""
    content = [
        {"type": "text", "text": "Look:"},
        {"type": "base64", "data": made.PIXEL, "mimeType": "image/png", "description": "a dot"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{made.PIXEL}", "detail": "low"}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": made.PIXEL}},
        {"type": "image_url", "data": "https://example.org/a.png"},
        {"type": "base64", "data": "not base64!", "mimeType": "image/png"},
        {"z": 1, "a": [None]},
    ]
    turn = record(log, made.text(content=content, kind="multimodal_content"))
    png = Document(source=Source(media_type="image/png", data=made.PIXEL))
    assert decode_content(log.payload(turn.id)) == [
        Text(text="Look:"),
        png,
        Text(text='{"description":"a dot"}'),
        png,
        Document(source=Source(media_type="image/gif", data=made.PIXEL)),
        Text(text='{"type":"image_url","data":"https://example.org/a.png"}'),
        Text(text='{"type":"base64","data":"not base64!","mimeType":"image/png"}'),
        Text(text='{"z":1,"a":[null]}'),
    ]
    assert input_of(log, turn.id).content == content


def test_bytes_are_kept_once(log: TurnLog) -> None:
    """The note beside the turn has not the bytes of its documents."""
    content = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{made.PIXEL}"}}
    record(log, made.text(content=content, kind="multimodal_content"))
    [note] = log.events(topics=[TOPIC])
    assert made.PIXEL.encode() not in log.payload(note.header.id)
    assert b64decode(made.PIXEL).startswith(b"\x89PNG")


def test_record_is_its_json_text(log: TurnLog) -> None:
    """In the order in which it came."""
    turn = record(log, made.text(content={"event": "started", "at": 5}, kind="lifecycle_event"))
    assert decode_content(log.payload(turn.id)) == [Text(text='{"event":"started","at":5}')]


def test_results_are_paired_with_the_calls_of_the_turn_before(log: TurnLog) -> None:
    """By their ids; errors stay errors, and are told with their details."""
    first = record(log, made.text("i1", sessionId="s"))
    calls = [ToolUse(id="c1", name="add", input=b"{}"), ToolUse(id="c2", name="cut", input=b"{}")]  # pyright: ignore[reportArgumentType]
    log.add_turn(
        [{"type": "tool_use", "id": call.id, "name": call.name, "input": {}} for call in calls],
        role="assistant",
        continues=first.id,
    )
    content = [
        {"toolCallId": "c1", "toolName": "add", "output": {"sum": 3}, "isError": False},
        {"toolCallId": "c2", "toolName": "cut", "output": None, "isError": True, "errorDetails": {"code": 7}},
    ]
    turn = record(log, made.text("i2", content, kind="tool_response", sessionId="s"))
    assert decode_content(log.payload(turn.id)) == [
        ToolResult(tool_use_id="c1", name="add", content=[Text(text='{"sum":3}')], is_error=False),
        ToolResult(tool_use_id="c2", name="cut", content=[Text(text='{"code":7}')], is_error=True),
    ]
    assert [message.role for message in log.context("s").messages] == ["user", "assistant", "user"]


def test_results_of_calls_without_an_id_have_none(log: TurnLog) -> None:
    """The id that was made up for such a call is no id of the log."""
    first = record(log, made.text("i1", sessionId="s"))
    asked = log.add_turn([{"type": "tool_use", "name": "add", "input": {}}], role="assistant", continues=first.id)
    content = {"toolCallId": f"{asked.id}-0", "toolName": "add", "output": "3"}
    turn = record(log, made.text("i2", content, kind="tool_response", sessionId="s"))
    assert decode_content(log.payload(turn.id)) == [ToolResult(name="add", content=[Text(text="3")])]


def test_result_in_a_system_turn_is_its_json_text(log: TurnLog) -> None:
    """No provider takes results there."""
    content = {"toolCallId": "c1", "toolName": "add", "output": "3"}
    turn = record(log, made.text(content=content, kind="system_message"))
    assert decode_content(log.payload(turn.id)) == [Text(text='{"toolCallId":"c1","toolName":"add","output":"3"}')]


# Sessions


def test_session_is_a_bookmark_that_is_continued(log: TurnLog) -> None:
    """Its first input begins it, wherever its bookmark stands the next one goes on."""
    first = record(log, made.text("i1", sessionId="chat"))
    reply = log.add_turn("Hello.", role="assistant", continues="chat")
    second = record(log, made.text("i2", sessionId="chat"))
    assert (first.continues, first.meta.head) == ((), "chat")
    assert (second.continues, second.meta.head) == ((reply.id,), "chat")
    assert log.turn("chat").id == second.id


def test_without_a_session_a_thread_begins_that_no_bookmark_names(log: TurnLog) -> None:
    """Each such input is alone."""
    record(log, made.text("i1"))
    turn = record(log, made.text("i2"))
    assert turn.continues == ()
    assert log.bookmarks.all() == []


@pytest.mark.parametrize(
    ("session", "bookmark"),
    [
        ("chat 1", "chat 1"),
        ("ckv0x2q5e0000z8l5c0g2h7xy", "session:ckv0x2q5e0000z8l5c0g2h7xy"),
        ("session:ckv0x2q5e0000z8l5c0g2h7xy", "session:session:ckv0x2q5e0000z8l5c0g2h7xy"),
        ("session:chat", "session:chat"),
    ],
)
def test_sessions_have_bookmarks_of_their_own(log: TurnLog, session: str, bookmark: str) -> None:
    """One that looks like a turn id, as cuids do, has a mark before it."""
    assert bookmark_of(session) == bookmark
    first = record(log, made.text("i1", sessionId=session))
    second = record(log, made.text("i2", sessionId=session))
    assert second.continues == (first.id,)
    assert [each.name for each in log.bookmarks.all()] == [bookmark]
    assert input_of(log, second.id).session_id == session


@pytest.mark.parametrize("session", ["main~1", "{one}", "{both}"])
def test_session_is_a_bookmark_and_nothing_else(log: TurnLog, session: str) -> None:
    """What a session could mean beside one, counted back or by the beginning of ids, is not continued."""
    ids = [turn.id for turn in (log.add_turn("a", bookmark="main"), log.add_turn("b", continues="main"))]
    named = session.format(one=ids[0][:24], both=ids[0][:4])
    first = record(log, made.text("i1", sessionId=named))
    second = record(log, made.text("i2", sessionId=named))
    assert (first.continues, second.continues) == ((), (first.id,))
    assert {each.name: each.turn for each in log.bookmarks.all()} == {"main": ids[1], named: second.id}


@pytest.mark.parametrize("session", [" chat", "a\nb", "x" * 201])
def test_session_that_no_bookmark_can_name_is_refused(log: TurnLog, session: str) -> None:
    """In a line that names the field, and nothing is recorded."""
    with pytest.raises(MetaError, match=r"^sessionId: .* cannot be a bookmark") as caught:
        record(log, made.text(sessionId=session))
    assert caught.value.field == "sessionId"
    assert log.id is None


# Once and only once


def test_same_input_again_is_the_turn_that_is_there(log: TurnLog) -> None:
    """Also where the session has gone on, with other keys, in another order and spelled in another way."""
    turn = record(log, made.full())
    record(log, made.text("i2", sessionId="chat-1"))
    again = dict(reversed(made.full().items()))
    again["metadata"] = {**again["metadata"], "userApiKeys": {"openai": "quite-another-key"}}
    again["timestamp"] = "2026-03-01T13:00:00.250+01:00"
    assert record(log, again) == turn
    assert counts(log) == (2, 2)


WITH_KEYS = {"metadata": {"userApiKeys": {"openai": made.KEY}}}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, WITH_KEYS),
        (WITH_KEYS, {}),
        (WITH_KEYS, {"metadata": {}}),
        ({"metadata": None}, WITH_KEYS),
        ({"metadata": {}}, {}),
        ({}, {"metadata": None, "sessionId": None}),
        ({"metadata": {"options": {"topP": None}, **WITH_KEYS["metadata"]}}, {}),
        ({"metadata": {"traceId": "t"}}, {"metadata": {"rollingSummary": None, "options": {}, "traceId": "t"}}),
    ],
)
@pytest.mark.parametrize("redacted", [False, True], ids=["plain", "redacted"])
def test_keys_and_nulls_make_no_other_input(
    hook: Hook, first: dict[str, Any], second: dict[str, Any], redacted: bool
) -> None:
    """Whichever came first, and also where a hook took something out of it."""
    said = made.text(content="Use ghp_" + "a1B2" * 9)
    with TurnLog.open("memory://", redact=[hook] if redacted else []) as log:
        turn = record(log, said | first)
        assert record(log, said | second) == turn
        assert counts(log) == (1, 1)
        with pytest.raises(IdConflictError):
            record(log, said | {"metadata": {"traceId": "another"}})


@pytest.mark.parametrize("other", [{"userContextOverride": {"a": None}}, {"userContextOverride": {}}])
def test_nulls_of_contexts_make_another_input(log: TurnLog, other: dict[str, Any]) -> None:
    """There null unsets."""
    record(log, made.text())
    with pytest.raises(IdConflictError):
        record(log, made.text(**other))


def test_of_metadata_with_keys_alone_nothing_is_kept(log: TurnLog) -> None:
    """The note is that of an input without metadata."""
    turn = record(log, made.text() | WITH_KEYS)
    [note] = log.events(topics=[TOPIC])
    assert b"metadata" not in log.payload(note.header.id)
    assert input_of(log, turn.id).metadata is None


def test_other_input_of_the_same_interaction_is_refused(log: TurnLog) -> None:
    """Whatever differs: nothing is recorded, and the line says what to do."""
    record(log, made.full())
    for change in ({"content": "Else."}, {"userId": "bob"}, {"sessionId": "chat-2"}, {"metadata": {}}):
        with pytest.raises(IdConflictError, match=r"^interactionId: 'i-full' is taken: it was recorded with other"):
            record(log, made.full() | change)
    assert counts(log) == (1, 1)
    with pytest.raises(UnknownTurnError):
        log.turn("chat-2")


def test_many_at_once_record_one_turn_each(file_log: TurnLog) -> None:
    """The same inputs from many threads: each is there once, and the session is one line of turns."""
    turns: list[str] = []
    barrier = threading.Barrier(4)

    def go() -> None:
        barrier.wait()
        turns.extend(record(file_log, made.text(f"i{number}", sessionId="chat")).id for number in range(10))

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(turns) == 40
    assert counts(file_log) == (10, 10)
    assert sorted(set(turns)) == sorted(turn.id for turn in file_log.ancestry("chat"))


def test_two_processes_record_one_turn(file_log: TurnLog, store_path: Any) -> None:
    """Each with the log open by itself."""
    with TurnLog.open(f"sqlite:///{store_path}") as other:
        assert record(file_log, made.full()) == record(other, made.full())
        assert counts(other) == (1, 1)


_PROCESS = """
import json, sys
from turnlog import TurnLog
from turnlog.interop.gmi import record

with TurnLog.open(sys.argv[1]) as log:
    sys.stdin.read(1)
    for number in range(10):
        given = json.loads(sys.argv[2]) | {"interactionId": f"i{number}"}
        print(record(log, given).id)
"""


def test_processes_that_race_record_each_input_once(file_log: TurnLog, store_path: Any) -> None:
    """All of them get the same turns, and the session is one line."""
    given = json.dumps(made.text(sessionId="s", metadata={"userFeedback": 1}))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROCESS, f"sqlite:///{store_path}", given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("g")
        process.stdin.flush()
    told = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert told[0] == told[1] == told[2]
    assert [turn.id for turn in file_log.ancestry("s")] == sorted(told[0], key=lambda id: file_log.turn(id).position)
    assert counts(file_log) == (10, 10)
    assert not file_log.verify().damage


def test_erased_interaction_is_not_recorded_again(log: TurnLog) -> None:
    """What was erased does not come back by a retry."""
    turn = record(log, made.full())
    log.erase(turn=turn.id, reason="asked for")
    with pytest.raises(IdConflictError, match=r"^interactionId: 'i-full' is taken: it was erased"):
        record(log, made.full())
    with pytest.raises(ErasedError):
        input_of(log, turn.id)


# Contexts


def test_contexts_hold_for_later_turns(log: TurnLog) -> None:
    """They are merged as JSON Merge Patch says: null unsets, and lists are replaced."""
    record(
        log,
        made.text("i1", sessionId="s", userContextOverride={"a": {"b": 1, "c": 2}, "d": [1]}, taskContextOverride={}),
    )
    record(log, made.text("i2", sessionId="s", userContextOverride={"a": {"b": None}, "d": []}))
    turn = record(log, made.text("i3", sessionId="s"))
    assert log.context(turn.id).options == {"user_context": {"a": {"c": 2}, "d": []}, "task_context": {}}
    assert input_of(log, turn.id).user_context_override is None


# Secrets


def bytes_of_store(folder: Any) -> bytes:
    """Return all bytes of a store: the database, its log, and whatever lies beside them."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def test_keys_are_nowhere_in_the_store(file_log: TurnLog, store_path: Any) -> None:
    """Neither in the database nor beside it, where large payloads are."""
    record(file_log, made.full())
    large = [{"type": "text", "text": f"{number}: {hash(number)}" * 20_000} for number in range(3)]
    record(file_log, made.full() | {"interactionId": "i-large", "content": large, "type": "multimodal_content"})
    assert any(path.is_file() and path.parent != store_path.parent for path in store_path.parent.rglob("*"))
    stored = bytes_of_store(store_path.parent)
    assert b"i-full" in stored
    assert made.KEY.encode() not in stored


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"metadata": {"options": {"apiKey": "abc"}}}, "input.metadata.options.apiKey"),
        ({"metadata": {"options": {"apiKeyOverride": "abc"}}}, "input.metadata.options.apiKeyOverride"),
        ({"metadata": {"options": {"headers": {"x-team": "abc"}}}}, "metadata.options.headers"),
        (
            {"metadata": {"options": {"customModelParams": {"extraHeaders": {"x": "abc"}}}}},
            "metadata.options.customModelParams.extraHeaders",
        ),
        ({"metadata": {"authorization": "abc"}}, "input.metadata.authorization"),
        ({"metadata": {"openaiKey": "abc"}}, "input.metadata.openaiKey"),
        ({"metadata": {"options": {"openai_key2": "abc"}}}, "input.metadata.options.openai_key2"),
        (
            {"metadata": {"options": {"customModelParams": {"token": "abc"}}}},
            "input.metadata.options.customModelParams.token",
        ),
        (
            {"metadata": {"options": {"customModelParams": {"extra": {"Auth": "abc"}}}}},
            "input.metadata.options.customModelParams.extra.Auth",
        ),
        ({"metadata": {"trace": [{"bot-token": ["abc"]}]}}, "input.metadata.trace[0].bot-token"),
        ({"metadata": {"userFeedback": {"DB_PASSWORD": "abc"}}}, "input.metadata.userFeedback.DB_PASSWORD"),
        ({"taskContextOverride": {"clientSecret": "abc"}}, "input.taskContextOverride.clientSecret"),
        ({"userContextOverride": {"hubtoken": "abcR4nd0m/Of9Many+Letters"}}, "input.userContextOverride.hubtoken"),
        ({"userContextOverride": {"mapsKey": "abcR4nd0m-Of9Many-Letters"}}, "input.userContextOverride.mapsKey"),
        ({"mine": {"authtoken": "abc"}}, "input.mine.authtoken"),
        (
            {"metadata": {"userApiKeys": {"a": made.KEY}, made.KEY: {"token": "abc"}}},
            "input.metadata",
        ),
        ({"userApiKeys": {"openai": "abc"}}, "input.userApiKeys"),
        ({"userContextOverride": {"openaiApiKey": "abc"}}, "input.userContextOverride.openaiApiKey"),
        ({"metadata": {"userApiKeys": {"a": made.KEY}, "note": f"is {made.KEY}"}}, "input.metadata.note"),
        ({"metadata": {"userApiKeys": {"a": made.KEY}}, "content": f"Use {made.KEY}."}, "input.content"),
        ({"metadata": {"userApiKeys": {"a": made.KEY}, "x": {made.KEY: 1}}}, "input.metadata.x"),
    ],
)
def test_what_looks_like_a_key_is_refused(log: TurnLog, change: dict[str, Any], field: str) -> None:
    """Wherever it stands; the line names its place and not the value, and nothing is recorded."""
    with pytest.raises(SecretError) as caught:
        record(log, made.text() | change)
    assert caught.value.field == field
    assert "abc" not in str(caught.value)
    assert made.KEY not in str(caught.value)
    assert log.id is None


def test_options_that_only_sound_like_keys_are_recorded(log: TurnLog) -> None:
    """Whether a header is shown is no header, and neither is a key that is not given."""
    options = {"showHeader": True, "headers": {}, "apiKeyOverride": None, "maxTokens": 5}
    turn = record(log, made.text(metadata={"options": options}))
    read = input_of(log, turn.id).metadata
    assert read is not None
    assert read.options is not None
    assert read.options.model_dump(by_alias=True, exclude_unset=True) == options


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"options": {"max_tokens": 5, "maxToken": 9, "logit_bias": {"50256": -100}, "topK": 3}}},
        {"metadata": {"options": {"customModelParams": {"tokens": "many", "stop_token": "</s>", "token": 5}}}},
        {"metadata": {"options": {"customModelParams": {"prompt_cache_key": "ada", "auth": "none", "key": ""}}}},
        {"metadata": {"options": {"toolChoice": {"type": "tool", "name": "token"}}}},
        {"metadata": {"capabilityDiscovery": {"result": [{"key": "tool:add", "next_page_token": "p2"}]}}},
        {"metadata": {"monkey": "abc", "tokenizer": "cl100k", "authors": "Ada", "secretary": "Bob"}},
        {"userContextOverride": {"issueKey": "SHIP-12", "hotkey": "ctrl+k", "translationKey": "menu.page2.the-title"}},
        {"taskContextOverride": {"sort_key": "R4nd0mOf9ManyLetters", "auth": {"type": "oauth"}}},
    ],
)
def test_names_that_only_end_like_those_of_keys_are_recorded(log: TurnLog, change: dict[str, Any]) -> None:
    """Counts and marks of tokens, keys that sort or find something, words with these letters at their end."""
    turn = record(log, made.text() | change)
    assert input_of(log, turn.id) == read_input(made.text() | change)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sessionId": "x" * 10_000}, "sessionId"),
        ({"userId": "x" * 10_000}, "userId"),
        ({"metadata": {"conversationHistoryForPrompt": [{"role": "x" * 10_000}]}}, None),
        ({"metadata": {"x" * 10_000: {"token": "abc"}}}, None),
    ],
)
def test_long_names_are_not_repeated_whole(log: TurnLog, change: dict[str, Any], field: str | None) -> None:
    """The line has the beginning, and says how long it is."""
    with pytest.raises((MetaError, SecretError)) as caught:
        record(log, made.text() | change)
    assert field in (None, caught.value.field)
    assert "x" * 40 in str(caught.value)
    assert len(str(caught.value)) < 300
    assert log.id is None


def test_long_interaction_is_not_repeated_whole_where_it_is_taken(log: TurnLog) -> None:
    """The line has its beginning."""
    record(log, made.text("x" * 10_000))
    with pytest.raises(IdConflictError, match=r"^interactionId: 'x{40}'… \(10000 characters\) is taken: "):
        record(log, made.text("x" * 10_000, "Else."))


def test_redaction_hooks_see_turn_and_note(hook: Hook) -> None:
    """What they find is in neither, and the same input again is still the same."""
    token = "ghp_" + "a1B2" * 9
    given = made.text(
        content=f"Use {token}.",
        sessionId="s",
        metadata={"rollingSummary": {"text": f"The token is {token}."}},
    )
    with TurnLog.open("memory://", redact=[hook]) as log:
        turn = record(log, given)
        [note] = log.events(topics=[TOPIC])
        for event in (turn.id, note.header.id):
            assert token.encode() not in log.payload(event)
        read = input_of(log, turn.id)
        assert isinstance(read.content, str)
        assert read.content.startswith("Use [")
        assert record(log, given) == turn
        with pytest.raises(IdConflictError):
            record(log, given | {"content": "Use another."})


def test_erasing_the_turn_erases_its_note(file_log: TurnLog, store_path: Any) -> None:
    """Nothing of the input is left in the files of the store."""
    large = [str(number) for number in range(40_000)]  # of a size that has a file of its own
    metadata = {"userFeedback": ["quite-an-open-word", *large]}
    given = made.text(content="quite-a-secret-plan", metadata=metadata)
    turn = record(file_log, given)
    file_log.erase(turn=turn.id, reason="asked for")
    [note] = file_log.events(topics=[TOPIC])
    assert note.erased
    stored = bytes_of_store(store_path.parent)
    assert b"quite-a-secret-plan" not in stored
    assert b"quite-an-open-word" not in stored


def test_sealed_input_is_read_and_recorded_once() -> None:
    """Where all of the log is sealed, and with the log opened without the keys nothing of it can be read."""
    with TurnLog.open("memory://", seals=SealsInMemory()) as log:
        log.seal()
        turn = record(log, made.full())
        assert turn.sealed is not None
        assert record(log, made.full()) == turn
        record(log, made.text("i2", sessionId="chat-1"))
        assert input_of(log, turn.id) == read_input(without_keys(made.full()))
        with pytest.raises(IdConflictError):
            record(log, made.full() | {"content": "Else."})
        assert counts(log) == (2, 2)


def test_exported_log_has_its_inputs(log: TurnLog) -> None:
    """They are read there as here, and are recorded once there too."""
    turn = record(log, made.full())
    file = io.BytesIO()
    log.export(file)
    file.seek(0)
    with TurnLog.open("memory://") as other:
        other.import_turnlog(file)
        assert input_of(other, turn.id) == input_of(log, turn.id)
        assert record(other, made.full()).id == turn.id
        assert counts(other) == (1, 1)


def test_turn_whose_note_is_not_here_gets_it_with_the_same_input(log: TurnLog) -> None:
    """Until then the nearest input has the interaction, and tells what it does not have."""
    given = made.text(sessionId="s", metadata={"userFeedback": 1})
    with TurnLog.open("memory://") as other:
        turn = record(other, given)
        origin = turn.meta.origin
        assert isinstance(origin, Origin)
        log.add_turn("hello", id=turn.id, origin=origin, subject="ada", bookmark="s")
    read, report = nearest_input(log, log.turn(turn.id))
    assert (read.interaction_id, read.metadata, input_of(log, turn.id)) == ("i1", None, read)
    assert [(entry.kind, entry.block) for entry in report.entries] == [("dropped", "turn")]
    assert record(log, given).id == turn.id
    assert input_of(log, turn.id) == read_input(given)


# What cannot be read


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ("hello", ""),
        ({"role": "robot", "content": "x"}, ".role"),
        ({"content": "x"}, ".role"),
        ({"role": "user", "content": 5}, ".content"),
        ({"role": "user", "content": [5]}, ".content[0]"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}, ".tool_calls[0].name"),
        ({"role": "assistant", "tool_calls": {"id": "c"}}, ".tool_calls"),
        ({"role": "assistant", "tool_calls": [{"name": "n", "arguments": 5}]}, ".tool_calls[0].arguments"),
        ({"role": "tool", "content": "3"}, ".tool_call_id"),
        ({"role": "user", "content": "x", "tool_calls": [{"name": "n"}]}, ""),
    ],
)
def test_history_that_cannot_be_read_is_refused(log: TurnLog, entry: Any, field: str) -> None:
    """The line names its place, and nothing is recorded."""
    history = [{"role": "user", "content": "Hi."}, entry]
    with pytest.raises(MetaError) as caught:
        record(log, made.text(metadata={"conversationHistoryForPrompt": history}))
    assert caught.value.field == f"metadata.conversationHistoryForPrompt[1]{field}"
    assert log.id is None


def test_what_json_does_not_have_is_refused(log: TurnLog) -> None:
    """In fields of one's own too."""
    with pytest.raises(MetaError, match="set is not JSON"):
        record(log, made.text(mine={1, 2}))
    assert log.id is None
