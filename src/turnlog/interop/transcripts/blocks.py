"""JSON texts of content blocks, made of what a transcript has; strings and arguments stay as they are spelled."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable

import msgspec
from msgspec import Raw

from turnlog.errors import ContentError
from turnlog.interop.marked import begins, is_text, json_as_text, json_in, says, unmarked, whole
from turnlog.model.blocks import parse_content

_BEGINS_AS_OBJECT = re.compile(r"\s*\{")
_encoder = msgspec.json.Encoder()
_list = msgspec.json.Decoder(list[Raw])


def checked_block(block: bytes) -> bytes:
    """Return a block, or a list of one, as JSON text of the block.

    Raises:
        ContentError, msgspec.DecodeError: it is none.
    """
    try:
        return parse_content(block)[1:-1]
    except (ContentError, msgspec.DecodeError):
        parse_content(whole(block))  # to say what it is without marks
        raise


def text_block(text: Raw | str) -> bytes:
    """Return a block of text, given as JSON text of a string or as a string."""
    return _encoder.encode({"type": "text", "text": text})


def thinking_block(text: Raw | str, *, signature: Raw | str | None = None) -> bytes:
    """Return a block of reasoning."""
    signed = {} if signature is None else {"signature": signature}
    return _encoder.encode({"type": "thinking", "thinking": text, **signed})


def tool_use_block(name: Raw | str, given: Raw, *, id: Raw | str | None = None) -> bytes:
    """Return a call of a tool. `given` is JSON text of its arguments, an object."""
    named = {} if id is None else {"id": id}
    return _encoder.encode({"type": "tool_use", **named, "name": name, "input": given})


def arguments_in(text: str) -> Raw | None:
    """Return a text as arguments of a call if it is a JSON object."""
    if (found := json_in(text)) is not None:
        return Raw(found[0])
    text = unmarked(text)
    if not _BEGINS_AS_OBJECT.match(text):
        return None
    try:
        return Raw(msgspec.json.format(msgspec.json.decode(text.encode(), type=Raw), indent=-1))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def tool_result_block(
    content: Raw | str | list[Raw],
    *,
    id: Raw | str | None = None,
    name: Raw | str | None = None,
    is_error: bool = False,
) -> bytes:
    """Return what a tool answered: text, or blocks."""
    record: dict[str, object] = {"type": "tool_result"}
    if id is not None:
        record["tool_use_id"] = id
    if name is not None:
        record["name"] = name
    record["content"] = content
    if is_error:
        record["is_error"] = True
    return _encoder.encode(record)


def document_block(media_type: Raw | str, data: Raw | str) -> bytes:
    """Return a document or an image, in base64."""
    return _encoder.encode({"type": "document", "source": {"type": "base64", "media_type": media_type, "data": data}})


def native_block(provider: str, block: Raw, *, api: str | None = None) -> bytes:
    """Return a block that has no normalized form, verbatim."""
    named = {} if api is None else {"api": api}
    return _encoder.encode({"type": "native", "provider": provider, **named, "block": block})


def native_part(provider: str, part: Raw, *, api: str | None = None) -> bytes:
    """Return a part that has no normalized form, as it is; one that is no object, or an empty one, as `part` of one."""
    is_object = begins(part, b"{") and part != Raw(b"{}")
    return native_block(provider, part if is_object else Raw(_encoder.encode({"part": part})), api=api)


def content_blocks(content: Raw | None, block_of_part: Callable[[Raw], bytes]) -> list[bytes]:
    """Return the blocks of a content: of a text, or of the parts of a list; anything else is said as JSON."""
    if is_text(content):
        return [text_block(content)] if says(content) else []
    if content is None or bytes(content) == b"null":
        return []
    if not begins(content, b"["):
        return [text_block(json_as_text(content))]
    return [block_of_part(each) for each in _list.decode(content)]


def beyond(
    blocks: Iterable[bytes], said: Counter[bytes], key: Callable[[bytes], bytes] = lambda block: block
) -> list[bytes]:
    """Return those of some blocks that were not said yet, in their order. What was said is taken from the count.

    Args:
        blocks: the blocks.
        said: how often each was said, by what `key` makes of it.
        key: what a block is counted by.
    """
    fresh: list[bytes] = []
    for block in blocks:
        if said[counted := key(block)] > 0:
            said[counted] -= 1
        else:
            fresh.append(block)
    return fresh
