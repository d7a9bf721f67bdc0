"""Which row a row goes on from, where `parentUuid` does not say it as the model saw it.

- Results of parallel calls stand on rows beside each other, and the row that goes on names one of them. It goes on from
  all, wherever in the file they stand: each result continues the one before it, and what continues one of them
  continues the last. Calls that are all answered again make another branch.
- A sub-agent begins with a row without a parent. It continues the call whose result names it, or else the one that gave
  it its prompt, and has no results of that message: its model never saw them.
- What follows a compaction has no parent either, but a logical one: the row up to which was summarized.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import sha256
from itertools import chain, pairwise, takewhile
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import FormatError
from turnlog.events.times import parse_time
from turnlog.interop.claude_code.lines import Row, event_id_of
from turnlog.interop.folders import leads_out
from turnlog.interop.marked import begins, digest_of, is_text, text_of, text_pieces, unmarked
from turnlog.interop.texts import file_lines
from turnlog.model.json_text import UNREADABLE

_NULL = Raw(b"null")

AGENT_TOOLS = ("Agent", "Task")
"""The tools that start a sub-agent, by their input's `prompt`."""


class _Block(Struct):
    type: str = ""
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    text: Raw = _NULL
    input: Raw = _NULL


class _Input(Struct):
    prompt: Raw = _NULL


_blocks = msgspec.json.Decoder(list[_Block])
_input = msgspec.json.Decoder(_Input)


@dataclass(slots=True, eq=False)
class _Run:
    """Rows that answer the calls of a message, one behind the other, with what was said between them."""

    first: int
    last: int
    answered: set[str]


@dataclass(slots=True, eq=False)
class _Calls:
    """The calls of one assistant message. Another run begins where calls that were answered are answered again.

    Attributes:
        rows: the row of each call, by the call's id.
        fragments: the rows of the message.
        runs: the answers.
    """

    rows: dict[str, int] = field(default_factory=dict[str, int])
    fragments: list[int] = field(default_factory=list[int])
    runs: list[_Run] = field(default_factory=list[_Run])


class Answer(NamedTuple):
    """A row that has a result, and the row of the call that it is of."""

    result: int
    call: int
    id: str


def go_on(rows: Sequence[Row], parents: list[int | None], repeats: Collection[int]) -> list[Answer]:
    """Set the parents of rows that go on from others than those that they name, and return which row answers which.

    Args:
        rows: the rows of a file.
        parents: index of the row that each names as its parent; changed.
        repeats: indexes of rows that repeat another one, which are left alone.
    """
    said = {i: _blocks_of(row) for i, row in enumerate(rows) if row.message is not None and i not in repeats}
    messages = _Messages(rows, parents, said)
    reading = _Reading(rows, parents, messages)
    for index in range(len(rows)):
        if index not in repeats:
            reading.take(index, said.get(index))
    reading.finish()
    return reading.answers


