"""Commands on stores that somebody has been at: each ends soon, with one line at most, and commands no terminal."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import Command
from tests.faults import hostile
from tests.rewriting import position
from tests.soak import SOAK

from turnlog import TurnLog
from turnlog.digest import leaf_hash
from turnlog.providers import get

"""Otherwise each edit is tried with every other command: the next edit with the rest of them."""

CONTROLS = "a\x1b[2Jb\r\n\x07\x9b1m\u202e"
DEEP = b"[" * 100_000 + b"]" * 100_000
LONG = b"9" * 5000
WIDE = b"9" * 40
_MEMORY_BYTES_MAX = 3 << 30
_LINE_CHARACTERS_MAX = 2000

_MANY = """\
import json, os, resource, sys
import turnlog.cli.commands.providers, turnlog.cli.commands.importing  # which take the longest
from turnlog.cli.app import main

def run(environment, lines):
    os.environ.clear()
    os.environ.update(environment)
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
    real = os.dup(1)
    outcomes = []
    for arguments in lines:
        for descriptor in (1, 2):
            os.dup2(os.memfd_create("stream"), descriptor)
        status = main(arguments)
        streams = []
        for descriptor, stream in ((1, sys.stdout), (2, sys.stderr)):
            stream.flush()
            size = os.lseek(descriptor, 0, os.SEEK_END)
            streams.append(os.pread(descriptor, size, 0).decode(errors="replace"))
        outcomes.append([status, *streams])
    with open(real, "w") as file:
        print(json.dumps(outcomes), file=file)

for asked in sys.stdin:
    if not os.fork():
        run(*json.loads(asked))
        os._exit(0)
    _, ended = os.wait()
    if ended:
        print(json.dumps(f"ended with {os.waitstatus_to_exitcode(ended)}"), flush=True)
"""
"""Runs commands one after the other in one process with little memory, as `turnlog` runs each of them.

Each list of commands has a copy of a process that has imported them: that takes as long as they do.
"""


@dataclass(frozen=True, kw_only=True)
class Store:
    """A store with two exchanges, bookmarks and registers: its file, and the ids of its events by name."""

    path: Path
    ids: dict[str, str]

    def at(self, name: str) -> int:
        """Return the global position of an event."""
        return position(self.path, self.ids[name])

    def sql(self, *statements: str) -> None:
        """Run statements while the triggers are away."""
        hostile.run_sql(self.path, *statements)

    def put_state(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Change the bytes of a header, whatever comes of it, with the leaf hash that they have."""
        at = self.at(name)
        with hostile.opened(self.path) as connection:
            [(state,)] = connection.execute("SELECT state FROM stored_events WHERE notification_id = ?", (at,))
            state = change(state)
            connection.execute(
                "UPDATE stored_events SET state = ?, leaf_hash = ? WHERE notification_id = ?",
                (state, leaf_hash(state), at),
            )


def _write(path: Path) -> Store:
    adapter = get("openai_chat")
    reply = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    }
    raw = json.dumps(reply).encode()
    with TurnLog.open(f"sqlite:///{path}") as log:
        ids = {"root": log.add_turn("Hello " + "x" * 300, bookmark="main", servers=["fs"]).id}
        for number in range(2):
            request = adapter.prepare_request(log.context("main"), model="m", stream=False)
            call = log.calls.record(log.turn("main").id, request)
            answer = log.calls.record_reply(call, [raw], adapter.aggregate([raw]))
            ids |= {f"call {number}": call, f"answer {number}": answer.id}
            ids[f"reply {number}"] = str(log.event(answer.id).header.cited("reply"))
            ids[f"question {number}"] = log.add_turn("More " + "y" * 300, continues="main").id
        for name, act in (
            ("bookmark", lambda: log.bookmarks.set("x", "main")),
            ("pointer", lambda: log.pointers.set("milli", "openai_chat", "m")),
            ("provider", lambda: log.providers.set("openai_chat", base_url="http://127.0.0.1:9/")),
            ("server", lambda: log.servers.set("fs", ["true"])),
        ):
            act()
            *_, event = log.events()
            ids[name] = event.header.id
    return Store(path=path, ids=ids)


