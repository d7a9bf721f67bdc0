"""Codex CLI: rollout files, JSON lines of what the session sent to the Responses API and got from it.

A line has a `type` and a `payload`; lines of older versions are the payload alone. `response_item` lines are items of
the API: what a model says until something answers it is one turn, and so are answers that follow each other. The
instructions of the session are a system turn at its beginning. `event_msg` lines say some of it again, for the screen;
`thread_rolled_back` takes the last turns of the user out of the conversation. The file of a session that was forked has
the history of the other one first, written at once, behind the `session_meta` of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from turnlog.errors import ContentError
from turnlog.events.times import parse_time
from turnlog.interop.marked import (
    begins,
    data_url,
    digest_of,
    is_text,
    json_as_text,
    json_in,
    marked_text,
    one_mark,
    respelled_text,
    says,
    text_of,
    text_pieces,
    unmarked,
)
from turnlog.interop.transcripts.blocks import (
    document_block,
    native_block,
    text_block,
    tool_result_block,
    tool_use_block,
)
from turnlog.interop.transcripts.lines import JsonLines, count, name_of
from turnlog.interop.transcripts.transcript import Builder, Entry, Given, Role, Transcript
from turnlog.model import ARGUMENTS, MALFORMED, Block, Text, Thinking, ToolUse, Usage, content_bytes
from turnlog.model.blocks import parse_content
from turnlog.providers.openai_responses.items import Owner, blocks_of
from turnlog.providers.raw_json import Fields, fields_of, objects_of

API = "responses"
PROVIDER = "openai"

_CALLS = ("message", "reasoning", "function_call", "custom_tool_call", "local_shell_call", "web_search_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output", "local_shell_call_output")
_ITEMS = (*_CALLS, *_OUTPUTS)
_ROLES: Mapping[str | None, Role] = {"user": "user", "developer": "system", "system": "system"}
"""Who speaks in a message that is not the model's."""

_TEXTS = ("input_text", "output_text", "text")
"""What parts of content are that say no more than their text."""

_REPEATS = ("user_message", "agent_message", "agent_reasoning", "agent_reasoning_raw_content")
"""Events that say for the screen what an item says."""

_COPYING_S_MAX = 1
"""Lines of a copied history follow each other sooner; no model replies so soon."""

_CONTEXT = (
    "# agents.md instructions",
    "<environment_context>",
    "<hook_prompt",
    "<skill>",
    "<subagent_notification>",
    "<subagents>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
)
"""What a message of the user begins with that Codex wrote: a rollback does not count it."""

_blocks = msgspec.json.Decoder(list[Raw])
_encoder = msgspec.json.Encoder()


class Codex(JsonLines):
    """Rollout files of Codex CLI."""

    name = "codex"
    summary = "sessions of Codex CLI (rollout-….jsonl)"

    def is_line(self, record: Mapping[str, Raw]) -> bool:
        """Tell whether a line is one of this format."""
        kind = text_of(record.get("type"))
        if kind in ("session_meta", "response_item", "event_msg", "turn_context", "compacted"):
            return "payload" in record
        return kind in _ITEMS or text_of(record.get("record_type")) == "state"

    def transcript(self, lines: Iterable[Given], builder: Builder, *, places: int, blank: int) -> Transcript:
        """Make pieces and turns of lines."""
        reader = _Reader(builder)
        for line in lines:
            reader.take(line)
        return builder.done(places=places, blank=blank)


