"""What goes to standard error: one line, whatever went wrong."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import ceil

from turnlog.cli.text import one_line, timestamp
from turnlog.errors import ProviderError, TurnlogError, UnsupportedContentError, os_reason
from turnlog.plugins import culprit, said

TRACEBACK_VARIABLE = "TURNLOG_TRACEBACK"
"""The environment variable that asks for the traceback of a bug."""

EXIT_DAMAGE = 1
"""`verify` found damage."""
EXIT_OTHER_VERSION = 3
"""`replay --check` found nothing but what another version of an adapter made."""
EXIT_REMAINS = 1
"""It is erased, and traces of it are still somewhere."""
EXIT_USAGE = 2
"""Bad usage or input; nothing was recorded, unless the line says so."""
EXIT_BUG = 70
"""turnlog itself has failed: EX_SOFTWARE of sysexits.h, so that no script takes it for damage or bad input."""
EXIT_INTERRUPTED = 130
"""The user stopped it: 128 + SIGINT, as shells have it."""


_WAIT_TOLD_MAX_S = 1e9
"""A longer wait is no time that anybody can come back at, and may be beyond what a calendar has."""


class UsageError(TurnlogError):
    """Say that the command line or its input cannot be understood."""


class UntoldError(TurnlogError):
    """Say that something was recorded, and that nobody could be told so."""


def bug_line(error: BaseException, *, traced: bool) -> str:
    """Return the one line that tells of an error that should not be, and whose it is."""
    what = one_line("; ".join((said(error), *getattr(error, "__notes__", ()))))
    how = "" if traced else f"; {TRACEBACK_VARIABLE}=1 shows where"
    whose = culprit(error)
    if whose is not None:
        return f"turnlog: the {one_line(whose)} failed ({what}): please report it to whoever made it{how}"
    return f"turnlog: this is a bug of turnlog, not yours ({what}): please report it{how}"


def error_line(error: BaseException | str) -> str:
    """Return the one line that tells of an error, without line feeds and control characters."""
    return f"turnlog: {error_said(error)}"


def error_said(error: BaseException | str) -> str:
    """Return what an error says, as one line, with options in place of arguments of Python."""
    notes: Sequence[str] = getattr(error, "__notes__", ())
    nameless = "out of memory" if isinstance(error, MemoryError) else type(error).__name__
    said = _os_message(error) if isinstance(error, OSError) else str(error) or nameless
    message = "; ".join([said, *notes])
    if isinstance(error, UnsupportedContentError):
        message = message.replace("on_loss='report'", "--on-loss report")
    if isinstance(error, ProviderError) and (when := from_when(error.retry_after_s)):
        message = f"{message}; it asks to come back{when.removeprefix(',')}"
    return one_line(message)


def from_when(wait_s: float | None) -> str:
    """Return from when on a provider can be asked again, where it has said so: a time of UTC, to the second."""
    if not wait_s or wait_s > _WAIT_TOLD_MAX_S:
        return ""
    return f", from {timestamp(datetime.now(UTC) + timedelta(seconds=ceil(wait_s)))} on"


def _os_message(error: OSError) -> str:
    reason = os_reason(error)
    return f"{str(error.filename)!r}: {reason}" if error.filename is not None else f"input or output failed: {reason}"
