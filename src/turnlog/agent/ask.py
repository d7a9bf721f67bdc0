"""How a run asks a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

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
