"""Checkpoints of a log: signing, keeping, writing them elsewhere, and making them by itself."""

import http.server
import io
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.audit.anchors import read_anchors
from turnlog.audit.checkpoints import cosign, open_checkpoint
from turnlog.audit.heads import SignedHeads
from turnlog.audit.notes import Signer, parse_note
from turnlog.audit.places import parse_place
from turnlog.audit.proofs import check_consistency, split_notes
from turnlog.audit.shared_files import file_of
from turnlog.errors import CorruptionError, MetaError, PlaceError, ProofError, SigningKeyError, TurnlogError
from turnlog.projections.tree import forget_nodes
from turnlog.sources import Sources

SIGNER = Signer.generate("example.com/log")
WITNESS = Signer.generate("example.org/witness")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TurnLog]:
    """Open a log with a turn in it."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        log.add_turn("first", bookmark="main")
        yield log


def test_checkpoint_covers_all_events(log: TurnLog) -> None:
    """Its origin is the log's id, and its signature holds."""
    made = log.audit.checkpoint(SIGNER)
    signed = open_checkpoint(made.note, [SIGNER.verifier])
    assert (signed.checkpoint.size, signed.checkpoint.origin) == (2, f"turnlog/{log.id}")
    assert (made.root, made.signatures) == (signed.checkpoint.root, ("example.com/log",))
    assert log.audit.checkpoints() == [made]


def test_same_checkpoint_is_kept_once(log: TurnLog) -> None:
    """Ed25519 signs the same the same way."""
    assert log.audit.checkpoint(SIGNER) == log.audit.checkpoint(SIGNER)
    assert len(log.audit.checkpoints()) == 1


def test_keys_rotate(log: TurnLog) -> None:
    """A new key goes on where the old one ended, under the origin that the log had from the beginning."""
    first = log.audit.checkpoint(SIGNER, origin="example.com/log")
    log.add_turn("second")
    second = log.audit.checkpoint(Signer.generate("new"), known=[SIGNER.verifier])
    assert (first.origin, second.origin, second.signatures) == ("example.com/log", "example.com/log", ("new",))
    proof = log.audit.prove_consistency(first.note, log.audit.checkpoint(SIGNER).note)
    assert check_consistency(proof, [SIGNER.verifier]).new.checkpoint.size == 3


def test_empty_log_is_not_signed(tmp_path: Path) -> None:
    """It has no identity yet."""
    with TurnLog.open(f"sqlite:///{tmp_path}/empty.db") as log, pytest.raises(MetaError, match="nothing in the log"):
        log.audit.checkpoint(SIGNER)


def test_what_is_kept_as_a_checkpoint_and_is_none_stops_no_proof(log: TurnLog) -> None:
    """It is passed over, and told, and a repair takes it away: nothing else would."""
    made = log.audit.checkpoint(SIGNER)
    log.store.write(lambda transaction: transaction.run("INSERT INTO checkpoints VALUES (7, 'x'), (99, 'x')"))
    assert log.audit.prove(log.latest(1)[0].id).note == made.note
    with pytest.raises(CorruptionError, match="--repair-projections"):
        log.audit.checkpoints()
    assert [damage.what.rpartition(": ")[0] for damage in log.verify().damage] == [
        f"a checkpoint that the store keeps, of {size} events, cannot be read" for size in (7, 99)
    ]
    report = log.verify(repair_projections=True)
    assert (report.clean, report.repaired) == (True, ("checkpoints",))
    assert log.verify(repair_projections=True).repaired == ()
    assert log.audit.checkpoints() == [made]


def test_no_line_of_a_checkpoint_passes_for_a_signature(log: TurnLog) -> None:
    """A file that has it could not be read."""
    with pytest.raises(ProofError, match="signatures begin with"):
        log.audit.checkpoint(SIGNER, origin="\N{EM DASH} me")


