"""The conversation that an input brings for its prompt, as messages of a window.

Messages are read in the spelling of OpenAI, Anthropic and AgentOS: role and content, with tool calls beside the content
or as blocks in it, and results as messages of the role `tool` or as blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw

from turnlog.errors import MetaError
from turnlog.interop.gmi.content import content_blocks, json_text
from turnlog.interop.gmi.naming import quoted, shortened
from turnlog.model import Block, Document, Message, Text, Thinking, ToolResult, ToolUse, content_bytes, parse_arguments

FIELD = "metadata.conversationHistoryForPrompt"

Role = Literal["user", "assistant", "system"]
Record = Mapping[str, Any]

_ROLES: Mapping[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
    "summary": "system",
    "tool": "user",
    "function": "user",
}
_RESULTS = ("tool", "function")
_CALL_IDS = ("tool_call_id", "tool_use_id", "toolCallId", "toolUseId")
_NAMES = ("name", "toolName", "tool_name")
_READ = frozenset({"role", "content", "tool_calls", "toolCalls", "function_call"})
_READ_OF_RESULTS = frozenset({"role", "content", "is_error", "isError", *_CALL_IDS, *_NAMES})
_NO_PLACE = "a prompt has no place for it"
_PART_TYPES = (
    *("input_text", "output_text", "reasoning", "redacted_thinking", "text", "thinking"),
    *("tool_call", "tool_result", "tool_use"),
)
_READ_OF_PART = _READ_OF_RESULTS | {
    *("type", "text", "thinking", "data", "id", "call_id", "arguments", "input", "args", "function"),
}


def read_history(stored: Mapping[str, Any]) -> list[Message] | None:
    """Return the conversation that an input brings, oldest first; None where it brings none, or an empty one.

    Messages without content are left out. Results of tools that follow each other are one message.

    Args:
        stored: the input, as JSON values.

    Raises:
        MetaError: a message cannot be read; it names its place.
    """
    metadata: object = stored.get("metadata")
    given: object = cast("Record", metadata).get("conversationHistoryForPrompt") if isinstance(metadata, dict) else None
    if not isinstance(given, list):
        return None
    read = [_read(entry, f"{FIELD}[{index}]") for index, entry in enumerate(cast("list[object]", given))]
    messages: list[Message] = []
    for is_result, group in groupby((each for each in read if not _is_empty(each[1])), key=lambda each: each[2]):
        parts = [(role, blocks) for role, blocks, _ in group]
        joined = [(parts[0][0], [block for _, blocks in parts for block in blocks])] if is_result else parts
        messages += [Message(turn="", role=role, content_json=content_bytes(blocks)) for role, blocks in joined]
    return messages or None


def history_notes(given: Sequence[object] | None) -> list[str]:
    """Return what of the conversation that an input brings no prompt has, a line for people each.

    That are members of messages and of their parts that are not read, such as `name`, and messages without content.

    Args:
        given: the messages; what cannot be read of them is passed over.
    """
    first: dict[str, str] = {}
    more: Counter[str] = Counter()
    for index, entry in enumerate(given or ()):
        if not isinstance(entry, dict):
            continue
        place, message = f"{FIELD}[{index}]", cast("Record", entry)
        told = {
            name: f"{place}.{shortened(name)} is not carried: {_NO_PLACE}"
            for name, value in message.items()
            if name not in _members_of(message) and value not in (None, "", [], {})
        }
        told |= {
            f"content.{name}": f"{place}.content[{number}].{shortened(name)} is not carried: {_NO_PLACE}"
            for number, part in _parts(message)
            for name, value in part.items()
            if name not in _READ_OF_PART and value not in (None, "", [], {})
        }
        try:
            if _is_empty(_read(message, place)[1]):
                told[""] = f"{place} is left out: it has no content"
        except MetaError:
            pass
        more.update(name for name in told if name in first)
        first |= {name: line for name, line in told.items() if name not in first}
    return [line + (f" (and so of {more[name]} more)" if more[name] else "") for name, line in first.items()]


def _parts(message: Record) -> Iterator[tuple[int, Record]]:
    """Yield the parts of a message of whose members some are read: each with its place, the last one first."""
    content: object = message.get("content")
    for number, part in reversed([*enumerate(cast("list[object]", content))] if isinstance(content, list) else []):
        if isinstance(part, dict) and cast("Record", part).get("type") in _PART_TYPES:
            yield number, cast("Record", part)


def _members_of(message: Record) -> frozenset[str]:
    """Return the members of a message that are read."""
    role: object = message.get("role")
    return _READ_OF_RESULTS if isinstance(role, str) and role.lower() in _RESULTS else _READ


def _is_empty(blocks: Sequence[Block]) -> bool:
    return all(isinstance(block, Text) and not block.text for block in blocks)


def _read(entry: object, place: str) -> tuple[Role, list[Block], bool]:
    """Return the role of a message, its content, and whether it is the result of a tool."""
    if not isinstance(entry, dict):
        raise MetaError(f"{place}: expected a record with role and content", field=place)
    message = cast("Record", entry)
    spelled: object = message.get("role")
    role = _ROLES.get(spelled.lower()) if isinstance(spelled, str) else None
    if role is None or not isinstance(spelled, str):
        named = quoted(spelled) if isinstance(spelled, str) else type(spelled).__name__
        raise MetaError(f"{place}.role: {named} is unknown (one of {', '.join(_ROLES)})", field=f"{place}.role")
    if spelled.lower() in _RESULTS:
        return role, [_result_message(message, place)], True
    blocks = _content(message.get("content"), f"{place}.content", system=role == "system")
    calls = _first(message, "tool_calls", "toolCalls")
    if calls is not None:
        blocks += _calls(calls, f"{place}.tool_calls")
    legacy: object = message.get("function_call")
    if isinstance(legacy, dict):
        blocks.append(_call({"function": legacy}, f"{place}.function_call"))
    if role != "assistant" and any(isinstance(block, ToolUse | Thinking) for block in blocks):
        raise MetaError(f"{place}: only an assistant calls tools and thinks", field=place)
    return role, blocks, False


def _first(record: Record, *names: str) -> Any:
    """Return the first of some members that is there and not null."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def _text_of(record: Record, place: str, *names: str) -> str:
    value = _first(record, *names)
    if not isinstance(value, str) or not value:
        raise MetaError(f"{place}.{names[0]}: expected text", field=f"{place}.{names[0]}")
    return value


