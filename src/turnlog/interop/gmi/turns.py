"""Turns as inputs of GMI turns: those that were recorded from one as they were, others as near as GMI comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from turnlog.errors import ContentError, MetaError
from turnlog.interop.gmi.calls import CalledTools
from turnlog.interop.gmi.content import content_blocks
from turnlog.interop.gmi.input import GMITurnInput, ToolCallResult, read_input
from turnlog.interop.gmi.record import (
    TASK_CONTEXT,
    USER_CONTEXT,
    blocks_of,
    interaction_of,
    is_input,
    kept_input,
    time_of,
    unnamed_call,
)
from turnlog.interop.gmi.stored import JSONRecord
from turnlog.log import TurnLog
from turnlog.model import (
    Block,
    Document,
    LossEntry,
    LossKind,
    LossReport,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    content_bytes,
    decode_content,
    document_block,
)
from turnlog.model.json_values import DEPTH_MAX, decoded
from turnlog.model.long_strings import LongStrings
from turnlog.turn import Turn

NOBODY = "nobody"
"""The user of a turn that is of nobody: GMI asks for one."""


def input_of(log: TurnLog, headish: str) -> GMITurnInput:
    """Return the input that a turn was recorded from, without `userApiKeys`; of another turn the nearest there is.

    What the nearest one does not have of its turn is in the report of `nearest_input`.

    Raises:
        UnknownTurnError: there is no such turn.
        MetaError: the turn is a reply, and no input.
        ErasedError: the turn was erased, or is sealed and its key is not here.
        CorruptionError: what is kept beside the turn cannot be read.
    """
    turn = log.turn(headish)
    kept = kept_input(log, turn)
    return nearest_input(log, turn)[0] if kept is None else read_input(kept)


def nearest_input(log: TurnLog, turn: Turn) -> tuple[GMITurnInput, LossReport]:
    """Return the input that comes nearest to a turn, and what it does not have of it or has made up.

    Raises:
        MetaError: the turn is a reply, and no input.
        ErasedError: the turn was erased, or is sealed and its key is not here.
    """
    return nearest_with(log, turn, LongStrings())


def nearest_with(
    log: TurnLog, turn: Turn, long: LongStrings, called: CalledTools | None = None
) -> tuple[GMITurnInput, LossReport]:
    """Return what `nearest_input` does, of a log in whose turns marks of long strings may stand, and raise that.

    Args:
        log: the log.
        turn: the turn.
        long: the long strings.
        called: what was called up to the turn, where that is read for many turns of a conversation.
    """
    if turn.meta.role == "assistant":
        raise MetaError(f"turn {turn.id!r} is a reply, and no input", field="headish")
    reader = _Reader(log, turn, long, called)
    read = read_input(reader.read())
    reader.compare(read)
    return read, LossReport(entries=tuple(reader.losses))


class _Reader:
    """Reads one turn as an input, and tells of what is other in it."""

    def __init__(self, log: TurnLog, turn: Turn, long: LongStrings, called: CalledTools | None) -> None:
        self._log = log
        self._calls = called
        self._long = long
        self._turn = turn
        is_document = turn.meta.type == "document"
        self._said = [] if is_document else decode_content(log.payload(turn.id))
        self.losses: list[LossEntry] = []

    def read(self) -> JSONRecord:
        turn, meta = self._turn, self._turn.meta
        record: JSONRecord = {"interactionId": interaction_of(turn), "userId": meta.subject or NOBODY}
        if is_input(turn):
            self._lose("dropped", "turn", "what was kept of the input beside it is not here")
        else:
            self._lose("synthesised", "turn", "GMI asks for an interactionId: the turn's id")
        if not meta.subject:
            self._lose("synthesised", "subject", f"GMI asks for a userId, and the turn is of nobody: {NOBODY!r}")
        if isinstance(meta.head, str):
            record["sessionId"] = meta.head
        record |= {"timestamp": time_of(turn), **self._content()}
        record |= self._options()
        if len(turn.continues) > 1:
            self._lose("dropped", "continues", "an input continues one turn")
        if meta.cache:
            self._lose("dropped", "cache", "GMI has no place for it")
        return record

    def compare(self, read: GMITurnInput) -> None:
        """Tell of blocks that the input would be recorded as others, where nothing has told of them yet."""
        turn, told = self._turn, {entry.index for entry in self.losses}
        again = content_blocks(read.content, system=turn.meta.role == "system")
        for index, block in enumerate(self._said):
            same = index < len(again) and _plain(again[index]) == _plain(block)
            if not same and index not in told:
                self._lose("downgraded", block_type(block), "GMI has it in another form", index)

    def _content(self) -> JSONRecord:
        if self._turn.meta.type == "document":
            if isinstance(self._turn.meta.original_path, str):
                self._lose("dropped", "original_path", "GMI has no place for it")
            block = document_block(self._log.payload(self._turn.id), self._turn.meta.content_type)
            return self._parts([*self._blocks([block])])
        blocks = self._said
        results = [block for block in blocks if isinstance(block, ToolResult)]
        if results and len(results) == len(blocks):
            found = [self._result(block, index) for index, block in enumerate(results)]
            return {"type": "tool_response", "content": found[0] if len(found) == 1 else found}
        system = self._turn.meta.role == "system"
        if len(blocks) == 1 and isinstance(blocks[0], Text):
            self._lose_extra(blocks[0], 0)
            return {"type": "system_message" if system else "text", "content": blocks[0].text}
        return self._parts([*self._blocks(blocks)])

    def _parts(self, parts: list[JSONRecord]) -> JSONRecord:
        system = self._turn.meta.role == "system"
        return {"type": "system_message" if system else "multimodal_content", "content": parts}

    def _blocks(self, blocks: Sequence[Block]) -> Iterator[JSONRecord]:
        named = self._turn.meta.document_name
        for index, block in enumerate(blocks):
            match block:
                case Text(text=text):
                    self._lose_extra(block, index)
                    yield {"type": "text", "text": text}
                case Document(source=source):
                    self._lose_extra(block, index)
                    name = {"name": named} if isinstance(named, str) else {}
                    yield {"type": "base64", "data": source.data, "mimeType": source.media_type, **name}
                case ToolResult():
                    yield self._result(block, index)
                case ToolUse() | Thinking() | Native():
                    self._lose("downgraded", block_type(block), "GMI has it as a record", index)
                    yield self._record(block)

    def _result(self, block: ToolResult, index: int) -> JSONRecord:
        call_id = block.tool_use_id if isinstance(block.tool_use_id, str) else None
        if call_id is None:
            call_id = self._made_up(block, index)
            self._lose("synthesised", "tool_id", "GMI asks for a toolCallId", index)
        name = block.name if isinstance(block.name, str) else self._called(call_id)
        self._lose_extra(block, index)
        content = [Text(text=block.content)] if isinstance(block.content, str) else block.content
        record: JSONRecord = {"toolCallId": call_id, "toolName": name}
        if len(content) == 1 and isinstance(content[0], Text):
            record["output"] = content[0].text
        elif content:
            record["output"] = [self._record(inner) for inner in content]
        if isinstance(block.is_error, bool):
            record["isError"] = block.is_error
        return ToolCallResult.model_validate(record).model_dump(by_alias=True, exclude_unset=True)

    def _made_up(self, block: ToolResult, index: int) -> str:
        """Return an id for a result that has none: that of the call of this name without one, if there is one."""
        for parent in self._turn.continues:
            for place, call in enumerate(blocks_of(self._log, self._log.turn(parent))):
                if isinstance(call, ToolUse) and call.id is None and call.name == block.name:
                    return unnamed_call(parent, place)
        return unnamed_call(self._turn.id, index)

    def _called(self, call_id: str) -> str:
        """Return the name of a tool by the id of its call; the id where no call has it."""
        if self._calls is None:
            self._calls = CalledTools(self._log, self._log.ancestry(self._turn.id))
        return self._calls.at(self._turn).get(call_id, call_id)

    def _options(self) -> JSONRecord:
        """Return the contexts that a turn sets, and tell of its other options."""
        inherited = self._turn.meta.inherited
        given: JSONRecord = inherited if isinstance(inherited, dict) else {}
        fields = {USER_CONTEXT: "userContextOverride", TASK_CONTEXT: "taskContextOverride"}
        for name in given:
            if name not in fields or not isinstance(given[name], dict):
                self._lose("dropped", "options", f"GMI has no place for the option {name!r}")
        return {field: given[name] for name, field in fields.items() if isinstance(given.get(name), dict)}

    def _record(self, block: Block) -> JSONRecord:
        """Return a block as JSON values; as one text, where none say it."""
        text = content_bytes([block])[1:-1]
        try:
            return decoded(text, depth_max=DEPTH_MAX).value
        except ContentError:
            return {"type": block_type(block), "json": self._long.json_as_text(text)}

    def _lose_extra(self, block: Block, index: int) -> None:
        if block.extra:
            names = ", ".join(sorted(block.extra))
            self._lose("dropped", "extra", f"GMI has no place for the keys {names}", index)

    def _lose(self, kind: LossKind, block: str, why: str, index: int | None = None) -> None:
        self.losses.append(LossEntry(kind=kind, turn=self._turn.id, block=block, why=why, index=index))


def block_type(block: Block) -> str:
    """Return the type of a block."""
    return str(type(block).__struct_config__.tag)


def _plain(block: Block) -> Block:
    """Return a block as it is compared: text in a result may be a text or a block."""
    if isinstance(block, ToolResult) and isinstance(block.content, str):
        return msgspec.structs.replace(block, content=[Text(text=block.content)])
    return block
