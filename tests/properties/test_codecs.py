"""Codecs lose nothing: content, events, hashes and ids come back from their written form as they went in."""

import json
import re
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Raw

from turnlog.digest import event_digest, leaf_hash, payload_hash, sri, sri_bytes
from turnlog.errors import ContentError, CorruptionError, ErasedError
from turnlog.events import (
    SHAPES,
    TURN,
    Citation,
    Event,
    build,
    decode,
    flaw,
    flaws,
    meta_of,
    meta_text,
    metadata,
    parts_of,
    private_part,
    turn_meta,
)
from turnlog.events.flaws import TIME_MS_MAX
from turnlog.events.times import time_of
from turnlog.ids import derived_id, is_id, new_id, parse_id
from turnlog.model import Block, ToolResult, ToolUse, TurnMeta, content_bytes, decode_content, parse_content
from turnlog.model.json_text import minify
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
_salts = st.binary(min_size=16, max_size=16)
_citations = st.builds(Citation, relation=st.sampled_from(["parent", "call", "turn", "ü", ""]), digest=_hashes, id=_ids)


@st.composite
def _events(draw: st.DrawFn) -> Event:
    """Return an event of any topic, with or without a private part, that says whatever its form allows."""
    has_payload = draw(st.booleans())
    return build(
        topic=draw(texts(min_size=1)),
        id=draw(_ids),
        time=draw(st.integers(0, TIME_MS_MAX)),
        meta=meta_text(draw(json_objects())),
        private=private_part(
            draw(json_objects()),
            hash=draw(_hashes) if has_payload else None,
            size=draw(st.integers(0, (1 << 63) - 1)) if has_payload else None,
            salt=draw(_salts),
        ),
        citations=draw(st.lists(_citations, max_size=3)),
        stream=draw(st.none() | _ids),
        position=draw(st.integers(0, (1 << 63) - 1)),
    )


@given(_events())
def test_event_comes_back_from_its_bytes(event: Event) -> None:
    """An event decodes from its bytes to itself, and is built of its parts to the same bytes again."""
    found = decode(event.state, event.private_state)
    assert found == event
    header = found.header
    again = build(
        topic=header.topic,
        id=header.id,
        time=header.time,
        meta=header.meta,
        private=found.private,
        citations=header.citations,
        stream=header.stream,
        position=header.position,
    )
    assert (again.state, again.private_state) == (event.state, event.private_state)


