"""What becomes of each block on its way to a target: the rules that all providers share.

A block is carried, degraded by a rule and reported, or refused. Which result answers which call is the conversation's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw

from turnlog.errors import UnsupportedContentError
from turnlog.model import (
    ARGUMENTS,
    MALFORMED,
    Block,
    Document,
    LossEntry,
    LossKind,
    Message,
    Native,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from turnlog.model.blocks import malformed_texts
from turnlog.model.long_strings import LongStrings
from turnlog.model.names import api_name, provider_name
from turnlog.providers.carriage import Capabilities, Target
from turnlog.providers.documents import document_text, document_words, named, named_text, of_type
from turnlog.providers.extras import CALL_TYPE, left_out, says_nothing
from turnlog.providers.identity import same_model
from turnlog.providers.joined_texts import CarriedBlocks
from turnlog.providers.results import error_in_text

_B = TypeVar("_B", bound=Block)


class BlockRules:
    """What becomes of each block on its way to one target.

    Attributes:
        losses: what was lost on the way, in the order in which it was.
        long: what is long in the blocks: marks stand in them.
    """

    def __init__(self, capabilities: Capabilities, target: Target) -> None:
        """Begin with nothing lost."""
        self._capabilities = capabilities
        self._target = target
        self.losses: list[LossEntry] = []
        self.long = LongStrings()

    def result(self, result: ToolResult, message: Message, place: int) -> tuple[ToolResult, list[Block]]:
        """Return a result as the wire can carry it, and the documents that move behind it."""
        stripped = self.without_extra(result, message, place)
        if isinstance(result.content, str):
            if result.content and self._is_nothing(result.content):
                self.lose("dropped", message.turn, "text", "it is blank", place)
                stripped = msgspec.structs.replace(stripped, content="")
            return self._with_error(stripped, message, place), []
        placed: CarriedBlocks[Text | Document | Native] = CarriedBlocks(joins_texts=self._capabilities.joins_texts)
        behind: list[Block] = []
        for block in result.content:
            count = len(self.losses)
            carried: Sequence[Text | Document | Native] = ()
            if isinstance(block, Document) and self._must_move(block):
                self.lose("moved", message.turn, "document", "behind the tool result that it is part of", place)
                behind.append(self.without_extra(block, message, place))
            else:
                carried = self._nested(block, message, place)
            placed.add(block, carried, lost=len(self.losses) > count)
        inside = placed.blocks
        if behind and not inside:
            inside = [Text(text=f"({len(behind)} document{'s' if len(behind) > 1 else ''}: see below)")]
        return self._with_error(msgspec.structs.replace(stripped, content=inside), message, place), behind

    def _with_error(self, result: ToolResult, message: Message, place: int) -> ToolResult:
        """Return a result of which the wire can say whether it is an error: where it has no flag, its text says so."""
        if result.is_error is not True or self._can_be_error(result):
            return result
        self.lose("downgraded", message.turn, "tool_result", "that it is an error stands in its text", place)
        told = error_in_text(self._said(result))
        # A wire that has a flag takes it on no result like this one.
        return msgspec.structs.replace(told, is_error=None) if self._capabilities.result_errors else told

    def _nested(self, block: Text | Document | Native, message: Message, place: int) -> list[Text | Document | Native]:
        match block:
            case Text():
                return self.text(block, message, place)
            case Document():
                return self.document(block, message, place, self._capabilities.result_documents)
            case Native():
                return self.native(block, message, place)

    def _must_move(self, block: Document) -> bool:
        """Return whether a document of a result cannot stand in it, not as text either, but beside it."""
        if of_type(block, self._capabilities.result_documents) or not of_type(block, self._capabilities.documents):
            return False
        with malformed_texts():
            return not self._capabilities.text_documents or document_text(block, self.long) is None

    def _can_be_error(self, result: ToolResult) -> bool:
        if self._capabilities.result_errors != "text":
            return self._capabilities.result_errors
        return isinstance(result.content, str) or all(isinstance(block, Text) for block in result.content)

    def with_text(self, call: ToolUse) -> ToolUse:
        """Return a call that says the text of its arguments as one, where marks stand in its input."""
        if not self.long.is_in(call.input) or not call.extra.keys().isdisjoint((ARGUMENTS, MALFORMED)):
            return call
        if CALL_TYPE in call.extra:
            return self._said(call)  # the text may be one in the input
        text = self.long.json_as_text(bytes(call.input))
        return msgspec.structs.replace(call, extra=call.extra | {ARGUMENTS: Raw(msgspec.json.encode(text))})

    def _said(self, block: _B) -> _B:
        """Return a block with what is long in place of its marks."""
        with malformed_texts():
            return self.long.into(block)

    def text(self, block: Text, message: Message, place: int) -> list[Text | Document | Native]:
        """Return a text, or nothing where it says nothing."""
        if self._is_nothing(block.text):
            self.lose("dropped", message.turn, "text", "it is blank" if block.text else "it is empty", place)
            return []
        return [self.without_extra(block, message, place)]

    def without_blank_end(self, block: Text) -> Text | None:
        """Return a text without the whitespace that it ends in; None where it ends in none."""
        said = self._said(block)
        text = said.text.rstrip()
        return None if text == said.text else msgspec.structs.replace(said, text=text)

    def _is_nothing(self, text: str) -> bool:
        return not text or not (self._capabilities.blank_text or text.strip())

    def document(
        self, block: Document, message: Message, place: int, taken: Sequence[str], name: str | None = None
    ) -> list[Text | Document | Native]:
        """Return a document as the wire takes it: as it is, as its text, or as a line that says what is not there.

        Args:
            block: the document.
            message: the message that it is of.
            place: where it stands there.
            taken: media types of the documents that the wire takes here, as patterns.
            name: what it is called, if it has a name.
        """
        media_type = block.source.media_type
        if of_type(block, taken) and block.source.data:  # providers refuse what has no bytes
            return named(self.without_extra(block, message, place), name, self._capabilities.document_name)
        with malformed_texts():
            text = document_text(block, self.long)
        if text is not None and self._capabilities.text_documents:
            self._lose_extra(block, message, place)
            return self.text(Text(text=named_text(text, name)), message, place)
        if self._target.on_loss == "error":
            role = "" if message.role == "user" else f" of {message.role} turns"
            raise self._unsupported(
                f"turn {message.turn!r}, block {place}: a document{role} of type {media_type!r}", "document", message
            )
        if text is not None:
            self.lose("downgraded", message.turn, "document", f"{media_type} as plain text", place)
            self._lose_extra(block, message, place)
            return self.text(Text(text=named_text(text, name)), message, place)
        self.lose("dropped", message.turn, "document", f"a line of text in place of {media_type}", place)
        with malformed_texts():
            words = document_words(block, name, self.long)
        return [Text(text=f"[{words}, that cannot be shown here]")]

    def thinking(self, block: Thinking, message: Message, place: int) -> Sequence[Block]:
        """Return what was thought, where the model that thought it takes it back."""
        wanted = self._capabilities.thinking
        if message.role != "assistant":
            reason = "only assistant turns think"
        elif not self.is_own(block, message):
            reason = "it is of another provider, api or model"
        elif wanted == "none":
            reason = "the wire has no place for it"
        elif wanted == "signed" and not block.signature:
            reason = "it has no signature"
        else:
            # What has no signature may be told apart by what it says.
            return [self._own(block if block.signature else self._said(block), message, place)]
        self.refuse_or_drop("thinking", reason, message, place)
        return []

    def native(self, block: Native, message: Message, place: int) -> list[Text | Document | Native]:
        """Return a block of a provider, where the model that it is of takes it back."""
        if not self.is_own(block, message):
            reason = f"it is of {block.provider!r}, another provider, api or model"
        elif not self._capabilities.native or (message.role == "system" and self._capabilities.system == "joined"):
            reason = "the wire has no place for it"
        elif bytes(block.block)[:1] != b"{":
            reason = "it is no JSON object"
        else:
            return [self._own(block, message, place)]
        self.refuse_or_drop("native", reason, message, place)
        return []

    def is_own(self, block: Thinking | Native, message: Message) -> bool:
        """Return whether a block is of the very provider, api and model that the conversation goes to."""
        provider = message.provider if block.provider is None else block.provider
        api = message.api if block.api is None else block.api
        if block.model is None or same_model(block.model, message.model):
            return self.is_to(provider, api) and self._is_of_model(message)
        return self.is_to(provider, api) and same_model(block.model, self._target.model)

    def goes_back(self, message: Message) -> bool:
        """Return whether a message goes back to the very provider, api and model that it is of."""
        return self.is_to(message.provider, message.api) and self._is_of_model(message)

    def is_to(self, provider: object, api: object) -> bool:
        """Return whether the conversation goes to a provider and api."""
        return (provider_name(provider), api_name(api)) == (self._target.provider, self._target.api)

    def _is_of_model(self, message: Message) -> bool:
        """Return whether a message is of the model that is asked, under the name that answered or that was asked."""
        return any(same_model(name, self._target.model) for name in (message.model, message.model_asked))

    def without_extra(self, block: _B, message: Message, place: int) -> _B:
        """Return a block without the keys that turnlog does not know, unless the model that wrote them gets them.

        A key that says nothing, such as an empty list of citations, or how arguments were spelled, goes without an
        entry.
        """
        if not block.extra:
            return block
        if self.goes_back(message):
            return self._own(block, message, place)
        for name in sorted(block.extra):
            if name != ARGUMENTS and not says_nothing(block.extra[name]):
                self.refuse_or_drop(name, "it is of another provider, api or model", message, place)
        return msgspec.structs.replace(block, extra={})

    def _lose_extra(self, block: Document, message: Message, place: int) -> None:
        """Take note of the further keys of a document that goes as text, such as its title."""
        for name in sorted(block.extra):
            if not says_nothing(block.extra[name]):
                self.refuse_or_drop(name, "the document goes as text, which has no place for it", message, place)

    def _own(self, block: _B, message: Message, place: int) -> _B:
        """Return a block that goes back to its model as it is, and take note of what the wire has no place for.

        That is refused nowhere: no other provider would take it.
        """
        for name in left_out(block, self._target.api, self._target.provider):
            self.lose("dropped", message.turn, name, "the api takes none back", place)
        return block

    # Losses

    def refuse_or_drop(self, what: str, reason: str, message: Message, place: int) -> None:
        """Take note that something of a block is dropped.

        Raises:
            UnsupportedContentError: nothing may be lost.
        """
        if self._target.on_loss == "error":
            raise self._unsupported(f"turn {message.turn!r}, block {place}: {what}, because {reason}", what, message)
        self.lose("dropped", message.turn, what, reason, place)

    def _unsupported(self, what: str, block: str, message: Message) -> UnsupportedContentError:
        return UnsupportedContentError(
            f"{self._target.adapter} cannot carry {what}: ask another provider, or allow losses with on_loss='report'",
            provider=self._target.adapter,
            block=block,
            turn=message.turn,
        )

    def lose(self, kind: LossKind, turn: str, block: str, why: str, index: int | None = None) -> None:
        """Take note of a loss."""
        self.losses.append(LossEntry(kind=kind, turn=turn, block=block, why=why, index=index))
