"""From a window's messages to messages that a wire can carry, in an order that all providers take.

Tool calls and results are paired by id, and each result stands right after its call. What becomes of each block is for
`BlockRules`. A longer conversation goes on from where a shorter one was left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Raw

from turnlog.model import (
    Block,
    Document,
    Erased,
    LossEntry,
    Message,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    WindowBlock,
)
from turnlog.model.blocks import malformed_texts
from turnlog.model.chunked import Chunked
from turnlog.model.erased import window_content
from turnlog.model.long_strings import LongStrings
from turnlog.model.marked_blocks import LONG_KINDS, marked_texts
from turnlog.providers.block_rules import BlockRules
from turnlog.providers.carriage import Capabilities, Carried, CarriedConversation, Target
from turnlog.providers.extras import CALL_TYPE, encoded_with
from turnlog.providers.joined_texts import CarriedBlocks
from turnlog.providers.server_calls import ServerCalls, ServerPart
from turnlog.providers.tool_ids import ToolIds
from turnlog.providers.tool_names import ANY_NAME

NO_RESULT = "No result: the tool was not run, or its result was not recorded."
"""What a call without a result is answered with, as an error."""


ERASED = "[erased]"
"""What stands for what was said in an erased turn. A message is there, so that roles alternate as they did."""


class _Call:
    """A tool call: where it is, its name and id on the wire, and where its result is."""

    __slots__ = ("index", "name", "result", "result_extra", "settled", "shown_id", "turn", "wire_id")

    def __init__(self, index: int, turn: str, name: str, wire_id: str, extra: dict[str, Raw], *, shown: bool) -> None:
        self.index = index
        self.turn = turn
        self.name = name
        self.wire_id = wire_id
        self.result_extra = extra
        """What its result has beside it on the wire: of which type it is, where it is no function."""
        self.shown_id = wire_id if shown else None
        """The id as the wire gets it; unset where it gets none."""
        self.result: tuple[int, int] | None = None
        self.settled = False
        """Whether it was answered on the wire already, by its result or by one that was made up."""


class _Late(Exception):  # noqa: N818 - a signal inside this module, and no error
    """What came is news of a message that is carried already: the result of a call that a made-up one answers, say."""


_Place = tuple[int, int]
"""A message and a block in it, by index."""

_Content = dict[int, tuple[Message, list[WindowBlock]]]
"""Messages with their blocks, by index."""


class Conversation:
    """One conversation on its way to one target. Not safe to use from several threads at once."""

    def __init__(
        self,
        capabilities: Capabilities,
        target: Target,
        encode: Callable[[Carried], Sequence[bytes]],
        *,
        server_part: Callable[[Raw], ServerPart | None] = lambda _: None,
        embeds_texts: bool = False,
        arguments_are_text: bool = False,
    ) -> None:
        """Begin with nothing carried.

        Args:
            capabilities: what the wire can carry.
            target: where the conversation goes.
            encode: returns a message as messages of the wire.
            server_part: returns which call or result of a tool of the provider's own a native block is, if it is one.
            embeds_texts: whether that puts texts into JSON as they are: see `Provider`.
            arguments_are_text: whether the input of a call is one of these.
        """
        self._embeds_texts = embeds_texts
        self._arguments_are_text = arguments_are_text
        self._capabilities = capabilities
        self._names = capabilities.tool_names or ANY_NAME
        # What a message of the wire has in it whose blocks have cache breakpoints of their own.
        self._mark = None if capabilities.cache_key is None else b'"%b"' % capabilities.cache_key.encode()
        self._target = target
        self._encode = encode
        self._server_part = server_part
        self._begin()

    def _begin(self) -> None:
        self.size = 0
        """About how many bytes it keeps."""
        self._source: Chunked[Message] = Chunked()
        self._messages: Chunked[bytes] = Chunked()
        self._renamed: list[LossEntry] = []
        self._rules = BlockRules(self._capabilities, self._target)
        self._system: list[str] = []
        self._system_cached = False
        self._cached: list[int] = []
        self._marked: list[tuple[int, str]] = []
        self._calls: dict[_Place, _Call] = {}
        self._open: dict[str, list[_Call]] = {}
        """The unanswered calls of each recorded id, oldest first. Calls without an id are here by `name:`."""
        self._results: dict[_Place, _Call | None] = {}
        """The call of each result; None for one without a call."""
        self._server_calls = ServerCalls()
        self._ids = ToolIds(self._capabilities)
        self._due: list[_Call] = []
        """The calls of the last message, if it was an assistant's: their results come next."""
        self._behind_erased = False
        """Whether the last message is an erased assistant's: the results of its calls have no calls any more."""
        self._ending: tuple[bytes, LossEntry] | None = None
        """What the last message of the wire is as long as the conversation ends with it, where that is not the same."""
        self._last: tuple[int, Message] | None = None
        """The last message, and its index: it may hold results of its own calls."""

    def continued_by(self, messages: Chunked[Message], target: Target) -> bool:
        """Return whether messages begin with those carried so far, on the way to the same target."""
        return self._target == target and messages.starts_with(self._source)

    def carry(self, messages: Chunked[Message]) -> CarriedConversation:
        """Return all messages in the form of the wire; only those are looked at that were not carried before.

        Raises:
            UnsupportedContentError: the wire cannot carry a block.
        """
        try:
            self._go_on(messages)
        except _Late:
            self._begin()
            self._go_on(messages)
        closing, losses = self._unanswered()
        self._rules.long = LongStrings()
        carried = self._messages.extended(closing) if closing else self._messages
        if self._ending is not None and not closing:
            carried = carried.with_last(self._ending[0])
            losses = [*losses, self._ending[1]]
        return CarriedConversation(
            messages=carried,
            losses=(*self._renamed, *self._rules.losses, *losses),
            system=tuple(self._system),
            cached=tuple(self._cached),
            marked=tuple(self._marked),
            system_cached=self._system_cached,
        )

    def _go_on(self, messages: Chunked[Message]) -> None:
        first = len(self._source)
        new: list[tuple[int, Message, list[WindowBlock]]] = []
        for index, message in enumerate(messages.since(first), first):
            blocks = self._blocks(message)
            new.append((index, message, blocks))
            self._pair(index, message, blocks)
        content = self._own_results() | {index: (message, blocks) for index, message, blocks in new}
        fragments: list[bytes] = []
        last: tuple[Carried, list[WindowBlock]] | None = None
        for index, message, blocks in new:
            for carried in self._carried(index, message, blocks, content):
                count = len(self._messages) + len(fragments)
                encoded = self._encoded(carried)
                fragments += [
                    self._fragment(text, b"," if count + place else b"") for place, text in enumerate(encoded)
                ]
                if self._mark is not None:
                    self._marked += [
                        (count + place, carried.turn) for place, text in enumerate(encoded) if self._mark in text
                    ]
                if carried.cache and encoded:
                    self._cached.append(count + len(encoded) - 1)
                if encoded:
                    last = carried, blocks
        self._messages = self._messages.extended(fragments)
        if last is not None:
            self._ending = self._without_blank_end(*last)
        self.size += sum(map(len, fragments)) + sum(len(message.content_json) for _, message, _ in new)
        self._source = messages
        self._last = new[-1][:2] if new else self._last

    def _encoded(self, carried: Carried) -> Sequence[bytes]:
        """Return a message as messages of the wire, and take note of fields that do not stand in them."""
        encoded, left_out = encoded_with(self._encode, carried)
        for name, why in left_out:
            self._rules.lose("dropped", carried.turn, name, why)
        return encoded

    def _without_blank_end(self, carried: Carried, blocks: Sequence[WindowBlock]) -> tuple[bytes, LossEntry] | None:
        """Return the last message without the whitespace that it ends in, where the conversation cannot end so.

        Args:
            carried: the message.
            blocks: those of the turn that it is of.
        """
        text = carried.blocks[-1]
        if self._capabilities.blank_end or carried.role != "assistant" or not isinstance(text, Text):
            return None
        cut = self._rules.without_blank_end(text)
        if cut is None:
            return None
        *before, encoded = self._encode(msgspec.structs.replace(carried, blocks=(*carried.blocks[:-1], cut)))
        comma = b"," if len(self._messages) > 1 or before else b""
        why = "without the whitespace that it ends in: no conversation can end so"
        places = [place for place, block in enumerate(blocks) if isinstance(block, Text) and block.text == text.text]
        index = places[-1] if places else None
        loss = LossEntry(kind="downgraded", turn=carried.turn, block="text", why=why, index=index)
        return self._fragment(encoded, comma), loss

    def _blocks(self, message: Message) -> list[WindowBlock]:
        """Return the blocks of a message, with marks for what is long in them.

        Texts of system turns may be joined elsewhere: they have none.
        """
        if self._embeds_texts and message.role != "system":
            return window_content(marked_texts(message.content_json, self._rules.long, LONG_KINDS))
        return message.content

    def _fragment(self, text: bytes, before: bytes) -> bytes:
        """Return a message of the wire as it stands in the body, with what is long in place of its marks."""
        if not self._rules.long.is_in(text):
            return before + text
        with malformed_texts():
            return self._rules.long.encoded_into(text, before)

    def _own_results(self) -> _Content:
        """Return the last message where it holds results of its own calls, which are still to be carried."""
        if self._last is None or not any(call.result and call.result[0] == self._last[0] for call in self._due):
            return {}
        index, message = self._last
        return {index: (message, self._blocks(message))}

    # Pairing: which result answers which call

    def _pair(self, index: int, message: Message, blocks: Sequence[WindowBlock]) -> None:
        if self._ends_turn(message, blocks) and any(at < len(self._source) for at, _ in self._server_calls.end_turn()):
            raise _Late
        for place, block in enumerate(blocks):
            if isinstance(block, ToolUse) and message.role == "assistant":
                wire_id = self._wire_id(block, message, place)
                typed = CALL_TYPE in block.extra and self._rules.goes_back(message)
                extra = {CALL_TYPE: block.extra[CALL_TYPE]} if typed else {}
                name = self._wire_name(block, message, place)
                call = _Call(index, message.turn, name, wire_id, extra, shown=self._has_id(block, message))
                self._calls[index, place] = call
                self._open.setdefault(_key(block.id, block.name), []).append(call)
            elif isinstance(block, ToolResult):
                call = self._answered_by(block)
                self._results[index, place] = call
                if call is not None:
                    if call.settled:
                        raise _Late
                    call.result = (index, place)
            elif isinstance(block, Native) and message.role == "assistant" and self._rules.is_own(block, message):
                part = self._server_part(block.block)
                if part is not None:
                    self._server_calls.add(part, (index, place))

    def _ends_turn(self, message: Message, blocks: Sequence[WindowBlock]) -> bool:
        """Return whether a message ends the assistant's turn before it, as all do but its own and results of tools."""
        if message.role == "system" and self._capabilities.system == "joined":
            return False
        goes_on = message.role == "assistant" and self._rules.goes_back(message)
        return not goes_on and not all(isinstance(block, ToolResult) for block in blocks)

    def _answered_by(self, result: ToolResult) -> _Call | None:
        """Return the call that a result answers: the first one of its id in the last message that has such a call."""
        waiting = self._open.get(_key(result.tool_use_id, result.name))
        if not waiting:
            return None
        oldest = result.tool_use_id is None
        return waiting.pop(next(n for n, call in enumerate(waiting) if oldest or call.index == waiting[-1].index))

    def _has_id(self, call: ToolUse, message: Message) -> bool:
        """Return whether a call has an id on the wire, as its result then has."""
        own = call.id is not None and self._rules.is_to(message.provider, message.api)
        return self._capabilities.tool_ids_of_others or own

    def _wire_id(self, block: ToolUse, message: Message, place: int) -> str:
        """Return the id of a call on the wire: see `ToolIds`."""
        wire_id, why = self._ids.add(block.id, returns=self._rules.is_to(message.provider, message.api))
        if why is not None:
            self._rename("tool_id", why, message, place)
        return wire_id

    def _wire_name(self, block: ToolUse, message: Message, place: int) -> str:
        """Return the name of the tool that a call is of, as the wire takes it, whoever wrote it: see `ToolNames`."""
        name = self._names.made_from(block.name)
        if name != block.name:
            named = f"{block.name!r}, which is not in the form of the wire" if block.name else "a call without a name"
            self._rename("tool_name", f"{name!r} for {named}", message, place)
        return name

    def _rename(self, block: str, why: str, message: Message, place: int) -> None:
        self._renamed.append(LossEntry(kind="renamed", turn=message.turn, block=block, why=why, index=place))

    # Carrying: what the wire gets

    def _carried(self, index: int, message: Message, blocks: Sequence[WindowBlock], content: _Content) -> list[Carried]:
        role, is_erased = message.role, message.erased
        due, self._due = self._due, []
        answers, moved = self._answers(due, index, content) if due else ([], [])
        for call in due:
            call.settled = True
        rest = self._in_their_place(index, message, blocks)
        for place, block in enumerate(blocks):
            if isinstance(block, ToolResult) and self._results[index, place] is None:
                self._rules.lose("dropped", message.turn, "tool_result", _no_call(block), place)
        if is_erased and role == "user" and answers:
            # It held the results: what is made up for them says that it was erased.
            rest = []
        if self._behind_erased and role == "user" and blocks and not rest and not answers:
            rest = [Text(text=ERASED)]
        self._behind_erased = is_erased and role == "assistant"
        if role == "assistant":
            self._due = [self._calls[index, place] for place in range(len(blocks)) if (index, place) in self._calls]
        if role == "system" and self._capabilities.system == "joined":
            self._system += [block.text for block in rest if isinstance(block, Text)]
            self._system_cached |= message.cache
            return self._message("user", due[0].turn, [*answers, *moved], cache=False) if answers else []
        together = role == "user" and any(call.result and call.result[0] == index for call in due)
        if together:
            return self._message("user", message.turn, [*answers, *moved, *rest], cache=message.cache)
        before = self._message("user", due[0].turn, [*answers, *moved], cache=False) if answers else []
        return before + self._message(role, message.turn, rest, cache=message.cache)

    def _in_their_place(self, index: int, message: Message, blocks: Sequence[WindowBlock]) -> list[Block]:
        """Return what is carried where it stands in a message: all but results, which follow their calls."""
        if len(blocks) == 1:  # as of most messages: there is nothing to join
            rest = [*self._block(blocks[0], message, index, 0)]
            places = [0] * len(rest)
        else:
            placed: CarriedBlocks[Block] = CarriedBlocks(joins_texts=self._capabilities.joins_texts)
            places = list[int]()
            for place, block in enumerate(blocks):
                count = len(self._rules.losses)
                carried = self._block(block, message, index, place)
                placed.add(block, carried, lost=len(self._rules.losses) > count)
                places += [place] * len(carried)
            rest = placed.blocks
        while not self._capabilities.thinking_last and rest and isinstance(rest[-1], Thinking):
            rest.pop()
            self._rules.refuse_or_drop("thinking", "no message can end with it", message, places.pop())
        return rest

    def _message(self, role: str, turn: str, blocks: Sequence[Block], *, cache: bool) -> list[Carried]:
        if not blocks:
            return []
        known = role if role in ("assistant", "system") else "user"
        return [Carried(role=known, model=self._target.model, turn=turn, blocks=tuple(blocks), cache=cache)]

    def _answers(self, due: Sequence[_Call], index: int, content: _Content) -> tuple[list[Block], list[Block]]:
        """Return the results of the calls of the message before, and what moves behind them.

        They are in the order recorded; on a wire without ids, where only that tells them apart, in that of the calls.
        """
        answers: list[Block] = []
        moved: list[Block] = []
        if self._capabilities.tool_id_pattern is not None:
            due = sorted(due, key=lambda call: call.result or (1 << 62, 0))
        for call in due:
            result, behind = self._answer(call, index, content)
            extra = result.extra | call.result_extra
            answers.append(msgspec.structs.replace(result, tool_use_id=call.shown_id, name=call.name, extra=extra))
            moved += behind
        return answers, moved

    def _answer(self, call: _Call, index: int, content: _Content) -> tuple[ToolResult, list[Block]]:
        """Return the result of a call, and what moves behind it, where the message behind the call is at an index."""
        if call.result is None:
            return self._made_up(call, content.get(index)), []
        where, place = call.result
        message, blocks = content[where]
        result = blocks[place]
        assert isinstance(result, ToolResult)
        if where != index:
            self._rules.lose("moved", message.turn, "tool_result", f"right behind its call {call.wire_id!r}", place)
        return self._rules.result(result, message, place)

    def _made_up(self, call: _Call, behind: tuple[Message, list[WindowBlock]] | None) -> ToolResult:
        """Return a result for a call that has none, where there is this message behind it."""
        if behind is not None and behind[0].role == "user" and behind[0].erased:
            self._rules.lose(
                "synthesised", call.turn, "tool_result", f"for call {call.wire_id!r}, whose own was erased"
            )
            return ToolResult(content=[Text(text=ERASED)])
        self._rules.lose("synthesised", call.turn, "tool_result", f"an error, for call {call.wire_id!r} without one")
        return ToolResult(content=[Text(text=NO_RESULT)], is_error=True)

    def _unanswered(self) -> tuple[list[bytes], list[LossEntry]]:
        """Return results for the calls of the last message: made up, or its own. They are not kept: more may come."""
        if not self._due:
            return [], []
        count = len(self._rules.losses)
        answers, moved = self._answers(self._due, len(self._source), self._own_results())
        [carried] = self._message("user", self._due[0].turn, [*answers, *moved], cache=False)
        encoded = self._encoded(carried)
        losses = self._rules.losses[count:]
        del self._rules.losses[count:]
        return [self._fragment(text, b",") for text in encoded], losses

    def _block(self, block: WindowBlock, message: Message, index: int, place: int) -> Sequence[Block]:
        match block:
            case Erased():
                why = "the turn is sealed, and its key is not here" if block.sealed else "the turn was erased"
                self._rules.refuse_or_drop("erased", why, message, place)
                return [Text(text=ERASED)]
            case Text():
                return self._rules.text(block, message, place)
            case Document():
                taken = self._capabilities.documents if message.role == "user" else ()
                return self._rules.document(block, message, place, taken, message.document_name)
            case Native():
                if why := self._server_calls.left_out.get((index, place)):
                    self._rules.lose("dropped", message.turn, "native", why, place)
                    return []
                return self._rules.native(block, message, place)
            case Thinking():
                return self._rules.thinking(block, message, place)
            case ToolUse():
                return self._call(block, message, index, place)
            case ToolResult():
                return []

    def _call(self, block: ToolUse, message: Message, index: int, place: int) -> list[ToolUse]:
        if call := self._calls.get((index, place)):
            kept = self._rules.without_extra(block, message, place)
            shown = msgspec.structs.replace(kept, id=call.shown_id, name=call.name)
            return [self._rules.with_text(shown) if self._arguments_are_text else shown]
        self._rules.refuse_or_drop("tool_use", "only assistant turns call tools", message, place)
        return []


def _key(tool_use_id: object, name: object) -> str:
    return tool_use_id if isinstance(tool_use_id, str) else f"name:{name}"


def _no_call(block: ToolResult) -> str:
    return f"there is no call {block.tool_use_id if block.tool_use_id is not None else block.name!r} that it answers"