def _commands(ids: dict[str, str]) -> list[list[str]]:
    """Return the commands that read, and those that act on what they read. None starts or calls anything."""
    return [
        *(
            [command, *more]
            for command in ("log", "threads", "bookmarks", "pointer", "mcp")
            for more in ([], ["--json"])
        ),
        *(["show", event_id] for event_id in ids.values()),
        *([name, ids[kind], "--json"] for kind in ("root", "answer 0", "call 0") for name in ("show", "cat")),
        *(["show", ids[kind], "--json"] for kind in ("pointer", "bookmark", "question 0")),
        *(["context", "main"], ["context", "main", "--explain", "--json"], ["context", "x", "--include-failed"]),
        *(["ancestry", "main"], ["children", ids["root"]], ["log", "--all", "--json"], ["log", ids["answer 0"]]),
        *(["request", ids["answer 0"]], ["request", ids["answer 1"]], ["request", ids["answer 1"], "--events"]),
        *(["request", ids["answer 0"], "--json"], ["request", ids["answer 1"], "--json"]),
        *(["replay", "main"], ["replay", "main", "--json"], ["replay", "main", "--check"]),
        *(["provider", "list"], ["registers"], ["stats"], ["verify", "--json"], ["export"], ["export", "main"]),
        *(["run", "x", "-c", "main", "--max-iterations", "0"], ["add", "x", "-c", "main"]),
    ]


Edit = Callable[[Store], None]


def _header(name: str, change: hostile.Change) -> Edit:
    return lambda store: hostile.rewrite(store.path, store.at(name), header=change, follow=True)


def _private(name: str, change: hostile.Change) -> Edit:
    return lambda store: hostile.rewrite(store.path, store.at(name), private=change, follow=True)


def _part(name: str, old: bytes, new: bytes) -> Edit:
    return lambda store: hostile.rewrite(
        store.path, store.at(name), part=lambda part: part.replace(old, new, 1), follow=True
    )


def _payload(name: str, payload: bytes) -> Edit:
    return lambda store: hostile.rewrite(store.path, store.at(name), payload=payload, follow=True)


def _state(name: str, old: bytes, new: bytes) -> Edit:
    return lambda store: store.put_state(name, lambda state: state.replace(old, new, 1))


def _sql(statement: str) -> Edit:
    return lambda store: store.sql(statement.format(**{name.replace(" ", "_"): at for name, at in store.ids.items()}))


def _row(name: str, assignment: str) -> Edit:
    return lambda store: store.sql(f"UPDATE stored_events SET {assignment} WHERE notification_id = {store.at(name)}")


def _meta(**fields: object) -> hostile.Change:
    return lambda record: record["meta"].update(fields)


def _request(**fields: object) -> hostile.Change:
    return lambda record: record["meta"]["request"].update(fields)


def _continue_later(store: Store) -> None:
    later = hostile.citation_of(store.path, store.at("question 1"), "parent")
    hostile.rewrite(store.path, store.at("question 0"), header=lambda head: head["citations"][0].update(later))


def _build_on_later(store: Store) -> None:
    later = hostile.citation_of(store.path, store.at("call 1"), "base")
    hostile.rewrite(
        store.path,
        store.at("call 0"),
        header=lambda head: head["citations"].append(later),
        payload=b'{"format":1,"parts":[[0,100]]}\n',
    )


