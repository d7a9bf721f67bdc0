"""Drafts: what a caller gives, checked."""

import gzip
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec import UNSET

from turnlog.errors import ContentError, DocumentError, InputError, MetaError, SecretError
from turnlog.ids import new_id
from turnlog.model import Origin, TurnMeta, Usage
from turnlog.record import DOCUMENT_BYTES_MAX, document_draft, turn_draft

ID = "036z951mhjikzik2gsl81gr7l"


class TestTurnDraft:
    """Arguments of a turn."""

    def test_least_draft_has_the_defaults(self) -> None:
        """Text alone is a user's turn that continues nothing and sets nothing."""
        draft = turn_draft("x")
        assert draft.payload == b'[{"type":"text","text":"x"}]'
        assert draft.meta == TurnMeta(role="user", content_type="application/json")
        assert (draft.continues, draft.respond, draft.bookmark, draft.expected_head, draft.id) == (
            (),
            False,
            UNSET,
            UNSET,
            None,
        )

    def test_full_draft_has_everything(self) -> None:
        """Every argument has its place in the metadata."""
        origin = Origin(format="f", ids=["a"], session="s", sidechain=True)
        draft = turn_draft(
            "x",
            role="assistant",
            continues=["a", ID.upper()],
            bookmark="main",
            expected_head=ID.upper(),
            cache=True,
            id=ID.upper(),
            model="m",
            provider="p",
            api="a",
            stop_reason="end_turn",
            usage={"input_tokens": 1, "reasoning_tokens": 2},
            call=ID.upper(),
            error="e",
            origin=origin,
        )
        assert draft.meta == TurnMeta(
            role="assistant",
            content_type="application/json",
            cache=True,
            model="m",
            provider="p",
            api="a",
            stop_reason="end_turn",
            usage=Usage(input_tokens=1, reasoning_tokens=2),
            call=ID,
            error="e",
            origin=origin,
        )
        assert (draft.id, draft.expected_head, draft.bookmark) == (ID, ID, "main")
        assert draft.continues == ("a", ID.upper())

    def test_named_options_are_part_of_inherited(self) -> None:
        """The four options with arguments of their own go into the record, over what it says."""
        draft = turn_draft(
            "x",
            inherited={"search": True, "tool_mode": "old", "further": {"key": [1, None]}},
            provider_ptr="nano",
            servers=("a", "b"),
            search=False,
            tool_mode="auto",
        )
        assert draft.meta.inherited == {
            "search": False,
            "tool_mode": "auto",
            "further": {"key": [1, None]},
            "provider_ptr": "nano",
            "servers": ["a", "b"],
        }

    @pytest.mark.parametrize(
        ("given", "delta"),
        [
            ({"servers": []}, {"servers": []}),
            ({"search": False}, {"search": False}),
            ({"inherited": {"servers": None, "search": None}}, {"servers": None, "search": None}),
            ({"inherited": {}}, UNSET),
            ({}, UNSET),
            ({"inherited": MappingProxyType({"a": MappingProxyType({"b": (1, 2)})})}, {"a": {"b": [1, 2]}}),
        ],
    )
    def test_empty_values_and_nulls_are_kept(self, given: dict[str, Any], delta: object) -> None:
        """False, the empty list and null are said; an empty record says nothing."""
        assert turn_draft("x", **given).meta.inherited == delta

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({"role": "robot"}, "role"),
            ({"role": "User"}, "role"),
            ({"role": ""}, "role"),
            ({"cache": 1}, "cache"),
            ({"cache": "yes"}, "cache"),
            ({"model": 5}, "model"),
            ({"model": "\ud800"}, "model"),
            ({"provider": b"p"}, "provider"),
            ({"api": []}, "api"),
            ({"stop_reason": 1}, "stop_reason"),
            ({"error": ValueError("x")}, "error"),
            ({"usage": {"tokens": 1}}, "usage"),
            ({"usage": {"input_tokens": -1}}, "usage"),
            ({"usage": {"input_tokens": 1.5}}, "usage"),
            ({"usage": {"input_tokens": True}}, "usage"),
            ({"usage": {"input_tokens": "1"}}, "usage"),
            ({"usage": 5}, "usage"),
            ({"usage": []}, "usage"),
            ({"usage": Usage(input_tokens="a")}, "usage"),  # type: ignore[arg-type]
            ({"usage": Usage(input_tokens=-4)}, "usage"),
            ({"origin": Origin(format=1, ids=["x"])}, "origin"),  # type: ignore[arg-type]
            ({"origin": Origin(format="x", ids="x")}, "origin"),  # type: ignore[arg-type]
            ({"origin": Origin(format="\ud800", ids=[])}, "origin.format"),
            ({"call": "not-an-id"}, "call"),
            ({"call": 5}, "call"),
            ({"id": "not-an-id"}, "id"),
            ({"id": ID + "0"}, "id"),
            ({"id": 5}, "id"),
            ({"expected_head": "main"}, "expected_head"),
            ({"expected_head": 5}, "expected_head"),
            ({"continues": ""}, "continues"),
            ({"continues": ["a", ""]}, "continues"),
            ({"continues": [5]}, "continues"),
            ({"continues": 5}, "continues"),
            ({"continues": [None]}, "continues"),
            ({"continues": "a", "respond": True}, "respond"),
            ({"inherited": []}, "inherited"),
            ({"inherited": "x"}, "inherited"),
            ({"inherited": {"a": float("nan")}}, "inherited.a"),
            ({"inherited": {"a": [1, float("inf")]}}, "inherited.a[1]"),
            ({"inherited": {"a": {"b": {1}}}}, "inherited.a.b"),
            ({"inherited": {"a": b"x"}}, "inherited.a"),
            ({"inherited": {"a": "\ud800"}}, "inherited.a"),
            ({"inherited": {"\ud800": 1}}, "inherited"),
            ({"inherited": {5: 1}}, "inherited"),
            ({"inherited": {"a": {None: 1}}}, "inherited.a"),
            ({"inherited": {"search": "yes"}}, "inherited.search"),
            ({"inherited": {"search": 1}}, "inherited.search"),
            ({"inherited": {"tool_mode": 1}}, "inherited.tool_mode"),
            ({"inherited": {"provider_ptr": []}}, "inherited.provider_ptr"),
            ({"inherited": {"servers": "a"}}, "inherited.servers"),
            ({"inherited": {"servers": [1]}}, "inherited.servers"),
            ({"inherited": {"servers": {"a": 1}}}, "inherited.servers"),
            ({"servers": "ab"}, "inherited.servers"),
            ({"bookmark": 5}, "bookmark"),
            ({"bookmark": ""}, "bookmark"),
            ({"bookmark": " a"}, "bookmark"),
            ({"bookmark": "a "}, "bookmark"),
            ({"bookmark": "a\nb"}, "bookmark"),
            ({"bookmark": "\u200b"}, "bookmark"),
            ({"bookmark": "\ud800"}, "bookmark"),
            ({"bookmark": "a" * 201}, "bookmark"),
            ({"bookmark": ID}, "bookmark"),
            ({"bookmark": ID.upper()}, "bookmark"),
        ],
        ids=lambda value: repr(value)[:60],
    )
    def test_malformed_argument_is_named(self, given: dict[str, Any], field: str) -> None:
        """An argument of another type or form is a metadata error that names it."""
        with pytest.raises(MetaError) as caught:
            turn_draft("x", **given)
        assert caught.value.field == field

    @pytest.mark.parametrize("name", ["a", "a" * 200, "Grüße 🦊", "a/b", ID[:-1], "-x", "z" * 25])
    def test_bookmark_names_are_free(self, name: str) -> None:
        """A name is any printable text that cannot be taken for an id."""
        assert turn_draft("x", bookmark=name).bookmark == name

    def test_secret_in_options_is_refused(self) -> None:
        """Options are searched for secrets."""
        with pytest.raises(SecretError) as caught:
            turn_draft("x", inherited={"headers": {"Authorization": "x"}})
        assert caught.value.field == "inherited.headers.Authorization"

    def test_nesting_beyond_measure_is_refused(self) -> None:
        """Options nested tens of thousands deep are a metadata error, not a crash."""
        deep: dict[str, Any] = {}
        for _ in range(50_000):
            deep = {"a": deep}
        with pytest.raises(MetaError, match="inherited"):
            turn_draft("x", inherited=deep)

    def test_options_are_taken_as_they_are_now(self) -> None:
        """A draft does not change when the caller's record does."""
        given: dict[str, Any] = {"a": {"b": [1]}}
        draft = turn_draft("x", inherited=given)
        given["a"]["b"].append(2)
        given["a"]["c"] = 3
        assert draft.meta.inherited == {"a": {"b": [1]}}

    @pytest.mark.parametrize("content", ['[{"type":"text","text":"x"}]', b'[{"type":"text", "text":"x"}]'])
    def test_json_content_is_parsed(self, content: str | bytes) -> None:
        """With json=True text and bytes are read as JSON."""
        assert turn_draft(content, json=True).payload == b'[{"type":"text","text":"x"}]'

    @pytest.mark.parametrize(("content", "json"), [(b"x", False), (["x"], True), ({"type": "text"}, True), (5, True)])
    def test_content_of_another_type_is_refused(self, content: Any, json: bool) -> None:
        """Bytes are JSON only if asked for, and JSON is text or bytes."""
        with pytest.raises(ContentError, match=r"^content"):
            turn_draft(content, json=json)


