"""Which turns are wanted: by when they were said, in what role, and by which model."""

from __future__ import annotations

from datetime import datetime
from fnmatch import fnmatchcase
from typing import cast

from msgspec import Struct

from turnlog.errors import MetaError
from turnlog.events.times import check_times, is_between, said_at
from turnlog.model import ROLES, TurnMeta
from turnlog.model.plain import check_one_of


class TurnFilter(Struct, frozen=True, kw_only=True):
    """Which turns are wanted. What is None picks none out.

    Attributes:
        since: those that were said at that time or later. An imported turn was said when its source says.
        until: those that were said before that time.
        role: those of this role.
        model: those of this model; patterns as `claude-*` are fine.

    Raises:
        MetaError: a time says no zone, there is no such role, or the model is no text.
    """

    since: datetime | None = None
    until: datetime | None = None
    role: str | None = None
    model: str | None = None

    def __post_init__(self) -> None:
        """Check what was given."""
        check_times(since=self.since, until=self.until)
        if self.role is not None:
            check_one_of(self.role, ROLES, "role")
        model = cast("object", self.model)
        if model is not None and not isinstance(model, str):
            raise MetaError(f"model: expected str, got {type(model).__name__}", field="model")

    @property
    def is_of_time(self) -> bool:
        """Whether turns are picked out by time."""
        return self.since is not None or self.until is not None

    @property
    def is_of_speaker(self) -> bool:
        """Whether turns are picked out by role or model."""
        return self.role is not None or self.model is not None

    @property
    def takes_all(self) -> bool:
        """Whether every turn is wanted."""
        return not self.is_of_time and not self.is_of_speaker

    def of_time(self) -> TurnFilter:
        """Return what picks out by time alone."""
        return TurnFilter(since=self.since, until=self.until)

    def of_speaker(self) -> TurnFilter:
        """Return what picks out by role and model alone."""
        return TurnFilter(role=self.role, model=self.model)

    def takes(self, meta: TurnMeta, time_ms: int) -> bool:
        """Tell whether a turn is wanted, by its metadata and when it was recorded."""
        if self.role is not None and self.role != meta.role:
            return False
        return self.takes_model(meta.model) and (not self.is_of_time or self.takes_time(said_at(meta, time_ms)))

    def takes_model(self, model: str | None) -> bool:
        """Tell whether turns of a model are wanted."""
        return self.model is None or (model is not None and fnmatchcase(model, self.model))

    def takes_time(self, time: datetime) -> bool:
        """Tell whether turns of a time are wanted."""
        return is_between(time, self.since, self.until)


EVERY_TURN = TurnFilter()
"""None is picked out."""


def check_filter(which: object) -> TurnFilter:
    """Return what is a filter.

    Raises:
        MetaError: it is none.
    """
    if not isinstance(which, TurnFilter):
        raise MetaError(f"which: expected TurnFilter, got {type(which).__name__}", field="which")
    return which