EDITS: dict[str, Edit] = {
    # Names that would command a terminal
    "controls in a bookmark": _private("bookmark", _meta(name=CONTROLS)),
    "controls in the table of bookmarks": _sql("UPDATE bookmarks SET name = name || char(27, 10) || '[2J'"),
    "controls in a pointer": _private("pointer", _meta(name=CONTROLS, provider=CONTROLS, model=CONTROLS)),
    "controls in a provider": _private("provider", _meta(name=CONTROLS, base_url=CONTROLS)),
    "controls in a server": _private("server", _meta(name=CONTROLS, command=[CONTROLS], env=[CONTROLS])),
    "controls in a topic": _header("pointer", lambda head: head.update(topic=CONTROLS)),
    "controls in an id": _header("answer 0", lambda head: head.update(id=CONTROLS)),
    "controls in a citation": _header("question 0", lambda head: head["citations"][0].update({"as": CONTROLS})),
    "controls in a cited id": _header("bookmark", lambda head: head["citations"][0].update(id=CONTROLS)),
    "controls in a role": _header("root", _meta(role=CONTROLS)),
    "controls in a model": _header("answer 0", _meta(model=CONTROLS, provider=CONTROLS, api=CONTROLS)),
    "controls in a stop reason": _header("answer 0", _meta(stop_reason=CONTROLS, raw_stop_reason=CONTROLS)),
    "controls in an error": _private("answer 0", _meta(error=CONTROLS)),
    "controls in a document": _header("root", _meta(content_type=CONTROLS, type="document")),
    "controls in options": _private("root", _meta(inherited={CONTROLS: CONTROLS, "provider_ptr": CONTROLS})),
    "controls in a call": _header("call 0", _meta(adapter=CONTROLS, model=CONTROLS, provider=CONTROLS)),
    # Nested without end
    "deep header": _state("root", b'{"citations"', DEEP),
    "deep public metadata": _state("root", b'"meta":{', b'"meta":{"a":' + DEEP + b","),
    "deep private metadata": _part("root", b'"meta":{', b'"meta":{"a":' + DEEP + b","),
    "deep options": _part("root", b'"inherited":{', b'"inherited":{"a":' + DEEP + b","),
    "deep content": _payload("root", DEEP),
    "deep tool call": _payload("root", b'[{"type":"tool_use","name":"x","input":{"a":' + DEEP + b"}}]"),
    "deep parameters": _private("call 0", _meta(params='{"a":' + DEEP.decode() + "}")),
    "deep request": _payload("call 0", b'{"format":1,"parts":' + DEEP + b"}\n"),
    "deep reply": _payload("reply 0", b"\x1e" + DEEP + b"\n"),
    # Numbers that nothing holds
    "far time": _header("root", lambda head: head.update(time=10**18)),
    "time before all times": _header("root", lambda head: head.update(time=-(10**18))),
    "wide time": _state("root", b'"time":', b'"time":' + WIDE),
    "wide option": _part("root", b'"inherited":{', b'"inherited":{"a":' + WIDE + b","),
    "long option": _part("root", b'"inherited":{', b'"inherited":{"a":' + LONG + b","),
    "endless option": _part("root", b'"inherited":{', b'"inherited":{"a":1e999,'),
    "wide usage": _state("answer 0", b'"stop_reason"', b'"usage":{"input_tokens":' + WIDE + b'},"stop_reason"'),
    "long usage": _state("answer 0", b'"stop_reason"', b'"usage":{"input_tokens":' + LONG + b'},"stop_reason"'),
    "negative usage": _header("answer 0", _meta(usage={"input_tokens": -5})),
    "wide own number": _part("pointer", b'"meta":{', b'"meta":{"a":' + WIDE + b","),
    "huge size": _private("root", lambda record: record.update(size=1 << 62)),
    "negative size": _private("root", lambda record: record.update(size=-1)),
    "huge request": _private("call 0", _request(size=1 << 36)),
    "negative request": _private("call 0", _request(size=-1)),
    "huge parts": _payload("call 0", b'{"format":1,"parts":[[-5,10],-3,[0,%s]]}\nabc' % WIDE),
    "wide parameter": _private("call 0", _meta(params='{"a":' + WIDE.decode() + "}")),
    "huge position": _header("question 1", lambda head: head.update(position=1 << 62)),
    # Circles
    "turns in a circle": _continue_later,
    "calls in a circle": _build_on_later,
    "turn that continues itself": _header("question 0", lambda head: head["citations"][0].update(id=head["id"])),
    # Things that are something else
    "options that are none": _private("root", _meta(inherited={"servers": 5, "provider_ptr": [], "tool_mode": {}})),
    "servers that are none": _private("root", _meta(inherited={"servers": [1, None, {}, []]})),
    "parameters that are no object": _private("call 0", _meta(params="[1]")),
    "parameters that are no JSON": _private("call 0", _meta(params=CONTROLS)),
    "parameters of a pointer": _private("pointer", _meta(params=CONTROLS)),
    "wide parameter of a pointer": _private("pointer", _meta(params='{"a":' + WIDE.decode() + "}")),
    "server without a command": _private("server", _meta(command=[])),
    "unknown action": _header("bookmark", _meta(action="explode")),
    "unknown format": _header("question 0", lambda head: head.update(format=3)),
    "reply that is no reply": _payload("reply 0", b"\x1e\xff\xfe\n\x1e{\n"),
    "content that is no UTF-8": _payload("root", b'[{"type":"text","text":"\xff"}]'),
    "content that is no list": _payload("root", b"{}"),
    "content of nothing": _payload("root", b""),
    "content of half a character": _payload("root", b'[{"type":"text","text":"\\ud800"}]'),
    "document of no base64": _payload(
        "root", b'[{"type":"document","source":{"type":"base64","media_type":"a\\u001b/b","data":"\xc3\xa9"}}]'
    ),
    "bookmark at no turn": _sql("UPDATE bookmarks SET turn_id = '{pointer}' WHERE name = 'main'"),
    "bookmark at nothing": _sql("UPDATE bookmarks SET turn_id = 'zzz' WHERE name = 'main'"),
    "bookmark of bytes": _sql("UPDATE bookmarks SET name = x'ff1b', turn_id = x'ff' WHERE name = 'main'"),
    "thread of bytes": _sql("UPDATE threads SET thread = x'ff1b'"),
    "topic of bytes": _row("answer 0", "topic = x'ff1b5b'"),
    "header of text": _row("root", "state = CAST(state AS TEXT)"),
    "private part of a number": _row("root", "private = 5"),
    "unknown placement": _row("root", "payload_placement = 99"),
    "placement of text": _row("root", "payload_placement = 'x', payload = 'x'"),
    "frame that is none": _row("root", "payload_placement = 2, payload = x'28b52ffd'"),
    "file without a name": _row("root", "payload_placement = 3, payload = x'00'"),
    "payload of nothing": _row("root", "payload = NULL"),
    "leaf hash of text": _row("root", "leaf_hash = 'x'"),
    "arrival of text": _row("root", "arrival = 'x'"),
}


