"""Logs to export."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnlog import TurnLog
from turnlog.model import ReplyFacts


@pytest.fixture
def source(tmp_path: Path) -> Iterator[TurnLog]:
    """Give a log of two threads with documents, forks, a merge inside the first, and bookmark events."""
    (tmp_path / "noise.bin").write_bytes(random.Random(0).randbytes(70_000))
    (tmp_path / "data.json").write_bytes(b'{ "spaced": true }\n')
    (tmp_path / "min.json").write_bytes(b'{"b":1.50,"a":"\\u00e9"}')
    with TurnLog.open("memory://") as log:
        root = log.add_turn("root\u2028\n", bookmark="main", servers=["a"])
        log.add_turn("reply", role="assistant", continues="main", reply=ReplyFacts(usage={"input_tokens": 3}))
        fork = log.add_turn("fork", continues=root.id)
        log.add_turn("merge", continues=["main", fork.id])
        log.add_document(tmp_path / "noise.bin", continues="main")
        log.add_document(tmp_path / "data.json", continues="main")
        log.add_document(tmp_path / "min.json", continues="main")
        log.add_turn("other thread", bookmark="other")
        log.bookmarks.set("side", fork.id)
        log.bookmarks.rename("side", "aside")
        yield log
