"""Edits at random, with all hashes made to fit: the reader of the log format and `verify` agree on each."""

import shutil
import sqlite3
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.docs.readers import Readers, readers
from tests.docs.test_log_format import verified
from tests.faults import rich_store
from tests.faults.hostile import rewrite
from tests.faults.rich_store import AT
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.errors import TurnlogError

SEEDS = range(5000) if SOAK else (*range(30), 1289)

VALUES: list[Any] = [None, True, False, 0, 1, -1, 1.0, 2.5, 1 << 64, "", "x", "\0", "main", "gpt.turn", [], ["x"], {}]
VALUES += [{"a": 1}, "set", "rename", "document", "user", "application/json", "03fr9cxksbd0ufbbn4sb2e5pj", "x" * 300]
KEYS = "zz $extra head name to turn call error usage options origin loss hash meta tools action type file_size params"
KEYS += " content content_type role cache text input id index size salt servers events request position stream form"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """Give the programs of the page."""
    with readers(tmp_path_factory.mktemp("programs")) as found:
        yield found


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give the folder of a store that has one of everything."""
    folder = tmp_path_factory.mktemp("sound")
    rich_store.build(folder / "log.db")
    return folder


@pytest.mark.timeout(60)
@pytest.mark.parametrize("seed", SEEDS)
def test_reader_and_verify_agree_on_a_random_edit(programs: Readers, sound: Path, tmp_path: Path, seed: int) -> None:
    """Whatever is changed in an event, with all that cites it made to fit, both find something or neither does."""
    path = shutil.copytree(sound, tmp_path / "copy") / "log.db"
    random = Random(seed)
    while not _edited(path, random):
        pass
    if random.random() < 0.8:  # else the indexes may give it away
        _rebuild_indexes(path)
    found, said = programs.store_damage(path), verified(path)
    assert bool(found) == bool(said), (found, said)


def _rebuild_indexes(path: Path) -> None:
    try:
        with TurnLog.open(f"sqlite:///{path}") as log:
            log.store.rebuild()
    except TurnlogError:
        return


def _edited(path: Path, random: Random) -> bool:
    """Change something of an event. Return False if nothing can be made to fit around it, and nothing was changed."""
    try:
        _edit(path, random)
    except (sqlite3.Error, KeyError, TypeError, ValueError, AttributeError, msgspec.MsgspecError, OverflowError):
        return False
    return True


def _edit(path: Path, random: Random) -> None:
    """Change something of an event, and rewrite all that cites it."""
    at = random.choice(list(AT.values()))
    match random.choice(["header", "private", "payload", "citations", "bytes"]):
        case "header":
            rewrite(path, at, header=lambda header: _change(header, random), follow=True)
        case "private":
            rewrite(path, at, private=lambda private: _change(private, random), follow=True)
        case "payload":
            rewrite(path, at, payload=lambda payload: _changed_payload(payload, random), follow=True)
        case "citations":
            rewrite(path, at, header=lambda header: _change(header["citations"], random), follow=True)
        case _:
            rewrite(path, at, state=lambda state: _changed_bytes(state, random))


def _change(value: Any, random: Random) -> None:
    """Change a record or a list in place, somewhere."""
    if isinstance(value, dict):
        record: dict[str, Any] = value
        key = random.choice([*record, random.choice(KEYS.split())])
        if isinstance(record.get(key), dict | list) and random.random() < 0.7:
            _change(record[key], random)
        elif random.random() < 0.2:
            record.pop(key, None)
        else:
            record[key] = deepcopy(random.choice(VALUES))
    elif value:
        items: list[Any] = value
        at = random.randrange(len(items))
        match random.choice(["drop", "double", "shuffle", "replace", "inside", "inside"]):
            case "drop":
                del items[at]
            case "double":
                items.append(deepcopy(items[at]))
            case "shuffle":
                random.shuffle(items)
            case "inside" if isinstance(items[at], dict | list):
                _change(items[at], random)
            case _:
                items[at] = deepcopy(random.choice(VALUES))


def _changed_payload(payload: bytes, random: Random) -> bytes:
    """Change a payload, as JSON where it is JSON or begins with a line of it."""
    line, end, rest = payload.partition(b"\n")
    if random.random() < 0.3:
        return _changed_bytes(payload, random)
    value: Any = msgspec.json.decode(line)
    _change(value, random)
    return msgspec.json.encode(value) + end + rest


def _changed_bytes(content: bytes, random: Random) -> bytes:
    at = random.randrange(len(content) + 1)
    put = random.choice([b"", b" ", b"x", b"0", b'"', b"\x1e", b"\n"])
    return content[:at] + put + content[at + random.choice([0, 1]) :]