@pytest.fixture(scope="module")
def many() -> Iterator[subprocess.Popen[bytes]]:
    """Give the process that runs commands."""
    program = [sys.executable, "-c", _MANY, str(_MEMORY_BYTES_MAX)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        process.communicate()
    assert process.returncode == 0


def _run(
    many: subprocess.Popen[bytes], turnlog: Command, commands: Sequence[Sequence[str]]
) -> list[tuple[int, str, str]]:
    """Run commands one after the other; return the exit status, standard output and error of each."""
    assert many.stdin is not None
    assert many.stdout is not None
    many.stdin.write(json.dumps([turnlog.environment(OPENAI_API_KEY="k"), commands]).encode() + b"\n")
    many.stdin.flush()
    outcomes = json.loads(many.stdout.readline())
    assert isinstance(outcomes, list), outcomes
    return outcomes


_COMMANDING = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Give the store as it was before anybody was at it."""
    return _write(tmp_path_factory.mktemp("original") / "log.db")


@pytest.mark.parametrize(("number", "edit"), list(enumerate(EDITS.values())), ids=EDITS)
def test_every_command_ends_with_one_line_at_most(
    many: subprocess.Popen[bytes], turnlog: Command, original: Store, number: int, edit: Edit
) -> None:
    """No bug, no traceback, no hang, no memory without bound, and no control character from the store."""
    with closing(sqlite3.connect(original.path)) as source, closing(sqlite3.connect(turnlog.store)) as target:
        source.backup(target)
    store = Store(path=turnlog.store, ids=original.ids)
    edit(store)
    commands = _commands(store.ids) if SOAK else _commands(store.ids)[number % 4 :: 4]
    for arguments, (status, stdout, stderr) in zip(commands, _run(many, turnlog, commands), strict=True):
        told: Any = (arguments, status, stderr[-3000:])
        lines = stderr.splitlines()
        assert status in ((0, 1) if arguments[0] in ("verify", "replay") and status != 2 else (0, 2)), told
        if status == 2:
            assert len(lines) == 1, told
        assert all(line.startswith("turnlog: ") and len(line) < _LINE_CHARACTERS_MAX for line in lines), told
        assert not any(_COMMANDING.search(line) for line in lines), told
        if arguments[0] not in ("cat", "request", "export") and "--json" not in arguments:
            assert not any(_COMMANDING.search(line) for line in stdout.split("\n")), told