def _content(given: object, place: str, *, system: bool) -> list[Block]:
    match given:
        case None:
            return []
        case str():
            return [Text(text=given)] if given else []
        case dict():
            return list(_block(cast("Record", given), place, system))
        case list():
            blocks: list[Block] = []
            for index, part in enumerate(cast("list[object]", given)):
                if isinstance(part, str):
                    blocks.append(Text(text=part))
                elif isinstance(part, dict):
                    blocks += _block(cast("Record", part), f"{place}[{index}]", system)
                else:
                    raise MetaError(f"{place}[{index}]: expected text or a record", field=f"{place}[{index}]")
            return blocks
        case _:
            raise MetaError(f"{place}: expected text, a record or a list of them", field=place)


def _block(part: Record, place: str, system: bool) -> Iterator[Block]:
    match part.get("type"):
        case "tool_use" | "tool_call" if not system:
            yield _call(part, place)
        case "tool_result" if not system:
            yield _result(part, place)
        case "thinking" | "reasoning" if not system and isinstance(_first(part, "thinking", "text"), str):
            yield Thinking(thinking=_first(part, "thinking", "text"))
        case "redacted_thinking" if not system and isinstance(part.get("data"), str):
            yield Thinking(thinking="", signature=part["data"], redacted=True)
        case "text" | "input_text" | "output_text" if isinstance(part.get("text"), str):
            yield Text(text=part["text"])
        case _:
            yield from content_blocks([dict(part)], system=system)


def _calls(given: object, place: str) -> list[Block]:
    if not isinstance(given, list):
        raise MetaError(f"{place}: expected a list", field=place)
    calls: list[Block] = []
    for index, call in enumerate(cast("list[object]", given)):
        if not isinstance(call, dict):
            raise MetaError(f"{place}[{index}]: expected a record", field=f"{place}[{index}]")
        calls.append(_call(cast("Record", call), f"{place}[{index}]"))
    return calls


def _call(call: Record, place: str) -> ToolUse:
    function: object = call.get("function")
    inner = cast("Record", function) if isinstance(function, dict) else call
    arguments = _first(inner, "arguments", "input", "args")
    extra: dict[str, Raw] = {}
    if isinstance(arguments, str):
        read, extra = parse_arguments(arguments)
    elif arguments is None or isinstance(arguments, dict):
        read = Raw(msgspec.json.encode(cast("object", arguments) or {}))
    else:
        raise MetaError(f"{place}.arguments: expected a record or its JSON text", field=f"{place}.arguments")
    call_id = _first(call, "id", "tool_call_id", "toolCallId", "call_id")
    return ToolUse(
        id=call_id if isinstance(call_id, str) and call_id else None,
        name=_text_of(inner, place, "name", "toolName", "tool_name"),
        input=read,
        extra=extra,
    )


def _result_message(message: Record, place: str) -> ToolResult:
    """Return the result that a message of the role `tool` has."""
    content: object = message.get("content")
    name = _first(message, *_NAMES)
    if isinstance(content, dict) and _first(cast("Record", content), "toolCallId", "tool_call_id") is not None:
        result = cast("Record", content)
        return _result({"content": result.get("output"), **result, "name": name}, f"{place}.content")
    return _result({**message, "name": name}, place)


def _result(part: Record, place: str) -> ToolResult:
    call_id, name = _first(part, *_CALL_IDS), _first(part, *_NAMES)
    if call_id is None and name is None:
        raise MetaError(f"{place}.tool_call_id: the result of a tool says of which call", field=f"{place}.tool_call_id")
    is_error = _first(part, "is_error", "isError")
    return ToolResult(
        tool_use_id=call_id if isinstance(call_id, str) and call_id else None,
        name=name if isinstance(name, str) and name else None,
        content=_result_content(part.get("content"), f"{place}.content"),
        is_error=is_error if isinstance(is_error, bool) else None,
    )


def _result_content(content: object, place: str) -> list[Any]:
    match content:
        case None:
            return []
        case str():
            return [Text(text=content)]
        case list() if all(isinstance(part, dict) and "type" in part for part in cast("list[object]", content)):
            blocks = _content(cast("Sequence[object]", content), place, system=False)
            return [
                block if isinstance(block, Text | Document) else Text(text=content_bytes([block]).decode())
                for block in blocks
            ]
        case _:
            return [Text(text=json_text(content))]
