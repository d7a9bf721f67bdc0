"""Locales: what a store does is the same in all of them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.errors import IdConflictError
from turnlog.store.sqlite import transactions

_RECORDS = """
import locale, sys
from turnlog import TurnLog
locale.setlocale(locale.LC_ALL, sys.argv[2])
with TurnLog.open(f"sqlite:///{sys.argv[1]}") as log:
    log.add_turn("one", bookmark="main")
    log.add_turn("two", continues="main")
    log.add_turn("x" * 100_000, continues="main")
    log.bookmarks.set("there", "main~1")
    assert [log.text(turn)[:3] for turn in log.ancestry("main")] == ["one", "two", "xxx"]
    assert log.verify().clean
"""


def test_what_is_recorded_counts_where_a_small_i_has_no_dot(tmp_path: Path) -> None:
    """`sqlite3` before Python 3.13 takes INSERT for no statement that changes rows where the locale is Turkish."""
    assert transactions._INSERT.startswith("insert ")
    make = shutil.which("localedef")
    folder = tmp_path / "locales"
    folder.mkdir()
    if make is not None:
        subprocess.run([make, "-i", "tr_TR", "-f", "UTF-8", folder / "tr_TR.UTF-8"], capture_output=True, check=False)
    # Where the system does not have what a locale is made of, there is none in which it could go wrong.
    name = "tr_TR.UTF-8" if (folder / "tr_TR.UTF-8").exists() else "C"
    subprocess.run(
        [sys.executable, "-c", _RECORDS, str(tmp_path / "log.db"), name], env={"LOCPATH": str(folder)}, check=True
    )


def test_nothing_is_kept_of_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the driver says that a row is not there, and it is."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.add_turn("one", bookmark="main")
        with monkeypatch.context() as patch:
            # A statement that begins so changes no rows either, as far as `sqlite3` knows.
            patch.setattr(transactions, "_INSERT", f"WITH none AS (SELECT 1) {transactions._INSERT}")
            with pytest.raises(IdConflictError):
                log.add_turn("two", continues="main")
        assert [log.text(turn) for turn in log.latest(None)] == ["one"]
        log.add_turn("three", continues="main")
        assert [log.text(turn) for turn in log.ancestry("main")] == ["one", "three"]
        assert log.verify().clean
