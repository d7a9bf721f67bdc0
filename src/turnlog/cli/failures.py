"""What goes to standard error: one line, whatever went wrong."""

from __future__ import annotations

from turnlog.cli.text import one_line
from turnlog.errors import TurnlogError

EXIT_DAMAGE = 1
"""`verify` found damage."""
EXIT_USAGE = 2
"""Bad usage or input; nothing was recorded, unless the line says so."""
EXIT_INTERRUPTED = 130
"""The user stopped it: 128 + SIGINT, as shells have it."""


class UsageError(TurnlogError):
    """Say that the command line or its input cannot be understood."""


def error_line(error: BaseException | str) -> str:
    """Return the one line that tells of an error, without line feeds and control characters."""
    if isinstance(error, OSError):
        message = _os_message(error)
    else:
        message = str(error) or type(error).__name__
    return f"turnlog: {one_line(message)}"


def _os_message(error: OSError) -> str:
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    return f"{str(error.filename)!r}: {reason}" if error.filename is not None else f"input or output failed: {reason}"
