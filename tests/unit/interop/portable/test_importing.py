"""Taking in an export: as the log itself, or as guests; all of it checked first, then in groups."""

import errno
import io
import json
import os
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.forging import Forgery, exported
from tests.rewriting import erase

from turnlog import TurnLog
from turnlog.errors import (
    ConflictError,
    FormatError,
    IdConflictError,
    MetaError,
    PositionTakenError,
    TurnlogError,
    UntrustedRegisterError,
)
from turnlog.events import Arrival
from turnlog.interop.portable import RestoreReport
from turnlog.projections import MovedBookmark


def _import(log: TurnLog, content: bytes, **options: Any) -> RestoreReport:
    return log.import_turnlog(io.BytesIO(content), **options)


def _states(log: TurnLog) -> list[bytes]:
    return [recorded.state for recorded in log.events()]


def _heads(log: TurnLog) -> dict[str, str]:
    return {bookmark.name: bookmark.turn for bookmark in log.bookmarks.all()}


def _arrivals(log: TurnLog) -> list[Arrival]:
    return [recorded.arrival for recorded in log.events()]


def _long(log: TurnLog, turns: int = 1200) -> None:
    """Record more than goes in in two groups, with a bookmark that moves on through all of them."""
    log.add_turn("0", bookmark="main")
    for number in range(1, turns):
        log.add_turn(str(number), continues="main")


@cache
def _long_export(*, renamed: bool = False) -> tuple[bytes, dict[str, str]]:
    """Return an export of a long log, in which a bookmark was renamed or not, and its bookmarks."""
    with TurnLog.open("memory://") as source:
        _long(source)
        if renamed:
            source.bookmarks.set("early", source.ancestry("main")[0].id)
            source.bookmarks.rename("early", "first")
        return exported(source), _heads(source)


def _note(added: int, new: int) -> str:
    return f"at least {added:,} of {new:,} new events are in: the same import again adds the rest"


