"""What is read of recorded calls."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import Struct

from turnlog.model import CallMeta, LossReport, WindowChange
from turnlog.model.json_values import plain_values


class Call(Struct, frozen=True, kw_only=True):
    """A recorded model call.

    Attributes:
        id: the id of its `gpt.call` event.
        meta: provider, api, model, adapter, parameters, the turn that it went on from, and so on.
        loss_report: what the body does not carry as it was recorded.
        window_change: how the window that it was prepared from differs from that of its turn; None where it does not.
    """

    id: str
    meta: CallMeta
    loss_report: LossReport
    window_change: WindowChange | None = None

    def __hash__(self) -> int:
        """Hash the id, so that calls can be in sets."""
        return hash(self.id)

    def raw_record(self) -> dict[str, Any]:
        """Return the call as `to_record` does, with content as raw JSON text: `msgspec.json.encode` takes that."""
        record: dict[str, Any] = {
            "id": self.id,
            **msgspec.to_builtins(self.meta),
            "params": self.meta.parameters,
            "loss_report": msgspec.to_builtins(self.loss_report.entries),
        }
        return record if self.window_change is None else {**record, "window_change": self.window_change}

    def to_record(self) -> dict[str, Any]:
        """Return the call as plain values."""
        record = self.raw_record()
        return record if self.window_change is None else {**record, "window_change": plain_values(self.window_change)}


class UnreadableCall(Struct, frozen=True, kw_only=True):
    """A recorded model call that cannot be read.

    Attributes:
        id: the id of its `gpt.call` event.
        turn: the turn that it went on from.
        unreadable: why, one line: it, or what its request has parts of, was erased, is sealed and its key is not here,
            or is damaged.
    """

    id: str
    turn: str
    unreadable: str

    def to_record(self) -> dict[str, Any]:
        """Return the call as plain values."""
        return msgspec.structs.asdict(self)


class RequestCheck(Struct, frozen=True, kw_only=True):
    """Whether a recorded request is what its turn gives today, and its reply what the turn says that came of it.

    Attributes:
        call: the call's id.
        turn: the turn that the model was asked to go on from.
        size: bytes of the recorded body.
        difference: None when all bytes are equal, else one line that says where they part, or why it cannot be told.
        reply_difference: None when the raw events add up to the turn, or none were kept; else one line likewise.
        events: how many raw events were added up again; None where none were kept, or they could not be read.
        redacted: whether something was redacted in the reply, so that no raw event was kept and nothing is compared.
        unreadable: why the request cannot be compared, one line: it, or what it has parts of, was erased, or is sealed
            and its key is not here. Then there is no difference either.
        by_version: which of the two, `request` and `reply`, differ where the adapter was of another version when they
            were recorded: what is recorded is intact, and this version makes something else of it.
    """

    call: str
    turn: str
    size: int
    difference: str | None
    reply_difference: str | None = None
    events: int | None = None
    redacted: bool = False
    unreadable: str | None = None
    by_version: tuple[Literal["request", "reply"], ...] = ()
