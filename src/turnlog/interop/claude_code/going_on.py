"""Which row a row goes on from, where `parentUuid` does not say it as the model saw it.

- Results of parallel calls stand on rows beside each other, and the row that goes on names one of them. It goes on from
  all: each result continues the one before it, and what continues one of them continues the last.
- A sub-agent begins with a row without a parent. It continues the call that gave it its prompt.
- What follows a compaction has no parent either, but a logical one: the row up to which was summarized.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import FormatError
from turnlog.interop.claude_code.lines import Row
from turnlog.interop.texts import file_bytes, split_lines

AGENT_TOOLS = ("Agent", "Task")
"""The tools that start a sub-agent, by their input's `prompt`."""


class _Block(Struct):
    type: str = ""
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    text: str | None = None
    input: Any = None


_blocks = msgspec.json.Decoder(list[_Block] | str)


@dataclass(slots=True, eq=False)
class _Calls:
    """The calls of one assistant message: which were answered, and its last row, or the last that answers it."""

    ids: set[str] = field(default_factory=set[str])
    answered: set[str] = field(default_factory=set[str])
    last: int | None = None


def go_on(rows: Sequence[Row], parents: list[int | None], repeats: Collection[int]) -> None:
    """Set the parents of rows that go on from others than those that they name.

    Args:
        rows: the rows of a file.
        parents: index of the row that each names as its parent; changed.
        repeats: indexes of rows that repeat another one, which are left alone.
    """
    reading = _Reading(rows, parents)
    for index in range(len(rows)):
        if index not in repeats:
            reading.take(index)


class _Reading:
    """Takes rows in their order."""

    def __init__(self, rows: Sequence[Row], parents: list[int | None]) -> None:
        self._rows = rows
        self._parents = parents
        self._calls: dict[str, _Calls] = {}
        self._messages: dict[str, _Calls] = {}
        self._prompts: dict[str, int] = {}
        self._said: list[_Calls | None] = [None] * len(rows)
        """The calls of the message that a row is a fragment of."""
        self._behind: list[_Calls | None] = [None] * len(rows)
        """The calls that a row answers; for one that is no message, those that the row above it answers."""

    def take(self, index: int) -> None:
        row, parent = self._rows[index], self._parents[index]
        is_above = parent is not None and parent < index
        above = self._behind[parent] if is_above and parent is not None else None
        if row.message is None:
            self._behind[index] = above
            return
        if above is not None:
            self._parents[index] = above.last
        blocks = _blocks_of(row)
        if row.type == "assistant":
            self._take_fragment(index, row, blocks, self._said[parent] if is_above and parent is not None else None)
        elif answers := {block.tool_use_id for block in blocks if block.type == "tool_result" and block.tool_use_id}:
            self._take_results(index, answers)
        elif above is not None and not above.ids <= above.answered:
            # What was said between two results, as by a skill that the first one brought: the others follow it.
            above.last, self._behind[index] = index, above
        elif row.sidechain and self._parents[index] is None and row.parent_uuid is None:
            self._parents[index] = self._prompts.get(_text_of(blocks))

    def _take_fragment(self, index: int, row: Row, blocks: Sequence[_Block], before: _Calls | None) -> None:
        assert row.message is not None
        own = self._messages.setdefault(row.message.id or row.uuid or "", _Calls())
        self._said[index] = own
        if before is not None and before is not own and before.answered:
            self._parents[index] = before.last
        own.last = own.last if own.answered else index
        for block in blocks:
            if block.type == "tool_use" and block.id is not None:
                self._calls[block.id] = own
                own.ids.add(block.id)
                if (prompt := prompt_of(block)) is not None:
                    self._prompts[prompt] = index

    def _take_results(self, index: int, answers: set[str]) -> None:
        answered = {id(found): found for name in answers if (found := self._calls.get(name)) is not None}
        if len(answered) != 1:
            return
        [own] = answered.values()
        # An answer that was there before is another branch: the call was answered again.
        if own.answered.isdisjoint(answers):
            self._parents[index] = own.last
            own.last, own.answered = index, own.answered | answers
            self._behind[index] = own


def prompt_of(block: _Block) -> str | None:
    """Return the prompt that a call starts a sub-agent with; None for any other block."""
    if block.type != "tool_use" or block.name not in AGENT_TOOLS:
        return None
    match block.input:
        case {"prompt": str(prompt)} if prompt.strip():
            return prompt.strip()
        case _:
            return None


def _blocks_of(row: Row) -> list[_Block]:
    """Return what a message says; nothing where it is not of the form that counts here."""
    assert row.message is not None
    try:
        content = _blocks.decode(row.message.content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return [_Block(type="text", text=content)] if isinstance(content, str) else content


def _text_of(blocks: Sequence[_Block]) -> str:
    return "".join(block.text or "" for block in blocks if block.type == "text").strip()


class _Said(Struct):
    content: Raw = Raw(b"")


class _Line(Struct):
    uuid: str | None = None
    message: _Said | None = None


_line = msgspec.json.Decoder(_Line)


def started_elsewhere(path: Path, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a file; where it is a sub-agent's, the first one continues the call in the session's own file.

    Newer versions write a sub-agent to a file of its own (`agent-….jsonl`), beside that of the session or in a folder
    of the session's name.
    """
    first = next((index for index, row in enumerate(rows) if row.message is not None), None)
    if first is None or not rows[first].sidechain or rows[first].parent_uuid is not None:
        return list(rows)
    prompt, session = _text_of(_blocks_of(rows[first])), rows[first].session
    if not prompt or session is None or Path(session).name != session:
        return list(rows)
    beside = (folder / f"{session}.jsonl" for folder in path.absolute().parents[:3])
    uuid = next((found for file in beside if file != path.absolute() and (found := _call_in(file, prompt))), None)
    return [replace(row, parent_uuid=uuid) if index == first else row for index, row in enumerate(rows)]


def _call_in(file: Path, prompt: str) -> str | None:
    """Return the uuid of the row whose call started a sub-agent with a prompt; None where there is none."""
    try:
        lines = split_lines(file_bytes(file)) if file.is_file() else []
    except FormatError:
        return None
    for line in lines:
        if b'"prompt"' not in line:
            continue
        try:
            read = _line.decode(line)
            blocks = _blocks.decode(read.message.content) if read.message is not None else ""
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if not isinstance(blocks, str) and any(prompt_of(block) == prompt for block in blocks):
            return read.uuid
    return None