@pytest.mark.parametrize("turns", [2, 1200])
def test_what_is_erased_in_a_part_has_an_erasure_where_it_comes_to(log: TurnLog, turns: int) -> None:
    """Also where the one of its log names something else too, which the part does not have."""
    _long(log, turns)
    other = log.add_turn("another thread")
    named = [turn.id for turn in log.ancestry("main")][: turns // 2]
    log.erase(turn=[*named, other.id], reason="asked")
    content = io.BytesIO()
    log.export(content, "main", ancestry=True)
    with TurnLog.open("memory://") as here:
        report = _import(here, content.getvalue())
        assert (report.added, report.erased) == (turns, len(named))
        assert here.verify().clean
        mine = [event for event in here.events(topics="gpt.erasure") if event.arrival == Arrival.RECORDED]
        cited = [citation.id for event in mine for citation in event.header.citations]
        assert cited == named
        assert report.not_erased == ()
        with pytest.raises(MetaError, match="is erased, and with it whose it was"):
            here.add_turn("and on", continues=named[-1])
        # Nothing more is recorded where it is there already, and what is exported from here is as good.
        assert _import(here, content.getvalue()).added == 0
        assert len([*here.events(topics="gpt.erasure")]) == len(mine)
        again = exported(here, here.latest(1)[0].id)
    with TurnLog.open("memory://") as there:
        assert _import(there, again).erased == len(named)
        assert there.verify().clean


def test_what_a_part_has_erased_and_is_here_in_full_is_told(log: TurnLog) -> None:
    """Also where the erasure names something else too, and stays behind: an import takes nothing away."""
    turn, other = log.add_turn("said", bookmark="main"), log.add_turn("another thread")
    before, after = io.BytesIO(), io.BytesIO()
    log.export(before, "main")
    log.erase(turn=[turn.id, other.id], reason="asked")
    log.export(after, turn.id)
    with TurnLog.open("memory://") as here:
        assert _import(here, before.getvalue()).not_erased == ()
        assert _import(here, after.getvalue()).not_erased == (turn.id,)
        assert here.text(turn.id) == "said"
        here.erase(turn=turn.id, reason="asked there")
        assert _import(here, after.getvalue()).not_erased == ()
        assert here.verify().clean


def test_full_disk_is_named_that_a_pipe_is_copied_to(
    source: TurnLog, file_log: TurnLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another one than the store's; and nothing is imported."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("turnlog.interop.portable.importing.TemporaryFile", Full)
    with pytest.raises(OSError, match="No space left") as caught:
        file_log.import_turnlog(Pipe(exported(source)))
    assert caught.value.filename == tempfile.gettempdir()
    assert file_log.store.stats().events == 0


class TestWholeLog:
    """A whole log that becomes the log."""

    def test_empty_store_becomes_that_log(self, source: TurnLog, file_log: TurnLog) -> None:
        """Same identity, positions, bytes, payloads, bookmarks and threads; and clean."""
        report = _import(file_log, exported(source))
        assert report == RestoreReport(
            added=11,
            known=0,
            whole=True,
            set_bookmarks=tuple(
                MovedBookmark(name=name, before=None, after=turn) for name, turn in sorted(_heads(source).items())
            ),
        )
        assert file_log.id == source.id
        assert [(r.global_position, r.state, r.private_state) for r in file_log.events()] == [
            (r.global_position, r.state, r.private_state) for r in source.events()
        ]
        assert file_log.bookmarks.all() == source.bookmarks.all()
        assert file_log.threads() == source.threads()
        for recorded in source.events():
            if recorded.hash is not None:
                assert file_log.payload(recorded.header.id) == source.payload(recorded.header.id)
        assert set(_arrivals(file_log)) == {Arrival.RESTORED}
        assert file_log.verify().clean

    def test_export_of_a_restored_log_is_the_same_file(self, source: TurnLog, file_log: TurnLog) -> None:
        """To and fro changes no byte."""
        content = exported(source)
        _import(file_log, content)
        assert exported(file_log) == content

    def test_log_with_guests_and_erased_events_is_restored(self, source: TurnLog, tmp_path: Path) -> None:
        """Guests stay guests, what was erased stays so, and bookmarks are where they were."""
        path = tmp_path / "rich.db"
        with TurnLog.open(f"sqlite:///{path}") as rich:
            rich.add_turn("mine", bookmark="main")
            gone = rich.add_turn("to be erased", bookmark=False)
            _import(rich, exported(source))
            rich.erase(turn=gone.id, reason="asked")
        with TurnLog.open(f"sqlite:///{path}") as rich, TurnLog.open("memory://") as copy:
            report = _import(copy, exported(rich))
            assert (report.whole, report.erased) == (True, 1)
            assert _heads(copy) == _heads(rich)
            assert [arrival == Arrival.GUEST for arrival in _arrivals(copy)] == [
                arrival == Arrival.GUEST for arrival in _arrivals(rich)
            ]
            assert copy.turn(gone.id).erased
            assert exported(copy) == exported(rich)
            assert copy.verify().clean

    def test_importing_again_adds_nothing(self, source: TurnLog, log: TurnLog) -> None:
        """A second import knows everything and moves nothing, here and where it comes from."""
        content = exported(source)
        _import(log, content)
        for target in (log, source):
            assert _import(target, content) == RestoreReport(added=0, known=11, whole=target is log)
        assert len(_states(log)) == 11

    def test_later_export_goes_on_with_the_log(self, source: TurnLog, log: TurnLog) -> None:
        """What came since is added behind, and the bookmarks that it moved are told."""
        _import(log, exported(source))
        before = _heads(source)
        new = source.add_turn("new", continues="main")
        source.bookmarks.rename("other", "else")
        report = _import(log, exported(source))
        assert report == RestoreReport(
            added=2,
            known=11,
            whole=True,
            set_bookmarks=(MovedBookmark(name="else", before=None, after=before["other"]),),
            moved_bookmarks=(
                MovedBookmark(name="main", before=before["main"], after=new.id),
                MovedBookmark(name="other", before=before["other"], after=None),
            ),
        )
        assert exported(log) == exported(source)
        assert log.verify().clean

    def test_earlier_export_adds_nothing(self, source: TurnLog, log: TurnLog) -> None:
        """A log that has gone on knows its own beginning."""
        content = exported(source)
        source.add_turn("new", continues="main")
        assert _import(source, content) == RestoreReport(added=0, known=11, whole=False)

    def test_log_that_records_is_not_carried_on_by_an_export(self, source: TurnLog, log: TurnLog) -> None:
        """Whoever has an export of a log can make one that goes on from it: here its events are guests, and move none.

        Only what is nothing but a copy follows.
        """
        _import(log, exported(source))
        before = _heads(source)
        log.add_turn("forged", continues="main", bookmark="main")
        log.bookmarks.delete("other")
        forged = exported(log)
        report = _import(source, forged)
        assert (report.added, report.whole, report.moved_bookmarks) == (2, False, ())
        assert [kept.name for kept in report.kept_bookmarks] == ["main"]
        assert _heads(source) == before
        assert _arrivals(source)[11:] == [Arrival.GUEST, Arrival.GUEST]
        assert source.verify().clean

    def test_log_that_went_another_way_takes_in_guests(self, source: TurnLog, log: TurnLog) -> None:
        """Two logs of one beginning: what the other one has more of is of another log."""
        _import(log, exported(source))
        mine = log.add_turn("mine", bookmark="mine")
        theirs = source.add_turn("theirs", bookmark="theirs")
        report = _import(log, exported(source))
        assert (report.added, report.known, report.whole) == (1, 11, False)
        assert _arrivals(log)[11:] == [Arrival.RECORDED, Arrival.GUEST, Arrival.RECORDED]
        assert (log.turn("mine").id, log.turn("theirs").id) == (mine.id, theirs.id)
        assert log.id == source.id
        assert log.verify().clean

    def test_empty_log_is_nothing(self, log: TurnLog) -> None:
        """And does not begin one."""
        with TurnLog.open("memory://") as empty:
            assert _import(log, exported(empty)) == RestoreReport(added=0, known=0)
        assert log.id is None


class TestGuests:
    """Events of another log."""

    def test_logs_of_two_origins_are_joined(self, source: TurnLog, log: TurnLog) -> None:
        """An import goes behind what the log has, which stays the log that it is."""
        mine = log.add_turn("mine")
        identity = log.id
        report = _import(log, exported(source))
        assert (report.added, report.known, report.whole) == (11, 0, False)
        assert _states(log)[2:13] == _states(source)
        assert _arrivals(log)[2:13] == [Arrival.GUEST] * 11
        assert log.id == identity
        assert log.turn(mine.id) == mine
        assert {thread.id for thread in log.threads()} > {thread.id for thread in source.threads()}
        assert log.verify().clean

    @pytest.mark.parametrize("ancestry", [False, True])
    def test_part_in_an_empty_store_gets_a_log_of_its_own(self, source: TurnLog, log: TurnLog, ancestry: bool) -> None:
        """With a beginning of its own, and the same windows."""
        content = exported(source, "main", ancestry=ancestry)
        assert _import(log, content).added == len(content.splitlines()) - 1
        assert log.id not in (None, source.id)
        assert log.context("main") == source.context("main")
        assert log.verify().clean

    def test_thread_and_then_the_rest_is_the_whole(self, source: TurnLog, log: TurnLog) -> None:
        """A thread first and the whole log later adds only what was missing."""
        _import(log, exported(source, "other"))
        report = _import(log, exported(source))
        assert (report.added, report.known, report.whole) == (10, 1, False)
        assert _heads(log) == _heads(source)
        assert {thread.id: thread.turns for thread in log.threads()} == {t.id: t.turns for t in source.threads()}

    def test_known_event_that_was_erased_here_stays_so(self, source: TurnLog, tmp_path: Path) -> None:
        """An import does not bring back what was erased, nor erase what is whole."""
        path = tmp_path / "mine.db"
        content = exported(source)
        turn = source.turn("other").id
        with TurnLog.open(f"sqlite:///{path}") as mine:
            _import(mine, content)
        erase(path, turn)
        with TurnLog.open(f"sqlite:///{path}") as mine:
            assert _import(mine, content).added == 0
            assert mine.turn(turn).erased
            assert _import(source, exported(mine)).added == 0
        assert not source.turn(turn).erased


class TestRegisters:
    """Pointers, providers and MCP servers of somebody else."""

    @pytest.fixture
    def theirs(self, source: TurnLog) -> bytes:
        """Give the export of a log with registers."""
        source.pointers.set("milli", "anthropic", "m-1")
        source.pointers.set("milli", "anthropic", "m-2")
        source.providers.set("mine", adapter="openai_chat", base_url="https://models.example/v1")
        source.servers.set("fs", ["serve"])
        source.servers.set("gone", ["serve"])
        source.servers.delete("gone")
        return exported(source)

    @pytest.mark.parametrize("empty", [True, False])
    def test_they_have_no_effect_until_they_are_confirmed(self, theirs: bytes, log: TurnLog, empty: bool) -> None:
        """Neither as guests nor in a restored log; the report says which wait: the last of each name."""
        if not empty:
            log.add_turn("mine")
        report = _import(log, theirs)
        assert report.whole == empty
        assert (log.pointers.all(), log.servers.all()) == ([], [])
        assert log.providers.all() == []
        with pytest.raises(UntrustedRegisterError):
            log.pointers.get("milli")
        assert report.confirmed_registers == ()
        assert [register.name for register in log.registers.imported()] == ["milli", "mine", "fs"]
        assert report.unconfirmed_registers == tuple(register.id for register in log.registers.imported())
        log.registers.trust(report.unconfirmed_registers)
        assert log.pointers.get("milli").model == "m-2"

    def test_they_are_confirmed_by_the_import_on_demand(self, theirs: bytes, log: TurnLog) -> None:
        """By an event of this log, for those that came in with this import."""
        log.add_turn("mine")
        report = _import(log, theirs, registers="trust")
        assert (len(report.confirmed_registers), report.unconfirmed_registers) == (3, ())
        assert [(pointer.name, pointer.model) for pointer in log.pointers.all()] == [("milli", "m-2")]
        assert [server.name for server in log.servers.all()] == ["fs"]
        assert log.registers.imported() == []
        [trust] = log.events(topics=["log.trust"])
        assert {citation.id for citation in trust.header.citations} == set(report.confirmed_registers)
        assert log.verify().clean

    def test_an_import_confirms_only_what_it_brought(self, theirs: bytes, log: TurnLog) -> None:
        """What another import brought waits on."""
        with TurnLog.open("memory://") as other:
            other.pointers.set("kilo", "anthropic", "m-3")
            _import(log, exported(other))
        report = _import(log, theirs, registers="trust")
        assert len(report.confirmed_registers) == 3
        assert [register.name for register in log.registers.imported()] == ["kilo"]
        assert _import(log, theirs, registers="trust") == RestoreReport(added=0, known=17, whole=False)

    def test_confirmations_of_others_confirm_nothing(self, theirs: bytes, log: TurnLog) -> None:
        """Somebody who confirmed a register for themselves did not do so for anybody else."""
        with TurnLog.open("memory://") as middle:
            _import(middle, theirs, registers="trust")
            assert middle.pointers.get("milli").model == "m-2"
            _import(log, exported(middle))
        assert list(log.events(topics=["log.trust"]))
        with pytest.raises(UntrustedRegisterError):
            log.pointers.get("milli")
        assert len(log.registers.imported()) == 3


class TestRefusal:
    """What is not as it should be is refused, with nothing written."""

    def test_every_cut_is_refused(self, source: TurnLog, log: TurnLog) -> None:
        """However an export is cut, the error is a turnlog error, and nothing is written."""
        content = exported(source, "other")
        for length in range(len(content)):
            with pytest.raises(TurnlogError):
                _import(log, content[:length])
        assert _states(log) == []
        assert _import(log, content).added == 1

    def test_every_changed_byte_is_refused_or_changes_nothing_that_counts(self, source: TurnLog) -> None:
        """Only what is about the source log can be another: its id, positions, the turn that was asked for."""
        content = exported(source, "other")
        [line] = Forgery.of(content).lines
        for at in range(len(content) - 1):
            changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
            with TurnLog.open("memory://") as log:
                try:
                    _import(log, changed)
                except TurnlogError:
                    assert _states(log) == []
                    continue
                assert log.turn(line.id).digest == line.keys["digest"]
                assert json.loads(changed.splitlines()[1])["event"] == line.event

    @pytest.mark.parametrize("forged", ["topic", "target", "relation", "guest"])
    def test_erased_event_of_a_whole_log_without_its_erasure_is_refused(
        self, source: TurnLog, log: TurnLog, forged: str
    ) -> None:
        """The log would be damaged. Beside a log of one's own it comes in with an erasure of that log."""
        gone, other = source.add_turn("gone", bookmark=False), source.turn("other")
        source.erase(turn=gone.id, reason="asked")
        content = exported(source)
        forgery = Forgery.of(content)
        erasure = forgery.of_topic("gpt.erasure")
        [citation] = erasure.event["citations"]
        match forged:
            case "topic":
                erasure.event["topic"] = "acme.erasure"
            case "target":
                citation |= {"id": other.id, "digest": other.digest}
            case "relation":
                erasure.event["topic"], citation["as"] = "acme.erasure", "turn"
            case _:
                erasure.keys["guest"] = True
        line = next(at for at, found in enumerate(forgery.lines, 2) if found.id == gone.id)
        forged_content = forgery.content()
        with pytest.raises(FormatError, match=rf"^line {line}: it is erased, and no gpt.erasure") as caught:
            _import(log, forged_content)
        assert caught.value.line == line
        assert _states(log) == []
        log.add_turn("mine")
        assert _import(log, forged_content).erased == 1
        assert [what.what for what in log.verify().damage if what.event_id == gone.id] == []
        with TurnLog.open("memory://") as sound:
            _import(sound, content)
            assert sound.verify().clean

    def test_event_that_nobody_looks_into_is_refused(self, source: TurnLog, log: TurnLog) -> None:
        """Also where payloads are so large that a line might be: `verify` calls a header of such a size damage."""
        forgery = Forgery.of(exported(source))
        forgery.lines[5].set_payload(b"x" * 2_000_000)
        forgery.lines[1].event["meta"]["more"] = "x" * (16 << 20)
        with pytest.raises(FormatError, match=r"^line 3: .*its event is longer than any is"):
            _import(log, forgery.content())
        assert _states(log) == []

    def test_wrong_hash_leaves_no_payload_file(self, source: TurnLog, file_log: TurnLog, store_path: Path) -> None:
        """A large payload of a refused import is not left in the payload folder."""
        forgery = Forgery.of(exported(source))
        forgery.lines[5].payload = b"other" * 20_000
        with pytest.raises(FormatError, match=r"line 7: .* does not have the hash"):
            _import(file_log, forgery.content())
        assert not list(store_path.parent.glob("log.db-payloads/*/*"))
        assert _states(file_log) == []

    def test_conflicting_id_is_refused_with_nothing_written(
        self, source: TurnLog, file_log: TurnLog, store_path: Path
    ) -> None:
        """An id under which the log has another event, even on the last line, refuses the whole import."""
        *_, last = source.events()
        file_log.add_turn("mine", id=last.header.id)
        before = _states(file_log)
        with pytest.raises(IdConflictError, match="line 12: ") as caught:
            _import(file_log, exported(source))
        assert caught.value.event_id == last.header.id
        assert not hasattr(caught.value, "__notes__")
        assert _states(file_log) == before
        assert not list(store_path.parent.glob("log.db-payloads/*/*"))
        assert file_log.verify().clean

    def test_diverged_stream_is_refused(self, source: TurnLog, log: TurnLog) -> None:
        """Two logs that both went on from the same turn cannot be joined, and neither is harmed."""
        _import(log, exported(source))
        log.add_turn("mine", continues="other")
        source.add_turn("theirs", continues="other")
        before = _states(log)
        with pytest.raises(PositionTakenError, match="diverged"):
            _import(log, exported(source))
        assert _states(log) == before

    def test_file_that_changes_between_the_passes_is_refused(self, source: TurnLog, log: TurnLog) -> None:
        """What is recorded was checked, whatever the file had before."""
        content = exported(source)
        forgery = Forgery.of(content)
        forgery.lines[3].set_payload(b'[{"type":"text","text":"evil"}]')
        assert forgery.lines[3].private is not None
        changed = forgery.content(seal=False)

        class Changing(io.BytesIO):
            seeks = 0

            def seek(self, offset: int, whence: int = 0) -> int:
                self.seeks += 1
                if self.seeks == 2:
                    self.getbuffer()[:] = changed[: len(content)].ljust(len(content))
                return super().seek(offset, whence)

        with pytest.raises(FormatError, match="line "):
            log.import_turnlog(Changing(content))
        assert _states(log) == []


class TestGroups:
    """A long import does not hold the log, and can be stopped and gone on with."""

    @pytest.mark.parametrize("empty", [True, False])
    def test_progress_is_told_up_to_the_end(self, log: TurnLog, empty: bool) -> None:
        """Events done never go back, and end at all of them."""
        content, _ = _long_export()
        if not empty:
            log.add_turn("mine")
        told: list[tuple[int, int]] = []
        _import(log, content, progress=lambda done, total: told.append((done, total)))
        assert [done for done, _ in told] == sorted(done for done, _ in told)
        assert told[-1] == (1201, 1201)
        assert {total for _, total in told} == {1201}
        assert len(told) >= 6
        assert log.verify().clean

    def test_others_append_meanwhile(self, log: TurnLog) -> None:
        """Between two groups of guests the log is free."""
        content, _ = _long_export()
        log.add_turn("mine", bookmark="mine")
        _import(log, content, progress=lambda _, __: log.add_turn("meanwhile", continues="mine"))
        arrivals = _arrivals(log)
        assert arrivals.count(Arrival.GUEST) == 1201
        assert Arrival.RECORDED in arrivals[arrivals.index(Arrival.GUEST) :][:1202]
        assert log.verify().clean

    def test_log_that_is_written_to_while_it_is_restored_stops_and_goes_on_as_another(self, log: TurnLog) -> None:
        """It cannot become the other log any more. What is in stays, and the same import adds the rest as guests."""
        content, heads = _long_export()

        def meanwhile(done: int, _: int) -> None:
            if done > 601:  # the first group is in
                log.add_turn("mine", bookmark="mine")

        with pytest.raises(ConflictError, match="somebody else has written") as caught:
            _import(log, content, progress=meanwhile)
        assert caught.value.__notes__ == [
            "at least 500 of 1,201 new events are in: the same import again adds the rest"
        ]
        assert len(_states(log)) == 501
        report = _import(log, content, bookmarks="take")
        assert (report.added, report.known, report.whole) == (701, 500, False)
        assert {name: turn for name, turn in _heads(log).items() if name != "mine"} == heads
        assert log.verify().clean

    @pytest.mark.parametrize("empty", [True, False])
    @pytest.mark.parametrize("stop_after", range(6))
    def test_import_that_is_stopped_is_completed_by_the_same_import(
        self, log: TurnLog, empty: bool, stop_after: int
    ) -> None:
        """Wherever it was stopped; how much is in is told, bookmarks are set in the end, and nothing twice."""
        content, heads = _long_export(renamed=True)
        if not empty:
            log.add_turn("mine", bookmark=False)
        calls = 0

        def stop(_: int, __: int) -> None:
            nonlocal calls
            calls += 1
            if calls > stop_after:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt) as caught:
            _import(log, content, progress=stop)
        there = sum(recorded.arrival != Arrival.RECORDED for recorded in log.events())
        assert getattr(caught.value, "__notes__", []) == ([_note(there, 1203)] if there else [])
        report = _import(log, content)
        assert (report.added, report.known, report.whole) == (1203 - there, there, empty)
        assert _heads(log) == heads
        assert _import(log, content) == RestoreReport(added=0, known=1203, whole=empty)
        assert log.verify().clean
        if empty:
            assert exported(log) == content

    @pytest.mark.parametrize("empty", [True, False])
    def test_two_imports_at_the_same_time_are_one(self, store_path: Path, empty: bool) -> None:
        """Each event goes in once, whichever of the two brings it, and all bookmarks are set."""
        content, heads = _long_export()
        url = f"sqlite:///{store_path}"
        with TurnLog.open(url) as log:
            if not empty:
                log.add_turn("mine", bookmark=False)
        reports: list[RestoreReport] = []
        both = threading.Barrier(2)

        def work() -> None:
            with TurnLog.open(url) as log:
                both.wait()
                reports.append(_import(log, content))

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(report.added for report in reports) == 1201
        assert {report.whole for report in reports} == {empty}
        with TurnLog.open(url) as log:
            assert _heads(log) == heads
            assert log.verify().clean
            assert sum(recorded.arrival != Arrival.RECORDED for recorded in log.events()) == 1201

    def test_pipe_is_read_once(self, source: TurnLog, log: TurnLog) -> None:
        """What cannot be read twice is kept meanwhile."""
        content = exported(source)
        reader, writer = os.pipe()

        def feed() -> None:
            with os.fdopen(writer, "wb") as file:
                file.write(content)

        feeding = threading.Thread(target=feed)
        feeding.start()
        with os.fdopen(reader, "rb") as file:
            assert log.import_turnlog(file).added == 11
        feeding.join()
        assert exported(log) == content

    @pytest.mark.parametrize("others", [(), ("seekable",), ("seekable", "seek", "tell")])
    def test_object_that_can_only_be_read_is_read_once(
        self, source: TurnLog, log: TurnLog, others: tuple[str, ...]
    ) -> None:
        """As a response of a server, or a member of an archive of somebody's: `read` is all that it needs."""
        content = exported(source)
        inner = io.BytesIO(content)
        methods = {name: staticmethod(getattr(inner, name)) for name in ("read", *others)}
        file: Any = type("Readable", (), methods)()
        assert log.import_turnlog(file).added == 11
        assert exported(log) == content

    def test_object_that_reads_text_is_refused(self, log: TurnLog) -> None:
        """With one line, whatever else it is."""
        file: Any = type("Readable", (), {"read": lambda _, size: "x" * size})()
        with pytest.raises(MetaError, match="open for bytes, and its `read` gave str"):
            log.import_turnlog(file)

    def test_export_can_stand_behind_something_else_in_a_file(self, source: TurnLog, log: TurnLog) -> None:
        """It is read from where the file stands."""
        file = io.BytesIO(b"something else\n" + exported(source))
        file.readline()
        assert log.import_turnlog(file).added == 11


def test_events_of_a_page_may_rest_on_those_of_earlier_ones(log: TurnLog) -> None:
    """What is cited may be thousands of lines away."""
    with TurnLog.open("memory://") as source:
        root = source.add_turn("root", bookmark="root")
        _long(source)
        source.add_turn("late", continues=["root", "main"], bookmark="late")
        source.bookmarks.set("root-again", root.id)
        content = exported(source)
        log.add_turn("mine")
        _import(log, content)
        assert log.context("late") == source.context("late")