class _Reader:
    """Reads lines in their order."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._begun = False
        self._session: str | None = None
        self._copied: datetime | None = None
        """When the last line was written, where it is of a history that was copied."""
        self._repeated = 0
        """How many turns are of such a history: the session that it is of counts them."""
        self._provider = PROVIDER
        self._model: str | None = None
        self._last: int | None = None
        """The last turn, which the next one continues."""
        self._open: str | None = None
        """What the last turn can still get: `assistant`, `results`, or nothing more."""
        self._before: list[int | None] = []
        """What each turn of the user continues, of those that were not taken back."""
        self._counted: Raw | None = None
        """What all calls had taken together when the last one was counted."""

    def take(self, line: Given) -> None:
        """Take the next line."""
        record = line.record()
        kind = text_of(record.get("type"))
        timestamp = text_of(record.get("timestamp"))
        is_item = kind in _ITEMS
        payload = record if is_item else fields_of(record.get("payload")) or {}
        at = () if is_item else ("payload",)
        inner = text_of(payload.get("type"))
        if self._copied is not None:
            self._repeated = len(self._builder.entries)
            if (time := parse_time(timestamp)) is not None:
                self._copied = time if time - self._copied < timedelta(seconds=_COPYING_S_MAX) else None
        if kind == "response_item" or is_item:
            self._item(line, payload, at, timestamp)
            return
        if kind == "session_meta" or (kind is None and "id" in record):
            self._begin(line, payload or record, at if payload else (), timestamp)
            return
        if kind == "compacted":
            self._compacted(line, payload, timestamp)
            return
        if kind == "turn_context":
            self._model = name_of(payload.get("model")) or self._model
        if inner == "thread_rolled_back":
            self._roll_back(count(payload, "num_turns"))
        name = kind or "unknown" if kind != "event_msg" or inner is None else inner
        # What repeats a turn goes with it.
        piece = self._piece(line, name, timestamp, turn=self._last if inner in _REPEATS else None)
        if inner == "token_count":
            self._count(fields_of(payload.get("info")) or {}, piece)

    def _piece(
        self,
        line: Given,
        kind: str,
        timestamp: str | None,
        *,
        turn: int | None = None,
        blocks: Sequence[bytes] | None = None,
        moved: Sequence[tuple[str, ...]] = (),
        id: str | None = None,
    ) -> int:
        return self._builder.piece(
            line,
            kind,
            turn=turn,
            blocks=blocks,
            moved=moved,
            id=id,
            time=parse_time(timestamp),
            session=self._session,
        )

    def _begin(self, line: Given, meta: Fields, at: tuple[str, ...], timestamp: str | None) -> None:
        if self._begun:
            self._repeat(line, name_of(meta.get("id")), timestamp)
            return
        self._begun = True
        self._session = name_of(meta.get("id"))
        self._provider = name_of(meta.get("model_provider")) or self._provider
        timestamp = timestamp or text_of(meta.get("timestamp"))
        based = fields_of(meta.get("base_instructions")) or {}
        place, told = (("base_instructions", "text"), based.get("text"))
        if not is_text(told):
            place, told = ("instructions",), meta.get("instructions")
        if not says(told):
            self._piece(line, "session_meta", timestamp)
            return
        turn = self._turn("system", timestamp, is_open=None)
        self._piece(line, "session_meta", timestamp, turn=turn, blocks=[text_block(told)], moved=[(*at, *place)])

    def _repeat(self, line: Given, session: str | None, timestamp: str | None) -> None:
        """Take a further beginning, as an event: the first one is that of the file."""
        self._copied = None
        if session != self._session:
            self._copied = parse_time(timestamp)
            what = f"the history of the session {session!r} is repeated from here on: recorded as turns of this one"
            self._builder.problem(line.place, f"{what}, without usage where that was copied too")
        self._piece(line, "session_meta", timestamp, turn=self._last)

    def _item(self, line: Given, item: Fields, at: tuple[str, ...], timestamp: str | None) -> None:
        kind = text_of(item.get("type")) or "unknown"
        role = text_of(item.get("role"))
        moved: list[tuple[str, ...]] = []
        if kind == "message" and role != "assistant":
            blocks = _said(item)
            if blocks is None:
                self._builder.problem(
                    line.place, "a message without usable content: kept as an event, it became no turn"
                )
                self._piece(line, kind, timestamp)
                return
            if role not in _ROLES:
                # Not a system turn: nobody but who built the agent is to speak with its authority.
                self._builder.problem(line.place, f"a message of the unknown role {role!r}: taken for a user's")
            if role == "user" and not _is_context(item):
                self._before.append(self._last)
            turn = self._turn(_ROLES.get(role, "user"), timestamp, is_open=None)
            moved = [(*at, "content")] if _is_whole(item.get("content")) else []
        elif kind in _OUTPUTS:
            turn = self._turn("user", timestamp, is_open="results")
            blocks = [_result(item)]
            moved = [(*at, "output")] if _is_whole(item.get("output")) else []
        elif kind in _CALLS or role == "assistant":
            turn = self._turn("assistant", timestamp, is_open="assistant")
            blocks, names = self._of_model(item, kind)
            moved = [(*at, name) for name in names]
        else:
            self._builder.problem(line.place, f"a response item of the unknown type {kind!r}: kept as an event")
            self._piece(line, kind, timestamp, turn=self._last)
            return
        self._piece(line, kind, timestamp, turn=turn, blocks=blocks, moved=moved, id=text_of(item.get("id")))

    def _of_model(self, item: Fields, kind: str) -> tuple[list[bytes], Sequence[str]]:
        """Return the blocks of an item of a model, and the fields that they are made of."""
        owner = Owner(provider=self._provider, api=API, model=self._model or "unknown")
        if kind == "custom_tool_call":
            given, name = item.get("input"), item.get("name")
            if is_text(given) and is_text(name):
                arguments = Raw(_encoder.encode({"input": given}))
                return [tool_use_block(name, arguments, id=item.get("call_id"))], ("input",)
        payload = content_bytes([_spelled(block) for block in _calls(item, owner) or blocks_of(item, owner)])
        given = item.get("arguments")
        is_given = given is not None and (is_text(given) or begins(given, b"{"))
        moved = ("content", "summary", "encrypted_content", *(("arguments",) if is_given else ()))
        return [bytes(block) for block in _blocks.decode(payload)], moved

    def _turn(self, role: Role, timestamp: str | None, *, is_open: str | None) -> int:
        """Return the turn that goes on, or a new one."""
        if is_open is not None and self._open == is_open and self._last is not None:
            return self._last
        self._open = is_open
        is_model = role == "assistant"
        self._last = self._builder.entry(
            Entry(
                role=role,
                parents=() if self._last is None else (self._last,),
                time=parse_time(timestamp),
                timestamp=timestamp,
                session=self._session,
                model=self._model if is_model else None,
                provider=self._provider if is_model else None,
                api=API if is_model else None,
            )
        )
        return self._last

    def _compacted(self, line: Given, payload: Fields, timestamp: str | None) -> None:
        """Take what the session went on with in the place of what was said before."""
        told = payload.get("message")
        if not says(told):
            if objects_of(payload.get("replacement_history")):
                what = (
                    "the history was replaced, and nothing says what by but items that are no turns: kept as an event"
                )
                self._builder.problem(line.place, f"{what}, what follows continues all that was said before")
            self._piece(line, "compacted", timestamp)
            return
        self._before.append(self._last)
        turn = self._turn("user", timestamp, is_open=None)
        self._piece(line, "compacted", timestamp, turn=turn, blocks=[text_block(told)], moved=[("payload", "message")])

    def _roll_back(self, turns: int) -> None:
        """Take the last turns of the user back, and all behind them. They stay in the log, as a branch."""
        if turns and self._before:
            first = max(0, len(self._before) - turns)
            self._last, self._open = self._before[first], None
            del self._before[first:]

    def _count(self, info: Fields, piece: int) -> None:
        """Take the tokens of the last call from what a piece says.

        The API counts cached tokens as input, and those of reasoning as output.
        """
        told = fields_of(info.get("last_token_usage"))
        if told is None:
            return
        total = info.get("total_token_usage")
        if self._copied is not None:
            self._counted = total  # a fork tells it once more when it goes on
            return
        entries = self._builder.entries
        own = entries[max(self._repeated, len(entries) - 2) :]
        entry = next((each for each in reversed(own) if each.role == "assistant"), None)
        # It is told again now and then; two calls can be in one turn, and what they took together says which is new.
        is_again = total == self._counted if total is not None else entry is not None and entry.usage is not None
        if entry is None or is_again:
            return
        self._counted = total
        cached, reasoning = count(told, "cached_input_tokens"), count(told, "reasoning_output_tokens")
        entry.counted = piece
        took = Usage(
            input_tokens=max(0, count(told, "input_tokens") - cached),
            cache_read_input_tokens=cached,
            output_tokens=max(0, count(told, "output_tokens") - reasoning),
            reasoning_tokens=reasoning,
        )
        entry.usage = took if entry.usage is None else entry.usage + took


def _calls(item: Fields, owner: Owner) -> list[Block] | None:
    """Return the block of a call with long arguments, which are read with marks; None for another item."""
    told = item.get("arguments")
    text = marked_text(told)
    if not is_text(told) or text is None or (respelled := respelled_text(text)) == text:
        return None
    blocks = blocks_of(item | {"arguments": Raw(b"{}")}, owner)
    if not all(isinstance(block, ToolUse) for block in blocks):
        return None
    given, extra = b"{}", {}
    if (found := json_in(text)) is not None:
        given, is_spelled = found
        extra = {} if is_spelled else {ARGUMENTS: Raw(_encoder.encode(respelled))}
    elif digest_of(text_pieces(told)) is not None:
        extra = {MALFORMED: Raw(_encoder.encode(respelled))}
    return [replace(block, input=Raw(given), extra=extra | block.extra) for block in blocks]


def _spelled(block: Block) -> Block:
    """Return a block; of a long text one that is spelled as that of a short one is, which was read."""
    match block:
        case Text():
            return replace(block, text=respelled_text(block.text))
        case Thinking(signature=signature):
            signature = None if signature is None else respelled_text(signature)
            return replace(block, thinking=respelled_text(one_mark(block.thinking)), signature=signature)
        case ToolUse():
            return replace(block, id=unmarked(block.id or "") or None, name=unmarked(block.name))
        case _:
            return block


def _said(item: Fields) -> list[bytes] | None:
    """Return the blocks of a message of a person, or of whoever built the agent."""
    content = item.get("content")
    if is_text(content):
        return [text_block(content)]
    parts = objects_of(content)
    return None if parts is None else [_part(part) for part in parts]


def _is_context(item: Fields) -> bool:
    """Tell whether Codex wrote a message of the user by itself."""
    texts = [part.get("text") for part in objects_of(item.get("content")) or [item | {"text": item["content"]}]]
    return any(is_text(text) and next(text_pieces(text)).lstrip().lower().startswith(_CONTEXT) for text in texts)


def _is_whole(content: Raw | None) -> bool:
    """Tell whether blocks have all that content says: else it stays in the event too."""
    return all(_is_whole_part(part) for part in objects_of(content) or ())


def _is_whole_part(part: Fields) -> bool:
    kind = text_of(part.get("type"))
    if is_text(part.get("text")):
        return part.keys() <= {"type", "text"} and ("type" not in part or kind in _TEXTS)
    url = part.get("image_url")
    is_image = is_text(url) and next(text_pieces(url)).startswith("data:")
    return not is_image or (part.keys() <= {"type", "image_url"} and kind == "input_image")


def _part(part: Fields) -> bytes:
    text = part.get("text")
    if is_text(text):
        return text_block(text)
    if (url := data_url(part.get("image_url"))) is not None:
        try:
            return parse_content(document_block(*url))[1:-1]
        except ContentError:
            pass
    return native_block(PROVIDER, Raw(_encoder.encode(part)), api=API)


def _result(item: Fields) -> bytes:
    """Return what a tool answered. What is no text is kept as JSON text."""
    output = item.get("output", Raw(b'""'))
    parts = objects_of(output)
    if parts is not None:
        return tool_result_block([Raw(_part(part)) for part in parts], id=item.get("call_id"))
    content = output if is_text(output) else json_as_text(output)
    return tool_result_block(content, id=item.get("call_id"))
