"""The parts of an event and their codec."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog.digest import event_digest, leaf_hash, sri
from turnlog.errors import CorruptionError, ErasedError
from turnlog.events import (
    BOOKMARK,
    CALL,
    ERASURE,
    GENESIS,
    POINTER,
    TURN,
    Arrival,
    Citation,
    Event,
    Recorded,
    build,
    check_cited,
    cite,
    decode,
    genesis,
    meta_of,
    meta_text,
    metadata,
    parts_of,
    private_part,
    turn_meta,
)
from turnlog.events.form import recorded as in_place
from turnlog.model import BookmarkMeta, BytesRef, CallMeta, ErasureMeta, Origin, PointerMeta, TurnMeta, Usage

ID = "036z951mhjikzik2gsl81gr7l"
OTHER = "036z951mhjikzik2gsl81gr7m"
SALT = bytes(range(16))
EMPTY_HASH = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
DIGEST = "sha256-bjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB0="
PRIVATE = (
    b'{"hash":"sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=","meta":{"head":"main"},'
    b'"salt":"AAECAwQFBgcICQoLDA0ODw==","size":0}'
)
STATE = (
    b'{"citations":[{"as":"parent","digest":"sha256-bjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB0=",'
    b'"id":"036z951mhjikzik2gsl81gr7m"}],"format":2,"id":"036z951mhjikzik2gsl81gr7l","meta":{"role":"user"},'
    b'"position":0,"private":"%s","stream":"036z951mhjikzik2gsl81gr7l","time":1741064767089,"topic":"gpt.turn"}'
    % sri(sha256(PRIVATE).digest()).encode()
)
PARENT = Citation(relation="parent", digest=DIGEST, id=OTHER)


def _event(**changes: Any) -> Event:
    return build(
        **{
            "topic": TURN,
            "id": ID,
            "time": 1741064767089,
            "meta": Raw(b'{"role":"user"}'),
            "private": private_part({"head": "main"}, hash=EMPTY_HASH, size=0, salt=SALT),
            "citations": [PARENT],
            **changes,
        }
    )


# Write


def test_stored_bytes_are_sorted_json_without_whitespace() -> None:
    """The bytes of both parts are exactly those of the log format, and the header commits to the private part."""
    event = _event()
    assert event.private_state == PRIVATE
    assert event.state == STATE
    assert event.leaf_hash == leaf_hash(STATE)


def test_private_part_without_metadata_leaves_it_out() -> None:
    """Of an event with a payload and no private metadata there are a hash, a size and a salt to erase."""
    event = _event(private=private_part({}, hash=EMPTY_HASH, size=0, salt=SALT))
    assert event.private_state == PRIVATE.replace(b'"meta":{"head":"main"},', b"")
    assert decode(event.state, event.private_state) == event


def test_private_part_without_payload_says_null() -> None:
    """Without a payload hash and size are null."""
    event = _event(private=private_part({"head": "main"}, hash=None, size=None, salt=SALT))
    assert event.private_state == b'{"hash":null,"meta":{"head":"main"},"salt":"AAECAwQFBgcICQoLDA0ODw==","size":null}'


def test_event_that_has_nothing_to_erase_has_no_private_part() -> None:
    """Without payload and private metadata there is no private part, and the header says null."""
    assert private_part({}, hash=None, size=None, salt=SALT) is None
    event = _event(private=None)
    assert (event.private_state, event.private, event.header.private) == (None, None, None)
    assert (event.hash, event.size, event.erased) == (None, None, False)
    assert b'"private":null' in event.state


def test_salt_hides_the_private_part() -> None:
    """The same private part with another salt has another commitment, so that none can be guessed."""
    one, two = (_event(private=private_part({"a": 1}, hash=None, size=None, salt=bytes([n] * 16))) for n in (0, 1))
    assert one.header.private != two.header.private


def test_metadata_is_sorted_at_every_depth() -> None:
    """Keys of metadata are sorted, those inside options too; unset fields and defaults are not written."""
    meta = TurnMeta(role="user", content_type="a/b", inherited={"z": {"b": 1, "a": None}, "a": [1.5, "é"]}, cache=False)
    public, private = parts_of(TURN, meta)
    assert bytes(meta_text(public)) == b'{"content_type":"a/b","role":"user"}'
    assert bytes(meta_text(private)) == '{"inherited":{"a":[1.5,"é"],"z":{"a":null,"b":1}}}'.encode()
    assert bytes(meta_text({})) == b"{}"


def test_event_starts_a_stream_unless_it_is_told_otherwise() -> None:
    """By default an event is the first one of a stream of its own."""
    assert (_event().header.stream, _event().header.position) == (ID, 0)
    further = _event(stream=OTHER, position=7).header
    assert (further.stream, further.position) == (OTHER, 7)


def test_genesis_is_an_id_and_a_time() -> None:
    """The first event of a log says nothing else."""
    assert genesis(ID, 5).state == (
        b'{"citations":[],"format":2,"id":"036z951mhjikzik2gsl81gr7l","meta":{},"position":0,"private":null,'
        b'"stream":"036z951mhjikzik2gsl81gr7l","time":5,"topic":"log.genesis"}'
    )
    assert genesis(ID, 5).header.topic == GENESIS


def test_citation_names_id_and_digest() -> None:
    """An event is cited by its id and the digest of its exact bytes."""
    event = _event()
    assert cite(event, "turn") == Citation(relation="turn", digest=event_digest(STATE), id=ID)


def test_parents_are_the_citations_as_parent() -> None:
    """In listed order, whatever else is cited between them."""
    call = Citation(relation="call", digest=DIGEST, id=ID)
    again = Citation(relation="parent", digest=DIGEST, id=ID)
    header = _event(citations=[PARENT, call, again]).header
    assert header.parents == [PARENT, again]
    assert (header.cited("call"), header.cited("parent"), header.cited("reply")) == (ID, OTHER, None)


# Read


def test_decoding_gives_the_event_back() -> None:
    """From event to bytes and back is the identity, metadata verbatim."""
    event = decode(STATE, PRIVATE)
    assert event == _event()
    assert (event.hash, event.size, event.erased) == (EMPTY_HASH, 0, False)


def test_event_without_its_private_part_is_erased() -> None:
    """A header that commits to a private part which is not there is that of an erased event."""
    event = decode(STATE, None)
    assert event.erased
    assert (event.private, event.hash, event.size) == (None, None, None)
    assert event.digest == _event().digest


def test_digest_is_of_the_exact_bytes() -> None:
    """An event's digest is that of its bytes as they stand, not of a re-encoding."""
    spaced = STATE.replace(b'"format":2', b'"format": 2')
    event = decode(spaced, PRIVATE)
    assert event.digest == event_digest(spaced) != event_digest(STATE)
    assert event.state == spaced