class TestDocumentDraft:
    """Files as documents."""

    def test_file_is_read_with_its_name_path_and_size(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The payload is the file's bytes; the recorded path is absolute."""
        (tmp_path / "a.md").write_bytes(b"# \xc3\xa9\r\n")
        monkeypatch.chdir(tmp_path)
        draft = document_draft(Path("a.md"), cache=True, role="system")
        assert draft.payload == b"# \xc3\xa9\r\n"
        assert draft.meta == TurnMeta(
            role="system",
            content_type="text/markdown",
            type="document",
            document_name="a.md",
            original_path=str(tmp_path / "a.md"),
            file_size=6,
            cache=True,
        )

    def test_name_and_media_type_can_be_given(self, tmp_path: Path) -> None:
        """What the caller says comes before what is guessed."""
        (tmp_path / "a.md").write_bytes(b"x")
        meta = document_draft(tmp_path / "a.md", name="Title", content_type="text/x-y; charset=utf-8").meta
        assert (meta.document_name, meta.content_type) == ("Title", "text/x-y; charset=utf-8")

    @pytest.mark.parametrize("value", ["", "text", "text/", "/plain", "a b/c", "a/b c", "a/b/c", "text/plain\n", "é/x"])
    def test_malformed_media_type_is_refused(self, tmp_path: Path, value: str) -> None:
        """A media type is a type and a subtype."""
        (tmp_path / "a.md").write_bytes(b"x")
        with pytest.raises(MetaError) as caught:
            document_draft(tmp_path / "a.md", content_type=value)
        assert caught.value.field == "content_type"

    @pytest.mark.parametrize(
        ("name", "payload", "expected"),
        [
            ("a.txt", b"%PDF-1.4", "text/plain"),
            ("a.PDF", b"text", "application/pdf"),
            ("a.png", b"", "image/png"),
            ("a.json", b"{}", "application/json"),
            ("a.csv", b"a,b", "text/csv"),
            ("a.html", b"x", "text/html"),
            ("a.txt.gz", gzip.compress(b"x", mtime=0), "application/gzip"),
            ("noext", b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "image/png"),
            ("noext", b"%PDF-1.4\n%\xe2\xe3\xcf\xd3", "application/pdf"),
            ("noext", b"\xff\xd8\xff\xe0\x00\x10JFIF\x00", "image/jpeg"),
            ("noext", b"GIF89a\x01\x00\x01\x00", "image/gif"),
            ("noext", b"just words", "text/plain"),
            ("noext", "Grüße".encode(), "text/plain"),
            ("noext", b"BMW cars are nice", "text/plain"),
            ("noext", b"P4 plain words", "text/plain"),
            ("noext", b"ID3 tag words", "text/plain"),
            ("noext", b"", "text/plain"),
            ("noext", b"\x00\x01\x02\x03", "application/octet-stream"),
            ("noext", b"words\x00words", "application/octet-stream"),
            ("a.unknown-extension", b"just words", "text/plain"),
        ],
    )
    def test_media_type_is_by_extension_and_else_by_content(
        self, tmp_path: Path, name: str, payload: bytes, expected: str
    ) -> None:
        """A known extension decides in either case; without one, the content does."""
        (tmp_path / name).write_bytes(payload)
        assert document_draft(tmp_path / name).meta.content_type == expected

    def test_size_limit_is_inclusive(self, tmp_path: Path) -> None:
        """A document of exactly the limit goes in; one byte more is refused, and both sizes are named."""
        (tmp_path / "a").write_bytes(b"x" * 1001)
        assert len(document_draft(tmp_path / "a", bytes_max=1001).payload) == 1001
        with pytest.raises(DocumentError, match=r"1,001 bytes, more than the limit of 1,000"):
            document_draft(tmp_path / "a", bytes_max=1000)

    def test_default_limit_is_100_mb_and_checked_before_reading(self, tmp_path: Path) -> None:
        """A sparse file of one byte more than 100 MB is refused by its size alone."""
        assert DOCUMENT_BYTES_MAX == 100_000_000
        with (tmp_path / "a").open("wb") as file:
            file.truncate(100_000_001)
        with pytest.raises(DocumentError, match="100,000,001"):
            document_draft(tmp_path / "a")

    @pytest.mark.parametrize("make", [lambda path: path / "absent", lambda path: path, lambda path: path / "a\0b"])
    def test_what_is_no_file_is_a_document_error(self, tmp_path: Path, make: Callable[[Path], Path]) -> None:
        """An absent file, a folder or an impossible name is a document error that names it."""
        with pytest.raises(DocumentError) as caught:
            document_draft(make(tmp_path))
        assert repr(str(make(tmp_path))) in str(caught.value)

    def test_name_that_is_not_utf_8_is_refused(self, tmp_path: Path) -> None:
        """A file whose name cannot be recorded is an input error, not a crash."""
        path = tmp_path / "a\udcff"
        path.write_bytes(b"x")
        with pytest.raises(InputError):
            document_draft(path)

    def test_options_and_parents_are_checked_as_for_turns(self, tmp_path: Path) -> None:
        """A document has the same rules as a turn."""
        (tmp_path / "a").write_bytes(b"x")
        own = new_id()
        draft = document_draft(
            tmp_path / "a", continues="b", bookmark=None, expected_head=None, inherited={"search": True}, id=own
        )
        assert (draft.continues, draft.bookmark, draft.expected_head, draft.id) == (("b",), None, None, own)
        assert draft.meta.inherited == {"search": True}
        with pytest.raises(SecretError):
            document_draft(tmp_path / "a", inherited={"password": "x"})