def test_log_that_was_changed_is_not_signed_again(log: TurnLog) -> None:
    """A log signs nothing that is not consistent with what it signed before."""
    log.audit.checkpoint(SIGNER)
    with TurnLog.open("memory://") as other:
        other.add_turn("other")
        forged = other.audit.checkpoint(SIGNER, origin=f"turnlog/{log.id}").note
    log.store.write(lambda transaction: transaction.run("UPDATE checkpoints SET note = ?", (forged,)))
    with pytest.raises(CorruptionError, match="no other is signed"):
        log.audit.checkpoint(SIGNER)


def test_cosignatures_are_checked_and_kept(log: TurnLog) -> None:
    """Those of unknown witnesses are left out; a forged one of a known witness is refused."""
    made = log.audit.checkpoint(SIGNER)
    text = parse_note(made.note).text
    line = cosign(text, WITNESS, 1_700_000_000)
    more = log.audit.cosigned(made, [cosign(text, Signer.generate("x"), 1), line], [WITNESS.cosigner_verifier])
    assert log.audit.checkpoints() == [more]
    signed = open_checkpoint(more.note, [SIGNER.verifier, WITNESS.cosigner_verifier])
    assert signed.cosigned_by == [("example.org/witness", 1_700_000_000)]
    log.add_turn("second")
    newer = log.audit.checkpoint(SIGNER)
    with pytest.raises(ProofError):
        log.audit.cosigned(newer, [line], [WITNESS.cosigner_verifier])
    with pytest.raises(ProofError, match="none of the cosignatures"):
        log.audit.cosigned(newer, [cosign(text, Signer.generate("x"), 1)], [WITNESS.cosigner_verifier])


def test_checkpoints_go_to_places_elsewhere(log: TurnLog, tmp_path: Path) -> None:
    """A folder gets a file each, once; a file all of them; a command its standard input."""
    places = [
        parse_place(f"{tmp_path}/folder/"),
        parse_place(f"{tmp_path}/all.notes"),
        parse_place(f"command:sh -c 'cat > {tmp_path}/seen-$TURNLOG_CHECKPOINT_SIZE'"),
    ]
    first = log.audit.checkpoint(SIGNER, to=places)
    log.audit.checkpoint(SIGNER, to=places[:1])
    log.add_turn("second")
    second = log.audit.checkpoint(SIGNER, to=places)
    names = ["000000000002.checkpoint", "000000000003.checkpoint"]
    assert sorted(file.name for file in (tmp_path / "folder").iterdir()) == names
    assert split_notes((tmp_path / "all.notes").read_text()) == [first.note, second.note]
    assert (tmp_path / "seen-3").read_text() == second.note
    anchors = read_anchors([tmp_path / "folder", tmp_path / "all.notes"], [SIGNER.verifier])
    assert [anchor.size for anchor in anchors] == [2, 3, 2, 3]


def test_webhook_is_sent_the_note(log: TurnLog) -> None:
    """By POST; any status but success is a failure, and is said without the path, which may be a secret."""
    seen: list[bytes] = []
    statuses = [204, 503]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(statuses.pop(0))
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = parse_place(f"http://127.0.0.1:{server.server_port}/secret")
        made = log.audit.checkpoint(SIGNER, to=[place])
        assert seen == [made.note.encode()]
        with pytest.raises(PlaceError, match="status 503") as failure:
            log.audit.publish(made, [place])
        server.shutdown()
    assert "secret" not in str(failure.value)


def test_folder_of_checkpoints_is_its_owners_alone(log: TurnLog, tmp_path: Path) -> None:
    """Whatever the umask is: whoever could write there could remove what the log is measured by."""
    before = os.umask(0)
    try:
        log.audit.checkpoint(SIGNER, to=[parse_place(f"{tmp_path}/a/b/")])
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a", "a/b")] == [0o700, 0o700]