@given(_events())
def test_event_bytes_have_one_form(event: Event) -> None:
    """Both parts are JSON with sorted keys and without whitespace, at every depth, the metadata included."""
    for text in (event.state, event.private_state):
        if text is None:
            continue
        assert _without_whitespace(text.decode()) == text.decode()
        pairs = json.loads(text, object_pairs_hook=_Pairs)
        assert _unsorted(pairs) == []


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, whose keys have an order."""


def _unsorted(value: Any) -> list[list[str]]:
    """Return the keys of objects whose keys are not sorted by their UTF-8 bytes."""
    if isinstance(value, _Pairs):
        names = [name for name, _ in value]
        found = [] if names == sorted(names, key=str.encode) else [names]
        return found + [each for _, inner in value for each in _unsorted(inner)]
    return [each for inner in value for each in _unsorted(inner)] if isinstance(value, list) else []


@given(_events())
def test_header_says_nothing_of_what_can_be_erased(event: Event) -> None:
    """A header commits to the private part as it is stored, and to nothing else of it; there is one if it is needed."""
    committed = event.header.private
    if event.private_state is None:
        assert committed is None
        assert not event.erased
        return
    assert committed == sri(sha256(event.private_state).digest())
    erased = decode(event.state, None)
    assert erased.erased
    assert (erased.header, erased.digest) == (event.header, event.digest)
    assert (erased.private, erased.hash, erased.size) == (None, None, None)


@given(json_objects(), st.none() | _hashes, _salts, _salts)
def test_private_part_is_there_if_it_says_something(
    meta: dict[str, Any], hash_: str | None, salt: bytes, other: bytes
) -> None:
    """There is a private part if there is a payload or private metadata; another salt gives another commitment."""
    made = [private_part(meta, hash=hash_, size=None if hash_ is None else 0, salt=each) for each in (salt, other)]
    assert [part is None for part in made] == [not meta and hash_ is None] * 2
    committed = [
        build(topic="x", id="0" * 25, time=0, meta=meta_text({}), private=part).header.private for part in made
    ]
    assert (committed[0] == committed[1]) == (salt == other or made[0] is None)


@given(_events(), st.data())
def test_changed_event_bytes_change_the_digest(event: Event, data: st.DataObject) -> None:
    """Any other bytes have another digest: what a citation names. Those of a private part are not taken for it."""
    state = bytearray(event.state)
    state[data.draw(st.integers(0, len(state) - 1))] ^= data.draw(st.integers(1, 255))
    assert event_digest(bytes(state)) != event.digest
    if event.private_state is not None:
        private_state = bytearray(event.private_state)
        private_state[data.draw(st.integers(0, len(private_state) - 1))] ^= data.draw(st.integers(1, 255))
        with pytest.raises(CorruptionError):
            decode(event.state, bytes(private_state))


def _damaged(data: st.DataObject, text: bytes) -> bytes:
    damaged = bytearray(text)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    return bytes(damaged)


@given(_events(), st.sampled_from(sorted(SHAPES)), st.data())
def test_damaged_event_bytes_decode_or_raise_one_error(event: Event, topic: str, data: st.DataObject) -> None:
    """Damaged bytes are an event or a `CorruptionError`, and so is what is read from them, or said of them."""
    event = build(topic=topic, id=event.header.id, time=0, meta=event.header.meta, private=event.private, position=0)
    state = _damaged(data, event.state)
    private_state = event.private_state and _damaged(data, event.private_state)
    if private_state is not None and data.draw(st.booleans()):
        # A header that commits to the damaged private part.
        before, after = (sri(sha256(part).digest()).encode() for part in (event.private_state or b"", private_state))
        state = event.state.replace(before, after)
    try:
        found = decode(state, private_state)
        flaw(found)
        metadata(found)
        if found.header.topic in SHAPES:
            meta_of(found, SHAPES[found.header.topic].kind)
        turn_meta(found)
    except (CorruptionError, ErasedError):
        pass


@given(options())
def test_inherited_options_come_back_from_the_metadata(patch: dict[str, Any]) -> None:
    """Options are stored in metadata with equal value, null and empty records included."""
    public, private = parts_of(TURN, TurnMeta(role="user", inherited=patch))
    part = private_part(private, hash=None, size=None, salt=bytes(16))
    event = build(topic=TURN, id=new_id(), time=0, meta=meta_text(public), private=part)
    assert turn_meta(decode(event.state, event.private_state)).inherited == patch


# The form of the log


_numbers = (
    st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-1e6, 1e6).map(lambda number: round(number, 2))
)


@given(st.lists(_numbers, max_size=5), st.dictionaries(texts(), _numbers, max_size=3))
@example([0.0, -0.0, 1.0, 1e15, 1e16, 1e17, 123456789012345680.0, 5e-324, 1.7976931348623157e308, 1e-5, 1e-7], {})
@example([1e22, 1e21, 0.1, 1 / 3, 2.5e-8, float(1 << 53), float((1 << 53) + 2), 1e100], {})
def test_numbers_have_one_spelling(numbers: list[float], named: dict[str, float]) -> None:
    """Numbers come back with their value and their kind, and are in the form of the log as they were written."""
    meta = {"list": numbers, "named": named}
    event = build(topic="acme.x", id=new_id(), time=0, meta=meta_text(meta), private=None)
    found = metadata(decode(event.state, None))
    assert repr(found) == repr(
        {"list": numbers, "named": dict(sorted(named.items(), key=lambda item: item[0].encode()))}
    )
    assert flaw(event) is None


_spellings = st.sampled_from(
    [repr, lambda number: f"{number:.17g}", lambda number: f"{number:e}", lambda number: f"{number:.3f}"]
)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 63), (1 << 64) - 1), _spellings)
def test_number_in_another_spelling_is_a_flaw(number: float, spell: Any) -> None:
    """A header with a number that is not spelled as the log spells it is noticed, and one that is, is sound."""
    own = bytes(meta_text({"n": number})).removeprefix(b'{"n":').removesuffix(b"}").decode()
    spelled = spell(number)
    try:
        json.loads(spelled)
    except ValueError:
        return
    event = build(topic="acme.x", id=new_id(), time=0, meta=Raw(b'{"n":%s}' % spelled.encode()), private=None)
    same = spelled == own
    # Another number, as fewer digits may say, has a spelling of its own.
    other = bytes(meta_text({"n": json.loads(spelled)})) == b'{"n":%s}' % spelled.encode()
    try:
        assert (flaw(event) is None) == (same or other)
    except CorruptionError:
        assert not same


@given(json_texts(json_objects()))
def test_metadata_is_sound_only_as_the_log_spells_it(text: str) -> None:
    """Metadata in any other order, spacing or spelling is noticed; the same values as the log spells them are sound."""
    values = json.loads(text)
    own = meta_text(values)
    event = build(topic="acme.x", id=new_id(), time=0, meta=own, private=None)
    assert flaw(event) is None
    other = build(topic="acme.x", id=event.header.id, time=0, meta=Raw(text.encode()), private=None)
    # JSON texts that Python writes can have numbers that no 64 bits hold apart; they are never sound by accident.
    assert (flaw(other) is None) == (text.encode() == bytes(own))


@given(_events(), st.sampled_from(sorted(SHAPES)), st.data())
def test_short_way_to_say_that_an_event_is_sound_is_right(event: Event, topic: str, data: st.DataObject) -> None:
    """Most events are found sound without looking at everything: whatever is found so has no flaw at all."""
    header: dict[str, Any] = json.loads(event.state)
    changes = {
        "topic": st.just(topic),
        "meta": st.sampled_from([{"role": "user"}, {"role": "user", "cache": True}, {"head": "x", "role": "user"}, {}]),
        "position": st.sampled_from([0, 1, -1]),
        "stream": st.sampled_from([header["id"], "0" * 25, header["id"].upper(), "x"]),
        "id": st.sampled_from([header["id"], header["id"].upper(), "x"]),
        "time": st.sampled_from([0, TIME_MS_MAX, TIME_MS_MAX + 1, -1]),
    }
    for name in data.draw(st.lists(st.sampled_from(sorted(changes)), unique=True)):
        header[name] = data.draw(changes[name])
    header["topic"] = topic
    changed = decode(
        json.dumps(header, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode(), event.private_state
    )
    try:
        long_way = next(flaws._flaws(changed), None)
    except CorruptionError:
        with pytest.raises(CorruptionError):
            flaw(changed)
        return
    assert flaw(changed) == long_way


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
    """A derived id is an id, the same for the same names, and begins with the time that was given."""
    found = derived_id(time, *names)
    assert is_id(found)
    assert parse_id(found.upper()) == found == derived_id(time, *names)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert int(found, 36) >> 80 == (0 if time is None else (time - epoch) // _MS)


@given(st.integers(0, TIME_MS_MAX))
def test_time_comes_back_from_a_header(ms: int) -> None:
    """Milliseconds become a time in UTC, exactly, as far as the calendar goes."""
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    found = time_of(ms)
    assert found.tzinfo is UTC
    assert found == last or (found - datetime(1970, 1, 1, tzinfo=UTC)) // _MS == ms
    assert found <= last


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
