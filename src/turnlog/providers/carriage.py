"""What goes between a conversation and a wire: what the wire can carry, where it goes, and what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from turnlog.model import Block, LossEntry
from turnlog.model.chunked import Chunked
from turnlog.providers.tool_names import ToolNames


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a wire can carry.

    Attributes:
        documents: media types of documents in user turns, as patterns (`image/*`).
        result_documents: those in tool results. Others move behind the results, into the user's part of the turn.
        document_name: the field for the name of a document that is no image. Where there is none, a text before the
            document has it.
        text_documents: whether text-like media are text to the wire. Otherwise their text stands in for them, a loss.
        joins_texts: whether texts of a message or a result are one string on the wire. Where what stood between them
            is left out, a blank line is there.
        blank_text: whether text can be whitespace alone. Otherwise that is dropped, as empty text always is.
        blank_end: whether a conversation can end with a text of the assistant that ends in whitespace. Otherwise that
            is cut, until the conversation goes on.
        thinking: which thinking goes back to the model it is of: `all`, only what is `signed`, or `none`.
        thinking_last: whether a message can end with thinking. Otherwise what it would end with is dropped.
        native: whether native blocks go back to the model they are of.
        system: `joined` at the top of the request, or `inline` among the messages.
        tool_id_pattern: the form of tool call ids, as a regular expression; None where the wire has no ids.
        tool_id_characters_max: the longest tool call id.
        own_tool_ids_fit: whether the provider makes its own ids in that form, so that others are none of its own.
            Otherwise its own go back in whatever form.
        tool_ids_of_others: whether calls that another provider or api made, and their results, have ids on the wire.
        tool_names: the names of tools that the wire takes; None where that is not known. Then they go as they are, but
            for a call without one.
        result_errors: whether the wire can say that a tool result is an error, of each or only of one that is `text`
            alone. Otherwise its text says so.
        search: `none`, `alone` (without tools), or `beside_tools`.
        cache_breakpoints_max: how many cache breakpoints a request can have.
        cache_key: the key of a block with a cache breakpoint of its own, where the wire has one.
        streams: whether replies can be streamed.
    """

    documents: tuple[str, ...] = ()
    result_documents: tuple[str, ...] = ()
    document_name: str | None = None
    text_documents: bool = True
    joins_texts: bool = False
    blank_text: bool = True
    blank_end: bool = True
    thinking: Literal["all", "signed", "none"] = "none"
    thinking_last: bool = True
    native: bool = False
    system: Literal["joined", "inline"] = "inline"
    tool_id_pattern: str | None = "[a-zA-Z0-9_-]+"
    tool_id_characters_max: int = 64
    own_tool_ids_fit: bool = True
    tool_ids_of_others: bool = True
    tool_names: ToolNames | None = None
    result_errors: bool | Literal["text"] = False
    search: Literal["none", "alone", "beside_tools"] = "none"
    cache_breakpoints_max: int = 0
    cache_key: str | None = None
    streams: bool = True


class Target(Struct, frozen=True, kw_only=True):
    """Where a conversation goes, and what to do with what cannot go there."""

    adapter: str
    provider: str
    api: str
    model: str
    on_loss: Literal["error", "report"] | None


class Carried(Struct, frozen=True, kw_only=True):
    """A message that the wire can carry as it is.

    Text documents are text, ids and names of tools have the wire's form, results have the `name` of the tool, and stand
    first. Extra keys of a block (citations, signatures) are there only where they go back to the model that they came
    from. `model` is the one that is asked, for wires whose models differ in what they take.
    """

    role: Literal["user", "assistant", "system"]
    model: str
    turn: str
    blocks: Sequence[Block]
    cache: bool


class CarriedConversation(Struct, frozen=True, kw_only=True):
    """A conversation in the form of a wire.

    Attributes:
        messages: the fragments of the body, all but the first one with the comma before it.
        losses: what they do not carry as it was recorded.
        system: the texts of system turns, where the wire joins them.
        cached: indexes of the fragments to cache up to, ascending.
        marked: indexes of the fragments whose blocks may have cache breakpoints of their own, each with its turn.
        system_cached: whether a system turn asks to be cached, where the wire joins them.
    """

    messages: Chunked[bytes]
    losses: tuple[LossEntry, ...]
    system: tuple[str, ...]
    cached: tuple[int, ...]
    marked: tuple[tuple[int, str], ...]
    system_cached: bool
