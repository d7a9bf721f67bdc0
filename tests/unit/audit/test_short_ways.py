"""Short ways to say that nothing is wrong: what they say, the long way says too, in sound stores and in forged ones."""

import shutil
from pathlib import Path

import pytest
from tests.docs.random_logs import fill
from tests.faults.rich_store import build
from tests.faults.tampering import FOUND

from turnlog import TurnLog
from turnlog.audit import contents as payloads
from turnlog.audit.citations import Citations
from turnlog.audit.contents import Contents
from turnlog.audit.known import Known
from turnlog.audit.report import Findings
from turnlog.audit.requests import Requests
from turnlog.audit.rows import Row, examine, plain
from turnlog.audit.threads import Threads
from turnlog.errors import TurnlogError
from turnlog.events import TURN
from turnlog.store import ReadTransaction, ScratchTransaction, Store

KINDS = sorted({edit.kind for edit in FOUND} - {"engine", "schema"})


def _check(store: Store) -> tuple[int, ...]:
    """Take both ways for each row, and return how often each short way was one."""
    with store.read() as transaction, store.scratch() as scratch:
        findings = Findings()
        known = Known(scratch)
        threads = Threads(scratch, known)
        with Requests(known, threads, findings) as requests:
            citations, contents = Citations(known, findings), Contents(requests, findings)
            return _walk(transaction, findings, known, threads, citations, contents, scratch)


def _walk(
    transaction: ReadTransaction,
    findings: Findings,
    known: Known,
    threads: Threads,
    citations: Citations,
    contents: Contents,
    scratch: ScratchTransaction,
) -> tuple[int, ...]:
    counts = [0, 0, 0]
    # Rows whose global position is no number are never looked at.
    page = [row for row in transaction.stored_rows(-(1 << 63), 1000) if type(row.global_position) is int]
    # Each row alone, so that none hides behind another, and all together, as they are looked at.
    shorts = [plain([row])[0] for row in page]
    assert all(found in (None, short) for found, short in zip(plain(page), shorts, strict=True))
    rows: list[Row] = []
    for stored, short in zip(page, shorts, strict=True):
        before = findings.count
        read: Row | None = examine(stored, findings, transaction.opened)
        if short is not None:
            counts[0] += 1
            assert (short, findings.count) == (read, before)
        if read is not None:
            rows.append(read)
    for read in rows:
        goes_on = read.sound and citations.goes_on(read.recorded)
        before = findings.count
        cites = citations.check(transaction, read.recorded)
        if goes_on:
            counts[1] += 1
            assert (cites, findings.count) == (True, before)
        before = findings.count
        [short_content] = payloads.plain([read])
        if read.has_private and read.recorded.private is not None:
            try:
                contents.check(transaction, read, cites=cites)
            except TurnlogError:
                findings.add("it cannot be checked")
        if short_content:
            counts[2] += 1
            assert findings.count == before
        try:
            if read.recorded.header.topic == TURN:
                threads.note(read.recorded)
            known.note(read.recorded)
            scratch.fold(read.recorded)
        except (TurnlogError, OverflowError):
            continue
    return tuple(counts)


@pytest.mark.parametrize("kind", KINDS)
def test_short_ways_find_nothing_sound_that_is_not(tmp_path: Path, kind: str) -> None:
    """In each forged store: where a short way says that all is well, the long way finds nothing."""
    build(tmp_path / "log.db")
    for number, edit in enumerate(edit for edit in FOUND if edit.kind == kind):
        folder = tmp_path / str(number)
        folder.mkdir()
        for end in ("", "-payloads"):
            copy = shutil.copytree if end else shutil.copyfile
            copy(tmp_path / f"log.db{end}", folder / f"log.db{end}")
        edit.apply(folder / "log.db")
        try:
            with TurnLog.open(f"sqlite:///{folder}/log.db") as log:
                _check(log.store)
        except TurnlogError:
            continue


@pytest.mark.parametrize("seed", range(5))
def test_short_ways_are_taken(tmp_path: Path, seed: int) -> None:
    """In sound stores they are what they are for: the way of most rows."""
    fill(tmp_path / "log.db", 1000 + seed)
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        rows, goes_on, contents = _check(log.store)
        events = len(list(log.events()))
    assert rows > events / 2
    assert contents > events / 4
    assert goes_on > 0
