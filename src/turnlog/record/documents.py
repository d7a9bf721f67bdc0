"""Documents in the content of a turn that is recorded here: their base64 is such."""

from __future__ import annotations

from collections.abc import Iterator

from turnlog.errors import ContentError
from turnlog.model import Block, Document, ToolResult, decode_content
from turnlog.model.long_strings import LongStrings
from turnlog.model.pieces import is_base64


def check_documents(payload: bytes) -> None:
    """Check that the base64 of documents is such: what is none every provider refuses, in each later call too.

    It is for what somebody gives here. What comes from elsewhere is recorded as it came.

    Args:
        payload: content blocks, which are checked otherwise.

    Raises:
        ContentError: one is not; names its place.
    """
    if b'"base64"' not in payload:
        return
    long = LongStrings()
    for place, document in _documents(decode_content(bytes(long.out_of_json(payload)))):
        if not is_base64(long.said_pieces(document.source.data)):
            field = f"{place}.source.data"
            raise ContentError(f"{field}: this is no base64 with padding (RFC 4648): b64encode makes it", field=field)


def _documents(blocks: list[Block], place: str = "content") -> Iterator[tuple[str, Document]]:
    for index, block in enumerate(blocks):
        if isinstance(block, Document):
            yield f"{place}[{index}]", block
        elif isinstance(block, ToolResult) and isinstance(block.content, list):
            yield from _documents([*block.content], f"{place}[{index}].content")
