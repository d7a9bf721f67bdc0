"""Codecs lose nothing: content, events, hashes and ids come back from their written form as they went in."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from turnlog import events
from turnlog.digest import event_digest, leaf_hash, payload_hash, sri, sri_bytes
from turnlog.errors import ContentError, CorruptionError
from turnlog.events import Event, Parent
from turnlog.ids import derived_id, id_time, is_id, new_id, parse_id
from turnlog.model import Block, ToolResult, ToolUse, content_bytes, decode_content, parse_content
from turnlog.model.blocks import minify
from turnlog.testing.strategies import blocks, contents, json_objects, json_texts, json_values, options, texts

_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+')


def _without_whitespace(text: str) -> str:
    """Remove whitespace outside strings: what `minify` must do, told another way."""
    return _OUTSIDE_STRINGS.sub(lambda found: found.group(1) or "", text)


def _ordered(text: bytes | str) -> Any:
    """Decode JSON so that the order of keys counts, and the spelling of numbers."""
    return json.loads(text, object_pairs_hook=list, parse_float=str, parse_int=str)


# Content


@given(json_texts(contents()))
@example('[\t{ "type" : "text" , "text" : " \\" \\\\" } ]')
@example('[{"type":"text","text":"\\u00fc","x":1.50e+1}]')
def test_parsed_content_keeps_order_and_spelling(text: str) -> None:
    """JSON text of blocks becomes the same text without whitespace outside strings, and nothing else changes."""
    assert parse_content(text).decode() == _without_whitespace(text)
    assert parse_content(text.encode()) == parse_content(text)


@given(json_texts(blocks()))
def test_one_block_is_a_list_of_one(text: str) -> None:
    """A block without a list is taken as a list of one."""
    assert parse_content(text) == parse_content(f"[{text}]")


@given(json_texts(json_values()))
def test_minify_is_idempotent(text: str) -> None:
    """Minified text is its own minified form, and says the same."""
    once = minify(text, field="content")
    assert minify(once, field="content") == once
    assert _ordered(once) == _ordered(text)


@given(contents())
def test_mappings_become_the_json_they_are(content: list[dict[str, Any]]) -> None:
    """Blocks given as mappings are stored as JSON of equal value, keys in their order."""
    assert json.loads(content_bytes(content), object_pairs_hook=list) == json.loads(
        json.dumps(content), object_pairs_hook=list
    )


@given(json_texts(contents()))
def test_decoded_blocks_encode_to_what_they_came_from(text: str) -> None:
    """Blocks read from a payload and recorded again say the same: no key, known or not, is lost or added."""
    payload = parse_content(text)
    again = content_bytes(decode_content(payload))
    assert _without_defaults(json.loads(again)) == _without_defaults(json.loads(payload))
    assert content_bytes(decode_content(again)) == again


def _without_defaults(content: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the keys that say what their absence says too: a struct does not tell the two apart."""
    return [
        {
            name: _without_defaults(value) if name == "content" and isinstance(value, list) else value
            for name, value in block.items()
            if (block["type"], name, value) not in (("thinking", "redacted", False), ("tool_result", "content", ""))
        }
        for block in content
    ]


@given(json_texts(contents()))
def test_raw_parts_stay_byte_for_byte(text: str) -> None:
    """Tool inputs, native blocks and unknown keys are carried as the exact text that the payload has."""
    payload = parse_content(text).decode()

    def raw_parts(block: Block) -> list[Raw]:
        own = list(block.extra.values())
        own += [block.input] if isinstance(block, ToolUse) else []
        if isinstance(block, ToolResult) and isinstance(block.content, list):
            own += [part for inner in block.content for part in raw_parts(inner)]
        return own

    for block in decode_content(payload.encode()):
        for part in raw_parts(block):
            assert bytes(part).decode() in payload


@given(texts())
def test_text_is_one_text_block(text: str) -> None:
    """A plain text comes back as the text of one block."""
    [block] = decode_content(content_bytes(text))
    assert block.text == text  # type: ignore[union-attr]


@given(st.binary(max_size=50) | json_texts(json_values()).map(str.encode))
def test_parse_of_anything_gives_blocks_or_an_error(text: bytes) -> None:
    """Bytes of any kind are either content blocks that can be decoded, or a `ContentError`."""
    try:
        payload = parse_content(text)
    except ContentError:
        return
    assert isinstance(decode_content(payload), list)


# Events

_ids = st.builds(new_id)
_hashes = st.binary(min_size=32, max_size=32).map(sri)
_events = st.builds(
    Event,
    format=st.just(1),
    id=_ids,
    topic=texts(min_size=1),
    stream=_ids,
    position=st.integers(0, (1 << 63) - 1),
    hash=st.none() | _hashes,
    size=st.none() | st.integers(0, (1 << 63) - 1),
    parents=st.lists(st.builds(Parent, id=_ids, digest=_hashes), max_size=3),
    meta=json_objects().map(events.encode_meta),
)


