"""The steps of a trajectory in ATIF, made of turns, and what they have no place for.

A turn of an assistant is a step of the agent: its thinking, then its texts, then its calls, each with its result in the
observation of the same step, wherever in the conversation that stands. What was made, and how, is in the `extra` of a
step: the turn's id, provider, stop reason, error, and so on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from turnlog.interop.exports.reading import Said
from turnlog.model import (
    Document,
    LossEntry,
    LossKind,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Usage,
)
from turnlog.model.blocks import Block
from turnlog.model.documents import marked_document
from turnlog.model.long_strings import LongStrings
from turnlog.providers.documents import document_text, of_type

Record = dict[str, object]

IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The types of images that the format has."""

_SOURCES: Mapping[str, str] = {"assistant": "agent", "user": "user", "system": "system"}
_EXTRA = ("provider", "api", "stop_reason", "raw_stop_reason", "error", "document_name", "inherited", "options")
_ONLY_AGENTS = ("model", "usage")


@dataclass(kw_only=True, slots=True)
class _Step:
    """A step while more can be said of it.

    Attributes:
        record: what is known from its turn.
        turn: id of the turn.
        arguments: the arguments of its calls, as JSON text, by their ids.
        calls: its calls.
        results: what was observed.
        subagents: references to the sub-agents that it started: with the results of their calls, or without one.
    """

    record: Record
    turn: str
    arguments: dict[str, bytes] = field(default_factory=dict[str, bytes])
    calls: list[Record] = field(default_factory=list[Record])
    results: list[Record] = field(default_factory=list[Record])
    subagents: list[tuple[str | None, str]] = field(default_factory=list[tuple[str | None, str]])

    def finished(self, number: int) -> Record:
        """Return it as the format has it."""
        record: Record = {"step_id": number, **self.record}
        if self.calls:
            record["tool_calls"] = self.calls
        results = [dict(result) for result in self.results]
        for call, trajectory in self.subagents:
            references = [{"trajectory_id": each} for at, each in self.subagents if at == call]
            result = next((each for each in results if call is not None and each.get("source_call_id") == call), None)
            if result is None:
                results.append({"subagent_trajectory_ref": [{"trajectory_id": trajectory}]})
            else:
                result["subagent_trajectory_ref"] = references
        if results:
            record["observation"] = {"results": results}
        return record


