"""Request bodies: JSON put together around messages that are encoded already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from turnlog.errors import ContentError
from turnlog.providers.interface import Frame

_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """Return a value as JSON without whitespace, keys in the order given. `Raw` parts stay as they are spelled."""
    return _encoder.encode(value)


def given_twice(name: str, wire_name: str) -> ContentError:
    """Return the error for a parameter that the wire knows by another name, under which it is given too."""
    return ContentError(f"params.{name}: {wire_name!r} is given twice: leave one out", field=f"params.{name}")


def frame(before: Mapping[str, Any], messages_key: str, after: Mapping[str, Any]) -> Frame:
    """Return the body around its messages: the fields before them, their key, and the fields after them."""
    head = b"".join(encode(name) + b":" + encode(value) + b"," for name, value in before.items())
    tail = b"".join(b"," + encode(name) + b":" + encode(value) for name, value in after.items())
    return Frame(head=b"{" + head + encode(messages_key) + b":[", closing=b"]" + tail + b"}")