@given(_events)
def test_event_comes_back_from_its_bytes(event: Event) -> None:
    """An event decodes from its bytes to itself, and encodes to the same bytes again."""
    state = events.encode(event)
    assert events.decode(state) == event
    assert events.encode(events.decode(state)) == state


@given(_events)
def test_event_bytes_have_one_form(event: Event) -> None:
    """The bytes of an event are JSON with sorted keys and without whitespace, the metadata included."""
    state = events.encode(event)
    names = [name for name, _ in json.loads(state, object_pairs_hook=list)]
    assert names == sorted(names)
    assert _without_whitespace(state.decode()) == state.decode()
    meta = [name for name, _ in json.loads(bytes(event.meta), object_pairs_hook=list)]
    assert meta == sorted(meta, key=str.encode)


@given(_events, st.data())
def test_changed_event_bytes_change_the_digest(event: Event, data: st.DataObject) -> None:
    """Any other bytes have another digest: what a child cites."""
    state = bytearray(events.encode(event))
    before = event_digest(bytes(state))
    state[data.draw(st.integers(0, len(state) - 1))] ^= data.draw(st.integers(1, 255))
    assert event_digest(bytes(state)) != before


@given(_events, st.data())
def test_damaged_event_bytes_decode_or_raise_one_error(event: Event, data: st.DataObject) -> None:
    """Damaged bytes are an event or a `CorruptionError`, and so is what is read from their metadata."""
    state = bytearray(events.encode(event))
    for _ in range(data.draw(st.integers(1, 3))):
        state[data.draw(st.integers(0, len(state) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = events.decode(bytes(state))
        events.turn_meta(decoded)
        events.bookmark_meta(decoded)
    except CorruptionError:
        pass


@given(options())
def test_inherited_options_come_back_from_the_metadata(patch: dict[str, Any]) -> None:
    """Options are stored in metadata with equal value, null and empty records included."""
    meta = events.encode_meta({"role": "user", "content_type": "application/json", "inherited": patch})
    event = Event(
        format=1, id=new_id(), topic=events.TURN, stream="s", position=0, hash=None, size=None, parents=[], meta=meta
    )
    assert events.turn_meta(events.decode(events.encode(event))).inherited == patch


# Hashes and ids


@given(st.binary(min_size=32, max_size=32))
def test_hash_comes_back_from_its_written_form(digest: bytes) -> None:
    """A digest decodes from `sha256-<base64>` to itself."""
    assert sri_bytes(sri(digest)) == digest
    assert sri(digest).startswith("sha256-")


@given(st.text(max_size=60) | st.binary(max_size=40).map(sri))
def test_only_the_one_written_form_is_a_hash(text: str) -> None:
    """What is accepted as a hash is exactly what would be written for it."""
    try:
        digest = sri_bytes(text)
    except ValueError:
        return
    assert sri(digest) == text
    assert len(digest) == 32


def test_hashes_are_the_documented_ones() -> None:
    """The payload hash is the plain SHA-256 and the leaf hash that of 0x00 and the bytes (RFC 6962 §2.1)."""
    assert payload_hash(b"") == "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
    assert leaf_hash(b"").hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"


_MS = timedelta(milliseconds=1)
_times = st.integers(0, 253402300799999).map(lambda ms: datetime.fromtimestamp(ms / 1000, UTC))


@given(st.lists(texts(), max_size=4), st.none() | _times)
def test_derived_id_is_an_id_of_its_time(names: list[str], time: datetime | None) -> None:
    """A derived id is an id, the same for the same names, and its time hint is the time that was given."""
    found = derived_id(time, *names)
    assert is_id(found)
    assert parse_id(found.upper()) == found == derived_id(time, *names)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert id_time(found) - epoch == (timedelta(0) if time is None else (time - epoch) // _MS * _MS)


@given(st.lists(texts(max_size=5), max_size=4), st.lists(texts(max_size=5), max_size=4))
@example(["ab", "c"], ["a", "bc"])
@example(["a"], ["a", ""])
def test_derived_ids_of_other_names_differ(names: list[str], others: list[str]) -> None:
    """Different lists of names have different ids, also where their texts joined are equal."""
    assert (derived_id(None, *names) == derived_id(None, *others)) == (names == others)


@given(st.text(max_size=30))
def test_is_id_agrees_with_parse_id(text: str) -> None:
    """Any text can be asked whether it is an id; what is one is 25 characters of ASCII."""
    if is_id(text):
        assert text.isascii()
        assert len(parse_id(text)) == 25


@pytest.mark.parametrize("text", ["0" * 25, "f5lxx1zz5pnorynqglhzmsp33"])
def test_time_of_extreme_ids_is_told(text: str) -> None:
    """The least and the greatest id have a time hint."""
    assert is_id(text)
    assert id_time(text).tzinfo is UTC
