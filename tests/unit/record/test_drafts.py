"""Drafts: what a caller gives, checked."""

import enum
import gzip
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
from tests.facts import with_facts

from turnlog.errors import ContentError, DocumentError, InputError, MetaError, SecretError
from turnlog.ids import new_id
from turnlog.model import Origin, ReplyFacts, TurnMeta, Usage
from turnlog.record import DOCUMENT_BYTES_MAX, document_draft, turn_draft
from turnlog.record.drafts import checked_draft

ID = "036z951mhjikzik2gsl81gr7l"


class Shown(str):
    """A text that would like to be shown as another."""

    def __str__(self) -> str:
        return "shown"

    def __repr__(self) -> str:
        return "shown"


class Word(enum.StrEnum):
    """Words of an application, which are texts."""

    ROLE = "assistant"
    MAIN = "main"
    IDENTITY = ID


class Other(str):
    """A text that is equal to nothing but itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return 1


class Count(enum.IntEnum):
    """Numbers of an application, which are integers."""

    FEW = 3


class Weight(float):
    """A number of a class of its own."""


class Whole(int):
    """An integer of a class of its own."""


def all_plain(value: Any) -> bool:
    """Tell whether a value is of the classes that JSON has, at any depth."""
    if isinstance(value, dict):
        return type(value) is dict and all(type(name) is str and all_plain(inner) for name, inner in value.items())
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(map(all_plain, value))
    return type(value) in (str, int, float, bool, type(None))


TOO_LARGE = [1 << 64, -(1 << 63) - 1, 10**30, Whole(1 << 64), 10**5000]


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
            None,
            None,
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
            reply=ReplyFacts(
                model="m",
                provider="p",
                api="a",
                stop_reason="end_turn",
                usage={"input_tokens": 1, "reasoning_tokens": 2},
                error="e",
            ),
            call=ID.upper(),
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
            ({"inherited": {}}, None),
            ({}, None),
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
            ({"origin": Origin(format=1, ids=["x"])}, "origin.format"),  # type: ignore[arg-type]
            ({"origin": Origin(format="x", ids="x")}, "origin.ids"),  # type: ignore[arg-type]
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
            turn_draft("x", **with_facts(given))
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

    def test_text_of_any_class_is_taken_as_its_plain_text(self) -> None:
        """Every text argument may be of a subclass, and what is recorded is the text that it holds."""
        draft = turn_draft(
            Shown("x"),
            role=Word.ROLE,
            continues=[Word.MAIN, Shown("b")],
            bookmark=Shown("b"),
            expected_head=Word.IDENTITY,
            provider_ptr=Shown("nano"),
            servers=[Shown("s")],
            tool_mode=Shown("auto"),
            inherited={Shown("key"): {Word.MAIN: [Shown("v"), Word.MAIN]}},
            id=Word.IDENTITY,
            call=Shown(ID.upper()),
            reply=ReplyFacts(
                model=Shown("m"),
                provider=Word.MAIN,
                api=Shown("a"),
                stop_reason=Shown("end_turn"),
                raw_stop_reason=Shown("stop"),
                error=Shown("e"),
                usage={Shown("input_tokens"): 1},
            ),
            origin=Origin(format=Shown("f"), ids=[Word.IDENTITY], session=Shown("s")),
        )
        assert draft == turn_draft(
            "x",
            role="assistant",
            continues=["main", "b"],
            bookmark="b",
            expected_head=ID,
            provider_ptr="nano",
            servers=["s"],
            tool_mode="auto",
            inherited={"key": {"main": ["v", "main"]}},
            id=ID,
            call=ID,
            reply=ReplyFacts(
                model="m",
                provider="main",
                api="a",
                stop_reason="end_turn",
                raw_stop_reason="stop",
                error="e",
                usage={"input_tokens": 1},
            ),
            origin=Origin(format="f", ids=[ID], session="s"),
        )
        assert turn_draft("x", continues=Shown("b")).continues == ("b",)
        meta = msgspec.structs.asdict(draft.meta)
        assert isinstance(meta["origin"], Origin)
        assert isinstance(meta["usage"], Usage)
        meta |= {"origin": msgspec.structs.asdict(meta["origin"]), "usage": msgspec.structs.asdict(meta["usage"])}
        meta["origin"] = {name: value for name, value in meta["origin"].items() if value is not None}
        assert all_plain({name: value for name, value in meta.items() if value is not None})
        assert all_plain([draft.continues, draft.bookmark, draft.expected_head, draft.id])

    def test_number_of_any_class_is_taken_as_its_plain_number(self) -> None:
        """Options and counts may be of subclasses, and what is recorded are the numbers that they hold."""
        inherited = {"few": Count.FEW, "whole": Whole(4), "weight": Weight(0.5), "yes": True}
        draft = turn_draft(
            "x", inherited=inherited, reply=ReplyFacts(usage={"input_tokens": Count.FEW, "output_tokens": Whole(4)})
        )
        assert draft.meta.inherited == {"few": 3, "whole": 4, "weight": 0.5, "yes": True}
        assert draft.meta.usage == Usage(input_tokens=3, output_tokens=4)
        assert isinstance(draft.meta.usage, Usage)
        assert all_plain([draft.meta.inherited, msgspec.structs.asdict(draft.meta.usage)])

    @pytest.mark.parametrize("integer", [(1 << 64) - 1, -(1 << 63), (1 << 53) + 1, Whole((1 << 64) - 1)])
    def test_integer_of_64_bits_is_kept_exactly(self, integer: int) -> None:
        """The bounds are inclusive, and nothing is rounded."""
        options = turn_draft("x", inherited={"n": [integer]}).meta.inherited
        assert msgspec.json.decode(msgspec.json.encode(options)) == {"n": [int(integer)]}

    @pytest.mark.parametrize("integer", TOO_LARGE, ids=lambda integer: f"{integer.bit_length()} bits")
    def test_larger_integer_is_named_and_asked_for_as_text(self, integer: int) -> None:
        """An integer beyond 64 bits is a metadata or content error with its field, and not rounded."""
        with pytest.raises(MetaError, match=r"64 bits .* as text") as options:
            turn_draft("x", inherited={"a": [0, {"n": integer}]})
        assert options.value.field == "inherited.a[1].n"
        with pytest.raises(MetaError, match=r"64 bits .* as text") as usage:
            turn_draft("x", reply=ReplyFacts(usage={"input_tokens": integer}))
        assert usage.value.field == "usage.input_tokens"
        with pytest.raises(ContentError, match=r"64 bits .* as text") as content:
            turn_draft([{"type": "text", "text": "x", "n": integer}])
        assert content.value.field == "content[0].n"

    def test_counts_add_up_to_64_bits_at_most(self) -> None:
        """The sum of all counts, which people are shown, has the same bound as each."""
        most = (1 << 64) - 1
        assert turn_draft("x", reply=ReplyFacts(usage={"input_tokens": most})).meta.usage == Usage(input_tokens=most)
        with pytest.raises(MetaError, match="64 bits") as caught:
            turn_draft("x", reply=ReplyFacts(usage={"input_tokens": most, "output_tokens": 1}))
        assert caught.value.field == "usage"

    @pytest.mark.parametrize(
        ("given", "field"),
        [
            ({"continues": "\ud800"}, "continues"),
            ({"continues": ["a", Shown("\ud800")]}, "continues"),
            ({"continues": ["a", Shown("")]}, "continues"),
            ({"model": Shown("\ud800")}, "model"),
            ({"bookmark": Shown(" a")}, "bookmark"),
            ({"role": Shown("robot")}, "role"),
            ({"role": 10**5000}, "role"),
            ({"continues": 10**5000}, "continues"),
            ({"continues": ["a", 10**5000]}, "continues"),
            ({"bookmark": 10**5000}, "bookmark"),
            ({"id": 10**5000}, "id"),
            ({"cache": 10**5000}, "cache"),
            ({"inherited": {10**5000: 1}}, "inherited"),
            ({"inherited": {"search": Count.FEW}}, "inherited.search"),
            ({"inherited": {"servers": [Count.FEW]}}, "inherited.servers"),
            ({"inherited": {Shown("a"): 1, Other("a"): 2}}, "inherited"),
            ({"usage": {"input_tokens": Weight(1)}}, "usage"),
            ({"usage": {"input_tokens": Whole(-1)}}, "usage"),
        ],
        ids=lambda value: value if isinstance(value, str) else ",".join(value),
    )
    def test_rules_hold_for_values_of_any_class(self, given: dict[str, Any], field: str) -> None:
        """A text or a number of a subclass has to keep the rules of a plain one."""
        with pytest.raises(MetaError) as caught:
            turn_draft("x", **with_facts(given))
        assert caught.value.field == field

    def test_options_that_contain_themselves_are_refused(self) -> None:
        """A record without end is a metadata error."""
        endless: dict[str, Any] = {}
        endless["a"] = [endless]
        with pytest.raises(MetaError, match="inherited: nested too deeply"):
            turn_draft("x", inherited=endless)

    @pytest.mark.parametrize("content", ['[{"type":"text","text":"x"}]', b'[{"type":"text", "text":"x"}]'])
    def test_json_content_is_parsed(self, content: str | bytes) -> None:
        """With json=True text and bytes are read as JSON."""
        assert turn_draft(content, json=True).payload == b'[{"type":"text","text":"x"}]'

    @pytest.mark.parametrize(("content", "json"), [(b"x", False), (["x"], True), ({"type": "text"}, True), (5, True)])
    def test_content_of_another_type_is_refused(self, content: Any, json: bool) -> None:
        """Bytes are JSON only if asked for, and JSON is text or bytes."""
        with pytest.raises(ContentError, match=r"^content"):
            turn_draft(content, json=json)


class _Swapped(type(Path())):  # type: ignore[misc]
    """A path where one thing was when it was looked at, and another is when it is opened."""

    def __new__(cls, path: Path, *, before: Path) -> "_Swapped":
        made = super().__new__(cls, path)
        made.before = before
        return made

    def __init__(self, path: Path, *, before: Path) -> None:
        if sys.version_info >= (3, 12):
            super().__init__(path)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self.before.stat(follow_symlinks=follow_symlinks)


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

    def test_empty_name_is_refused(self, tmp_path: Path) -> None:
        """None is the file's, and nothing is no name."""
        (tmp_path / "a.md").write_bytes(b"x")
        with pytest.raises(MetaError, match="document_name: '' is no name"):
            document_draft(tmp_path / "a.md", name="")

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
            ("a.png", b"just words", "text/plain"),
            ("a.png", b"GIF89a\x01\x00\x01\x00\xff", "image/gif"),
            ("a.png", b"\x89PN", "image/png"),
            ("a.svg", b"<svg/>", "image/svg+xml"),
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
        """A known extension decides in either case, but of images; without one, the content does."""
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

    def test_fifo_is_refused_and_not_waited_for(self, tmp_path: Path) -> None:
        """A FIFO that nobody writes to is a document error at once."""
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(DocumentError) as caught:
            document_draft(tmp_path / "pipe")
        assert str(caught.value) == f"{str(tmp_path / 'pipe')!r} is a FIFO: give a regular file"

    def test_fifo_behind_a_link_is_refused(self, tmp_path: Path) -> None:
        """A link is followed before it is asked what is there."""
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "link.md").symlink_to("pipe")
        with pytest.raises(DocumentError, match="is a FIFO"):
            document_draft(tmp_path / "link.md")

    def test_link_to_a_file_is_read(self, tmp_path: Path) -> None:
        """A link to a regular file is a document."""
        (tmp_path / "a").write_bytes(b"x")
        (tmp_path / "link.md").symlink_to("a")
        assert document_draft(tmp_path / "link.md").payload == b"x"

    @pytest.mark.parametrize("device", ["/dev/null", "/dev/zero", "/dev/tty"])
    def test_device_is_refused_without_being_opened(self, device: str) -> None:
        """A device is a document error, whether it ends at once, never, or waits for a key."""
        with pytest.raises(DocumentError, match=f"'{device}' is a device: give a regular file"):
            document_draft(Path(device))

    def test_socket_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A socket is a document error."""
        monkeypatch.chdir(tmp_path)  # the path of a socket is short
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("s")
            with pytest.raises(DocumentError, match="'s' is a socket"):
                document_draft(Path("s"))

    @pytest.mark.parametrize("writer", [False, True])
    def test_fifo_put_in_the_place_of_a_file_is_refused(self, tmp_path: Path, writer: bool) -> None:
        """What becomes a FIFO after it was looked at is neither waited for nor read."""
        (tmp_path / "file").write_bytes(b"x")
        os.mkfifo(tmp_path / "pipe")
        before = len(list(Path("/dev/fd").iterdir()))
        # Opened for both, a FIFO has a writer and opening it does not wait.
        held = os.open(tmp_path / "pipe", os.O_RDWR) if writer else None
        try:
            with pytest.raises(DocumentError, match="is a FIFO"):
                document_draft(_Swapped(tmp_path / "pipe", before=tmp_path / "file"))
        finally:
            if held is not None:
                os.close(held)
        assert len(list(Path("/dev/fd").iterdir())) == before

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
            tmp_path / "a", continues="b", bookmark=False, expected_head=False, inherited={"search": True}, id=own
        )
        assert (draft.continues, draft.bookmark, draft.expected_head, draft.id) == (("b",), False, False, own)
        assert draft.meta.inherited == {"search": True}
        with pytest.raises(SecretError):
            document_draft(tmp_path / "a", inherited={"password": "x"})


def test_document_in_a_folder_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    """Its path tells where it came from, as far as text can; its own name is what a model reads."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "a.md").write_text("x")
    assert document_draft(folder / "a.md").meta.original_path == f"{tmp_path}/caf\\udce9/a.md"
    odd = folder / os.fsdecode(b"\xe9.md")
    odd.write_text("x")
    with pytest.raises(MetaError, match=r"document_name: '\\udce9.md' is not valid UTF-8: give another one"):
        document_draft(odd)
    assert document_draft(odd, name="e.md").meta.document_name == "e.md"


def test_raw_json_is_no_option() -> None:
    """An option is merged with others, and so is a value. In a draft of a caller's own it is none either."""
    with pytest.raises(MetaError, match=r"^inherited: raw JSON text is not kept in metadata: give the value"):
        turn_draft("Hello.", inherited={"a": {"b": msgspec.Raw(b"1")}})
    draft = turn_draft("Hello.")
    meta = msgspec.structs.replace(draft.meta, inherited={"a": msgspec.Raw(b"1")})
    with pytest.raises(MetaError, match=r"^meta: raw JSON text is not kept"):
        checked_draft(msgspec.structs.replace(draft, meta=meta))


def test_a_struct_as_an_option_is_the_record_that_it_is_stored_as() -> None:
    """What is returned and what is read later are the same."""
    assert turn_draft("Hello.", inherited={"a": Usage(input_tokens=1)}).meta.inherited == {
        "a": msgspec.to_builtins(Usage(input_tokens=1))
    }