@pytest.mark.parametrize(
    "text", ["", "command:", "command:'", "\0", "http://", "http://[", "http://a:b", "~nobody-of-this-name/x"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    """With one line that says what is."""
    with pytest.raises(PlaceError):
        parse_place(text)


@pytest.mark.parametrize("text", ["htps://user:s3cret@host/x", "http:/user:s3cret@host/x", "HTTPS:user:s3cret@host/x"])
def test_a_place_that_is_no_url_is_repeated_without_its_login(text: str) -> None:
    """A scheme or slashes that were mistyped make it none."""
    with pytest.raises(PlaceError, match=r"^'.*host/x': a place is a path") as refused:
        parse_place(text)
    assert "s3cret" not in str(refused.value)


def test_place_that_fails_keeps_nothing_from_the_others(log: TurnLog, tmp_path: Path) -> None:
    """All are tried, and the failure names the place."""
    places = [parse_place("command:false"), parse_place(f"{tmp_path}/missing/file"), parse_place(f"{tmp_path}/good")]
    with pytest.raises(PlaceError, match=r"command:false.*missing/file"):
        log.audit.checkpoint(SIGNER, to=places)
    assert (tmp_path / "good").exists()
    assert len(log.audit.checkpoints()) == 1


def _waited_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def test_keeper_makes_checkpoints_beside_the_appends(log: TurnLog) -> None:
    """Every so many events, and a last one when the log is closed."""
    log.audit.keep_checkpoints(SIGNER, every_events=10)
    for number in range(12):
        log.add_turn(str(number))
    _waited_for(log.audit.checkpoints, "no checkpoint was made")
    first = log.audit.checkpoints()[0].size
    assert 10 <= first <= 14
    log.add_turn("one more")
    log.audit.close()
    assert log.audit.checkpoints()[-1].size == 15


def test_keeper_keeps_up_with_appends_and_makes_no_more_than_asked_for(log: TurnLog) -> None:
    """Each covers at least so many events more than the one before, however long the appends go on."""
    keeper = log.audit.keep_checkpoints(SIGNER, every_events=10)
    end = time.monotonic() + 30
    while len(log.audit.checkpoints()) < 5:
        assert time.monotonic() < end, "no checkpoints were made"
        log.add_turn("more")
    keeper.close()
    sizes = [one.size for one in log.audit.checkpoints()]
    assert all(later - earlier >= 10 for earlier, later in pairwise([0, *sizes[:-1]]))
    assert sizes[-1] == log.verify().events
    assert keeper.failures == 0


def test_keeper_that_waits_for_many_events_ends_at_once(log: TurnLog) -> None:
    """With a last checkpoint, whether events or seconds are what it waits for."""
    for when in ({"every_events": 10**18}, {"every_s": 3600.0}, {"every_events": 10**18, "every_s": 3600.0}):
        log.add_turn("one more")
        keeper = log.audit.keep_checkpoints(SIGNER, **when)
        keeper.close()
        keeper.close()
    assert [one.size for one in log.audit.checkpoints()] == [3, 4, 5]


def test_keeper_makes_a_checkpoint_of_few_events_when_their_time_is_up(log: TurnLog) -> None:
    """Where it is to make one every so many events too."""
    log.audit.keep_checkpoints(SIGNER, every_events=1000, every_s=0.05)
    _waited_for(log.audit.checkpoints, "no checkpoint was made")
    assert log.audit.checkpoints()[0].size == 2


def test_keeper_makes_a_checkpoint_after_some_time(log: TurnLog) -> None:
    """However few events there are."""
    keeper = log.audit.keep_checkpoints(SIGNER, every_s=0.05)
    _waited_for(log.audit.checkpoints, "no checkpoint was made")
    assert keeper.failures == 0


def test_keeper_does_not_wait_for_a_time_to_come(log: TurnLog) -> None:
    """An event can have one from far in the future, by a clock that was wrong or from another log."""
    log.audit.checkpoint(SIGNER)
    with TurnLog(log.store, sources=Sources(time_ms=lambda: 9_000_000_000_000)) as late:
        late.add_turn("from another year")
        log.audit.keep_checkpoints(SIGNER, every_s=60.0, at_end=False)
        _waited_for(lambda: log.audit.checkpoints()[1:], "no checkpoint was made")


def test_keeper_that_is_not_to_make_a_last_one_makes_it_only_if_due(log: TurnLog) -> None:
    """As commands that record one turn want it."""
    log.audit.keep_checkpoints(SIGNER, every_events=100, at_end=False)
    log.audit.close()
    assert log.audit.checkpoints() == []
    log.audit.keep_checkpoints(SIGNER, every_events=2, at_end=False)
    log.audit.close()
    assert [one.size for one in log.audit.checkpoints()] == [2]


def test_keeper_tells_what_fails_and_goes_on(log: TurnLog) -> None:
    """Appends are not held up by a place that cannot be written."""
    errors: list[TurnlogError] = []
    keeper = log.audit.keep_checkpoints(
        SIGNER, every_events=1, to=[parse_place("command:false")], on_error=errors.append
    )
    _waited_for(lambda: errors, "nothing failed")
    log.add_turn("second")
    log.audit.close()
    assert keeper.failures == len(errors) >= 2
    assert {str(error).rpartition(": ")[2] for error in errors} == {"it ended with status 1"}
    assert log.audit.checkpoints()[-1].size == 3


def test_keeper_goes_on_where_whoever_is_told_fails(log: TurnLog, caplog: pytest.LogCaptureFixture) -> None:
    """What fails is logged, both of it, and the log is closed as ever."""

    def fail(_error: TurnlogError) -> None:
        raise ValueError("nobody is there")

    keeper = log.audit.keep_checkpoints(SIGNER, every_events=1, to=[parse_place("command:false")], on_error=fail)
    _waited_for(lambda: keeper.failures, "nothing failed")
    size = log.add_turn("second").global_position
    _waited_for(lambda: log.audit.checkpoints()[-1].size == size, "no checkpoint was made")
    log.audit.close()
    said = [record.getMessage() for record in caplog.records if record.name == "turnlog.checkpoints"]
    assert [line.partition(":")[0] for line in said[:2]] == [
        "whoever is told of a checkpoint that failed has failed",
        "a checkpoint failed",
    ]


@pytest.mark.parametrize(
    "when",
    [{}, {"every_events": 0}, {"every_s": 0.0}, {"every_events": "5"}, {"every_events": 1.5}, {"every_s": "5"}],
)
def test_keeper_wants_to_know_when(log: TurnLog, when: dict[str, Any]) -> None:
    """Never is not a time."""
    with pytest.raises(MetaError):
        log.audit.keep_checkpoints(SIGNER, **when)


def test_file_without_checkpoints_is_refused(tmp_path: Path) -> None:
    """So that nobody takes nothing for an anchor."""
    (tmp_path / "empty").write_text("")
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "other").write_text("text\n")
    (tmp_path / "folder" / "below").mkdir(parents=True)
    for name in ("empty", "binary", "other", "folder"):
        with pytest.raises(ProofError, match=name):
            read_anchors([tmp_path / name], [SIGNER.verifier])


def test_checkpoints_that_cannot_be_used_are_told_and_the_others_are_used(log: TurnLog, tmp_path: Path) -> None:
    """Somebody who adds a note must not keep the log from being compared with the others."""
    good = log.audit.checkpoint(SIGNER, to=[parse_place(f"{tmp_path}/notes")]).note
    with (tmp_path / "notes").open("a") as file:
        file.write(f"{good.rstrip()}=\n{good}")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "binary").write_bytes(b"\xff")
    (tmp_path / "folder" / "empty").write_bytes(b"")
    (tmp_path / "folder" / "gone").symlink_to(tmp_path / "nowhere")
    told: list[str] = []
    anchors = read_anchors([tmp_path / "folder", tmp_path / "notes"], [SIGNER.verifier], told.append)
    assert [anchor.size for anchor in anchors] == [2, 2]
    assert [line.removeprefix(f"{tmp_path}/") for line in told] == [
        "folder/binary: it is not UTF-8",
        "folder/empty: there is no checkpoint in it",
        "folder/gone: it cannot be read (no such file or directory)",
        "notes (2): a signature line of a note is malformed",
    ]
    with pytest.raises(FileNotFoundError):
        read_anchors([tmp_path / "none"], [SIGNER.verifier], told.append)