class StepWriter:
    """Makes steps of the turns of one conversation, oldest first.

    Attributes:
        losses: what the steps do not have of the turns as they are, in the order of the conversation.
        usage: tokens of all turns.
    """

    def __init__(self, long: LongStrings) -> None:
        """Begin without steps.

        Args:
            long: the long texts whose marks stand in what is said. It gets those of documents, which have marks too.
        """
        self._long = long
        self.losses: list[LossEntry] = []
        self.usage = Usage()
        self._steps: list[_Step] = []
        self._called: dict[str, _Step] = {}
        self._names: dict[str, str] = {}
        self._open: deque[tuple[str, str]] = deque()

    def take(self, said: Said) -> None:
        """Add what a turn says."""
        turn = said.turn
        if turn.erased or turn.closed:
            self.lose("dropped", said, "turn", "its key is not here" if turn.closed else "it was erased")
            return
        if said.document is not None:
            block = marked_document(said.document, turn.meta.content_type, self._long)
            said = msgspec.structs.replace(said, blocks=(block,))
        answers = [block for block in said.blocks if isinstance(block, ToolResult)]
        if answers and len(answers) == len(said.blocks):
            for place, block in enumerate(answers):
                self._result(said, block, place)
            return
        step = self._begin(said)
        self._steps.append(step)
        self._speak(said, step)
        for place, block in enumerate(said.blocks):
            if isinstance(block, ToolUse):
                self._call(said, step, block, place)
        for place, block in enumerate(said.blocks):
            if isinstance(block, ToolResult):
                self.lose("moved", said, "tool_result", "what else its turn says is a step of its own", place)
                self._result(said, block, place)

    def refer(self, turn: str, trajectory: str, prompt: str) -> None:
        """Say that a sub-agent was started by a call of a turn: that which it was given the prompt by, or any."""
        step = next(step for step in self._steps if step.turn == turn)
        step.subagents.append((_starting(step, prompt), trajectory))

    def records(self) -> list[Record]:
        """Return the steps, numbered from 1."""
        return [step.finished(number) for number, step in enumerate(self._steps, 1)]

    def lose(self, kind: LossKind, said: Said, block: str, why: str, index: int | None = None) -> None:
        """Report something that a turn has and its steps have not."""
        self.losses.append(LossEntry(kind=kind, turn=said.turn.id, block=block, why=why, index=index))

    # What a turn is

    def _begin(self, said: Said) -> _Step:
        meta = said.turn.meta
        extra: Record = {"turn": said.turn.id}
        extra |= {name: value for name in _EXTRA if (value := getattr(meta, name)) is not None}
        if meta.cache:
            extra["cache"] = True
        record: Record = {"source": _SOURCES[meta.role], "timestamp": said.turn.said_at.isoformat()}
        if meta.role == "assistant":
            if isinstance(meta.model, str):
                record["model_name"] = meta.model
            if isinstance(meta.usage, Usage):
                record["metrics"] = self._metrics(meta.usage)
        else:
            for name in _ONLY_AGENTS:
                if getattr(meta, name) is not None:
                    self.lose("dropped", said, name, "only steps of an agent have it")
        return _Step(record=record | {"message": "", "extra": extra}, turn=said.turn.id)

    def _metrics(self, usage: Usage) -> Record:
        counts = {name: getattr(self.usage, name) + getattr(usage, name) for name in Usage.__struct_fields__}
        self.usage = Usage(**counts)
        apart = {
            name: value
            for name in ("cache_creation_input_tokens", "reasoning_tokens")
            if (value := getattr(usage, name))
        }
        return token_counts(usage, "") | ({"extra": apart} if apart else {})

    def _speak(self, said: Said, step: _Step) -> None:
        """Take what a turn says beside calls and results: the step has the thinking first, then all else."""
        parts: list[Record] = []
        thoughts: list[str] = []
        called = False
        for place, block in enumerate(said.blocks):
            match block:
                case Text() | Document():
                    if called:
                        self.lose("moved", said, block_type(block), "before the calls of its step", place)
                    parts.append(self._part(said, block, place))
                case Thinking():
                    if thinking := self._thinking(said, block, place, first=not parts and not called):
                        thoughts.append(thinking)
                case Native():
                    self._native(said, block, place)
                case ToolUse():
                    called = True
                case ToolResult():
                    pass
        if len(thoughts) > 1:
            self.lose("downgraded", said, "thinking", f"{len(thoughts)} blocks as one text")
        if thoughts:
            step.record["reasoning_content"] = "\n\n".join(thoughts)
        step.record["message"] = _message(parts)

    def _thinking(self, said: Said, block: Thinking, place: int, *, first: bool) -> str:
        """Return what a block of thinking says; nothing where there is no place for it."""
        self._without_extra(said, block, place)
        if said.turn.meta.role != "assistant":
            self.lose("dropped", said, "thinking", "only steps of an agent have it", place)
            return ""
        if block.signature is not None or block.redacted:
            self.lose("dropped", said, "thinking.signature", "the format has the text alone", place)
        for name in ("provider", "api", "model"):
            if getattr(block, name) not in (None, getattr(said.turn.meta, name)):
                self.lose("dropped", said, f"thinking.{name}", "a step has it for all that it says alone", place)
        if not block.thinking:
            self.lose("dropped", said, "thinking", "it has no text, and the format has the text alone", place)
        if not first and block.thinking:
            self.lose("moved", said, "thinking", "before the texts and calls of its step", place)
        return block.thinking

    # Calls and results

    def _call(self, said: Said, step: _Step, block: ToolUse, place: int) -> None:
        self._without_extra(said, block, place)
        if said.turn.meta.role != "assistant":
            self.lose("dropped", said, "tool_use", "only steps of an agent have it", place)
            return
        if block.id is None:
            call_id = f"{said.turn.id}-{place}"
            self._open.append((block.name, call_id))
            self.lose("synthesised", said, "tool_id", f"{call_id!r} for a call without an id", place)
        else:
            call_id = block.id
        step.calls.append({"tool_call_id": call_id, "function_name": block.name, "arguments": block.input})
        step.arguments[call_id] = bytes(block.input)
        self._called[call_id] = step
        self._names[call_id] = block.name

    def _result(self, said: Said, block: ToolResult, place: int) -> None:
        self._without_extra(said, block, place)
        call_id = self._answered(said, block, place) if block.tool_use_id is None else block.tool_use_id
        step = None if call_id is None else self._called.get(call_id)
        if step is None:
            step = self._begin(said)
            step.record["source"] = "system"
            self._steps.append(step)
            self.lose("moved", said, "tool_result", "its call is not here: the observation of a step of its own", place)
        elif step is not next((each for each in reversed(self._steps) if each.calls), None):
            self.lose("moved", said, "tool_result", "to the step of its call", place)
        record: Record = {} if call_id is None else {"source_call_id": call_id}
        if isinstance(block.content, str):
            record["content"] = block.content
        else:
            record["content"] = self._parts(said, block.content, place)
        extra: Record = {"turn": said.turn.id}
        if block.is_error is True:
            extra["is_error"] = True
        elif block.is_error is False:
            self.lose("dropped", said, "tool_result.is_error", "of a result that is no error nothing is said", place)
        if block.name not in (None, self._names.get(call_id or "")):
            self.lose("dropped", said, "tool_result.name", "a result has the name of its call alone", place)
        step.results.append(record | {"extra": extra})

    def _answered(self, said: Said, block: ToolResult, place: int) -> str | None:
        """Return the id that the oldest call without one got, which a result without one answers."""
        waiting = next((each for each in self._open if block.name in (None, each[0])), None)
        if waiting is None:
            return None
        self._open.remove(waiting)
        self.lose("synthesised", said, "tool_id", f"{waiting[1]!r} for a result without an id", place)
        return waiting[1]

    # What is said

    def _parts(self, said: Said, blocks: Sequence[Text | Document | Native], place: int) -> list[Record]:
        found: list[Record] = []
        for block in blocks:
            if isinstance(block, Native):
                self._native(said, block, place)
            else:
                found.append(self._part(said, block, place))
        return found

    def _part(self, said: Said, block: Text | Document, place: int) -> Record:
        self._without_extra(said, block, place)
        if isinstance(block, Text):
            return {"type": "text", "text": block.text}
        media_type = block.source.media_type
        if of_type(block, IMAGES):
            plain = media_type.partition(";")[0].strip().lower()
            if plain != media_type:
                self.lose("downgraded", said, "document", f"{plain!r} for {media_type!r}", place)
            url = f"data:{plain};base64,{block.source.data}"
            return {"type": "image", "source": {"media_type": plain, "path": url}}
        text = document_text(block, self._long)
        if text is not None:
            self.lose("downgraded", said, "document", f"{media_type} as plain text", place)
            return {"type": "text", "text": text}
        self.lose("dropped", said, "document", f"a line of text in place of {media_type}", place)
        size = self._long.bytes_of_base64(block.source.data)
        line = f"[a document of type {media_type}, {size:,} bytes, that cannot be shown here]"
        return {"type": "text", "text": line}

    def _native(self, said: Said, block: Native, place: int) -> None:
        self.lose("dropped", said, "native", f"a block of {block.provider!r} without a normalized form", place)

    def _without_extra(self, said: Said, block: Block, place: int) -> None:
        for name in sorted(block.extra):
            self.lose("dropped", said, name, "the format has no such key", place)


def token_counts(usage: Usage, prefix: str) -> Record:
    """Return token counts as the format names them, with cached ones among those of the prompt."""
    return {
        f"{prefix}prompt_tokens": usage.input_tokens
        + usage.cache_read_input_tokens
        + usage.cache_creation_input_tokens,
        f"{prefix}completion_tokens": usage.output_tokens + usage.reasoning_tokens,
        f"{prefix}cached_tokens": usage.cache_read_input_tokens,
    }


def block_type(block: Block) -> str:
    """Return the type of a block, as it is stored."""
    return str(block.__struct_config__.tag)


def _message(parts: Sequence[Record]) -> object:
    """Return what is said: one text as it is, all else as parts. An empty text stays a part, or nothing was said."""
    if not parts:
        return ""
    [first, *more] = parts
    return first["text"] if not more and first.get("text") else parts


def _starting(step: _Step, prompt: str) -> str | None:
    """Return the call that has a text among its arguments, or the only one; None where that cannot be told."""
    quoted = msgspec.json.encode(prompt)
    named = [call for call, arguments in step.arguments.items() if quoted in arguments] if prompt else []
    found = named or list(step.arguments)
    return found[0] if len(found) == 1 else None
