"""The blocks of messages in a window, where one may stand for the content of an erased turn."""

from __future__ import annotations

from typing import cast

import msgspec

from turnlog.errors import ContentError
from turnlog.model.blocks import Erased, WindowBlock, decode_content
from turnlog.model.json_text import content_error

_erased = msgspec.json.Decoder(list[Erased])
_ERASED = b'[{"type":"erased"'
_encoder = msgspec.json.Encoder()


def erased_content(turn: str, time: int, *, sealed: bool) -> bytes:
    """Return what stands in a window for the content of a turn that cannot be read, as JSON text. See `Erased`."""
    return b"[" + _encoder.encode(Erased(turn=turn, time=time, sealed=sealed)) + b"]"


def is_erased_content(content: bytes) -> bool:
    """Tell whether the content of a message is that of a turn that cannot be read."""
    return content.startswith(_ERASED)


def window_content(content: bytes, *, field: str = "content") -> list[WindowBlock]:
    """Return the blocks of a message in a window.

    Raises:
        ContentError: they are no blocks, or one of an erased turn does not stand alone.
    """
    if not is_erased_content(content):
        # As it is, for there are thousands of messages in a window: a list of these blocks is one of those too.
        return cast("list[WindowBlock]", decode_content(content, field=field))
    try:
        blocks = _erased.decode(content)
    except msgspec.DecodeError as error:
        raise content_error(error, field) from error
    if len(blocks) != 1:
        raise ContentError(f"{field}: what stands for an erased turn stands alone", field=field)
    return [*blocks]
