"""What the systems are fed with: the same turns for each, and whole logs built through the real write path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from benchmarks.baseline import json_line
from benchmarks.data import Texts
from turnlog import TurnLog
from turnlog.events import TURN, Recorded, turn_meta
from turnlog.providers import get
from turnlog.record import plan_turn, turn_draft
from turnlog.sources import Sources
from turnlog.store import Store, WriteTransaction

ROLES = ("user", "assistant")
MODEL = "model-1"

TRANSACTION_TURNS = 1000
"""Turns a transaction while a log is built."""


class Turn(Struct, frozen=True, kw_only=True):
    """One turn for each system: what turnlog is given, and the finished bytes that the baselines are given.

    `row` holds the byte strings that turnlog stores for this turn: header with private part, and the payload as kept.
    """

    text: str
    role: str
    row: tuple[bytes, bytes]
    line: bytes


def turns(seed: int, count: int) -> list[Turn]:
    """Return the turns of one conversation: 1 KiB of text each, user and assistant by turns."""
    texts = Texts(seed).take(count)
    with TurnLog.open("memory://") as log:
        build(log, texts, threads=1, turns_each=count)
        rows = stored_bytes(log)
        lines = list(stored_lines(log))
    roles = (ROLES[number % 2] for number in range(count))
    return [
        Turn(text=text, role=role, row=row, line=line)
        for text, role, row, line in zip(texts, roles, rows, lines, strict=True)
    ]


def stored_bytes(log: TurnLog) -> list[tuple[bytes, bytes]]:
    """Return what is stored of each turn of a log, in global order: header with private part, and payload as kept."""
    with log.store.read() as transaction:
        end = transaction.log_end()
        rows = transaction.stored_rows(0, end)
    return [(row.state + (row.private or b""), row.stored) for row in rows if row.topic == TURN]


def stored_lines(log: TurnLog) -> Iterator[bytes]:
    """Iterate over the turns of a log in global order, each as the line of JSON that says the same."""
    with log.store.read() as transaction:
        for recorded in transaction.log(topics=[TURN]):
            payload = transaction.payload(recorded) or b""
            meta = turn_meta(recorded)
            yield json_line(recorded.header.id, meta.role, meta.continues, payload)


def open_log(path: Path) -> TurnLog:
    """Open the log in a file."""
    return TurnLog.open(f"sqlite:///{quote(str(path))}")


def build_replied(log: TurnLog, texts: Iterable[str], *, replies: int) -> None:
    """Record a thread that a model replied in: turns that move the bookmark `main`, calls, replies, usage.

    All calls are recorded with one request, which is not read here.
    """
    source = iter(texts)
    adapter = get("openai_chat")
    turn = log.add_turn(next(source), bookmark="main")
    request = adapter.prepare_request(log.context("main"), model=MODEL)
    for number in range(replies):
        call = log.calls.record(turn.id, request)
        usage = {"prompt_tokens": 1_000 + number, "completion_tokens": 200, "total_tokens": 1_200 + number}
        choice = {"index": 0, "delta": {"content": next(source)}, "finish_reason": "stop"}
        events = [msgspec.json.encode({"id": "c", "model": f"{MODEL}-2026", "choices": [choice], "usage": usage})]
        log.calls.record_reply(call, events, adapter.aggregate(events, model=MODEL))
        if number < replies - 1:
            turn = log.add_turn(next(source), continues="main")


def build(log: TurnLog, texts: Iterable[str], *, threads: int, turns_each: int) -> list[str]:
    """Record linear threads, one after another, and return the id of the last turn of each.

    It is the path of `add_turn`, draft, placement and plan, with many turns a transaction.
    """
    source = iter(texts)
    heads: list[str] = []
    for _ in range(threads):
        head: str | None = None
        done = 0
        while done < turns_each:
            batch = list(islice(source, min(TRANSACTION_TURNS, turns_each - done)))
            head = _record(log.store, batch, head, done)
            done += len(batch)
        heads.append(head or "")
    return heads


def _record(store: Store, texts: Sequence[str], parent: str | None, position: int) -> str | None:
    """Record texts as the next turns of a thread, in one transaction, and return the id of the last."""
    sources = Sources()
    prepared: list[tuple[str, str, str | None]] = []
    for text in texts:
        prepared.append((sources.new_id(), text, parent))
        parent = prepared[-1][0]
    drafts = [
        turn_draft(text, role=ROLES[(position + at) % 2], continues=before, id=id_)
        for at, (id_, text, before) in enumerate(prepared)
    ]
    placed = [(draft, store.place(draft.payload)) for draft in drafts]

    def plan(transaction: WriteTransaction) -> list[Recorded]:
        return [plan_turn(transaction, draft, payload, sources) for draft, payload in placed]

    return store.write(plan)[-1].header.id
