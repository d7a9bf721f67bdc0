"""What an input brings, as content blocks that a model can read.

Text parts are text, bytes in base64 are documents, results of tools are results, and all else is its JSON text. In a
system turn, which has neither documents nor results, these are JSON text too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from pydantic import ValidationError

from turnlog.interop.gmi.input import Content, ToolCallResult
from turnlog.model import Block, Document, Source, Text, ToolResult
from turnlog.model.pieces import is_base64

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[^,;]*)*;base64,", re.ASCII)
_MEDIA_TYPES = ("media_type", "mediaType", "mime_type", "mimeType", "mimetype")
_DATA = ("data", "base64", "url", "image_url", "imageUrl", "file_data", "fileData")
_HOLDERS = ("source", "image_url", "imageUrl", "image", "file", "inlineData", "inline_data", "document")
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+", re.ASCII)
_SAYS_NOTHING = frozenset({"type", "detail", "encoding", *_MEDIA_TYPES})
"""Members beside data that a model does not need to be told."""


def json_text(value: object) -> str:
    """Return a value as JSON text, in the order it came in."""
    return msgspec.json.encode(value).decode()


def content_blocks(content: Content, *, system: bool = False, unnamed: Collection[str] = ()) -> list[Block]:
    """Return the content of an input as blocks.

    Args:
        content: the content.
        system: whether it is for a system turn.
        unnamed: ids that were made up for calls that have none: results of these have none either.
    """
    if isinstance(content, str):
        return [Text(text=content)]
    parts = content if isinstance(content, list) else [content]
    return [block for part in parts for block in _part_blocks(part, system, unnamed)]


def _part_blocks(
    part: ToolCallResult | Mapping[str, object], system: bool, unnamed: Collection[str]
) -> Iterator[Block]:
    result = part if isinstance(part, ToolCallResult) else _as_result(part)
    record = _record(part)
    if result is not None:
        yield Text(text=json_text(record)) if system else result_block(result, unnamed)
        return
    if record.get("type") in ("text", "input_text") and isinstance(record.get("text"), str):
        yield Text(text=cast("str", record["text"]))
        return
    found = None if system else _document(record)
    if found is None:
        yield Text(text=json_text(record))
        return
    document, rest = found
    yield document
    if rest:
        yield Text(text=json_text(rest))


def _record(part: ToolCallResult | Mapping[str, object]) -> Mapping[str, object]:
    return part.model_dump(by_alias=True, exclude_unset=True) if isinstance(part, ToolCallResult) else part


def _as_result(part: Mapping[str, object]) -> ToolCallResult | None:
    """Return a record in a list of records as the result of a tool, if it is one."""
    if not {"toolCallId", "tool_call_id"} & part.keys():
        return None
    try:
        return ToolCallResult.model_validate(part)
    except ValidationError:
        return None


def result_block(result: ToolCallResult, unnamed: Collection[str] = ()) -> ToolResult:
    """Return what a tool answered as a block: its output, then what is told of an error."""
    texts: list[Text] = []
    if isinstance(result.output, str):
        texts.append(Text(text=result.output))
    elif result.output is not None or ("output" in result.model_fields_set and result.error_details is None):
        texts.append(Text(text=json_text(result.output)))
    if result.error_details is not None:
        details = result.error_details
        texts.append(Text(text=details if isinstance(details, str) else json_text(details)))
    return ToolResult(
        tool_use_id=None if result.tool_call_id in unnamed else result.tool_call_id,
        name=result.tool_name,
        content=[*texts],
        is_error=result.is_error,
    )


# Bytes


def _document(record: Mapping[str, object]) -> tuple[Document, dict[str, object]] | None:
    """Return the bytes in a record, and what else it says; None where it has none."""
    for holder in (None, *_HOLDERS):
        inner = record if holder is None else record.get(holder)
        if not isinstance(inner, Mapping):
            continue
        held = cast("Mapping[str, object]", inner)
        for name in _DATA:
            source = _source(held, held.get(name))
            if source is not None:
                taken = name if holder is None else holder
                rest = {key: value for key, value in record.items() if key not in _SAYS_NOTHING and key != taken}
                if holder is not None:
                    rest |= {key: value for key, value in held.items() if key not in _SAYS_NOTHING and key != name}
                return Document(source=source), rest
    return None


def _source(record: Mapping[str, object], data: object) -> Source | None:
    if not isinstance(data, str) or not data:
        return None
    url = _DATA_URL.match(data)
    media_type = url[1] if url else next((record[name] for name in _MEDIA_TYPES if name in record), None)
    text = data[url.end() :] if url else data
    if not isinstance(media_type, str) or not _MEDIA_TYPE.fullmatch(media_type) or not is_base64(text):
        return None
    return Source(media_type=media_type, data=text)


Taken = tuple[list[str | int], int, str]
"""What was taken out of a content because a block has it: its path, the index of the block, the text before it."""


def without_bytes(content: Any, blocks: Sequence[Block]) -> tuple[Any, list[Taken]]:
    """Return content, as JSON values, without the bytes that document blocks of it have, and where they stood."""
    known = {block.source.data: index for index, block in enumerate(blocks) if isinstance(block, Document)}
    taken: list[Taken] = []

    def walk(value: Any, path: list[str | int]) -> Any:
        match value:
            case str() if known:
                url = _DATA_URL.match(value)
                start = url.end() if url else 0
                index = known.get(value[start:])
                if index is None:
                    return value
                taken.append((path, index, value[:start]))
                return None
            case dict():
                members = cast("dict[str, Any]", value)
                return {name: walk(inner, [*path, name]) for name, inner in members.items()}
            case list():
                items = cast("list[Any]", value)
                return [walk(inner, [*path, index]) for index, inner in enumerate(items)]
            case _:
                return value

    return walk(content, []), taken


def with_bytes(content: Any, taken: Sequence[Taken], blocks: Sequence[Block]) -> Any:
    """Return content as it was before `without_bytes`; it is changed in place."""
    for path, index, before in taken:
        block = blocks[index]
        holder = content
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = before + (block.source.data if isinstance(block, Document) else "")
    return content
