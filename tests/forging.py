"""Exports taken apart, changed, and put together again so that each line is consistent in itself, or is not."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from turnlog import TurnLog
from turnlog.digest import event_digest, payload_hash, sri

_encoder = msgspec.json.Encoder(order="sorted")
_plain = msgspec.json.Encoder()
_KEYS = ("at", "guest", "erased", "digest", "event", "private", "payload", "payload_base64")


def exported(log: TurnLog, headish: str | None = None, *, ancestry: bool = False) -> bytes:
    """Return the export of a log, or of a part of it."""
    file = io.BytesIO()
    log.export(file, headish, ancestry=ancestry)
    return file.getvalue()


@dataclass
class ForgedLine:
    """A line: its keys, the header and the private part as values, and the payload as bytes."""

    keys: dict[str, Any]
    event: dict[str, Any]
    private: dict[str, Any] | None
    payload: bytes | None

    @property
    def id(self) -> str:
        """The id of the event."""
        return self.event["id"]

    def set_payload(self, payload: bytes) -> None:
        """Give the event another payload, and tell of it."""
        assert self.private is not None
        self.payload = payload
        self.private |= {"hash": payload_hash(payload), "size": len(payload)}


@dataclass
class Forgery:
    """An export: its header as values, and its lines."""

    header: dict[str, Any]
    lines: list[ForgedLine] = field(default_factory=list)

    @classmethod
    def of(cls, content: bytes) -> Forgery:
        """Take an export apart."""
        first, *rest = content.splitlines()
        return cls(header=msgspec.json.decode(first), lines=[_taken_apart(text) for text in rest])

    def find(self, wanted: Callable[[ForgedLine], bool]) -> ForgedLine:
        """Return the first line that meets a condition."""
        return next(line for line in self.lines if wanted(line))

    def of_topic(self, topic: str, nth: int = 0) -> ForgedLine:
        """Return the nth line of a topic, from 0."""
        return [line for line in self.lines if line.event["topic"] == topic][nth]

    def content(self, *, seal: bool = True, count: bool = True) -> bytes:
        """Put the export together.

        Args:
            seal: make private hashes, digests, and the digests in citations, what they should be.
            count: make the header say what there is.
        """
        if seal:
            self._seal()
        if count:
            self._count()
        first = _plain.encode(self.header)
        return b"".join(text + b"\n" for text in (first, *map(_put_together, self.lines)))

    def _seal(self) -> None:
        new: dict[str, str] = {}
        for line in self.lines:
            before = line.keys["digest"]
            for citation in line.event["citations"]:
                citation["digest"] = new.get(citation["digest"], citation["digest"])
            if line.private is not None:
                line.event["private"] = sri(sha256(_encoder.encode(line.private)).digest())
            line.keys["digest"] = event_digest(_encoder.encode(line.event))
            new[before] = line.keys["digest"]

    def _count(self) -> None:
        self.header["events"] = len(self.lines)
        self.header["payload_bytes"] = sum(len(line.payload or b"") for line in self.lines)
        if self.lines:
            self.header["first"], self.header["last"] = self.lines[0].keys["at"], self.lines[-1].keys["at"]

    def renumber(self) -> None:
        """Give the events the global positions from 1 on."""
        for at, line in enumerate(self.lines, 1):
            line.keys["at"] = at


def _taken_apart(text: bytes) -> ForgedLine:
    raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    payload = None
    if "payload" in raw:
        payload = bytes(raw["payload"])
    elif "payload_base64" in raw:
        payload = base64.b64decode(msgspec.json.decode(raw["payload_base64"]))
    return ForgedLine(
        keys={name: msgspec.json.decode(raw[name]) for name in ("at", "guest", "erased", "digest") if name in raw},
        event=msgspec.json.decode(raw["event"]),
        private=msgspec.json.decode(raw["private"]) if "private" in raw else None,
        payload=payload,
    )


def _put_together(line: ForgedLine) -> bytes:
    keys: dict[str, Any] = dict(line.keys) | {"event": msgspec.Raw(_encoder.encode(line.event))}
    if line.private is not None:
        keys["private"] = msgspec.Raw(_encoder.encode(line.private))
    if line.payload is not None and _is_minified(line.payload):
        keys["payload"] = msgspec.Raw(line.payload)
    elif line.payload is not None:
        keys["payload_base64"] = base64.b64encode(line.payload).decode()
    ordered = {name: keys[name] for name in (*_KEYS, *(set(keys) - set(_KEYS))) if name in keys}
    return _plain.encode(ordered)


def _is_minified(payload: bytes) -> bool:
    try:
        return msgspec.json.format(payload, indent=-1) == payload
    except msgspec.DecodeError:
        return False
