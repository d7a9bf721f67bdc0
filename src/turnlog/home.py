"""Home folders in paths that people write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from turnlog.errors import TurnlogError


def in_home(path: str, refused: Callable[[str], TurnlogError]) -> Path:
    """Return a path with a home folder in place of `~` or `~NAME` at its beginning.

    Args:
        path: the path.
        refused: makes an error of why there is no such folder.

    Raises:
        TurnlogError: what `refused` returns: there is nobody of that name.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise refused(f"{path!r}: nobody of that name has a home folder here") from error
