"""What a document turn says, as a content block."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from turnlog.model.blocks import Document, Source
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import PIECE, base64_pieces, byte_pieces, joined

_encoder = msgspec.json.Encoder()


def document_block(payload: bytes, media_type: str) -> Document:
    """Return what a document turn says, as a content block."""
    data = ""
    for piece in base64_pieces(byte_pieces(payload)):
        data += piece.decode()  # in a loop of this form CPython makes it longer where it stands, and so without a copy
    return Document(source=Source(media_type=media_type, data=data))


def marked_document(payload: bytes, media_type: str, long: LongStrings) -> Document:
    """Return the same, with a mark in place of its base64 where it is large. That is never whole then."""
    if len(payload) <= PIECE:
        return document_block(payload, media_type)

    def pieces() -> Iterator[str]:
        return (piece.decode() for piece in base64_pieces(byte_pieces(payload)))

    return Document(source=Source(media_type=media_type, data=long.made_of(pieces)))


def document_content(payload: bytes, media_type: str) -> bytes:
    """Return the content of a document turn, one base64 document block, as JSON text."""
    before = b'[{"type":"document","source":{"type":"base64","media_type":%b,"data":"' % _encoder.encode(media_type)
    return joined(chain((before,), base64_pieces(byte_pieces(payload)), (b'"}}]',)))
