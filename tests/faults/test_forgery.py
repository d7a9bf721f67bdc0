"""An event that was written by other hands, with its hash and its columns in order, is still found by `verify`."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnlog import TurnLog
from turnlog.digest import leaf_hash, payload_hash
from turnlog.errors import TurnlogError
from turnlog.ids import new_id

Forge = Callable[[dict[str, Any]], None]


def _parent_digest(event: dict[str, Any]) -> None:
    event["parents"][0]["digest"] = payload_hash(b"another event")


def _second_parent_digest(event: dict[str, Any]) -> None:
    event["parents"][1]["digest"] = payload_hash(b"another event")


def _malformed_digest(event: dict[str, Any]) -> None:
    event["parents"][1]["digest"] = "sha256-short"


def _unknown_parent(event: dict[str, Any]) -> None:
    event["parents"][1]["id"] = new_id()


def _itself_for_a_parent(event: dict[str, Any]) -> None:
    event["parents"][1]["id"] = event["id"]


def _parents_swapped(event: dict[str, Any]) -> None:
    event["parents"].reverse()


def _no_parents(event: dict[str, Any]) -> None:
    event["parents"] = []


def _gap_in_the_stream(event: dict[str, Any]) -> None:
    event["position"] += 1


def _start_of_a_stream_of_another_name(event: dict[str, Any]) -> None:
    event["stream"], event["position"] = new_id(), 0


def _no_id(event: dict[str, Any]) -> None:
    event["id"] = "not an id"


def _upper_case_id(event: dict[str, Any]) -> None:
    event["id"] = event["id"].upper()


def _other_payload_hash(event: dict[str, Any]) -> None:
    event["hash"] = payload_hash(b"another payload")


def _malformed_payload_hash(event: dict[str, Any]) -> None:
    event["hash"] = "md5-abc"


def _other_size(event: dict[str, Any]) -> None:
    event["size"] += 1


def _no_size(event: dict[str, Any]) -> None:
    event["size"] = None


def _no_payload(event: dict[str, Any]) -> None:
    event["hash"] = event["size"] = None


def _newer_format(event: dict[str, Any]) -> None:
    event["format"] = 99


def _unknown_role(event: dict[str, Any]) -> None:
    event["meta"]["role"] = "robot"


def _other_bookmark(event: dict[str, Any]) -> None:
    event["meta"]["head"] = "forged"


def _missing_field(event: dict[str, Any]) -> None:
    del event["parents"]


def _forge(folder: Path, event_id: str, write: Callable[[bytes], bytes]) -> None:
    """Put other bytes in the place of an event, and make leaf hash and columns fit them."""
    connection = sqlite3.connect(folder / "log.db")
    for (trigger,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {trigger}")
    [(at, before)] = connection.execute(
        "SELECT notification_id, state FROM stored_events WHERE event_id = ?", (event_id,)
    ).fetchall()
    state = write(before)
    event = json.loads(state)
    connection.execute(
        "UPDATE stored_events SET state = ?, leaf_hash = ?, event_id = ?, originator_id = ?, originator_version = ?,"
        " topic = ? WHERE notification_id = ?",
        (state, leaf_hash(state), event["id"], event["stream"], event["position"], event["topic"], at),
    )
    connection.commit()
    connection.close()


def _encoded(event: dict[str, Any]) -> bytes:
    return json.dumps(event, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


@pytest.fixture
def merge(tmp_path: Path) -> str:
    """Make a store whose last event is a merge that nothing continues, and return its id."""
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        first = log.add_turn("first", bookmark="main")
        second = log.add_turn("second", continues=first.id)
        other = log.add_turn("other", bookmark="other")
        return log.add_turn("merge", continues=[second.id, other.id], bookmark=None).id


def test_event_that_was_written_anew_without_a_change_is_sound(tmp_path: Path, merge: str) -> None:
    """The control of the tests below: the same event, written the same way, is no damage."""
    _forge(tmp_path, merge, lambda state: _encoded(json.loads(state)))
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        assert log.verify().damage == ()


@pytest.mark.parametrize(
    "forge",
    [
        _parent_digest,
        _second_parent_digest,
        _malformed_digest,
        _unknown_parent,
        _itself_for_a_parent,
        _parents_swapped,
        _no_parents,
        _gap_in_the_stream,
        _start_of_a_stream_of_another_name,
        _no_id,
        _upper_case_id,
        _other_payload_hash,
        _malformed_payload_hash,
        _other_size,
        _no_size,
        _no_payload,
        _newer_format,
        _unknown_role,
        _other_bookmark,
        _missing_field,
    ],
)
def test_forged_event_is_found(tmp_path: Path, merge: str, forge: Forge) -> None:
    """An event that breaks one rule of the log is reported at its global position, and reading it does no harm."""

    def write(state: bytes) -> bytes:
        event = json.loads(state)
        forge(event)
        return _encoded(event)

    _forge(tmp_path, merge, write)
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        damage = log.verify().damage
        # A bookmark that was forged into an event is only seen where the event is folded.
        assert 4 in [found.global_position for found in damage] or forge is _other_bookmark
        assert damage != ()
        for ask in (log.context, log.ancestry, log.thread, log.children):
            try:
                ask(merge)
            except TurnlogError:
                continue


@pytest.mark.parametrize(
    "write",
    [
        lambda state: state + b" ",
        lambda state: state.replace(b'":', b'": '),
        lambda state: state.replace(b"merge", b"merge"),
        lambda state: json.dumps(dict(reversed(json.loads(state).items())), separators=(",", ":")).encode(),
    ],
    ids=["trailing blank", "blanks", "control", "order of keys"],
)
def test_event_in_another_form_is_found(tmp_path: Path, merge: str, write: Callable[[bytes], bytes]) -> None:
    """The same event in other bytes is not in the form of the log."""
    changed = False

    def note(state: bytes) -> bytes:
        nonlocal changed
        written = write(state)
        changed = written != state
        return written

    _forge(tmp_path, merge, note)
    with TurnLog.open(f"sqlite:///{tmp_path}/log.db") as log:
        assert log.verify().clean is not changed