def test_checkpoint_of_another_key_is_refused(log: TurnLog, tmp_path: Path) -> None:
    """Whoever gives it says whose it should be."""
    log.audit.checkpoint(SIGNER, to=[parse_place(f"{tmp_path}/note")])
    with pytest.raises(ProofError, match="note"):
        read_anchors([tmp_path / "note"], [Signer.generate("example.com/log").verifier])


def test_origin_is_not_taken_from_a_note_of_somebody_else(log: TurnLog) -> None:
    """Whoever writes the store could have put it there."""
    with TurnLog.open("memory://") as other:
        other.add_turn("other")
        forged = other.audit.checkpoint(Signer.generate("somebody"), origin="example.org/victim").note
    log.audit.checkpoint(SIGNER)
    log.store.write(lambda transaction: transaction.run("INSERT INTO checkpoints VALUES (9, ?)", (forged,)))
    log.store.write(lambda transaction: transaction.run("INSERT INTO checkpoints VALUES (99, 'x')"))
    log.add_turn("second")
    assert log.audit.checkpoint(SIGNER).origin == f"turnlog/{log.id}"
    assert [damage.what for damage in log.verify().damage if "cannot be read" in damage.what]


def test_folder_takes_no_second_checkpoint_of_the_same_size(log: TurnLog, tmp_path: Path) -> None:
    """An older copy of the log that was signed again shows there."""
    place = parse_place(f"{tmp_path}/folder/")
    log.audit.checkpoint(SIGNER, to=[place])
    with TurnLog.open("memory://") as other:
        other.add_turn("other")
        with pytest.raises(PlaceError, match="different checkpoint of 2 events"):
            other.audit.checkpoint(SIGNER, to=[place])


