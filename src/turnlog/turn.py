"""The turn as users see it: what recording returns and reading finds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.events import Recorded, turn_meta
from turnlog.events.times import said_at, time_of
from turnlog.model import Spelling, TurnMeta, normal_stop_reason, spell_stop_reason
from turnlog.model.plain import is_async
from turnlog.projections.filters import TurnFilter, check_filter


class Turn(Struct, frozen=True, kw_only=True):
    """A recorded turn. What it says is read from the log: `log.text(turn)`, or `log.content(turn)` for its blocks.

    Attributes:
        id: the turn's id.
        hash: hash of its payload, `sha256-<base64>`; empty for an erased turn, and for a closed one.
        meta: role, content type, bookmark moved (`head`), parents (`continues`), inherited options, and so on.
        size: bytes of its payload.
        stream: the linear run it stands in, named by the run's first turn.
        position: index in the stream, from 0.
        global_position: place in the total order of the log, from 1.
        digest: digest of the event, which commits to the whole ancestry, and to the call that the turn came of.
        time_ms: when it was recorded, in milliseconds since 1970 UTC.
        erased: whether its content and all that could name or describe people is gone.
        sealed: id of the key that it is sealed under; None where it is not.
        closed: whether it is sealed and its key is not here, so that there is no more to read than of an erased one.
    """

    id: str
    hash: str
    meta: TurnMeta
    size: int
    stream: str
    position: int
    global_position: int
    digest: str
    time_ms: int
    erased: bool = False
    sealed: str | None = None
    closed: bool = False

    def __hash__(self) -> int:
        """Hash the digest, which commits to the rest, so that turns can be in sets whatever metadata they have."""
        return hash(self.digest)

    @property
    def time(self) -> datetime:
        """When it was recorded, in UTC."""
        return time_of(self.time_ms)

    @property
    def said_at(self) -> datetime:
        """When it was said: for an imported turn as its source says, else when it was recorded."""
        return said_at(self.meta, self.time_ms)

    @property
    def role(self) -> Literal["user", "assistant", "system"]:
        """Who said it."""
        return self.meta.role

    @property
    def head(self) -> str | None:
        """The bookmark that it moved; None for none, and for a turn that cannot be read."""
        return self.meta.head

    @property
    def model(self) -> str | None:
        """The model that wrote it; None for one that no model wrote."""
        return self.meta.model

    @property
    def continues(self) -> tuple[str, ...]:
        """The ids of the turn's parents, in listed order."""
        return self.meta.continues

    def stop_reason_as(self, spelling: Spelling) -> str | None:
        """Return why the model stopped as another system spells it, or None where the turn has no known word for it.

        Args:
            spelling: `turnlog` for the words of `STOP_REASONS`, `messages` for those of Anthropic's Messages and of
                gpt2099 (`end_turn`, `max_tokens`, …), `canonical` for those of the canonical types (`tool-use`).
        """
        spelled = self.meta.stop_reason
        reason = None if spelled is None else normal_stop_reason(spelled)
        return None if reason is None else spell_stop_reason(reason, spelling)

    def to_record(self) -> dict[str, Any]:
        """Return the turn as plain values: `{id, hash, meta, …}`, with defaults spelled out in `meta`."""
        record: dict[str, Any] = msgspec.to_builtins(self)
        record["meta"] = {
            "cache": False,
            "content_type": self.meta.content_type,
            **record["meta"],
            "continues": list(self.continues),
        }
        record |= {"time": self.time.isoformat(), "said_at": self.said_at.isoformat()}
        return record


class Comparison(Struct, frozen=True, kw_only=True):
    """Where the ancestries of two turns part. Each is in global order; the turns themselves are in it.

    Attributes:
        left: the turns that are in that of the first alone.
        right: the turns that are in that of the second alone.
        common: the turns of both that a turn of one alone continues, or that were compared: one, where two branches of
            a thread were; none, where they have nothing in common; several, where there are merges.
    """

    left: tuple[Turn, ...]
    right: tuple[Turn, ...]
    common: tuple[Turn, ...]

    def to_record(self) -> dict[str, Any]:
        """Return it as plain values: `{common, left, right}`, each a list of turns as `Turn.to_record` gives them."""
        return {name: [turn.to_record() for turn in getattr(self, name)] for name in ("common", "left", "right")}


def fitting(which: TurnFilter, wanted: Callable[[Turn], bool] | None) -> Callable[[Turn], bool] | None:
    """Return what tells whether a turn is such a one and is wanted; None where every turn is.

    Raises:
        MetaError: the first is no filter, or the second no plain function.
    """
    check_condition(wanted, "wanted", "turn")
    if check_filter(which).takes_all:
        return wanted
    return lambda turn: which.takes(turn.meta, turn.time_ms) and (wanted is None or wanted(turn))


def check_condition(given: Callable[[Any], bool] | None, field: str, of: str) -> None:
    """Check that a condition of somebody's, if there is one, is told at once: what is to be awaited is always true.

    Raises:
        MetaError: it is no plain function.
    """
    if given is not None and (not callable(cast("object", given)) or is_async(given)):
        raise MetaError(f"{field}: expected a plain function, which is given a {of}", field=field)


def turn_of(recorded: Recorded, meta: TurnMeta | None = None) -> Turn:
    """Return the turn that an event records.

    Args:
        recorded: the event.
        meta: its metadata, where that is known; else it is read.

    Raises:
        CorruptionError: its metadata cannot be read.
    """
    header = recorded.header
    return Turn(
        id=header.id,
        hash=recorded.hash or "",
        meta=meta or turn_meta(recorded),
        size=recorded.size or 0,
        stream=header.stream,
        position=header.position,
        global_position=recorded.global_position,
        digest=recorded.digest,
        time_ms=header.time,
        erased=recorded.erased,
        sealed=None if recorded.sealed is None else recorded.sealed.key,
        closed=recorded.unreadable and not recorded.erased,
    )
