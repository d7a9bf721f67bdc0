"""From a window's messages to messages that a wire can carry: the rules that all providers share.

Tool calls and results are paired by id, and each result stands right after its call. What a wire cannot carry is
degraded by a rule and reported, or refused. A longer conversation goes on from where a shorter one was left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw

from turnlog.errors import UnsupportedContentError
from turnlog.model import (
    ARGUMENTS,
    MALFORMED,
    Block,
    Document,
    Erased,
    LossEntry,
    LossKind,
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
from turnlog.model.names import api_name, provider_name
from turnlog.providers.carriage import Capabilities, Carried, CarriedConversation, Target
from turnlog.providers.documents import document_text, document_words, named, named_text, of_type
from turnlog.providers.extras import CALL_TYPE, left_out, says_nothing
from turnlog.providers.identity import same_model
from turnlog.providers.joined_texts import CarriedBlocks
from turnlog.providers.results import error_in_text
from turnlog.providers.server_calls import ServerCalls, ServerPart
from turnlog.providers.tool_ids import ToolIds
from turnlog.providers.tool_names import ANY_NAME

_B = TypeVar("_B", bound=Block)

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
        self._losses: list[LossEntry] = []
        self._system: list[str] = []
        self._system_cached = False
        self._cached: list[int] = []
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
        self._last: tuple[int, Message] | None = None
        """The last message, and its index: it may hold results of its own calls."""
        self._long = LongStrings()
        """What was long in the messages that are being carried: marks stand in their blocks."""

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
        self._long = LongStrings()
        return CarriedConversation(
            messages=self._messages.extended(closing) if closing else self._messages,
            losses=(*self._renamed, *self._losses, *losses),
            system=tuple(self._system),
            cached=tuple(self._cached),
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
        for index, message, blocks in new:
            for carried in self._carried(index, message, blocks, content):
                count = len(self._messages) + len(fragments)
                encoded = self._encode(carried)
                fragments += [
                    self._fragment(text, b"," if count + place else b"") for place, text in enumerate(encoded)
                ]
                if carried.cache and encoded:
                    self._cached.append(count + len(encoded) - 1)
        self._messages = self._messages.extended(fragments)
        self.size += sum(map(len, fragments)) + sum(len(message.content_json) for _, message, _ in new)
        self._source = messages
        self._last = new[-1][:2] if new else self._last

    def _blocks(self, message: Message) -> list[WindowBlock]:
        """Return the blocks of a message, with marks for what is long in them.

        Texts of system turns may be joined elsewhere: they have none.
        """
        if self._embeds_texts and message.role != "system":
            return window_content(marked_texts(message.content_json, self._long, LONG_KINDS))
        return message.content

    def _fragment(self, text: bytes, before: bytes) -> bytes:
        """Return a message of the wire as it stands in the body, with what is long in place of its marks."""
        if not self._long.is_in(text):
            return before + text
        with malformed_texts():
            return self._long.encoded_into(text, before)

    def _said(self, block: _B) -> _B:
        """Return a block with what is long in place of its marks."""
        with malformed_texts():
            return self._long.into(block)

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
                typed = CALL_TYPE in block.extra and self._goes_back(message)
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
            elif isinstance(block, Native) and message.role == "assistant" and self._is_own(block, message):
                part = self._server_part(block.block)
                if part is not None:
                    self._server_calls.add(part, (index, place))

    def _ends_turn(self, message: Message, blocks: Sequence[WindowBlock]) -> bool:
        """Return whether a message ends the assistant's turn before it, as all do but its own and results of tools."""
        if message.role == "system" and self._capabilities.system == "joined":
            return False
        goes_on = message.role == "assistant" and self._goes_back(message)
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
        own = call.id is not None and self._is_to(message.provider, message.api)
        return self._capabilities.tool_ids_of_others or own

    def _wire_id(self, block: ToolUse, message: Message, place: int) -> str:
        """Return the id of a call on the wire: see `ToolIds`."""
        wire_id, why = self._ids.add(block.id, returns=self._is_to(message.provider, message.api))
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
        role = message.role
        due, self._due = self._due, []
        answers, moved = self._answers(due, index, content)
        for call in due:
            call.settled = True
        rest = self._in_their_place(index, message, blocks)
        for place, block in enumerate(blocks):
            if isinstance(block, ToolResult) and self._results[index, place] is None:
                self._lose("dropped", message.turn, "tool_result", _no_call(block), place)
        if message.erased and role == "user" and answers:
            # It held the results: what is made up for them says that it was erased.
            rest = []
        if self._behind_erased and role == "user" and blocks and not rest and not answers:
            rest = [Text(text=ERASED)]
        self._behind_erased = message.erased and role == "assistant"
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
        placed: CarriedBlocks[Block] = CarriedBlocks(joins_texts=self._capabilities.joins_texts)
        places: list[int] = []
        for place, block in enumerate(blocks):
            count = len(self._losses)
            carried = self._block(block, message, index, place)
            placed.add(block, carried, lost=len(self._losses) > count)
            places += [place] * len(carried)
        rest = placed.blocks
        while not self._capabilities.thinking_last and rest and isinstance(rest[-1], Thinking):
            rest.pop()
            self._refuse_or_drop("thinking", "no message can end with it", message, places.pop())
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
            self._lose("moved", message.turn, "tool_result", f"right behind its call {call.wire_id!r}", place)
        inside, behind = self._result(result, message, place)
        if inside.is_error is True and not self._can_be_error(inside):
            self._lose("downgraded", message.turn, "tool_result", "that it is an error stands in its text", place)
            inside = error_in_text(self._said(inside))
            if self._capabilities.result_errors:  # the wire has a flag, and takes it on no result like this one
                inside = msgspec.structs.replace(inside, is_error=None)
        return inside, behind

    def _can_be_error(self, result: ToolResult) -> bool:
        """Return whether the wire can say of a result that it is an error."""
        if self._capabilities.result_errors != "text":
            return self._capabilities.result_errors
        return isinstance(result.content, str) or all(isinstance(block, Text) for block in result.content)

    def _made_up(self, call: _Call, behind: tuple[Message, list[WindowBlock]] | None) -> ToolResult:
        """Return a result for a call that has none, where there is this message behind it."""
        if behind is not None and behind[0].role == "user" and behind[0].erased:
            self._lose("synthesised", call.turn, "tool_result", f"for call {call.wire_id!r}, whose own was erased")
            return ToolResult(content=[Text(text=ERASED)])
        self._lose("synthesised", call.turn, "tool_result", f"an error, for call {call.wire_id!r} without one")
        return ToolResult(content=[Text(text=NO_RESULT)], is_error=True)

    def _unanswered(self) -> tuple[list[bytes], list[LossEntry]]:
        """Return results for the calls of the last message: made up, or its own. They are not kept: more may come."""
        if not self._due:
            return [], []
        count = len(self._losses)
        answers, moved = self._answers(self._due, len(self._source), self._own_results())
        losses = self._losses[count:]
        del self._losses[count:]
        [carried] = self._message("user", self._due[0].turn, [*answers, *moved], cache=False)
        return [self._fragment(text, b",") for text in self._encode(carried)], losses

    def _result(self, result: ToolResult, message: Message, place: int) -> tuple[ToolResult, list[Block]]:
        """Return a result as the wire can carry it, and the documents that move behind it."""
        stripped = self._without_extra(result, message, place)
        if isinstance(result.content, str):
            if result.content and self._is_nothing(result.content):
                self._lose("dropped", message.turn, "text", "it is blank", place)
                stripped = msgspec.structs.replace(stripped, content="")
            return stripped, []
        placed: CarriedBlocks[Text | Document | Native] = CarriedBlocks(joins_texts=self._capabilities.joins_texts)
        behind: list[Block] = []
        for block in result.content:
            count = len(self._losses)
            carried: Sequence[Text | Document | Native] = ()
            if isinstance(block, Document) and self._must_move(block):
                self._lose("moved", message.turn, "document", "behind the tool result that it is part of", place)
                behind.append(self._without_extra(block, message, place))
            else:
                carried = self._nested(block, message, place)
            placed.add(block, carried, lost=len(self._losses) > count)
        inside = placed.blocks
        if behind and not inside:
            inside = [Text(text=f"({len(behind)} document{'s' if len(behind) > 1 else ''}: see below)")]
        return msgspec.structs.replace(stripped, content=inside), behind

    def _nested(self, block: Text | Document | Native, message: Message, place: int) -> list[Text | Document | Native]:
        match block:
            case Text():
                return self._text(block, message, place)
            case Document():
                return self._document(block, message, place, self._capabilities.result_documents)
            case Native():
                return self._native(block, message, place)

    def _must_move(self, block: Document) -> bool:
        """Return whether a document of a result cannot stand in it, not as text either, but beside it."""
        if of_type(block, self._capabilities.result_documents) or not of_type(block, self._capabilities.documents):
            return False
        with malformed_texts():
            return not self._capabilities.text_documents or document_text(block, self._long) is None

    def _block(self, block: WindowBlock, message: Message, index: int, place: int) -> Sequence[Block]:
        match block:
            case Erased():
                why = "the turn is sealed, and its key is not here" if block.sealed else "the turn was erased"
                self._refuse_or_drop("erased", why, message, place)
                return [Text(text=ERASED)]
            case Text():
                return self._text(block, message, place)
            case Document():
                taken = self._capabilities.documents if message.role == "user" else ()
                return self._document(block, message, place, taken, message.document_name)
            case Native():
                if why := self._server_calls.left_out.get((index, place)):
                    self._lose("dropped", message.turn, "native", why, place)
                    return []
                return self._native(block, message, place)
            case Thinking():
                return self._thinking(block, message, place)
            case ToolUse():
                return self._call(block, message, index, place)
            case ToolResult():
                return []

    def _call(self, block: ToolUse, message: Message, index: int, place: int) -> list[ToolUse]:
        if call := self._calls.get((index, place)):
            kept = self._without_extra(block, message, place)
            shown = msgspec.structs.replace(kept, id=call.shown_id, name=call.name)
            return [self._with_text(shown) if self._arguments_are_text else shown]
        if self._target.on_loss == "error":
            what = f"turn {message.turn!r}, block {place}: a tool call of a {message.role} turn"
            raise self._unsupported(what, "tool_use", message)
        self._lose("dropped", message.turn, "tool_use", "only assistant turns call tools", place)
        return []

    def _with_text(self, call: ToolUse) -> ToolUse:
        """Return a call that says the text of its arguments as one, where marks stand in its input."""
        if not self._long.is_in(call.input) or not call.extra.keys().isdisjoint((ARGUMENTS, MALFORMED)):
            return call
        if CALL_TYPE in call.extra:
            return self._said(call)  # the text may be one in the input
        text = self._long.json_as_text(bytes(call.input))
        return msgspec.structs.replace(call, extra=call.extra | {ARGUMENTS: Raw(msgspec.json.encode(text))})

    def _text(self, block: Text, message: Message, place: int) -> list[Text | Document | Native]:
        if self._is_nothing(block.text):
            self._lose("dropped", message.turn, "text", "it is blank" if block.text else "it is empty", place)
            return []
        return [self._without_extra(block, message, place)]

    def _is_nothing(self, text: str) -> bool:
        return not text or not (self._capabilities.blank_text or text.strip())

    def _document(
        self, block: Document, message: Message, place: int, taken: Sequence[str], name: str | None = None
    ) -> list[Text | Document | Native]:
        media_type = block.source.media_type
        if of_type(block, taken) and block.source.data:  # providers refuse what has no bytes
            return named(self._without_extra(block, message, place), name, self._capabilities.document_name)
        with malformed_texts():
            text = document_text(block, self._long)
        if text is not None and self._capabilities.text_documents:
            return self._text(Text(text=named_text(text, name)), message, place)
        if self._target.on_loss == "error":
            role = "" if message.role == "user" else f" of {message.role} turns"
            raise self._unsupported(
                f"turn {message.turn!r}, block {place}: a document{role} of type {media_type!r}", "document", message
            )
        if text is not None:
            self._lose("downgraded", message.turn, "document", f"{media_type} as plain text", place)
            return self._text(Text(text=named_text(text, name)), message, place)
        self._lose("dropped", message.turn, "document", f"a line of text in place of {media_type}", place)
        with malformed_texts():
            words = document_words(block, name, self._long)
        return [Text(text=f"[{words}, that cannot be shown here]")]

    def _thinking(self, block: Thinking, message: Message, place: int) -> Sequence[Block]:
        wanted = self._capabilities.thinking
        if message.role != "assistant":
            reason = "only assistant turns think"
        elif not self._is_own(block, message):
            reason = "it is of another provider, api or model"
        elif wanted == "none":
            reason = "the wire has no place for it"
        elif wanted == "signed" and not block.signature:
            reason = "it has no signature"
        else:
            # What has no signature may be told apart by what it says.
            return [self._own(block if block.signature else self._said(block), message, place)]
        self._refuse_or_drop("thinking", reason, message, place)
        return []

    def _native(self, block: Native, message: Message, place: int) -> list[Text | Document | Native]:
        if not self._is_own(block, message):
            reason = f"it is of {block.provider!r}, another provider, api or model"
        elif not self._capabilities.native or (message.role == "system" and self._capabilities.system == "joined"):
            reason = "the wire has no place for it"
        else:
            return [self._own(block, message, place)]
        self._refuse_or_drop("native", reason, message, place)
        return []

    def _is_own(self, block: Thinking | Native, message: Message) -> bool:
        """Return whether a block is of the very provider, api and model that the conversation goes to."""
        provider = message.provider if block.provider is None else block.provider
        api = message.api if block.api is None else block.api
        if block.model is None or same_model(block.model, message.model):
            return self._is_to(provider, api) and self._is_of_model(message)
        return self._is_to(provider, api) and same_model(block.model, self._target.model)

    def _goes_back(self, message: Message) -> bool:
        """Return whether a message goes back to the very provider, api and model that it is of."""
        return self._is_to(message.provider, message.api) and self._is_of_model(message)

    def _is_to(self, provider: object, api: object) -> bool:
        target = self._target
        return (provider_name(provider), api_name(api)) == (target.provider, target.api)

    def _is_of_model(self, message: Message) -> bool:
        """Return whether a message is of the model that is asked, under the name that answered or that was asked."""
        return any(same_model(name, self._target.model) for name in (message.model, message.model_asked))

    def _without_extra(self, block: _B, message: Message, place: int) -> _B:
        """Return a block without the keys that turnlog does not know, unless the model that wrote them gets them.

        A key that says nothing, such as an empty list of citations, or how arguments were spelled, goes without an
        entry.
        """
        if not block.extra:
            return block
        if self._goes_back(message):
            return self._own(block, message, place)
        for name in sorted(block.extra):
            if name != ARGUMENTS and not says_nothing(block.extra[name]):
                self._refuse_or_drop(name, "it is of another provider, api or model", message, place)
        return msgspec.structs.replace(block, extra={})

    def _own(self, block: _B, message: Message, place: int) -> _B:
        """Return a block that goes back to its model as it is, and take note of what the wire has no place for.

        That is refused nowhere: no other provider would take it.
        """
        for name in left_out(block, self._target.api, self._target.provider):
            self._lose("dropped", message.turn, name, "the api takes none back", place)
        return block

    # Losses

    def _refuse_or_drop(self, what: str, reason: str, message: Message, place: int) -> None:
        if self._target.on_loss == "error":
            raise self._unsupported(f"turn {message.turn!r}, block {place}: {what}, because {reason}", what, message)
        self._lose("dropped", message.turn, what, reason, place)

    def _unsupported(self, what: str, block: str, message: Message) -> UnsupportedContentError:
        return UnsupportedContentError(
            f"{self._target.adapter} cannot carry {what}: ask another provider, or allow losses with on_loss='report'",
            provider=self._target.adapter,
            block=block,
            turn=message.turn,
        )

    def _lose(self, kind: LossKind, turn: str, block: str, why: str, index: int | None = None) -> None:
        self._losses.append(LossEntry(kind=kind, turn=turn, block=block, why=why, index=index))


def _key(tool_use_id: object, name: object) -> str:
    return tool_use_id if isinstance(tool_use_id, str) else f"name:{name}"


def _no_call(block: ToolResult) -> str:
    return f"there is no call {block.tool_use_id if block.tool_use_id is not None else block.name!r} that it answers"
