"""Which store a command is about."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from turnlog.errors import StoreOpenError
from turnlog.store.home import data_folder as home_data_folder
from turnlog.store.urls import is_log_there, is_postgres, parse_url

STORE_VARIABLE = "TURNLOG_STORE"
_ELSEWHERE = ("XDG_DATA_HOME", "ANDROID_DATA", "ANDROID_ROOT")
"""With one of these the data folder may be another than is usual on Linux."""


class Choice(NamedTuple):
    """The URL of a store, and what says that it is to be used."""

    url: str
    by: Literal["option", "environment", "default"]


def data_folder() -> Path:
    """Return the folder in which the store is that is used where nothing else is said. It may be missing."""
    home = os.environ.get("HOME", "")
    if sys.platform == "linux" and home.startswith("/") and not any(map(os.environ.get, _ELSEWHERE)):
        return Path(home, ".local", "share", "turnlog")  # as below, which takes as long to import as a store to open
    return home_data_folder()


def chosen_store(given: str | None) -> Choice:
    """Return which store is used: what the option says, else the environment, else a file in the data folder.

    Raises:
        StoreOpenError: the option is there and empty.
    """
    if given is not None and not given:
        raise StoreOpenError("--store is empty: give sqlite:///PATH or postgresql://HOST/DATABASE")
    if given:
        return Choice(given, "option")
    if named := os.environ.get(STORE_VARIABLE):
        return Choice(named, "environment")
    return Choice(f"sqlite:///{quote(str(data_folder() / 'log.db'))}", "default")


def store_url(given: str | None) -> str:
    """Return the URL of the store that is used: see `chosen_store`.

    Raises:
        StoreOpenError: the option is there and empty.
    """
    return chosen_store(given).url


def is_new_store(url: str) -> bool:
    """Tell whether there is no store yet: no file, or an empty one, or no log in the database.

    Raises:
        StoreOpenError: it cannot be looked there.
    """
    path = parse_url(url)
    if is_postgres(url):
        return not is_log_there(url)
    return path is not None and (not path.exists() or (path.is_file() and not path.stat().st_size))
