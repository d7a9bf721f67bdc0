"""What `TurnLog` promises to those who record: resolved turns, ids, bookmarks that move, options, documents."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from turnlog import TurnLog
from turnlog.digest import payload_hash
from turnlog.errors import (
    ContentError,
    DocumentError,
    HeadConflictError,
    IdConflictError,
    MetaError,
    SecretError,
    UnknownTurnError,
)
from turnlog.ids import new_id
from turnlog.model import ReplyFacts, Text, ToolUse
from turnlog.testing.harness import LogHarness, count, heads, record_call, text_of


class LogRecording(LogHarness):
    """Tests of `TurnLog.add_turn` and `TurnLog.add_document`."""

    # Content

    @pytest.mark.parametrize(
        ("content", "json", "payload"),
        [
            ("hello", False, '[{"type":"text","text":"hello"}]'),
            ("", False, '[{"type":"text","text":""}]'),
            (["a", "b"], False, '[{"type":"text","text":"a"},{"type":"text","text":"b"}]'),
            ([Text(text="ü")], False, '[{"type":"text","text":"ü"}]'),
            ([{"text": "t", "type": "text"}], False, '[{"text":"t","type":"text"}]'),
            ('[ {"type": "text", "text": "\\u00fc", "n": 1.0} ]', True, '[{"type":"text","text":"\\u00fc","n":1.0}]'),
            (
                '{"type":"tool_use","name":"f","input":{"b":1,"a":2}}',
                True,
                '[{"type":"tool_use","name":"f","input":{"b":1,"a":2}}]',
            ),
            ('"bare"', True, '[{"type":"text","text":"bare"}]'),
        ],
    )
    def test_content_becomes_blocks(self, log: TurnLog, content: Any, json: bool, payload: str) -> None:
        """Content is stored as a list of blocks, in the order and spelling it came with, without whitespace."""
        turn = log.add_turn(content, json=json)
        assert log.payload(turn.id) == payload.encode()
        assert turn.hash == payload_hash(payload.encode())
        assert turn.size == len(payload.encode())

    @pytest.mark.parametrize(
        ("content", "json", "field"),
        [
            ([{"type": "text"}], False, "content[0]"),
            ([{"type": "video"}], False, "content[0].type"),
            (["fine", {"type": "text", "text": 3}], False, "content[1].text"),
            ('[{"type":"tool_use","name":"f","input":[]}]', True, "content[0].input"),
            ("[{", True, "content"),
            (3, False, "content"),
        ],
    )
    def test_malformed_content_is_refused(self, log: TurnLog, content: Any, json: bool, field: str) -> None:
        """Malformed content raises an error that names the field, and nothing is recorded."""
        with pytest.raises(ContentError) as caught:
            log.add_turn(content, json=json)
        assert caught.value.field.startswith(field)
        assert count(log) == 0

    def test_turn_is_returned_as_it_is_read_later(self, log: TurnLog) -> None:
        """What `add_turn` returns equals what `turn` finds, by id in either case."""
        parent = log.add_turn("parent")
        turn = log.add_turn("x", role="system", continues=parent.id, cache=True, inherited={"a": 1})
        assert log.turn(turn.id) == log.turn(turn.id.upper()) == turn
        record = turn.to_record()
        assert (record["id"], record["hash"]) == (turn.id, turn.hash)
        record["meta"]["continues"] = list(record["meta"]["continues"])
        assert record["meta"] == {
            "role": "system",
            "content_type": "application/json",
            "cache": True,
            "inherited": {"a": 1},
            "continues": [parent.id],
        }

    def test_default_role_is_user(self, log: TurnLog) -> None:
        """A turn without a role is the user's."""
        assert log.add_turn("x").meta.role == "user"

    @pytest.mark.parametrize(
        ("arguments", "field"),
        [
            ({"role": "robot"}, "role"),
            ({"inherited": {"servers": "one"}}, "inherited.servers"),
            ({"inherited": {"a": float("nan")}}, "inherited.a"),
            ({"bookmark": ""}, "bookmark"),
            ({"bookmark": "03dxxdbh7vsvnbuk07dz03mxs"}, "bookmark"),
            ({"id": "nonsense"}, "id"),
            ({"reply": ReplyFacts(usage={"input_tokens": -1})}, "usage"),
            ({"continues": [""]}, "continues"),
        ],
    )
    def test_malformed_argument_is_refused(self, log: TurnLog, arguments: dict[str, Any], field: str) -> None:
        """A malformed argument raises an error that names it, and nothing is recorded."""
        with pytest.raises(MetaError) as caught:
            log.add_turn("x", **arguments)
        assert caught.value.field == field
        assert count(log) == 0

    @pytest.mark.parametrize(
        "options",
        [{"userApiKeys": {"x": "y"}}, {"deep": [{"api_key": "k"}]}, {"h": "Bearer abcdefghijklmnopqrstuvwxyz"}],
    )
    def test_secrets_are_refused(self, log: TurnLog, options: dict[str, Any]) -> None:
        """An option that looks like a secret is refused, and its value is not repeated."""
        with pytest.raises(SecretError) as caught:
            log.add_turn("x", inherited=options)
        assert "abcdefghij" not in str(caught.value)
        assert count(log) == 0

    def test_unknown_parent_is_refused(self, log: TurnLog) -> None:
        """A turn cannot continue what the log does not have, nor an event that is no turn."""
        turn = log.add_turn("x", bookmark="main")
        log.bookmarks.set("other", turn.id)
        [event] = log.events(topics=["gpt.bookmark"])
        for headish in (new_id(), "nowhere", event.header.id):
            with pytest.raises(UnknownTurnError):
                log.add_turn("y", continues=[turn.id, headish])
        assert count(log) == 3

    # Ids

    def test_same_turn_under_its_id_is_returned(self, log: TurnLog) -> None:
        """Recording a turn again under its id returns the stored one and writes nothing."""
        root = log.add_turn("root", bookmark="main", servers=["s"], id=new_id())
        turn = log.add_turn(
            ["a"], role="assistant", continues=root.id, reply=ReplyFacts(stop_reason="end_turn"), id=new_id()
        )
        assert log.add_turn("root", bookmark="main", servers=["s"], id=root.id.upper()) == root
        assert (
            log.add_turn(
                ["a"], role="assistant", continues=root.id, reply=ReplyFacts(stop_reason="end_turn"), id=turn.id
            )
            == turn
        )
        assert count(log) == 3

    def test_same_turn_by_a_bookmark_that_has_moved_on_is_returned(self, log: TurnLog) -> None:
        """A repeated turn that continues a bookmark is compared with where the bookmark was when it was recorded."""
        log.add_turn("root", bookmark="main")
        turn = log.add_turn("next", continues="main", id=new_id())
        log.add_turn("later", continues="main")
        log.bookmarks.rename("main", "trunk")
        assert log.add_turn("next", continues="main", id=turn.id) == turn
        assert heads(log)["trunk"] != turn.id

    def test_same_turn_by_a_renamed_or_reset_bookmark_is_returned(self, log: TurnLog) -> None:
        """Where a bookmark was is told through renames, deletions and bookmark events before the turn and after it."""
        root = log.add_turn("root", bookmark="old")
        log.bookmarks.rename("old", "new")
        by_renamed = log.add_turn("a", continues="new", bookmark=False, id=new_id())
        log.bookmarks.set("new", by_renamed.id)
        by_set = log.add_turn("b", continues="new", bookmark=False, id=new_id())
        log.bookmarks.delete("new")
        log.bookmarks.set("old", by_set.id)
        by_reused = log.add_turn("c", continues="old", bookmark=False, id=new_id())
        log.bookmarks.set("new", root.id)
        assert [turn.continues for turn in (by_renamed, by_set, by_reused)] == [
            (root.id,),
            (by_renamed.id,),
            (by_set.id,),
        ]
        assert log.add_turn("a", continues="new", bookmark=False, id=by_renamed.id) == by_renamed
        assert log.add_turn("b", continues="new", bookmark=False, id=by_set.id) == by_set
        assert log.add_turn("c", continues="old", bookmark=False, id=by_reused.id) == by_reused
        with pytest.raises(IdConflictError):
            log.add_turn("a", continues="old", bookmark=False, id=by_renamed.id)

    def test_same_response_is_returned(self, log: TurnLog) -> None:
        """A repeated turn with `respond` is compared with the turn that was last when it was recorded."""
        log.add_turn("root")
        turn = log.add_turn("answer", respond=True, id=new_id())
        log.add_turn("elsewhere")
        assert log.add_turn("answer", respond=True, id=turn.id) == turn

    @pytest.mark.parametrize(
        "change",
        [
            {"content": "other"},
            {"role": "assistant"},
            {"continues": None},
            {"bookmark": "else"},
            {"inherited": {"a": 2}},
            {"cache": True},
            {"reply": ReplyFacts(model="m")},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_different_turn_under_a_known_id_raises(self, log: TurnLog, change: dict[str, Any]) -> None:
        """Another turn under a known id raises, and the stored one stays."""
        root = log.add_turn("root", bookmark="main")
        given: dict[str, Any] = {"content": "x", "continues": root.id, "inherited": {"a": 1}, "id": new_id()}
        turn = log.add_turn(**given)
        with pytest.raises(IdConflictError) as caught:
            log.add_turn(**{**given, **change})
        assert caught.value.event_id == turn.id
        assert log.turn(turn.id) == turn
        assert count(log) == 3

    # Bookmarks

    def test_turn_moves_the_bookmark_whose_head_it_continues(self, log: TurnLog) -> None:
        """A turn that continues a head, by id or by name, moves the bookmark; it says so in its meta."""
        root = log.add_turn("root", bookmark="main")
        by_id = log.add_turn("a", role="assistant", continues=root.id)
        by_name = log.add_turn("b", continues="main")
        assert [root.meta.head, by_id.meta.head, by_name.meta.head] == ["main"] * 3
        assert by_name.continues == (by_id.id,)
        assert heads(log) == {"main": by_name.id}

    def test_turn_that_continues_an_older_turn_moves_no_bookmark(self, log: TurnLog) -> None:
        """A fork from an older turn leaves the bookmark where it is."""
        root = log.add_turn("root", bookmark="main")
        head = log.add_turn("a", continues="main")
        fork = log.add_turn("b", continues=root.id)
        assert "head" not in fork.to_record()["meta"]
        assert heads(log) == {"main": head.id}

    def test_turn_that_names_another_bookmark_leaves_the_first(self, log: TurnLog) -> None:
        """A turn that names a bookmark moves that one and not the one it continues."""
        root = log.add_turn("root", bookmark="main")
        fork = log.add_turn("a", continues="main", bookmark="fork")
        assert heads(log) == {"fork": fork.id, "main": root.id}

    def test_turn_with_bookmark_none_moves_none(self, log: TurnLog) -> None:
        """With `bookmark=None` a turn continues a head without moving its bookmark."""
        root = log.add_turn("root", bookmark="main")
        log.add_turn("aside", continues="main", bookmark=False)
        assert heads(log) == {"main": root.id}

    def test_first_parent_decides_which_bookmark_moves(self, log: TurnLog) -> None:
        """A merge moves the bookmark of its first parent only."""
        a = log.add_turn("a", bookmark="a")
        b = log.add_turn("b", bookmark="b")
        merge = log.add_turn("both", continues=["b", "a"])
        assert merge.continues == (b.id, a.id)
        assert heads(log) == {"a": a.id, "b": merge.id}

    def test_continued_name_decides_between_bookmarks_at_one_turn(self, log: TurnLog) -> None:
        """Where several bookmarks are at the parent, the one that was continued by name moves."""
        root = log.add_turn("root", bookmark="one")
        log.bookmarks.set("two", root.id)
        log.bookmarks.set("three", root.id)
        turn = log.add_turn("next", continues="two")
        assert heads(log) == {"one": root.id, "two": turn.id, "three": root.id}

    def test_bookmark_that_was_set_last_moves_among_others(self, log: TurnLog) -> None:
        """Where several bookmarks were set on the parent and it is continued by id, the one that was set last moves."""
        root = log.add_turn("root")
        for name in ("b", "c", "a"):
            log.bookmarks.set(name, root.id)
        log.bookmarks.rename("b", "d")
        turn = log.add_turn("next", continues=root.id)
        assert heads(log) == {"a": root.id, "c": root.id, "d": turn.id}
        assert log.add_turn("again", continues=root.id).meta.head == "a"

    # Expected head

    def test_expected_head_that_fits_moves_the_bookmark(self, log: TurnLog) -> None:
        """A turn is recorded if the bookmark is where the caller expects it; None expects that there is none."""
        root = log.add_turn("root", bookmark="main", expected_head=False)
        turn = log.add_turn("next", continues="main", expected_head=root.id.upper())
        assert heads(log) == {"main": turn.id}

    def test_stale_expected_head_raises(self, log: TurnLog) -> None:
        """A stale expected head raises, says where the bookmark is, and nothing is written."""
        root = log.add_turn("root", bookmark="main")
        head = log.add_turn("next", continues="main")
        with pytest.raises(HeadConflictError) as caught:
            log.add_turn("late", continues="main", expected_head=root.id)
        assert (caught.value.bookmark, caught.value.expected, caught.value.actual) == ("main", root.id, head.id)
        with pytest.raises(HeadConflictError):
            log.add_turn("new", bookmark="main", expected_head=False)
        with pytest.raises(HeadConflictError):
            log.add_turn("fork", continues=root.id, expected_head=root.id)
        assert count(log) == 3

    # Respond

    def test_respond_continues_the_last_turn(self, log: TurnLog) -> None:
        """With `respond` a turn continues the one that was recorded last, of any thread, and moves its bookmark."""
        with pytest.raises(UnknownTurnError):
            log.add_turn("to nobody", respond=True)
        log.add_turn("a", bookmark="a")
        b = log.add_turn("b", bookmark="b")
        log.bookmarks.set("c", "a")
        turn = log.add_turn("answer", respond=True)
        assert turn.continues == (b.id,)
        assert heads(log)["b"] == turn.id

    def test_respond_excludes_continues(self, log: TurnLog) -> None:
        """`respond` and `continues` together are refused."""
        root = log.add_turn("a")
        with pytest.raises(MetaError):
            log.add_turn("b", respond=True, continues=root.id)

    # Documents

    @pytest.mark.parametrize("size", [0, 1, 65535, 65536, 300_000])
    def test_document_is_stored_as_it_is(self, log: TurnLog, tmp_path: Path, size: int) -> None:
        """A document's payload is the file, byte for byte; name, path, size and media type are recorded."""
        file = tmp_path / "some file.pdf"
        file.write_bytes(random.Random(size).randbytes(size))
        turn = log.add_document(file, bookmark="main")
        assert log.payload("main") == file.read_bytes()
        meta = turn.meta
        assert (meta.type, meta.content_type, meta.document_name) == ("document", "application/pdf", "some file.pdf")
        assert (meta.original_path, meta.file_size) == (str(file), size)

    def test_document_without_known_extension_is_typed_by_content(self, log: TurnLog, tmp_path: Path) -> None:
        """Where the name says nothing the content decides."""
        image = tmp_path / "image"
        image.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
        text = tmp_path / "notes"
        text.write_bytes("grüße".encode())
        noise = tmp_path / "noise"
        noise.write_bytes(b"\xff\x00\xfe\x01")
        found = [log.add_document(path).meta.content_type for path in (image, text, noise)]
        assert found == ["image/png", "text/plain", "application/octet-stream"]

    def test_document_that_cannot_be_read_is_refused(self, log: TurnLog, tmp_path: Path) -> None:
        """A missing file, a folder and a file above the limit are refused, and nothing is recorded."""
        large = tmp_path / "large.txt"
        large.write_bytes(text_of(101))
        for path, limit in ((tmp_path / "missing", 100), (tmp_path, 100), (large, 100)):
            with pytest.raises(DocumentError):
                log.add_document(path, bytes_max=limit)
        assert count(log) == 0
        assert log.add_document(large, bytes_max=101).size == 101

    # Options and model calls

    def test_named_options_are_a_part_of_inherited(self, log: TurnLog) -> None:
        """`servers`, `search`, `tool_mode` and `provider_ptr` are stored in `inherited`, false and empty ones too."""
        turn = log.add_turn("x", inherited={"k": 1}, servers=[], search=False, tool_mode="any", provider_ptr="kilo")
        assert turn.meta.inherited == {
            "k": 1,
            "servers": [],
            "search": False,
            "tool_mode": "any",
            "provider_ptr": "kilo",
        }

    def test_fields_of_a_model_call_are_kept(self, log: TurnLog) -> None:
        """What a caller says about a model call is stored on the turn."""
        call = record_call(log, log.add_turn("x")).header.id
        turn = log.add_turn(
            [ToolUse(name="f", input=Raw(b"{}"))],
            role="assistant",
            reply=ReplyFacts(model="m", provider="p", api="a", stop_reason="tool_use", usage={"input_tokens": 3}),
            call=call,
        )
        meta = turn.to_record()["meta"]
        assert {name: meta[name] for name in ("model", "provider", "api", "stop_reason", "usage", "call")} == {
            "model": "m",
            "provider": "p",
            "api": "a",
            "stop_reason": "tool_use",
            "usage": {"input_tokens": 3},
            "call": call,
        }
