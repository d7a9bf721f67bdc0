"""A run, its turns and their blocks, as Geppetto has them.

They are mutable, as its users expect: helpers append blocks to a turn. A turn is a whole snapshot of a conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from turnlog.interop.geppetto_model.keys import BlockMetadata, Data, Metadata, RunMetadata
from turnlog.model import JSONValue

PAYLOAD_KEY_TEXT = "text"
"""The text of a `user`, `llm_text`, `system`, `reasoning` or `other` block."""

PAYLOAD_KEY_ID = "id"
"""The id of a tool call: a `tool_use` block has that of the `tool_call` block that it answers."""

PAYLOAD_KEY_NAME = "name"
"""The name of the tool of a `tool_call` block."""

PAYLOAD_KEY_ARGS = "args"
"""The arguments of a `tool_call` block: a record, or text as the model wrote it."""

PAYLOAD_KEY_RESULT = "result"
"""What the tool of a `tool_use` block answered, any JSON value."""

PAYLOAD_KEY_ERROR = "error"
"""Why the tool of a `tool_use` block failed, as text."""

PAYLOAD_KEY_IMAGES = "images"
"""The images of a `user` block: a list of records."""

PAYLOAD_KEY_ENCRYPTED_CONTENT = "encrypted_content"
"""The reasoning of a `reasoning` block in the form that its provider wants back."""

PAYLOAD_KEY_ITEM_ID = "item_id"
"""The id that a provider gave the item that a block came of."""


class BlockKind(StrEnum):
    """What a block is."""

    USER = "user"
    LLM_TEXT = "llm_text"
    TOOL_CALL = "tool_call"
    TOOL_USE = "tool_use"
    SYSTEM = "system"
    REASONING = "reasoning"
    OTHER = "other"


@dataclass(kw_only=True)
class Block:
    """One part of a turn.

    Attributes:
        kind: what it is.
        id: its id, empty for none.
        turn_id: the id of its turn, empty for none. Helpers leave it as it is.
        role: who speaks, empty for nobody. Any text is allowed.
        payload: its content by the payload keys. Further keys are kept.
        metadata: hints of providers, annotations of policies.
    """

    kind: BlockKind
    id: str = ""
    turn_id: str = ""
    role: str = ""
    payload: dict[str, JSONValue] = field(default_factory=dict[str, JSONValue])
    metadata: BlockMetadata = field(default_factory=BlockMetadata)


@dataclass(kw_only=True)
class Turn:
    """One snapshot of a conversation.

    Attributes:
        id: its id, empty for none.
        run_id: the id of its run, empty for none.
        metadata: parameters of the request, ids for tracing, usage.
        data: what configures the next call, such as the tool configuration. Never tools themselves.
        blocks: its content, oldest first.
    """

    id: str = ""
    run_id: str = ""
    metadata: Metadata = field(default_factory=Metadata)
    data: Data = field(default_factory=Data)
    blocks: list[Block] = field(default_factory=list[Block])


@dataclass(kw_only=True)
class Run:
    """Turns that belong together, oldest first."""

    id: str = ""
    name: str = ""
    metadata: RunMetadata = field(default_factory=RunMetadata)
    turns: list[Turn] = field(default_factory=list[Turn])
