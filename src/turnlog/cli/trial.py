"""A log to try on what a new store would refuse."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

import msgspec

from turnlog.cli.opened import OpenedLog
from turnlog.log import TurnLog
from turnlog.record.drafts import TurnDraft
from turnlog.record.redaction import NOTHING, Redaction
from turnlog.store import WriteTransaction
from turnlog.turn import Turn


class Trial(OpenedLog):
    """A log in memory that refuses what a new store would, and keeps nothing of what turns say: it may be large."""

    def _record(self, draft: TurnDraft, redaction: Redaction) -> Turn:
        draft = redaction.turn(draft)
        self.store.place(draft.payload)
        return super()._record(msgspec.structs.replace(draft, payload=b"[]"), NOTHING)


class _AppendsError(BaseException):
    """Say that something would be appended: no fault, and nobody but the trial is to catch it."""


def until_first_append(trial: TurnLog, act: Callable[[], object]) -> None:
    """Do something with a log in memory until it would append the first time: so much is not refused then.

    Raises:
        Exception: what it raises before that.
    """

    def stop(plan: Callable[[WriteTransaction], object]) -> NoReturn:  # noqa: ARG001 - nothing is written
        raise _AppendsError

    trial.store.write = stop
    with suppress(_AppendsError):
        act()
