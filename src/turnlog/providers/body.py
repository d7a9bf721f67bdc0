"""Request bodies: JSON put together around messages that are encoded already."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from turnlog.errors import ContentError
from turnlog.providers.interface import Frame, Parameters

_encoder = msgspec.json.Encoder()


def encode(value: object) -> bytes:
    """Return a value as JSON without whitespace, keys in the order given. `Raw` parts stay as they are spelled."""
    return _encoder.encode(value)


def frame(before: Mapping[str, Any], messages_key: str, after: Mapping[str, Any]) -> Frame:
    """Return the body around its messages: the fields before them, their key, and the fields after them."""
    head = b"".join(encode(name) + b":" + encode(value) + b"," for name, value in before.items())
    tail = b"".join(b"," + encode(name) + b":" + encode(value) for name, value in after.items())
    return Frame(head=b"{" + head + encode(messages_key) + b":[", closing=b"]" + tail + b"}")


def check_parameters(params: Parameters, reserved: Collection[str]) -> None:
    """Check that no parameter would overwrite a part of the body that the window or the call decides.

    Raises:
        ContentError: one would.
    """
    for name in params:
        if name in reserved:
            raise ContentError(f"params.{name}: the request sets it itself: leave it out", field=f"params.{name}")
