"""What a span has of what was said: messages, arguments and results of tools, of which a part may be left out.

Collectors take requests of a limited size, the OpenTelemetry Collector one of 20 MiB unless it is told otherwise, and a
span that none takes would hold up all that come after it. What is left out is counted, and the log has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.feeds.sinks.interface import INT64_MAX
from turnlog.model.blocks import (
    Document,
    Erased,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    WindowBlock,
    malformed_texts,
)
from turnlog.model.erased import window_content
from turnlog.model.long_strings import LongStrings

TEXT_BYTES_MAX = 1024 * 1024
"""How many bytes of UTF-8 a span has of one text at most."""

PARTS_BYTES_MAX = 4 * 1024 * 1024
"""How many bytes of JSON the parts of a message have at most in a span."""


class Said:
    """The content blocks of a payload, whose long strings are read only as far as they are wanted."""

    def __init__(self, content: bytes) -> None:
        """Take content as it was recorded, or as a window has it.

        Raises:
            ContentError: it is malformed.
        """
        self._long = LongStrings()
        self.blocks = window_content(self._long.out_of_json(content))
        """The blocks: for `pieces` and `json`, which know what stands for a long string in them."""
        with malformed_texts():
            self._long.check()

    def pieces(self, text: str) -> Iterator[str]:
        """Iterate over what a string of a block says."""
        return self._long.said_pieces(text)

    def whole(self, text: str | None) -> str | None:
        """Return what a string of a block says that is short as a rule, if there is one."""
        return None if text is None else "".join(self.pieces(text))

    def json(self, raw: Raw) -> Iterator[bytes | memoryview]:
        """Iterate over raw JSON of a block."""
        return self._long.pieces(bytes(raw))

    def result(self, result: ToolResult) -> Iterator[str]:
        """Iterate over the text of a result: its texts with a line feed between them."""
        if isinstance(result.content, str):
            yield from self.pieces(result.content)
            return
        texts = [block.text for block in result.content if isinstance(block, Text)]
        for number, text in enumerate(texts):
            yield "\n" if number else ""
            yield from self.pieces(text)


class SpanContent:
    """What one span has of content.

    Attributes:
        bytes_left_out: how many bytes of UTF-8 the log has of it, and the span has not.
        parts_left_out: how many parts of messages are not in the span at all; their bytes are counted too.
    """

    def __init__(self) -> None:
        """Leave nothing out yet."""
        self.bytes_left_out = 0
        self.parts_left_out = 0
        self._bytes_taken = 0

    @property
    def attributes(self) -> dict[str, int]:
        """Attributes that tell what is left out: none where the span has all."""
        counts = {
            "turnlog.content.bytes_left_out": self.bytes_left_out,
            "turnlog.content.parts_left_out": self.parts_left_out,
        }
        return {name: count for name, count in counts.items() if count}

    def text(self, pieces: Iterable[str]) -> str:
        """Return a text that comes in pieces; of a longer one the beginning, up to the end of a character."""
        kept: list[str] = []
        room = TEXT_BYTES_MAX
        for piece in pieces:
            encoded = piece.encode()
            if len(encoded) <= room:
                kept.append(piece)
                room -= len(encoded)
                self._bytes_taken += len(encoded)
                continue
            beginning = encoded[:room].decode(errors="ignore")
            kept.append(beginning)
            taken = len(beginning.encode())
            self._bytes_taken += taken
            self.bytes_left_out += len(encoded) - taken
            room = 0
        return "".join(kept)

    def json_text(self, said: Said, raw: Raw) -> str:
        """Return raw JSON of a block as text, cut as any text is: it is no JSON then."""
        # JSON is cut as bytes here, for its pieces may end within a character.
        pieces = said.json(raw)
        kept = bytearray()
        size = 0
        for piece in pieces:
            size += len(piece)
            kept += piece[: TEXT_BYTES_MAX - len(kept)]
        text = kept.decode(errors="ignore")
        self.bytes_left_out += size - len(text.encode())
        return text

    def message(self, role: str, said: Said, **fields: str) -> bytes:
        """Return a message as JSON, by the JSON schema of `gen_ai.input.messages`.

        Of its parts those are left out for which there is no room any more.
        """
        parts: list[Raw] = []
        room = PARTS_BYTES_MAX
        for block in said.blocks:
            taken_before = self._bytes_taken
            part = msgspec.json.encode(self._part(said, block))
            if len(part) > room:
                self.bytes_left_out += self._bytes_taken - taken_before
                self.parts_left_out += 1
                continue
            room -= len(part)
            parts.append(Raw(part))
        return msgspec.json.encode({"role": role, "parts": parts, **fields})

    def _part(self, said: Said, block: WindowBlock) -> dict[str, Any]:
        def text(value: str | None) -> str | None:
            return None if value is None else self.text(said.pieces(value))

        match block:
            case Text():
                return {"type": "text", "content": text(block.text)}
            case Thinking():
                return {"type": "reasoning", "content": text(block.thinking)}
            case ToolUse():
                arguments = self._json(said, block.input)
                return given(
                    {"type": "tool_call", "id": text(block.id), "name": text(block.name), "arguments": arguments}
                )
            case ToolResult():
                response = self.text(said.result(block))
                return given({"type": "tool_call_response", "id": text(block.tool_use_id), "response": response})
            case Document():
                mime_type, content = text(block.source.media_type), text(block.source.data)
                return {"type": "blob", "modality": "document", "mime_type": mime_type, "content": content}
            case Native():
                return given(
                    {"type": "native", "provider": text(block.provider), "block": self._json(said, block.block)}
                )
            case Erased():
                return {"type": "erased", "turn": block.turn}

    def _json(self, said: Said, raw: Raw) -> Raw | None:
        """Return raw JSON of a block, whole; None where it is too long, for a part of it would be no JSON."""
        size = sum(map(len, said.json(raw)))
        if size > TEXT_BYTES_MAX:
            self.bytes_left_out += size
            return None
        self._bytes_taken += size
        return Raw(b"".join(said.json(raw)))


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value; an integer that no span can hold as text."""
    return {name: _spelled(value) for name, value in fields.items() if value is not None}


def _spelled(value: Any) -> Any:
    return str(value) if type(value) is int and abs(value) > INT64_MAX else value


def joined(messages: Sequence[bytes]) -> str:
    """Return messages as a JSON list."""
    return (b"[" + b",".join(messages) + b"]").decode()
