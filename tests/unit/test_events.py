"""The event and its codec."""

import msgspec
import pytest
from msgspec import UNSET, Raw

from turnlog.digest import event_digest
from turnlog.errors import CorruptionError
from turnlog.events import (
    BOOKMARK,
    TURN,
    Event,
    Parent,
    Recorded,
    bookmark_meta,
    decode,
    encode,
    encode_meta,
    turn_meta,
)
from turnlog.model import BookmarkMeta, TurnMeta

ID = "036z951mhjikzik2gsl81gr7l"
OTHER = "036z951mhjikzik2gsl81gr7m"
STATE = (
    b'{"format":1,"hash":"sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=","id":"036z951mhjikzik2gsl81gr7l",'
    b'"meta":{"content_type":"application/json","role":"user"},'
    b'"parents":[{"digest":"sha256-x","id":"036z951mhjikzik2gsl81gr7m"}],'
    b'"position":0,"size":0,"stream":"036z951mhjikzik2gsl81gr7l","topic":"gpt.turn"}'
)
EVENT = Event(
    format=1,
    id=ID,
    topic=TURN,
    stream=ID,
    position=0,
    hash="sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=",
    size=0,
    parents=[Parent(id=OTHER, digest="sha256-x")],
    meta=Raw(b'{"content_type":"application/json","role":"user"}'),
)


def test_stored_bytes_are_sorted_json_without_whitespace() -> None:
    """The bytes of an event are exactly those of the log format."""
    assert encode(EVENT) == STATE


def test_decoding_gives_the_event_back() -> None:
    """From event to bytes and back is the identity, metadata verbatim."""
    assert decode(STATE) == EVENT
    assert bytes(decode(STATE).meta) == bytes(EVENT.meta)


def test_event_without_payload_says_null() -> None:
    """An event without a payload has null for hash and size."""
    state = encode(msgspec.structs.replace(EVENT, hash=None, size=None))
    assert b'"hash":null' in state
    assert b'"size":null' in state
    assert decode(state).hash is None


def test_digest_is_of_the_exact_bytes() -> None:
    """A recorded event's digest is that of its bytes as they stand, not of a re-encoding."""
    spaced = STATE.replace(b'"format":1', b'"format": 1')
    recorded = Recorded(global_position=1, state=spaced, event=decode(spaced))
    assert recorded.digest == event_digest(spaced) != event_digest(STATE)


def test_metadata_is_sorted_at_every_depth() -> None:
    """Keys of metadata are sorted, those inside options too; unset fields and defaults are not written."""
    meta = TurnMeta(role="user", content_type="a/b", inherited={"z": {"b": 1, "a": None}, "a": [1.5, "é"]})
    assert bytes(encode_meta(meta)) == (
        '{"content_type":"a/b","inherited":{"a":[1.5,"é"],"z":{"a":null,"b":1}},"role":"user"}'.encode()
    )


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
        STATE.replace(b'"topic":"gpt.turn"', b'"topic":null'),
        STATE.replace(b'"meta":', b'"mete":'),
        STATE.replace(b'"parents":[', b'"parents":[1,'),
    ],
)
def test_bytes_that_are_no_event_are_corruption(state: bytes) -> None:
    """Cut, mistyped or foreign bytes raise an error that names the global position."""
    with pytest.raises(CorruptionError, match="global position 9 cannot be read") as caught:
        decode(state, global_position=9)
    assert caught.value.global_position == 9


@pytest.mark.parametrize("version", [0, -1, 2, 1000])
def test_other_format_versions_are_refused_with_advice(version: int) -> None:
    """An event of a version that is not known is not guessed at."""
    state = STATE.replace(b'"format":1', b'"format":%d' % version)
    with pytest.raises(CorruptionError, match=f"format version {version}, .*upgrade turnlog"):
        decode(state)


def test_turn_metadata_is_typed() -> None:
    """The metadata of a turn decodes to its type; a wrong type names the event and the field."""
    assert turn_meta(EVENT) == TurnMeta(role="user", content_type="application/json")
    bad = msgspec.structs.replace(EVENT, meta=Raw(b'{"content_type":"a/b","role":"robot"}'))
    with pytest.raises(CorruptionError, match=rf"'{ID}' cannot be read: .*\$\.role"):
        turn_meta(bad)


def test_bookmark_metadata_is_typed() -> None:
    """The metadata of a bookmark event decodes to its type; an unknown action is refused."""
    event = msgspec.structs.replace(EVENT, topic=BOOKMARK, meta=Raw(b'{"action":"set","name":"n","turn":"t"}'))
    assert bookmark_meta(event) == BookmarkMeta(action="set", name="n", turn="t")
    assert bookmark_meta(event).to is UNSET
    bad = msgspec.structs.replace(event, meta=Raw(b'{"action":"move","name":"n"}'))
    with pytest.raises(CorruptionError, match="action"):
        bookmark_meta(bad)
