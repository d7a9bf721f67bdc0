"""Folders that somebody else may have made: links out of them are not followed."""

from __future__ import annotations

import os
from pathlib import Path

NOT_FOLLOWED = "a link out of the folder, not followed"
"""Why something in a folder was not read, as it is told."""


def leads_out(path: Path, folder: Path) -> bool:
    """Tell whether a path in a folder is one of something elsewhere, by a link at its end or on its way.

    What came out of an archive may lead to any file of whoever imports it. The folder itself may be reached by links.
    """
    try:
        if path.parent == folder and path.name != ".." and not path.is_symlink():
            return False
        return not path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # RuntimeError: a link that leads to itself
        return True


def files_in(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the regular files of a folder and of those in it, and the links that lead out of it, each sorted.

    A link to a file of the folder is a file too. One to a folder of it is neither: what is there is found without it.
    """
    files: list[Path] = []
    links: list[Path] = []
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *names)):
            if path.is_symlink() and leads_out(path, folder):
                links.append(path)
            elif path.is_file():
                files.append(path)
    return sorted(files), sorted(links)


def told(links: list[Path], folder: Path) -> list[str]:
    """Return a line for each link that leads out of a folder, with its place in it."""
    return [f"{link.relative_to(folder).as_posix()}: {NOT_FOLLOWED}" for link in links]
