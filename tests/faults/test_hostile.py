"""Stores made to hurt whoever reads them: nothing hangs, and no claim takes memory."""

import resource
from pathlib import Path

import msgspec
import pytest
from tests.faults.asking import ask_all
from tests.faults.edits import frame_of_12_gb
from tests.faults.hostile import payload_file, rewrite
from tests.faults.rich_store import AT, build
from tests.faults.tampering import FOUND, Edit

from turnlog import TurnLog
from turnlog.audit import VerifyReport
from turnlog.digest import payload_hash
from turnlog.errors import TurnlogError
from turnlog.events import Recorded
from turnlog.model import BytesRef, CallMeta
from turnlog.record.calls import CallDraft, plan_call
from turnlog.sources import Sources
from turnlog.store import WriteTransaction
from turnlog.testing.faults import run_process

PEAK_MB_MAX = 400
CLAIMS = (
    "frame that claims 12 GB",
    "frame in a file that claims 12 GB",
    "size of 12 GB",
    "size of a request of 12 GB",
    "a terabyte of the base",
    "million tools",
    "content without an end",
    "header nested too deeply",
    "event moved to the very end",
)


def _verified(path: Path) -> tuple[bool, float]:
    """Verify a store and ask it everything. Return whether it is clean, and the memory that it took at most, in MB."""
    with TurnLog.open(f"sqlite:///{path}") as log:
        clean = log.verify().clean
        ask_all(log)
    return clean, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.timeout(120)
@pytest.mark.parametrize("edit", [edit for edit in FOUND if edit.name in CLAIMS], ids=lambda edit: edit.name)
def test_claim_takes_no_memory(tmp_path: Path, edit: Edit) -> None:
    """What a store says of sizes and numbers is never believed before it is compared with what is there."""
    build(tmp_path / "log.db")
    edit.apply(tmp_path / "log.db")
    clean, peak_mb = run_process(_verified, tmp_path / "log.db")
    assert not clean
    assert peak_mb < PEAK_MB_MAX


def test_frame_that_is_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    """28 kB that are 900 MB once they are read, and an event that says so: verifying looks at a piece at a time."""
    path = tmp_path / "log.db"
    build(path)
    blocks = 6866
    size = blocks * 131_072
    block = (1 << 1 | 131_072 << 3).to_bytes(3, "little") + b"x"
    last = (1 | 1 << 1 | 131_072 << 3).to_bytes(3, "little") + b"x"
    head = frame_of_12_gb(b"")[:4] + b"\xc0\x58" + size.to_bytes(8, "little")  # a window of 2 MiB, and the size
    payload_file(path, AT["table"]).write_bytes(head + block * (blocks - 1) + last)
    rewrite(path, AT["table"], private=lambda private: private.update(size=size))
    report, peak_mb = run_process(_report, path)
    assert any("hash differs" in damage.what for damage in report.damage)
    assert peak_mb < PEAK_MB_MAX


def _report(path: Path) -> tuple[VerifyReport, float]:
    with TurnLog.open(f"sqlite:///{path}") as log:
        return log.verify(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.timeout(120)
@pytest.mark.parametrize("chains", [1, 2])
def test_requests_built_on_each_other_end(tmp_path: Path, chains: int) -> None:
    """Thousands of requests that have all of the one before, of a megabyte each: they add up to gigabytes on paper."""
    path = tmp_path / "log.db"
    body = b"x" * (1_000_000 if chains == 1 else 30_000_000)
    with TurnLog.open(f"sqlite:///{path}") as log:
        turn = log.add_turn("root").id
        bases: list[str | None] = [None] * chains
        for number in range(2000 if chains == 1 else 40):
            base = bases[number % chains]
            made = (b"", [[0, len(body)]]) if base else (body, [len(body)])
            bases[number % chains] = _call(log, turn, body, made, base).header.id
    report, peak_mb = run_process(_report, path)
    assert report.damage == ()
    assert peak_mb < PEAK_MB_MAX


def _call(log: TurnLog, turn: str, body: bytes, made: tuple[bytes, list[object]], base: str | None) -> Recorded:
    """Record a call by hand: its literal bytes, and what else it is made of."""
    sources = Sources()
    meta = CallMeta(
        turn=turn,
        provider="p",
        api="a",
        model="m",
        adapter="x",
        adapter_version="1",
        stream=False,
        request=BytesRef(hash=payload_hash(body), size=len(body)),
    )
    if base is not None:
        meta = msgspec.structs.replace(meta, base=base)
    payload = msgspec.json.encode({"format": 1, "parts": made[1]}) + b"\n" + made[0]
    draft = CallDraft(
        meta=meta, payload=log.store.place(payload), id=sources.new_id(), listing=None, listing_payload=None
    )

    def plan(transaction: WriteTransaction) -> Recorded:
        return plan_call(transaction, draft, sources)

    return log.store.write(plan)


@pytest.mark.timeout(120)
def test_forks_of_forks_end(tmp_path: Path) -> None:
    """Every turn starts a stream, every call rests on the first: whether they are of one thread is told at once."""
    path = tmp_path / "log.db"
    with TurnLog.open(f"sqlite:///{path}") as log:
        turn = log.add_turn("root").id
        first = _call(log, turn, b"x" * 100, (b"x" * 100, [100]), None).header.id
        for _ in range(300):
            log.add_turn("left", continues=turn)
            turn = log.add_turn("right", continues=turn).id
            _call(log, turn, b"x" * 100, (b"", [[0, 100]]), first)
        report = log.verify()
    assert (report.damage, report.requests) == ((), 301)


@pytest.mark.timeout(120)
def test_empty_and_strange_files_are_refused(tmp_path: Path) -> None:
    """What is no store is said to be none."""
    for name, content in {"empty": b"", "text": b"text" * 1000, "header": b"SQLite format 3\0" + bytes(5000)}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TurnlogError):
            TurnLog.open(f"sqlite:///{tmp_path / name}", create=False)
