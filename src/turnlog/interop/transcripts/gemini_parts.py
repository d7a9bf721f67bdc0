"""What messages and saved chats of Gemini CLI are made of: parts of the Gemini API, thoughts, calls, tokens."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from turnlog.interop.marked import begins, is_text, json_as_text, marked_text, one_mark, text_of
from turnlog.interop.transcripts.blocks import native_part, text_block, thinking_block, tool_result_block
from turnlog.interop.transcripts.documents import data_block
from turnlog.interop.transcripts.fields import Fields, fields, items
from turnlog.interop.transcripts.lines import count
from turnlog.model import Usage

PROVIDER = "gemini"
API = "generate_content"

_encoder = msgspec.json.Encoder()


def plain_block(part: Fields, raw: Raw) -> tuple[bytes, tuple[str, ...]]:
    """Return the block of a part that is no call and no result, and where in the part it stands."""
    text = part.get("text")
    if is_text(text):
        is_thought = part.get("thought") == Raw(b"true")
        return (thinking_block(text) if is_thought else text_block(text)), ("text",)
    inline = fields(part.get("inlineData"))
    document = data_block(text_of(inline.get("mimeType")), inline.get("data"))
    if document is not None:
        return document, ("inlineData", "data")
    return native_part(PROVIDER, raw, api=API), ()


def thought_text(thought: Fields) -> str:
    """Return a thought as the model is shown to have had it: the subject in a line of its own."""
    subject, description = marked_text(thought.get("subject")), marked_text(thought.get("description"))
    return one_mark("\n\n".join(each for each in (subject and f"**{subject}**", description) if each))


def result_block(call: Fields) -> bytes | None:
    """Return what a call gave, or None where it gave nothing yet."""
    raw = call.get("result")
    if raw is None or bytes(raw) in (b"null", b"[]"):
        return None
    is_error = text_of(call.get("status")) in ("error", "cancelled")
    parts = items(raw) if begins(raw, b"[") else [raw]
    blocks: list[Raw] = []
    texts: list[Raw | str] = []
    for each in parts:
        part = fields(each)
        if "functionResponse" in part:
            answer = fields(part["functionResponse"])
            told, failed = response_text(answer.get("response"))
            is_error = is_error or failed
            texts.append(told)
            blocks.append(Raw(text_block(told)))
            blocks.extend(Raw(plain_block(fields(more), more)[0]) for more in items(answer.get("parts")))
        elif is_text(each):
            texts.append(each)
            blocks.append(Raw(text_block(each)))
        else:
            blocks.append(Raw(plain_block(part, each)[0]))
    content = texts[0] if len(texts) == len(blocks) == 1 else blocks
    return tool_result_block(content, id=string_of(call.get("id")), is_error=is_error)


def is_whole(call: Fields) -> bool:
    """Tell whether the block of what a call gave has all of it: else it stays in the event too."""
    for each in items(call.get("result")):
        part = fields(each)
        answer = fields(part.get("functionResponse"))
        has_parts = "parts" not in answer or begins(answer["parts"], b"[")
        told = has_parts and answer.keys() <= {"id", "name", "response", "parts"}
        same = all(name not in answer or answer[name] == call.get(name) for name in ("id", "name"))
        if "functionResponse" in part and not (answer and told and same and len(part) == 1):
            return False
        if "functionResponse" not in part and is_text(part.get("text")) and part.keys() != {"text"}:
            return False
        if any(not _is_whole_part(fields(more)) for more in (*items(answer.get("parts")), each)):
            return False
    return True


def _is_whole_part(part: Fields) -> bool:
    inline = fields(part.get("inlineData"))
    return not inline or (len(part) == 1 and inline.keys() <= {"mimeType", "data"})


def response_text(response: Raw | None) -> tuple[Raw | str, bool]:
    """Return the text of what a function answered, and whether that is an error. Else it is JSON text."""
    record = fields(response)
    for name in ("output", "error"):
        told = record.get(name)
        if len(record) == 1 and is_text(told):
            return told, name == "error"
    return ("" if response is None else json_as_text(response)), set(record) == {"error"}


def usage_of(tokens: Fields) -> Usage | None:
    """Return the tokens of a reply. Cached ones are counted as input too; those of thoughts and tools are apart."""
    if not tokens:
        return None
    cached = count(tokens, "cached")
    return Usage(
        input_tokens=max(0, count(tokens, "input") - cached) + count(tokens, "tool"),
        cache_read_input_tokens=cached,
        output_tokens=count(tokens, "output"),
        reasoning_tokens=count(tokens, "thoughts"),
    )


def arguments_of(raw: Raw | None) -> Raw:
    if raw is None or bytes(raw) == b"null":
        return Raw(b"{}")
    return raw if begins(raw, b"{") else Raw(_encoder.encode({"input": raw}))


def string_of(raw: Raw | None) -> Raw | None:
    return raw if is_text(raw) else None