def test_keys_that_nobody_knows_are_kept() -> None:
    """A later turnlog may say more in a part: what is not known is left alone, and stays in the bytes."""
    private = PRIVATE.replace(b'"salt"', b'"new":1,"salt"')
    state = STATE.replace(b'"format"', b'"extra":[],"format"').replace(
        sri(sha256(PRIVATE).digest()).encode(), sri(sha256(private).digest()).encode()
    )
    event = decode(state, private)
    assert (event.state, event.private_state) == (state, private)
    assert turn_meta(event) == turn_meta(_event())


def test_event_in_place_has_its_place() -> None:
    """With a place in a log an event is the same, and says where it stands and how it came there."""
    event = in_place(_event(), 7, Arrival.GUEST)
    assert (event.global_position, event.arrival) == (7, Arrival.GUEST)
    assert (event.state, event.private_state, event.digest) == (STATE, PRIVATE, _event().digest)


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        STATE[:-1],
        STATE + b"x",
        STATE.replace(b'"position":0', b'"position":"0"'),
        STATE.replace(b'"position":0', b'"position":0.5'),
        STATE.replace(b'"time":1741064767089', b'"time":null'),
        STATE.replace(b'"topic":"gpt.turn"', b'"topic":null'),
        STATE.replace(b'"meta":', b'"mete":'),
        STATE.replace(b'"citations":[', b'"citations":[1,'),
        STATE.replace(b'"as":"parent",', b""),
        STATE.replace(b'"position":0', b'"position":' + b"9" * 5000),
        b'{"citations":' + b"[" * 100_000,
    ],
)
def test_bytes_that_are_no_event_are_corruption(state: bytes) -> None:
    """Cut, mistyped, foreign or hostile bytes raise an error that names the global position."""
    with pytest.raises(CorruptionError, match="global position 9 cannot be read") as caught:
        decode(state, PRIVATE, global_position=9)
    assert caught.value.global_position == 9