def test_fifo_is_no_place(log: TurnLog, tmp_path: Path) -> None:
    """Nothing waits for a reader that may never come."""
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(PlaceError):
        log.audit.checkpoint(SIGNER, to=[parse_place(f"{tmp_path}/fifo")])
    with pytest.raises(OSError, match="not a regular file"):
        read_anchors([tmp_path / "fifo"], [SIGNER.verifier])


def test_torn_end_of_a_file_does_not_spoil_what_is_appended(log: TurnLog, tmp_path: Path) -> None:
    """The next note begins on a line of its own."""
    (tmp_path / "notes").write_text("turnlog/x\n17\nabc")
    made = log.audit.checkpoint(SIGNER, to=[parse_place(f"{tmp_path}/notes")])
    assert (tmp_path / "notes").read_text().endswith(f"abc\n\n{made.note}\n")


def test_checkpoint_of_another_log_is_told_as_that(log: TurnLog, tmp_path: Path) -> None:
    """And not as a change of this one."""
    with TurnLog.open("memory://") as other:
        other.add_turn("other")
        other.audit.checkpoint(SIGNER, to=[parse_place(f"{tmp_path}/other")])
    report = log.verify(checkpoints=read_anchors([tmp_path / "other"], [SIGNER.verifier]))
    assert "of another log" in report.damage[0].what


def test_kept_arrivals_that_were_changed_are_told(log: TurnLog) -> None:
    """A checkpoint would be signed over them."""
    log.audit.checkpoint(SIGNER)
    log.store.write(lambda transaction: transaction.run("INSERT INTO tree_arrivals VALUES (2, 2)"))
    assert "other arrivals" in log.verify().damage[0].what
    log.audit.rebuild_tree()
    assert log.verify().clean


def test_witness_is_asked_before_a_checkpoint_is_kept(log: TurnLog) -> None:
    """What it refuses is not kept."""

    def refused(_: str) -> list[str]:
        raise ProofError("no")

    with pytest.raises(ProofError, match="no"):
        log.audit.checkpoint(SIGNER, cosigned=refused)
    assert log.audit.checkpoints() == []


