"""How a run asks a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from turnlog.agent.run_checks import check_kind, one_of, several
from turnlog.providers import Connection, OnLoss, Parameters, Provider
from turnlog.providers.replay import RecordedReply

Replies = Mapping[str, Sequence[RecordedReply]]
"""Recorded replies by the hash of the request body that they answered."""


class Ask(Struct, frozen=True, kw_only=True):
    """How a run asks a model: what each of its calls says beside the window, and the way to the model.

    Attributes:
        params: parameters of the model calls; they win over those of the pointer.
        tool_choice: `auto`, `none`, `required` or the name of a tool. What forces a call holds for the first one.
        on_loss: what to do with what the provider's api cannot carry. By default blocks become a text that says what
            they were, and search, tools and parameters are refused; `report` gives those up too, `error` refuses all.
        stream: ask for the reply in pieces, where the provider can.
        connection: another way to the provider than key and endpoint that are set up.
        adapter: another adapter than the provider's.
        replay: recorded replies to give in place of asking anybody: `calls.replies()` of the log that has them.
    """

    params: Parameters | None = None
    tool_choice: str | None = None
    on_loss: OnLoss | None = None
    stream: bool = True
    connection: Connection | None = None
    adapter: Provider | None = None
    replay: Replies | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            RunError: one is of another type, or unknown.
        """
        if self.on_loss is not None:
            # The text itself: nothing else goes into the record of a call.
            force_setattr(self, "on_loss", one_of("on_loss", self.on_loss, get_args(OnLoss)))
        check_kind("stream", self.stream, bool, "bool")
        for name, kind, expected in (
            ("params", Mapping, "a record of parameters"),
            ("tool_choice", (str, Mapping), "auto, none, required or the name of a tool"),
            ("connection", Connection, "turnlog.providers.Connection"),
            ("adapter", Provider, "turnlog.providers.Provider"),
            ("replay", Mapping, "recorded replies (calls.replies())"),
        ):
            if getattr(self, name) is not None:
                check_kind(name, getattr(self, name), kind, expected)
        for replies in (self.replay or {}).values():
            several("replay", replies, lambda reply: isinstance(reply, RecordedReply), "recorded replies")