class _Messages:
    """Which rows are of one message, and which calls it makes: known for the whole file before any row is moved."""

    def __init__(
        self, rows: Sequence[Row], parents: Sequence[int | None], said: Mapping[int, Sequence[_Block]]
    ) -> None:
        self._parents = list(parents)
        self._ids: dict[str, list[_Calls]] = {}
        self._calls: dict[str, list[_Calls]] = {}
        self.prompts: dict[bytes, list[int]] = {}
        """The rows of the calls that gave a prompt, in their order."""
        self.agents: dict[str, int] = {}
        """The row of the call that started a sub-agent, by the sub-agent's id: its result names it."""
        self.of: dict[int, _Calls] = {}
        self._unnamed = {i for i in said if (message := rows[i].message) is not None and message.id is None}
        before: int | None = None
        for index, blocks in said.items():
            row = rows[index]
            if row.type == "assistant" and row.message is not None:
                own = self._message(index, row.message.id, before)
                own.fragments.append(index)
                self.of[index] = own
                self._add(index, own, blocks)
            before = index
        for index, blocks in said.items():
            if (agent := rows[index].started) is not None and (id_ := _only_result(blocks)) is not None:
                own = self.answered(index, id_)
                if own is not None:
                    self.agents.setdefault(agent, own.rows[id_])

    def answered(self, index: int, name: str) -> _Calls | None:
        """Return the message whose call a row answers: of several with such a call, the nearest one up its chain."""
        found = self._calls.get(name, [])
        return found[0] if len(found) == 1 else self._above(index, found) or (found[-1] if found else None)

    def asked(self, index: int, texts: Sequence[bytes]) -> int | None:
        """Return the row of the call that gave a sub-agent its prompt, given its first row and what that says.

        Of several that gave the same prompt it is the last one above that has no sub-agent yet, else the first below.
        """
        calls = next((self.prompts[text] for text in texts if text in self.prompts), None)
        if calls is None:
            return None
        at = max(bisect_left(calls, index) - 1, 0)
        return calls.pop(at) if len(calls) > 1 else calls[at]

    def _message(self, index: int, id_: str | None, before: int | None) -> _Calls:
        parent = self._parents[index]
        if id_ is None:
            # Without an id, rows are fragments of one message where nothing stands between them.
            beside = self.of.get(parent) if parent is not None and parent == before else None
            return beside if beside is not None and parent in self._unnamed else _Calls()
        known = self._ids.setdefault(id_, [])
        beside = next((own for own in known if self._parents[own.fragments[0]] == parent), None)
        own = self._above(index, known) or beside
        if own is None:
            known.append(own := _Calls())
        return own

    def _above(self, index: int, among: Sequence[_Calls]) -> _Calls | None:
        """Return the first of some messages that stands up the chain of a row."""
        at, walked = self._parents[index], {index}
        while among and at is not None and at not in walked:
            if (own := self.of.get(at)) is not None and any(own is each for each in among):
                return own
            walked.add(at)
            at = self._parents[at]
        return None

    def _add(self, index: int, own: _Calls, blocks: Sequence[_Block]) -> None:
        for block in blocks:
            if block.type != "tool_use" or block.id is None:
                continue
            own.rows.setdefault(block.id, index)
            of_id = self._calls.setdefault(block.id, [])
            if all(each is not own for each in of_id):
                of_id.append(own)
            if (prompt := prompt_of(block)) is not None:
                self.prompts.setdefault(prompt, []).append(index)