def test_older_copy_of_the_log_is_not_signed_again(log: TurnLog, tmp_path: Path) -> None:
    """What was signed last is kept beside the keys, where a store that is put back does not reach."""
    heads = SignedHeads(tmp_path / "signed")
    log.audit.checkpoint(SIGNER, heads=heads)
    shutil.copy(tmp_path / "log.db", tmp_path / "older.db")
    shutil.copy(tmp_path / "log.db-wal", tmp_path / "older.db-wal")
    log.add_turn("second")
    assert log.audit.checkpoint(SIGNER, heads=heads).size == log.audit.checkpoint(SIGNER, heads=heads).size == 3
    with TurnLog.open(f"sqlite:///{tmp_path}/older.db") as older:
        with pytest.raises(CorruptionError, match="was signed with 3 events"):
            older.audit.checkpoint(SIGNER, heads=heads)
        older.add_turn("another second")
        with pytest.raises(CorruptionError, match="an older copy was put in its place"):
            older.audit.checkpoint(SIGNER, heads=heads)
        assert older.audit.checkpoint(SIGNER, heads=heads, origin="example.com/restored").size == 3


def test_copy_in_which_an_erasure_has_no_effect_is_not_signed_again(log: TurnLog, tmp_path: Path) -> None:
    """An older copy that has taken a later export in has the same events, as those of another log."""
    heads = SignedHeads(tmp_path / "signed")
    for end in ("", "-wal"):
        shutil.copy(tmp_path / f"log.db{end}", tmp_path / f"older.db{end}")
    log.erase(turn=log.latest(1)[0].id, reason="asked")
    log.audit.checkpoint(SIGNER, heads=heads)
    export = io.BytesIO()
    log.export(export)
    with TurnLog.open("memory://") as restored, TurnLog.open(f"sqlite:///{tmp_path}/older.db") as older:
        for other in (restored, older):
            export.seek(0)
            other.import_turnlog(export)
        with pytest.raises(CorruptionError, match="an older copy was put in its place"):
            older.audit.checkpoint(SIGNER, heads=heads)
        restored.audit.checkpoint(SIGNER, heads=heads)
    log.add_turn("and on")
    log.audit.checkpoint(SIGNER, heads=heads)


def test_damaged_memory_of_what_was_signed_signs_nothing(log: TurnLog, tmp_path: Path) -> None:
    """It is never taken for none."""
    heads = SignedHeads(tmp_path / "signed")
    log.audit.checkpoint(SIGNER, heads=heads, origin="o")
    path = file_of(tmp_path / "signed", "o")
    path.write_text("x")
    with pytest.raises(SigningKeyError, match=path.name):
        log.audit.checkpoint(SIGNER, heads=heads)


def test_what_was_signed_is_read_back_whatever_stands_behind_it(log: TurnLog, tmp_path: Path) -> None:
    """A process that is killed while it writes leaves the start of what it would have signed, which is no damage."""
    heads = SignedHeads(tmp_path / "signed")
    log.audit.checkpoint(SIGNER, heads=heads, origin="o")
    path = file_of(tmp_path / "signed", "o")
    first = path.read_bytes()
    log.add_turn("second")
    log.audit.checkpoint(SIGNER, heads=heads)
    both = path.read_bytes()
    assert both.startswith(first)
    second = both.removeprefix(first)
    older = SignedHeads(tmp_path / "older")
    for cut in range(len(second)):
        path.write_bytes(first + second[:cut])
        assert log.audit.checkpoint(SIGNER, heads=heads).size == 3
        assert path.read_bytes() == both
    # As turnlog wrote it first: one checkpoint, without an end.
    path.write_bytes(first.removesuffix(b"\n"))
    log.audit.checkpoint(SIGNER, heads=heads)
    assert path.read_bytes() == second
    path.write_bytes(first.removesuffix(b"\n").replace(b"\n2\n", b"\n9\n"))
    with pytest.raises(CorruptionError, match="was signed with 9 events"):
        log.audit.checkpoint(SIGNER, heads=heads)
    assert log.audit.checkpoint(SIGNER, heads=older).size == 3


