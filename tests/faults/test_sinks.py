"""Sinks that are killed again and again while others write: every event is delivered, and twice only with its key."""

import json
import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from tests.servers.nats import missing, nats_server
from tests.servers.receiver import Receiver
from tests.soak import SOAK
from tests.unit.feeds.test_sinks_nats import messages

from turnlog import TurnLog
from turnlog.feeds.sinks import JetStream, JSONLines, ParquetFiles, Sink, Webhook
from turnlog.feeds.sinks.interface import record_key
from turnlog.testing.faults import ProcessFailedError, run_process, run_processes

WRITERS = 4
EVENTS = 5000 if SOAK else 60
KILLS = 200 if SOAK else 6
ALL = WRITERS * EVENTS + 1


def _write(url: str, writer: int) -> None:
    with TurnLog.open(url) as log:
        for number in range(EVENTS):
            log.add_event("acme.number", private={"writer": writer, "number": number})


def _sink(kind: str, destination: str) -> Sink:
    match kind:
        case "jsonl":
            return JSONLines(destination, file_bytes_max=200_000)
        case "parquet":
            return ParquetFiles(destination, linger_s=0.05)
        case "webhook":
            return Webhook(destination)
        case _:
            return JetStream(destination, create_stream=True)


def _feed(url: str, kind: str, destination: str, delay_s: float | None) -> None:
    """Follow the log until killed; without a delay, deliver what there is and end."""
    with TurnLog.open(url) as log:
        feed = log.feeds.feed(_sink(kind, destination), batch=100)
        if delay_s is None:
            feed.run()
        else:
            threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            feed.follow()


def _through_kills(url: str, kind: str, destination: str) -> list[str]:
    """Feed a sink through kills while four processes write, and return the keys that the log has in the end."""
    TurnLog.open(url).close()
    writing = threading.Thread(target=run_processes, args=([(_write, (url, writer)) for writer in range(WRITERS)],))
    writing.start()
    source = random.Random(kind)
    for _ in range(KILLS):
        with pytest.raises(ProcessFailedError, match="-9"):
            run_process(_feed, url, kind, destination, source.uniform(0.0, 0.4))
    writing.join()
    run_process(_feed, url, kind, destination, None)
    with TurnLog.open(url) as log:
        [status] = log.feeds.all()
        assert (status.position, status.lag, status.error) == (ALL, 0, None)
        return [record_key(log.id, event) for event in log.events()]


@pytest.mark.timeout(7200 if SOAK else 300)
def test_json_lines_have_each_event_once(tmp_path: Path) -> None:
    """In order: the folder says itself how far it has come."""
    expected = _through_kills(f"sqlite:///{tmp_path}/log.db", "jsonl", str(tmp_path / "out"))
    files = sorted((tmp_path / "out").glob("*.jsonl"))
    found = [json.loads(line)["idempotency_key"] for file in files for line in file.read_bytes().splitlines()]
    assert found == expected


@pytest.mark.timeout(7200 if SOAK else 300)
def test_parquet_has_each_event_once(tmp_path: Path) -> None:
    """What was not whole is written again in its place."""
    expected = _through_kills(f"sqlite:///{tmp_path}/log.db", "parquet", str(tmp_path / "out"))
    source = f"read_parquet('{tmp_path}/out/**/*.parquet', hive_partitioning=true)"
    found = duckdb.sql(f"SELECT idempotency_key FROM {source} ORDER BY global_position").fetchall()
    assert [key for (key,) in found] == expected


@pytest.mark.timeout(7200 if SOAK else 300)
def test_webhook_gets_each_event(tmp_path: Path) -> None:
    """Again only with its key and the id of its batch; the first time in order."""
    with Receiver() as receiver:
        expected = _through_kills(f"sqlite:///{tmp_path}/log.db", "webhook", receiver.url)
        batches = [(each.headers["webhook-id"], json.loads(each.body)["data"]["events"]) for each in receiver.received]
    first = dict.fromkeys(event["idempotency_key"] for _, events in batches for event in events)
    assert list(first) == expected
    once = {batch: [event["idempotency_key"] for event in events] for batch, events in batches}
    assert all(once[batch] == [event["idempotency_key"] for event in events] for batch, events in batches)
    assert max(Counter(key for keys in once.values() for key in keys).values()) == 1


@pytest.mark.timeout(7200 if SOAK else 300)
def test_stream_has_each_event_once(tmp_path: Path) -> None:
    """It knows them by their keys."""
    if reason := missing():
        pytest.skip(reason)
    with nats_server() as server:
        expected = _through_kills(f"sqlite:///{tmp_path}/log.db", "nats", server)
        found = [json.loads(message.data)["idempotency_key"] for message in messages(server, "TURNLOG")]
    assert sorted(found) == sorted(expected)


def _erase(url: str, turns: list[str], delay_s: float) -> None:
    """Erase turns, one after the other, until killed."""
    threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    with TurnLog.open(url) as log:
        for turn in turns:
            log.erase(turn=turn, reason="asked")
        threading.Event().wait()


@pytest.mark.timeout(7200 if SOAK else 300)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_erasing_that_is_killed_is_finished(tmp_path: Path, kind: str) -> None:
    """By the next run, or `erase --finish`: lines are as they were, or as they are to be."""
    url, folder = f"sqlite:///{tmp_path}/log.db", str(tmp_path / "out")
    source = random.Random(kind)
    with TurnLog.open(url) as log:
        turns = [log.add_turn(f"a word of theirs {number:04}").id for number in range(200 if SOAK else 40)]
        log.feeds.feed(_sink(kind, folder), batch=10).run()
    for start in range(0, len(turns), 4):
        with pytest.raises(ProcessFailedError, match="-9"):
            run_process(_erase, url, turns[start : start + 4], source.uniform(0.1, 0.4))
    with TurnLog.open(url) as log:
        log.erase(turn=turns, reason="asked")
        assert log.finish_erasing() is None
        log.feeds.feed(_sink(kind, folder)).run()
        expected = [record_key(log.id, event) for event in log.events()]
    if kind == "jsonl":
        files = sorted((tmp_path / "out").glob("*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_bytes().splitlines()]
        found = [(line["idempotency_key"], line["content"]) for line in lines]
    else:
        query = f"SELECT idempotency_key, content FROM read_parquet('{folder}/**/*.parquet') ORDER BY global_position"
        found = duckdb.sql(query).fetchall()
    assert [key for key, _ in found] == expected
    assert not any(content for _, content in found)
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file() and b"theirs" in path.read_bytes()]
