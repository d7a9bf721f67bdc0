"""The user's own folders: where what belongs to no place that somebody named is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from turnlog.errors import StoreOpenError


def data_folder() -> Path:
    """Return the folder of turnlog in that of the user's data. It may be missing.

    Raises:
        StoreOpenError: the user has none, as one of whom the system knows nothing but a number.
    """
    from platformdirs import user_data_path  # noqa: PLC0415 - it takes as long to import as a store to open

    return _found(user_data_path)


def cache_folder() -> Path:
    """Return the folder of turnlog in that of what can be made again.

    Raises:
        StoreOpenError: see `data_folder`.
    """
    from platformdirs import user_cache_path  # noqa: PLC0415 - see above

    return _found(user_cache_path)


def _found(folder_of: Callable[[str], Path]) -> Path:
    try:
        return folder_of("turnlog")
    except RuntimeError as error:
        raise StoreOpenError(
            "this user has no home folder: set HOME, or TURNLOG_STORE to sqlite:///PATH, and TURNLOG_KEYS_DIR"
        ) from error
