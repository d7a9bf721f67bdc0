"""What is wrong with an event as such."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from turnlog.digest import sri
from turnlog.errors import CorruptionError
from turnlog.events import SHAPES, Citation, Event, Private, build, decode, flaw, genesis, meta_text, private_part
from turnlog.events.flaws import TIME_MS_MAX

ID = "036z951mhjikzik2gsl81gr7l"
OTHER = "036z951mhjikzik2gsl81gr7m"
SALT = bytes(range(16))
HASH = "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
DIGEST = "sha256-bjQLnP+zepicpUTmu3gKLHiQHT+zNzh2hRGjBhevoB0="


def _cited(*relations: str) -> list[Citation]:
    return [Citation(relation=relation, digest=DIGEST, id=OTHER) for relation in relations]


def _event(
    topic: str = "gpt.turn",
    public: Mapping[str, Any] | None = None,
    private: Mapping[str, Any] | None = None,
    cites: tuple[str, ...] = (),
    *,
    payload: bool = True,
    part: Private | None = None,
    **changes: Any,
) -> Event:
    size = 0 if payload else None
    part = part or private_part(private or {}, hash=HASH if payload else None, size=size, salt=SALT)
    meta = meta_text(({"role": "user"} if topic == "gpt.turn" else {}) | dict(public or {}))
    given = {"topic": topic, "id": ID, "time": 5, "meta": meta, "private": part, "citations": _cited(*cites)}
    return build(**(given | changes))


def _with(event: Event, change: dict[str, Any]) -> Event:
    """Return an event whose header says something else, in the form of the log."""
    header: dict[str, Any] = msgspec.json.decode(event.state)
    return decode(msgspec.json.encode(header | change, order="sorted"), event.private_state)


def _with_private(event: Event, private_state: bytes) -> Event:
    """Return an event with another private part, which its header commits to."""
    header: dict[str, Any] = msgspec.json.decode(event.state)
    header["private"] = sri(sha256(private_state).digest())
    return decode(msgspec.json.encode(header, order="sorted"), private_state)


_CALL = {
    "public": {
        "provider": "p",
        "api": "a",
        "model": "m",
        "adapter": "x",
        "adapter_version": "1",
        "stream": True,
        "on_loss": "error",
    },
    "private": {"request": {"hash": HASH, "size": 0}},
}

SOUND: dict[str, Event] = {
    "genesis": genesis(ID, 5),
    "turn": _event(),
    "extended turn": _event(cites=("parent",), stream=OTHER, position=1),
    "merge with a call": _event(cites=("parent", "call", "reply"), private={"head": "main", "inherited": {"a": 1.5}}),
    "call": _event("gpt.call", cites=("turn", "base", "tools"), **_CALL),
    "reply": _event("gpt.reply", private={"events": 3}, cites=("call",)),
    "reply without events": _event("gpt.reply", private={"events": 0}, cites=("call",), payload=False),
    "tools": _event("mcp.tools", private={"tools": 1, "servers": ["s"]}),
    "bookmark set": _event("gpt.bookmark", {"action": "set"}, {"name": "n"}, ("turn",), payload=False),
    "bookmark renamed": _event("gpt.bookmark", {"action": "rename"}, {"name": "n", "to": "m"}, payload=False),
    "bookmark deleted": _event("gpt.bookmark", {"action": "delete"}, {"name": "n"}, payload=False),
    "pointer": _event("gpt.pointer", {"action": "set"}, {"name": "n", "provider": "p", "model": "m"}, payload=False),
    "provider": _event("gpt.provider", {"action": "enable"}, {"name": "p"}, payload=False),
    "server": _event("mcp.server", {"action": "register"}, {"name": "s", "command": ["x"]}, payload=False),
    "summary": _event("gpt.summary", {"kind": "model", "turns": 2}, cites=("from", "to", "summary", "turn", "call")),
    "turn with a summary": _event(cites=("parent", "summary")),
    "tool call": _event(
        "gpt.tool_call", {"block": 0, "attempt": 1, "approved": "auto"}, {"server": "s"}, ("turn",), payload=False
    ),
    "tool end": _event("gpt.tool_end", {"block": 0, "attempt": 1, "ending": "result"}, cites=("turn", "tool_call")),
    "turn with results": _event(cites=("parent", "tool_end")),
    "trust": _event("log.trust", cites=("target",), payload=False),
    "seal": _event("log.seal", {"scope": "subject", "keys": "k", "tag": "t"}, {"subject": "ada"}, payload=False),
    "hold": _event("gpt.hold", {"action": "set"}, {"name": "n", "scope": "turn"}, ("target",), payload=False),
    "erasure": _event("gpt.erasure", private={"reason": "r"}, cites=("target",), payload=False),
    "topic of others": _event("acme.review", {"x": [1, None]}, {"y": {}}, ("subject", "turn")),
    "keys that nobody knows": _event(public={"later": 1}, private={"later still": {"b": 1, "c": 2}}),
    "last time": _event(time=TIME_MS_MAX),
    "numbers": _event("acme.x", {"a": [0, -1, 1.0, -0.0, 1e100, 5e-324, 2**64 - 1, -(2**63)]}),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_event_has_no_flaw(name: str) -> None:
    """Events as turnlog writes them have nothing wrong with them, as built and as decoded."""
    event = SOUND[name]
    assert flaw(event) is None
    assert flaw(decode(event.state, event.private_state)) is None


@pytest.mark.parametrize("name", SOUND)
def test_erased_event_has_no_flaw(name: str) -> None:
    """Without its private part an event is as sound as it was."""
    assert flaw(decode(SOUND[name].state, None)) is None


def test_every_topic_is_tried() -> None:
    """There is a sound event of each topic of turnlog."""
    assert {event.header.topic for event in SOUND.values()} == SHAPES.keys() | {"acme.review", "acme.x"}


_BOOKMARK = SOUND["bookmark set"]

FLAWED: dict[str, tuple[Event, str]] = {
    "id in upper case": (_with(SOUND["turn"], {"id": ID.upper(), "stream": ID.upper()}), "not an id in stored form"),
    "no id": (_with(SOUND["turn"], {"id": "x", "stream": "x"}), "not an id in stored form"),
    "id above 128 bits": (_with(SOUND["turn"], {"id": "z" * 25, "stream": "z" * 25}), "not an id in stored form"),
    "stream in upper case": (_with(SOUND["extended turn"], {"stream": OTHER.upper()}), "stream .* not an id"),
    "first position of another stream": (_with(SOUND["turn"], {"stream": OTHER}), "does not fit stream"),
    "later position of its own stream": (_with(SOUND["extended turn"], {"stream": ID}), "does not fit stream"),
    "negative position": (_with(SOUND["extended turn"], {"position": -1}), "does not fit stream"),
    "negative time": (_event(time=-1), "time -1 is not a time"),
    "time beyond JSON's numbers": (_event(time=TIME_MS_MAX + 1), "is not a time"),
    "public metadata that is no object": (_event(meta=Raw(b"[]")), "public metadata is not an object"),
    "citation twice": (_event(cites=("parent", "parent")), "cites an event twice as the same"),
    "foreign citation": (_event(cites=("target",)), "a gpt.turn event cites nothing as 'target'"),
    "two calls": (
        _event(
            citations=[
                Citation(relation="call", digest=DIGEST, id=OTHER),
                Citation(relation="call", digest=DIGEST, id=ID),
            ]
        ),
        "cites more than one call",
    ),
    "call without a turn": (_event("gpt.call", **_CALL), "cites no turn"),
    "reply without a call": (_event("gpt.reply", private={"events": 1}), "cites no call"),
    "trust in nothing": (_event("log.trust", payload=False), "cites no target"),
    "erasure of nothing": (_event("gpt.erasure", payload=False), "cites no target"),
    "bookmark event in a stream": (_with(_BOOKMARK, {"stream": OTHER, "position": 1}), "only turns have positions"),
    "turn that extends a stream of nobody": (_event(stream=OTHER, position=1), "without a parent"),
    "event of others with a parent": (_event("acme.x", cites=("parent",)), "only turns have parents"),
    "event of others in a stream": (_event("acme.x", stream=OTHER, position=1), "only turns have parents"),
    "turn without a payload": (_event(payload=False, private={"head": "m"}), "it has no payload"),
    "turn without a private part": (_event(payload=False), "it has no payload"),
    "bookmark event with a payload": (
        _event("gpt.bookmark", {"action": "delete"}, {"name": "n"}),
        "a gpt.bookmark event has no payload",
    ),
    "genesis with a payload": (_event("log.genesis"), "a log.genesis event has no payload"),
    "name in the header": (
        _event("gpt.bookmark", {"action": "delete", "name": "n"}, payload=False),
        "'name' stands in its header, where it could never be erased",
    ),
    "bookmark of a turn in the header": (_event(public={"head": "main"}), "'head' stands in its header"),
    "text of an error in the header": (_event(public={"error": "e"}), "'error' stands in its header"),
    "citation in the header": (_event(public={"call": OTHER}), "'call' stands in its header"),
    "role in the private part": (_event(private={"role": "system"}), "'role' stands in its private part"),
    "null for a field that is absent": (_event(private={"head": None}), "'head' is null, and not absent"),
    "null for public one": (_event(public={"model": None}), "'model' is null, and not absent"),
    "null in a record of it": (
        _event(private={"origin": {"format": "x", "ids": [], "session": None}}),
        "'session' is null, and not absent",
    ),
    "citation in the private part": (_event(private={"continues": [OTHER]}), "'continues' stands in its private part"),
    "set without a turn": (
        _event("gpt.bookmark", {"action": "set"}, {"name": "n"}, payload=False),
        "that is to set has nothing beside its name",
    ),
    "rename without a name": (
        _event("gpt.bookmark", {"action": "rename"}, {"name": "n"}, payload=False),
        "that is to rename has nothing beside its name",
    ),
    "delete that cites a turn": (
        _event("gpt.bookmark", {"action": "delete"}, {"name": "n"}, ("turn",), payload=False),
        "that is to delete has turn beside its name",
    ),
    "set with a new name": (
        _event("gpt.bookmark", {"action": "set"}, {"name": "n", "to": "m"}, ("turn",), payload=False),
        "that is to set has to, turn beside its name",
    ),
    "short salt": (_event(part=Private(hash=HASH, salt=bytes(15), size=0)), "its salt has 15 bytes"),
    "no salt": (_event(part=Private(hash=HASH, salt=b"", size=0)), "its salt has 0 bytes"),
    "hash without a size": (_event(part=Private(hash=HASH, salt=SALT, size=None)), "lacks the hash or the size"),
    "size without a hash": (_event(part=Private(hash=None, salt=SALT, size=1)), "lacks the hash or the size"),
    "negative size": (_event(part=Private(hash=HASH, salt=SALT, size=-1)), "size -1 is not that of a payload"),
    "private metadata that is no object": (
        _event(part=Private(hash=HASH, meta=Raw(b"[]"), salt=SALT, size=0)),
        "private metadata is not an object",
    ),
    "private part that says nothing": (
        _event("acme.x", part=Private(hash=None, salt=SALT, size=None)),
        "its private part says nothing",
    ),
    "empty private metadata": (
        _event(part=Private(hash=HASH, meta=Raw(b"{}"), salt=SALT, size=0)),
        "metadata that is empty, which is left out",
    ),
}


@pytest.mark.parametrize("name", FLAWED)
def test_flaw_is_named(name: str) -> None:
    """What is wrong with an event is said in one line, of the event as built and as decoded."""
    event, says = FLAWED[name]
    for form in (event, decode(event.state, event.private_state)):
        found = flaw(form)
        assert found is not None
        assert re.search(says, found)
        assert "\n" not in found


# The form of the log


def _other_spellings(text: bytes) -> dict[str, bytes]:
    """Return texts that say the same as JSON, and are spelled in another way."""
    record: dict[str, Any] = json.loads(text)
    return {
        "whitespace": text.replace(b":", b": ", 1),
        "line feed": text + b"\n",
        "other order": json.dumps(dict(reversed(record.items())), separators=(",", ":")).encode(),
        "a key twice": text[:-1] + b',"z":1,"z":1}',
        "escaped character": text.replace(b"role", rb"r\u006fle").replace(b'"who"', rb'"wh\u006f"'),
        "escaped slash": text.replace(b"a/b", rb"a\/b"),
        "number in another spelling": text.replace(b"1.5", b"1.50"),
        "number with an exponent": text.replace(b"100.0", b"1e2"),
        "minus zero": text.replace(b":5}", b":-0}").replace(b'"five":5', b'"five":05'),
    }


_SPELLED = _event("acme.x", {"n": [1.5, 100.0], "role": "a/b", "z": {"five": 5}}, {"who": "a/b", "n": [1.5, 100.0, 5]})


@pytest.mark.parametrize("spelling", _other_spellings(b"{}"))
def test_header_in_another_spelling_is_a_flaw(spelling: str) -> None:
    """A header that is JSON and not spelled as the log spells it is not in the form of the log."""
    state = _other_spellings(_SPELLED.state)[spelling]
    assert state != _SPELLED.state
    try:
        event = decode(state, _SPELLED.private_state)
    except CorruptionError:
        assert spelling == "minus zero"
        return
    assert flaw(event) == "its header is not in the form of the log"


@pytest.mark.parametrize("spelling", ["whitespace", "line feed", "a key twice", "escaped character", "escaped slash"])
def test_private_part_in_another_spelling_is_a_flaw(spelling: str) -> None:
    """The same holds for a private part, though its header commits to it as it is."""
    assert _SPELLED.private_state is not None
    private_state = _other_spellings(_SPELLED.private_state)[spelling]
    assert private_state != _SPELLED.private_state
    assert flaw(_with_private(_SPELLED, private_state)) == "its private part is not in the form of the log"


def test_salt_has_one_spelling() -> None:
    """Base64 has bits at its end that say nothing: they are zero."""
    assert _SPELLED.private_state is not None
    loose = _SPELLED.private_state.replace(b'Dw==","size"', b'Dx==","size"')
    event = _with_private(_SPELLED, loose)
    assert event.private == _SPELLED.private
    assert flaw(event) == "its private part is not in the form of the log"


@pytest.mark.parametrize(
    ("public", "private"),
    [
        (b'{"role":"robot"}', {}),
        (b'{"role":"user"}', {"inherited": []}),
        (b'{"role":1}', {}),
        (b"{}", {}),
        (b'{"cache":0,"role":"user"}', {}),
    ],
)
def test_metadata_that_cannot_be_read_is_an_error(public: bytes, private: dict[str, Any]) -> None:
    """Metadata of another type than the topic's is said to be so, with the event and the field."""
    with pytest.raises(CorruptionError, match=f"metadata of event '{ID}' cannot be read"):
        flaw(_event(private=private, meta=Raw(public)))


def test_hostile_metadata_neither_hangs_nor_crashes() -> None:
    """Metadata that nests without end, or has numbers without end, is a flaw or an error and nothing else."""
    for meta in (b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", b'{"a":' + b"9" * 5_000 + b"}", b'{"a":1e999}'):
        for topic in ("gpt.turn", "acme.x"):
            event = _event(topic, meta=Raw(meta))
            with suppress(CorruptionError):
                assert flaw(event) == "its header is not in the form of the log"
