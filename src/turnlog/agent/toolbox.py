"""Tools that a run can call: the contract that MCP servers and Python functions keep alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, cast

from msgspec import Raw, Struct
from msgspec.structs import force_setattr, replace

from turnlog.agent.half_pairs import is_unicode, unicode_of
from turnlog.errors import ContentError
from turnlog.model import Document, Native, Text, Tool, ToolResult, content_bytes
from turnlog.model.blocks import Source, deep_field
from turnlog.model.depth import JSON_DEPTH_MAX, NESTED_FIELD_DEPTH_MAX


class ToolOutcome(Struct, frozen=True, kw_only=True):
    """What a call of a tool came to.

    Attributes:
        content: content blocks. U+FFFD stands in their texts for half of a surrogate pair, which no log can hold, and a
            text for a block that is nested too deeply for one.
        is_error: whether they tell of an error.
        may_have_had_effects: of an error, whether the tool may have done all, some or nothing of what it was to do: it
            was given up. It is not tried again, and recorded as such.
    """

    content: tuple[Text | Document | Native, ...]
    is_error: bool = False
    may_have_had_effects: bool = False

    def __post_init__(self) -> None:
        """Put U+FFFD for each half of a pair in its texts: with one, no log could hold what a tool has said.

        A list of blocks is taken too.
        """
        if isinstance(cast("object", self.content), list):
            force_setattr(self, "content", tuple(self.content))
        if any(isinstance(block, Text) and not is_unicode(block.text) for block in self.content):
            content = tuple(
                replace(block, text=unicode_of(block.text)) if isinstance(block, Text) else block
                for block in self.content
            )
            force_setattr(self, "content", content)
        if any(map(_is_too_deep, self.content)):
            content = tuple(
                Text(text=f"What the tool returned is nested deeper than {JSON_DEPTH_MAX} levels, and was left out.")
                if _is_too_deep(block)
                else block
                for block in self.content
            )
            force_setattr(self, "content", content)

    @classmethod
    def of(cls, result: ToolResult) -> ToolOutcome:
        """Return the outcome that a recorded result tells of."""
        said = result.content
        content = (Text(text=said),) if isinstance(said, str) else tuple(said)
        return cls(content=content, is_error=result.is_error is True)

    @classmethod
    def error(cls, message: str, *, may_have_had_effects: bool = False) -> ToolOutcome:
        """Return the outcome of a call that failed."""
        return cls(content=(Text(text=message),), is_error=True, may_have_had_effects=may_have_had_effects)


def fault_in(outcome: object) -> str | None:
    """Return why a log cannot have what a toolbox or a middleware has returned, None where it can.

    It is told here, while only this call is at stake: a turn has the results of all calls of a reply, or of none.
    """
    if not isinstance(outcome, ToolOutcome):
        return f"expected a ToolOutcome, got {type(outcome).__name__}"
    blocks = cast("object", outcome.content)
    if not isinstance(blocks, tuple):
        return f"content: expected a tuple of blocks, got {type(blocks).__name__}"
    for index, block in enumerate(cast("tuple[object, ...]", blocks)):
        if not isinstance(block, Text | Document | Native):
            return f"content[{index}]: expected Text, Document or Native, got {type(block).__name__}"
    try:
        content_bytes([block for block in outcome.content if not _is_plain(block)])
    except ContentError as error:
        return str(error)
    return None


def _is_plain(block: Text | Document | Native) -> bool:
    """Tell whether a block is one of texts alone, so that it need not be written to see that it can be."""
    if block.extra != {}:
        return False
    match cast("object", block):
        case Text(text=str()):
            return True
        case Document(source=Source(media_type=str(media_type), data=str(data))):
            return media_type.isascii() and data.isascii()
        case _:
            return False


def _is_too_deep(block: object) -> bool:
    """Tell whether a block of a result is nested too deeply for the content of a turn, in which it stands."""
    return isinstance(block, Text | Document | Native) and deep_field(block, NESTED_FIELD_DEPTH_MAX) is not None


class Toolbox(ABC):
    """A set of tools. It is entered before it is used, and used by one run; calls may go on at the same time.

    Attributes:
        servers: names of the MCP servers that its tools are of. A run that is given it does not start them itself.
        limits_time: whether it ends calls that take too long itself. Else the run does, by cancelling them.
    """

    servers: tuple[str, ...] = ()
    limits_time: bool = False

    async def __aenter__(self) -> Self:
        """Make ready; what can be done later, at the first use, is better done then."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release everything."""
        return

    @abstractmethod
    async def tools(self) -> Sequence[Tool]:
        """Return the tools as a model is to see them, names of MCP tools as `server___tool`.

        Raises:
            ToolServerError: a server cannot be started, reached or understood.
        """

    def instructions(self) -> Mapping[str, str]:
        """Return what its servers say of the use of their tools, by their names; known once `tools` was called."""
        return {}

    def notes(self) -> Sequence[str]:
        """Return what there is to say of the last listing, such as tools that cannot be offered."""
        return ()

    def server_of(self, name: str) -> str | None:
        """Return the name of the MCP server that a tool runs on; None where it is of none."""
        del name
        return None

    @abstractmethod
    async def call(self, name: str, arguments: Raw) -> ToolOutcome:
        """Call a tool, named as `tools` names it, with a JSON object of arguments.

        Whatever goes wrong is an outcome with `is_error`: a crash, a time-out, a tool that does not exist.
        """
