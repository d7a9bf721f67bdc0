"""The metadata of events, typed by topic: `gpt.turn` and `gpt.bookmark`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from msgspec import Struct

ROLES = ("user", "assistant", "system")
"""The roles that a turn can have."""

ERROR_STOP_REASONS = ("error", "aborted")
"""The stop reasons of turns that are stored and left out of the default context window."""


CONTENT_TYPE = "application/json"
"""The content type of payloads that are content blocks: that of every turn that does not say another."""


class Usage(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Tokens of one model call. No token is counted under two names, so that all of them add up.

    Attributes:
        input_tokens: tokens of the request that were neither read from a cache nor written to one.
        output_tokens: tokens of the reply, without `reasoning_tokens`. Where a provider does not tell the two apart,
            all are here.
        cache_creation_input_tokens: tokens of the request that were written to a cache.
        cache_read_input_tokens: tokens of the request that were read from a cache.
        reasoning_tokens: tokens that the model thought in.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """The sum of all five, for every provider alike."""
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_creation_input_tokens
            + self.cache_read_input_tokens
            + self.reasoning_tokens
        )

    def __add__(self, other: Usage) -> Usage:
        """Return the tokens of two calls together."""
        return Usage(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})

    def to_record(self) -> dict[str, int]:
        """Return all counts by name, zeros and `total_tokens` included."""
        return {name: getattr(self, name) for name in self.__struct_fields__} | {"total_tokens": self.total_tokens}


class ReplyFacts(Struct, frozen=True, kw_only=True):
    """What a model's reply says of itself, beside its content: which model wrote it, why it stopped, what it took.

    Attributes:
        model: the model that wrote it.
        provider: its provider.
        api: the provider's api that was used.
        stop_reason: why the model stopped; turns with `error` or `aborted` are left out of windows.
        raw_stop_reason: the provider's own word for it.
        usage: tokens of the model call, by their names if not as a `Usage`.
        error: what went wrong, where the call failed.
    """

    model: str | None = None
    provider: str | None = None
    api: str | None = None
    stop_reason: str | None = None
    raw_stop_reason: str | None = None
    usage: Usage | Mapping[str, int] | None = None
    error: str | None = None


class ReplyFactsGiven(TypedDict, total=False):
    """The fields of `ReplyFacts` as arguments by their names, in place of the value."""

    model: str | None
    provider: str | None
    api: str | None
    stop_reason: str | None
    raw_stop_reason: str | None
    usage: Usage | Mapping[str, int] | None
    error: str | None


class Origin(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where an imported turn comes from: the format, and the names and the time that it had there.

    `ids` are the ids of the lines or fragments that became this turn, oldest first.
    """

    format: str
    ids: list[str]
    session: str | None = None
    timestamp: str | None = None
    message_id: str | None = None
    request_id: str | None = None
    sidechain: bool = False
    """It was said to, or by, a sub-agent."""
    meta: bool = False
    """The tool itself said it to the model, and no person: what it shows to nobody, as a caveat or a skill's text."""


class TurnMeta(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The metadata of a turn.

    `inherited` is the delta against the parents (RFC 7396), `head` the bookmark that this turn moves. `continues`,
    `call`, `reply`, `summary` and `tool_ends` are stored as citations, which name each event with its digest.
    """

    role: Literal["user", "assistant", "system"]
    content_type: str = CONTENT_TYPE
    inherited: dict[str, Any] | None = None
    head: str | None = None
    continues: tuple[str, ...] = ()
    cache: bool = False
    type: Literal["document"] | None = None
    document_name: str | None = None
    original_path: str | None = None
    file_size: int | None = None
    model: str | None = None
    provider: str | None = None
    api: str | None = None
    stop_reason: str | None = None
    raw_stop_reason: str | None = None
    usage: Usage | None = None
    model_asked: str | None = None
    """The model that its call asked, where that is another name than `model`. What it wrote goes back to either."""
    call: str | None = None
    reply: str | None = None
    summary: str | None = None
    """The summary that its window shows in place of the turns that this covers."""
    tool_ends: tuple[str, ...] = ()
    """How the tool calls ended that it has the results of: ids of `gpt.tool_end` events."""
    error: str | None = None
    origin: Origin | None = None
    subject: str | None = None
    """Whom it is about or of, so that all that is can be erased together. A turn has that of its first parent."""
    redacted: dict[str, int] | None = None
    """How many of which kind redaction hooks took out of it, or out of the reply that it came of."""
    passed_over: int | None = None
    """How many documents of it redaction hooks could not look into, because they are not text."""
    options: dict[str, Any] | None = None
    """The old name of `inherited`: read, never written."""

    @property
    def delta(self) -> dict[str, Any]:
        """The inherited options that this turn sets, under either name; empty when it sets none."""
        delta = self.inherited or self.options
        return delta if isinstance(delta, dict) else {}

    @property
    def failed(self) -> bool:
        """Whether this turn records an error or an aborted reply."""
        return self.error is not None or self.stop_reason in ERROR_STOP_REASONS


class BookmarkMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The metadata of a `gpt.bookmark` event: `set` names a `turn`, `rename` a new name `to`."""

    action: Literal["set", "rename", "delete"]
    name: str
    turn: str | None = None
    to: str | None = None