@pytest.mark.parametrize("version", [0, -1, 1, 3, 1000])
def test_other_format_versions_are_refused_with_advice(version: int) -> None:
    """An event of a version that is not known is not guessed at."""
    state = STATE.replace(b'"format":2', b'"format":%d' % version)
    advice = ": upgrade turnlog" if version > 2 else ""
    with pytest.raises(CorruptionError, match=rf"format version {version}, this turnlog knows 2{advice}$"):
        decode(state, None)


@pytest.mark.parametrize("change", [b" ", b"", b'{"hash":null,"salt":"","size":null}'])
def test_private_part_that_is_not_the_committed_one_is_corruption(change: bytes) -> None:
    """A private part of which the header does not have the hash is refused, whatever it says."""
    with pytest.raises(CorruptionError, match=rf"private part of event '{ID}' is not the one") as caught:
        decode(STATE, PRIVATE + change if change == b" " else change, global_position=9)
    assert caught.value.global_position == 9
    with pytest.raises(CorruptionError):
        decode(genesis(ID, 0).state, PRIVATE)


@pytest.mark.parametrize(
    ("private", "says"),
    [
        (b'{"form":"sealed","key":"x"}', "has a form that this turnlog does not know: upgrade turnlog"),
        (b'{"hash":1}', "cannot be read"),
        (b'{"hash":', "cannot be read"),
        (PRIVATE.replace(b'"salt"', b'"tlas"'), "cannot be read"),
        (PRIVATE.replace(b"AAECAwQ", b"!!!!!!!"), "cannot be read"),
        (b"\xff", "has a form"),
        (b"", "has a form"),
        (b'{"hash":' + b"[" * 100_000, "cannot be read"),
    ],
)
def test_private_part_of_another_form_is_corruption(private: bytes, says: str) -> None:
    """A private part that is committed to, and is of a form that is not known or of none, is refused."""
    state = STATE.replace(sri(sha256(PRIVATE).digest()).encode(), sri(sha256(private).digest()).encode())
    with pytest.raises(CorruptionError, match=says):
        decode(state, private)


# Metadata

_ORIGIN = Origin(format="f", ids=["a"])
_FULL = TurnMeta(
    role="assistant",
    content_type="a/b",
    inherited={"a": None},
    head="main",
    continues=(OTHER, ID),
    cache=True,
    type="document",
    document_name="n",
    original_path="/p",
    file_size=1,
    model="m",
    provider="p",
    api="a",
    stop_reason="stop",
    raw_stop_reason="end",
    usage=Usage(input_tokens=3),
    call=OTHER,
    reply=ID,
    error="e",
    origin=_ORIGIN,
    options={"old": 1},
)


def _of(topic: str, meta: msgspec.Struct, citations: list[tuple[str, str]]) -> Event:
    public, private = parts_of(topic, meta)
    return build(
        topic=topic,
        id=ID,
        time=0,
        meta=meta_text(public),
        private=private_part(private, hash=None, size=None, salt=SALT),
        citations=[Citation(relation=relation, digest=DIGEST, id=cited) for relation, cited in citations],
    )


@pytest.mark.parametrize(
    ("topic", "meta", "citations"),
    [
        (TURN, TurnMeta(role="user"), []),
        (TURN, _FULL, [("parent", OTHER), ("parent", ID), ("call", OTHER), ("reply", ID)]),
        (BOOKMARK, BookmarkMeta(action="set", name="n", turn=OTHER), [("turn", OTHER)]),
        (BOOKMARK, BookmarkMeta(action="rename", name="n", to="m"), []),
        (POINTER, PointerMeta(action="set", name="n", provider="p", model="m", params='{"b":1,"a":2}'), []),
        (ERASURE, ErasureMeta(targets=(OTHER, ID), reason="r", by="b"), [("target", OTHER), ("target", ID)]),
        (
            CALL,
            CallMeta(
                turn=OTHER,
                provider="p",
                api="a",
                model="m",
                adapter="x",
                adapter_version="1",
                stream=True,
                request=BytesRef(hash=EMPTY_HASH, size=0),
                base=ID,
                tools=OTHER,
            ),
            [("turn", OTHER), ("base", ID), ("tools", OTHER)],
        ),
    ],
)
def test_metadata_comes_back_whichever_part_it_stands_in(
    topic: str, meta: msgspec.Struct, citations: list[tuple[str, str]]
) -> None:
    """Public fields, private ones and citations together are the metadata that was given."""
    event = _of(topic, meta, citations)
    assert meta_of(event, type(meta)) == meta
    again = decode(event.state, event.private_state)
    assert meta_of(again, type(meta)) == meta
    if topic == TURN:
        assert turn_meta(again) == meta


