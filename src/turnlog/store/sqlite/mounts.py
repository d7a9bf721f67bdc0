"""What is mounted where, as Linux tells each process. Elsewhere nothing is known of it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

_MOUNT_POINT, _OPTIONAL = 4, 6
"""Which field is which (proc_pid_mountinfo(5)). The type of the file system comes behind a hyphen."""


def is_mount_point(path: Path) -> bool:
    """Tell whether something is mounted at a path.

    Devices do not tell: on overlayfs a file has another one than its folder.

    Args:
        path: without symbolic links.
    """
    return any(line[_MOUNT_POINT] == _octal(str(path)) for line in _mounts())


@lru_cache(64)
def file_system(folder: Path) -> str | None:
    """Return the type of the file system that a folder is on, such as `btrfs`; None where nobody tells.

    Args:
        folder: without symbolic links.
    """
    points = {_octal(str(each)) for each in (folder, *folder.parents)}
    above = [line for line in _mounts() if line[_MOUNT_POINT] in points]
    # The longest is the lowest, and the last of them lies over the others.
    found = max(reversed(above), key=lambda line: len(line[_MOUNT_POINT]), default=None)
    return None if found is None else found[found.index("-", _OPTIONAL) + 1]


def _mounts() -> list[list[str]]:
    try:
        told = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux, or nobody tells
        return []
    return [line.split(" ") for line in told.splitlines()]


def _octal(path: str) -> str:
    """Return a path as it stands there, with blanks and the like in octal."""
    return "".join(f"\\{ord(each):03o}" if each in " \t\n\\" else each for each in path)
