"""Exporting a whole log: its lines, as of when it began, and never what was edited."""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.forging import exported
from tests.rewriting import erase, rewrite

from turnlog import TurnLog
from turnlog.digest import event_digest, payload_hash
from turnlog.errors import CorruptionError, FormatError, MetaError, StoreBusyError
from turnlog.interop.portable import exporting
from turnlog.store import Store


def _lines(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


class _Hooked(io.BytesIO):
    """A file that does something when it is written to for the nth time."""

    def __init__(self, nth: int, do: Callable[[], object]) -> None:
        super().__init__()
        self._left, self._do = nth, do

    def write(self, data: Any) -> int:
        self._left -= 1
        if self._left == 0:
            self._do()
        return super().write(data)


def test_header_says_what_it_is_an_export_of(source: TurnLog) -> None:
    """Version, log, extent and size stand in the first line."""
    header, *lines = _lines(exported(source))
    assert header == {
        "turnlog_export": 2,
        "log": source.id,
        "of": "log",
        "first": 1,
        "last": 11,
        "events": 11,
        "payload_bytes": source.stats().payload_bytes,
    }
    assert len(lines) == 11


def test_lines_have_exact_bytes_digest_and_payload(source: TurnLog) -> None:
    """Header and private part stand verbatim in the line, JSON payloads too, others as base64."""
    _, *lines = _lines(exported(source))
    _, *raw = exported(source).splitlines()
    for line, text, recorded in zip(lines, raw, source.events(), strict=True):
        assert recorded.state in text
        assert (recorded.private_state or b"") in text
        assert line["digest"] == event_digest(recorded.state) == recorded.digest
        assert line["at"] == recorded.global_position
        assert not {"guest", "erased"} & set(line)
    assert "private" not in lines[0]
    assert base64.b64decode(lines[5]["payload_base64"]) == source.payload(lines[5]["event"]["id"])
    assert base64.b64decode(lines[6]["payload_base64"]) == b'{ "spaced": true }\n'
    assert b'"payload":{"b":1.50,"a":"\\u00e9"}' in raw[7]
    assert not {"payload", "payload_base64"} & set(lines[9])


@pytest.mark.parametrize("levels", [1, 500, 501, 1001, 20_000])
def test_payload_that_is_nested_deeply_is_base64(levels: int) -> None:
    """How deep stands in the format, and does not depend on what a version of Python can read."""
    payload = b"[" * (levels - 1) + b'["[[["]' + b"]" * (levels - 1)
    with TurnLog.open("memory://") as log:
        log.add_event("acme.deep", payload)
        content = exported(log)
    with TurnLog.open("memory://") as other:
        assert other.import_turnlog(io.BytesIO(content)).whole
        assert exported(other) == content
    plain, encoded = b'"payload":' + payload, b'"payload_base64":"' + base64.b64encode(payload) + b'"'
    written, not_written = (plain, encoded) if levels <= 500 else (encoded, plain)
    assert content.count(written) == 1
    assert content.count(not_written) == 0


def test_payload_that_is_nested_deeply_is_read_as_json_too() -> None:
    """Exports had it so; what no version of Python that turnlog runs on could read is refused by all."""
    with TurnLog.open("memory://") as log:
        log.add_event("acme.deep", b"[" * 600 + b"]" * 600)
        content = exported(log)
    start = content.index(b'"payload_base64":')
    for levels in (600, 1000):
        payload = b"[" * levels + b"]" * levels
        changed = content[:start] + b'"payload":' + payload + b"}\n"
        with TurnLog.open("memory://") as other:
            if levels == 600:
                assert other.import_turnlog(io.BytesIO(changed)).whole
                continue
            with pytest.raises(FormatError, match="line 3: not a line of a turnlog export: nested too deeply"):
                other.import_turnlog(io.BytesIO(changed))


def test_lines_are_in_a_form_that_a_stranger_can_hash(source: TurnLog) -> None:
    """Cut out of its line, each part has the hash that the part above it commits to."""
    for text in exported(source).decode().split("\n")[1:-1]:
        line = json.loads(text)
        state = _value_at(text, '"event":')
        assert event_digest(state) == line["digest"]
        if line["event"]["private"] is not None:
            private = _value_at(text, '"private":', text.index(state.decode()) + len(state.decode()))
            assert line["event"]["private"] == payload_hash(private)
        if "payload" in line:
            payload = _value_at(text, ',"payload":')
            assert (payload_hash(payload), len(payload)) == (line["private"]["hash"], line["private"]["size"])


def _value_at(text: str, key: str, start: int = 0) -> bytes:
    begin = text.index(key, start) + len(key)
    return text[begin : json.JSONDecoder().raw_decode(text, begin)[1]].encode()


def test_empty_log_is_a_header(log: TurnLog) -> None:
    """There is nothing in it, not even a beginning."""
    assert _lines(exported(log)) == [{"turnlog_export": 2, "log": None, "of": "log", "events": 0, "payload_bytes": 0}]


def test_guests_are_marked(source: TurnLog, log: TurnLog) -> None:
    """What moved no bookmark in this log says so, so that it moves none where the log is restored."""
    log.add_turn("mine")
    log.import_turnlog(io.BytesIO(exported(source)))
    _, *lines = _lines(exported(log))
    assert [line.get("guest", False) for line in lines] == [False, False] + [True] * 11 + [False] * 3


def test_erased_event_is_carried_as_its_header(file_log: TurnLog, store_path: Path) -> None:
    """Its line says so, and has neither private part nor payload."""
    turn = file_log.add_turn("forget me", bookmark="main")
    file_log.close()
    erase(store_path, turn.id)
    with TurnLog.open(f"sqlite:///{store_path}") as log:
        header, _, line = _lines(exported(log))
    assert (header["events"], header["payload_bytes"]) == (2, 0)
    assert line["erased"] is True
    assert set(line) == {"at", "erased", "digest", "event"}
    assert line["event"]["private"] is not None


def test_progress_is_told(source: TurnLog) -> None:
    """Events are counted up to all of them."""
    told: list[tuple[int, int]] = []
    assert source.export(io.BytesIO(), progress=lambda done, total: told.append((done, total))) == 11
    assert told == [(done, 11) for done in range(1, 12)]


@pytest.mark.parametrize("nth", [1, 2, 400])
def test_log_is_exported_as_it_was_at_the_start(log: TurnLog, nth: int) -> None:
    """What is appended while the export is written is not in it, and need not wait for it."""
    with log.group() as group:
        group.add_turn("0", bookmark="main")
        for number in range(1, 1100):
            group.add_turn(str(number), continues="main")
    before = exported(log)
    file = _Hooked(nth, lambda: log.add_turn("meanwhile", continues="main"))
    assert log.export(file) == 1101
    assert file.getvalue() == before
    assert len(exported(log).splitlines()) == len(before.splitlines()) + 1


def test_export_that_something_was_erased_from_meanwhile_is_refused(file_log: TurnLog, store_path: Path) -> None:
    """Its header would say more than there is."""
    with file_log.group() as group:
        turns = [group.add_turn(str(number), bookmark=False) for number in range(600)]
    with pytest.raises(StoreBusyError, match="export again"):
        file_log.export(_Hooked(2, lambda: erase(store_path, turns[-1])))
    assert file_log.export(io.BytesIO()) == 601


@pytest.mark.parametrize("counted", [True, False])
def test_export_of_a_log_has_the_erasure_of_all_that_is_erased(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, counted: bool
) -> None:
    """What is erased when its end is settled has an erasure behind it, however much was counted; the next one has all.

    What is erased when it was written already is in it as it was.
    """
    with log.group() as group:
        turns = [group.add_turn(str(number), bookmark=False) for number in range(600)]
    log.bookmarks.set("first", turns[0])
    settled_end = exporting.settled_end

    def then_erased(store: Store) -> int:
        end = settled_end(store)
        log.erase(turn=turns[0], reason="asked")
        return end

    if counted:
        # Its turn is written by then, and counted; the event of its bookmark is not, and has no payload.
        with pytest.raises(StoreBusyError, match="export again"):
            log.export(_Hooked(500, lambda: log.erase(turn=turns[0], reason="asked")))
    else:
        with monkeypatch.context() as patch:
            patch.setattr(exporting, "settled_end", then_erased)
            with pytest.raises(StoreBusyError, match="export again"):
                log.export(io.BytesIO())
    with TurnLog.open("memory://") as copy:
        copy.import_turnlog(io.BytesIO(exported(log)))
        assert copy.verify().clean


def test_large_payloads_are_read_a_few_at_a_time(log: TurnLog, tmp_path: Path) -> None:
    """A payload that is larger than a page is a page."""
    for number in range(3):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(bytes([number]) * 9_000_000)
        log.add_document(path)
    _, _, *lines = _lines(exported(log))
    assert [base64.b64decode(line["payload_base64"])[:1] for line in lines] == [b"\x00", b"\x01", b"\x02"]


def test_damaged_payload_is_not_exported(file_log: TurnLog, poke: Any) -> None:
    """An export never carries bytes that do not hash."""
    file_log.add_turn("x")
    poke("UPDATE stored_events SET payload = x'00' WHERE notification_id = 2")
    with pytest.raises(CorruptionError):
        exported(file_log)


@pytest.mark.parametrize(("headish", "ancestry"), [(None, False), ("main", False), ("main", True)])
def test_edited_event_is_not_exported(file_log: TurnLog, store_path: Path, headish: str | None, ancestry: bool) -> None:
    """An edit with all hashes beside it is given away by what cites the event."""
    turns = [file_log.add_turn("0", bookmark="main")]
    turns += [file_log.add_turn(str(number), continues="main") for number in range(1, 4)]
    file_log.close()
    rewrite(store_path, turns[1].id, header=lambda header: header["meta"].update(role="system"))
    with (
        TurnLog.open(f"sqlite:///{store_path}") as log,
        pytest.raises(CorruptionError, match=f"{turns[1].id!r} with another digest"),
    ):
        exported(log, headish, ancestry=ancestry)


@pytest.mark.parametrize("position", [1, 2, 3])
def test_log_with_a_gap_is_not_exported(file_log: TurnLog, poke: Any, position: int) -> None:
    """A row that is gone is not passed over."""
    for number in range(3):
        file_log.add_turn(str(number), bookmark=False)
    poke(f"DELETE FROM stored_events WHERE notification_id = {position}")
    with pytest.raises(CorruptionError):
        exported(file_log)


def test_ancestry_is_that_of_a_turn(source: TurnLog) -> None:
    """Without a turn there is none."""
    with pytest.raises(MetaError, match="of which turn"):
        source.export(io.BytesIO(), ancestry=True)