def test_metadata_as_it_stands_is_both_parts() -> None:
    """Of any topic, what stands in the header and in the private part is given together."""
    event = build(
        topic="acme.review",
        id=ID,
        time=0,
        meta=meta_text({"b": [1]}),
        private=private_part({"a": "x"}, hash=None, size=None, salt=SALT),
    )
    assert metadata(event) == {"a": "x", "b": [1]}
    assert metadata(decode(event.state, None)) == {"b": [1]}
    assert metadata(genesis(ID, 0)) == {}


def test_field_in_the_wrong_part_does_not_count() -> None:
    """A field is read from its own part only: what stands elsewhere cannot pass for it."""
    private = private_part({"role": "system", "call": OTHER}, hash=None, size=None, salt=SALT)
    event = build(topic=TURN, id=ID, time=0, meta=Raw(b'{"head":"x","role":"user"}'), private=private)
    expected = TurnMeta(role="user")
    assert turn_meta(event) == meta_of(event, TurnMeta) == expected
    assert turn_meta(event).head is None


@pytest.mark.parametrize("read", [turn_meta, lambda event: meta_of(event, TurnMeta)], ids=["turn_meta", "meta_of"])
@pytest.mark.parametrize(
    ("public", "private", "field"),
    [
        (b'{"role":"robot"}', {}, "role"),
        (b"{}", {}, "role"),
        (b'{"cache":1,"role":"user"}', {}, "cache"),
        (b'{"role":"user","usage":[]}', {}, "usage"),
        (b'{"role":"user"}', {"inherited": []}, "inherited"),
        (b'{"role":"user"}', {"file_size": "x"}, "file_size"),
        (b"[]", {}, ""),
        (b'{"role":"\xff"}', {}, ""),
    ],
)
def test_metadata_of_another_type_is_corruption(
    read: Callable[[Event], object], public: bytes, private: dict[str, Any], field: str
) -> None:
    """The metadata of a turn decodes to its type; a wrong type names the event and the field."""
    part = private_part(private, hash=None, size=None, salt=SALT)
    event = build(topic=TURN, id=ID, time=0, meta=Raw(public), private=part)
    with pytest.raises(CorruptionError, match=rf"'{ID}' cannot be read: .*{field}"):
        read(event)


def test_metadata_of_another_topic_is_not_that_of_a_turn() -> None:
    """An event that is no turn has no metadata of one."""
    with pytest.raises(CorruptionError, match=r"log\.genesis event, not a turn"):
        turn_meta(genesis(ID, 0))


def test_unknown_action_is_corruption() -> None:
    """A bookmark event says one of three things."""
    event = build(topic=BOOKMARK, id=ID, time=0, meta=Raw(b'{"action":"move"}'), private=None)
    with pytest.raises(CorruptionError, match="action"):
        meta_of(event, BookmarkMeta)


def test_erased_metadata_is_told_from_damage() -> None:
    """Where what is asked for was erased, the error says so; a turn that is erased still says what it was."""
    bookmark = _of(BOOKMARK, BookmarkMeta(action="delete", name="n"), [])
    with pytest.raises(ErasedError) as caught:
        meta_of(decode(bookmark.state, None), BookmarkMeta)
    assert caught.value.event_id == ID
    turn = decode(_of(TURN, _FULL, [("parent", OTHER)]).state, None)
    assert turn_meta(turn) == meta_of(turn, TurnMeta)
    assert (turn_meta(turn).role, turn_meta(turn).usage, turn_meta(turn).continues) == (
        "assistant",
        Usage(input_tokens=3),
        (OTHER,),
    )
    assert (turn_meta(turn).head, turn_meta(turn).error) == (None, None)


# Citations


def _recorded(event: Event) -> Recorded:
    return in_place(event, 1, Arrival.RECORDED)


def test_cited_event_is_the_one_with_that_id_and_digest() -> None:
    """An event with another id, or other bytes, is not the one that is cited."""
    cited = _recorded(genesis(OTHER, 0))
    citing = _recorded(_event(citations=[cite(cited, "parent")]))
    check_cited(citing, citing.header.citations[0], cited)
    for other in (genesis(OTHER, 1), genesis(ID, 0)):
        with pytest.raises(CorruptionError, match=rf"'{ID}' cites '{OTHER}' with another digest") as caught:
            check_cited(citing, citing.header.citations[0], _recorded(other))
        assert caught.value.global_position == 1