class _Reading:
    """Takes rows in their order, and moves them."""

    def __init__(self, rows: Sequence[Row], parents: list[int | None], messages: _Messages) -> None:
        self._rows = rows
        self._parents = parents
        self._messages = messages
        self._behind: list[tuple[_Calls, _Run] | None] = [None] * len(rows)
        """The run that a row is of; for one that is no message, that of the row above it."""
        self._waiting: list[tuple[int, _Calls, _Run | None]] = []
        """Rows that go on from all of a run, and some of it may be below them."""
        self._beginnings: dict[int, int] = {}
        """The first row of a sub-agent whose call is not found yet, by each row that continues it so far."""
        self.answers: list[Answer] = []

    def take(self, index: int, blocks: Sequence[_Block] | None) -> None:
        row, parent = self._rows[index], self._parents[index]
        above = self._behind[parent] if parent is not None and parent < index else None
        if blocks is None:
            self._behind[index] = above
            if parent in self._beginnings:
                self._beginnings[index] = self._beginnings[parent]
            return
        answers = {block.tool_use_id for block in blocks if block.type == "tool_result" and block.tool_use_id}
        if row.type != "assistant" and answers and self._take_results(index, answers):
            return
        if (
            row.type != "assistant"
            and not answers
            and above is not None
            and not above[0].rows.keys() <= above[1].answered
        ):
            # What was said between two results, as by a skill that the first one brought: the others follow it.
            run = above[1]
            self._parents[index] = run.last
            run.last, self._behind[index] = index, above
        else:
            self._take_other(index, row, blocks, above)

    def finish(self) -> None:
        """Let what waits go on from the last row of its run, and each further run from what it answers anew."""
        for index, own, run in self._waiting:
            if run is not None or own.runs:
                self._parents[index] = (run or own.runs[0]).last
        for own in {id(own): own for own in self._messages.of.values()}.values():
            for before, run in pairwise(own.runs):
                if not before.answered <= run.answered:
                    self._parents[run.first] = before.last

    def _take_other(self, index: int, row: Row, blocks: Sequence[_Block], above: tuple[_Calls, _Run] | None) -> None:
        parent, own = self._parents[index], self._messages.of.get(index)
        said = self._messages.of.get(parent) if parent is not None else None
        if own is not None and said is own and own.runs and parent is not None and parent < index:
            above = own, own.runs[0]  # it hangs on another row of its message, and that has a result by now
        if above is not None:
            if own is above[0]:
                # What answers it follows it, also where the log has the message's beginning and the result already.
                run = above[1]
                self._parents[index] = run.last
                run.last, self._behind[index] = index, above
            else:
                self._waiting.append((index, *above))
        elif said is not None and said is not own and row.sidechain == self._rows[parent or 0].sidechain:
            self._waiting.append((index, said, None))
        elif row.type != "assistant" and row.sidechain:
            self._begin(index, row, blocks)

    def _begin(self, index: int, row: Row, blocks: Sequence[_Block]) -> None:
        """Let a sub-agent go on from the call that started it; what the tool says by itself may stand above."""
        parent = self._parents[index]
        if parent is None and row.parent_uuid is None:
            first = index
        elif parent in self._beginnings:
            first = self._beginnings[parent]
        else:
            return
        call = self._messages.agents.get(row.agent or "")
        if call is None:
            call = self._messages.asked(first, _texts_of(blocks))
        if call is None:
            self._beginnings[index] = first
        else:
            self._parents[first] = call

    def _take_results(self, index: int, answers: set[str]) -> bool:
        found = {name: own for name in answers if (own := self._messages.answered(index, name)) is not None}
        if not found:
            return False
        self.answers += [Answer(result=index, call=own.rows[name], id=name) for name, own in sorted(found.items())]
        # Where one row answers calls of several messages, it stands behind the last of them.
        own = max(found.values(), key=lambda each: each.fragments[0])
        run = next((run for run in own.runs if run.answered.isdisjoint(answers)), None)
        if run is None:
            own.runs.append(run := _Run(first=index, last=index, answered=set()))
            above = [fragment for fragment in own.fragments if fragment < index]
            self._parents[index] = above[-1] if above else own.fragments[0]
        else:
            self._parents[index] = run.last
        run.last = index
        run.answered |= answers
        self._behind[index] = own, run
        return True


def prompt_of(block: _Block) -> bytes | None:
    """Return what tells the prompt that a call starts a sub-agent with from others; None for any other block."""
    if block.type != "tool_use" or block.name not in AGENT_TOOLS or not begins(block.input, b"{"):
        return None
    prompt = _input.decode(block.input).prompt
    return digest_of(text_pieces(prompt)) if is_text(prompt) else None


def _blocks_of(row: Row) -> list[_Block]:
    """Return what a message says; nothing where it is not of the form that counts here."""
    assert row.message is not None
    try:
        return _decoded(row.message.content)
    except UNREADABLE:
        return []


def _decoded(content: bytes) -> list[_Block]:
    """Return what content says.

    Raises:
        msgspec.DecodeError: it is not of the form that counts here.
    """
    if content[:1] == b'"':
        return [_Block(type="text", text=Raw(content))]
    blocks = _blocks.decode(content)
    if any(not is_text(block.text) and block.text != _NULL for block in blocks):
        raise msgspec.DecodeError("a text is something else")
    for block in blocks:
        block.id, block.tool_use_id = (None if id is None else unmarked(id) for id in (block.id, block.tool_use_id))
    return blocks


def _texts_of(blocks: Sequence[_Block]) -> list[bytes]:
    """Return what tells the text of a message and of each part from others: a prompt may stand beside a hook's."""
    parts = [block.text for block in blocks if block.type == "text" and is_text(block.text)]
    told = (digest_of(chain.from_iterable(map(text_pieces, each))) for each in (parts, *([part] for part in parts)))
    return [digest for digest in told if digest is not None]


def _only_result(blocks: Sequence[_Block]) -> str | None:
    """Return the id of the call that a message has the result of; None where it has none, or several."""
    ids = [block.tool_use_id for block in blocks if block.type == "tool_result"]
    return ids[0] if len(ids) == 1 else None


class _Said(Struct):
    content: Raw = Raw(b"")


