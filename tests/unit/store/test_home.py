"""The user's own folders, where there are none."""

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import platformdirs
import pytest

from turnlog.audit.keys import default_folder
from turnlog.cli.stores import data_folder as default_data_folder
from turnlog.errors import StoreOpenError
from turnlog.store.home import cache_folder, data_folder


@pytest.mark.parametrize(
    "ask",
    [data_folder, cache_folder, default_data_folder, lambda: default_folder({})],
    ids=["data", "cache", "cli", "keys"],
)
def test_user_without_a_home_folder_is_told_what_to_set(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[], Path]
) -> None:
    """As one of whom the system knows nothing but a number, which is how containers run."""

    def fail(_: str) -> NoReturn:
        raise RuntimeError("could not determine the home directory")

    for name in ("user_data_path", "user_cache_path"):
        monkeypatch.setattr(platformdirs, name, fail)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(StoreOpenError, match=r"^this user has no home folder: set HOME, or TURNLOG_STORE"):
        ask()
    assert default_folder({"TURNLOG_KEYS_DIR": "/k"}) == Path("/k")