def test_memory_of_what_was_signed_is_bounded(log: TurnLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is begun anew now and then, with the last."""
    monkeypatch.setattr("turnlog.audit.heads.FILE_BYTES_MAX", 500)
    heads = SignedHeads(tmp_path / "signed")
    sizes: list[int] = []
    for number in range(30):
        log.add_turn(str(number))
        log.audit.checkpoint(SIGNER, heads=heads, origin="o")
        sizes.append(file_of(tmp_path / "signed", "o").stat().st_size)
    assert 500 < max(sizes) < 800
    assert sizes != sorted(sizes)


def test_origin_is_that_of_the_last_checkpoint(log: TurnLog) -> None:
    """A log that was given another one goes on with it."""
    log.audit.checkpoint(SIGNER, origin="one")
    log.add_turn("second")
    log.audit.checkpoint(SIGNER, origin="two")
    log.add_turn("third")
    assert log.audit.checkpoint(SIGNER).origin == "two"


def test_older_checkpoint_that_is_put_into_the_store_is_compared(log: TurnLog) -> None:
    """Though the last one was compared already, and is as it was."""
    log.audit.checkpoint(SIGNER)
    log.add_turn("second")
    log.audit.checkpoint(SIGNER)
    with TurnLog.open("memory://") as other:
        other.add_turn("other")
        forged = other.audit.checkpoint(SIGNER, origin=f"turnlog/{log.id}").note
    log.store.write(lambda transaction: transaction.run("INSERT INTO checkpoints VALUES (1, ?)", (forged,)))
    with pytest.raises(CorruptionError, match="checkpoint of 2 events, and no other is signed"):
        log.audit.checkpoint(SIGNER)


def test_checkpoints_of_another_process_are_compared(log: TurnLog) -> None:
    """Smaller and larger ones; each is signed on top of the other."""
    with TurnLog.open(log.store.url) as other:
        for number, one in enumerate([log, other, log, log, other, other]):
            one.add_turn(str(number))
            one.audit.checkpoint(SIGNER)
        forged = other.audit.checkpoints()[2]
        other.store.write(lambda transaction: transaction.run("DELETE FROM checkpoints WHERE size = ?", (forged.size,)))
        assert log.audit.checkpoint(SIGNER).size == 8
    assert [one.size for one in log.audit.checkpoints()] == [3, 4, 6, 7, 8]


def test_checkpoint_of_a_log_that_has_grown_much_is_made_in_steps(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No snapshot is held for all of it. A kept tree that was thrown away is built again."""
    monkeypatch.setattr("turnlog.audit.facade.PAGE_LEAVES", 3)
    monkeypatch.setattr("turnlog.audit.tree.PAGE_LEAVES", 3)
    first = log.audit.checkpoint(SIGNER)
    for number in range(20):
        log.add_turn(str(number))
    log.audit.checkpoint(SIGNER)
    log.store.write(forget_nodes)
    last = log.audit.checkpoint(SIGNER)
    assert [one.size for one in log.audit.checkpoints()] == [2, 22]
    assert check_consistency(log.audit.prove_consistency(first.note, last.note), [SIGNER.verifier])
    assert log.verify().clean


def test_two_that_sign_at_once_are_both_right(log: TurnLog, tmp_path: Path) -> None:
    """Neither takes what the other has signed for a newer log than its own."""
    heads = SignedHeads(tmp_path / "signed")
    with TurnLog.open(log.store.url) as other, ThreadPoolExecutor() as pool:

        def sign(one: TurnLog) -> None:
            for number in range(20):
                one.add_turn(str(number))
                one.audit.checkpoint(SIGNER, heads=heads)

        list(pool.map(sign, [log, other]))
    assert log.audit.checkpoints()[-1].size == 42