class _Line(Struct):
    uuid: str | None = None
    session: str | None = msgspec.field(default=None, name="sessionId")
    timestamp: Raw = _NULL
    message: _Said | None = None
    result: Raw = msgspec.field(default=_NULL, name="toolUseResult")


class _Result(Struct):
    agent: str | None = msgspec.field(default=None, name="agentId")


class _Start(NamedTuple):
    """The row of a call that starts a sub-agent: its uuid, and the event that it is."""

    uuid: str
    event_id: str


class _Started(NamedTuple):
    """The rows of a file that start sub-agents.

    By the sub-agent's id, where a result names it; and by session, if the row names one, and prompt: the first of those
    that no result names another sub-agent of, else the first.
    """

    agents: Mapping[str, _Start]
    prompts: Mapping[tuple[str, bytes], _Start]


_line = msgspec.json.Decoder(_Line)
_result = msgspec.json.Decoder(_Result)
_NAME = re.compile(r"agent-(.+)\.jsonl")


def started_elsewhere(path: Path, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a file; where it is a sub-agent's, the first one continues the call in another file.

    Newer versions write a sub-agent to a file of its own (`agent-….jsonl`), beside that of the session or in a folder
    of the session's name. The call stands in the session's file, or, of a nested one, in that of another sub-agent.
    """
    first = next((index for index, row in enumerate(rows) if row.message is not None), None)
    if first is None or not rows[first].sidechain or rows[first].parent_uuid is not None:
        return list(rows)
    asked = takewhile(lambda row: row.type != "assistant", (row for row in rows if row.message is not None))
    prompts = dict.fromkeys(text for row in asked for text in _texts_of(_blocks_of(row)))
    session = rows[first].session
    if session is None or Path(session).name != session:
        return list(rows)
    own = path.absolute()
    files = (*(folder / f"{session}.jsonl" for folder in own.parents[:3]), *sorted(own.parent.glob("agent-*.jsonl")))
    named = _NAME.fullmatch(path.name)
    agent = rows[first].agent or ("" if named is None else named[1])
    names = [(of, prompt) for of in (session, "") for prompt in prompts]
    others = [file for file in files if file != own]
    calls = chain(
        (_started_in(file).agents.get(agent) for file in others),
        (_started_in(file).prompts.get(name) for file in others for name in names),
    )
    start = next((found for found in calls if found is not None), None)
    if start is None:
        return list(rows)
    begun = replace(rows[first], parent_uuid=start.uuid, parent_event=start.event_id)
    return [begun if index == first else row for index, row in enumerate(rows)]


def _started_in(file: Path) -> _Started:
    """Return which rows of a file start sub-agents; none where it cannot be read, or is a link to elsewhere."""
    try:
        if leads_out(file, file.parent):
            return _Started({}, {})
        status = file.stat()
        return _started_in_state(file, status.st_ino, status.st_size, status.st_mtime_ns)
    except (OSError, FormatError):
        return _Started({}, {})


@lru_cache(maxsize=1024)  # each file of a folder of sub-agents looks into all the others
def _started_in_state(file: Path, *state: int) -> _Started:  # noqa: ARG001 - tells states apart
    calls: list[tuple[str | None, tuple[str, bytes], _Start]] = []
    agents: dict[str, str] = {}
    for line in file_lines(file):
        if b'"prompt"' not in line and b'"toolUseResult"' not in line:
            continue
        try:
            read = _line.decode(line)
            blocks = _decoded(bytes(read.message.content)) if read.message is not None else []
            agent = _result.decode(read.result).agent if begins(read.result, b"{") else None
        except UNREADABLE:
            continue
        for block in blocks:
            if read.uuid is not None and (prompt := prompt_of(block)) is not None:
                time = parse_time(text_of(read.timestamp))
                start = _Start(read.uuid, event_id_of(time, sha256(line).hexdigest()))
                calls.append((block.id, (read.session or "", prompt), start))
        if agent is not None and (answered := _only_result(blocks)) is not None:
            agents.setdefault(agent, answered)
    named = set(agents.values())
    calls.sort(key=lambda call: call[0] in named)
    prompts = {name: start for _, name, start in reversed(calls)}
    starts = {id_: start for id_, _, start in reversed(calls)}
    return _Started({agent: starts[id_] for agent, id_ in agents.items() if id_ in starts}, prompts)
