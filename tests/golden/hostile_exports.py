"""Exports that somebody has tampered with, and the one line that refuses each.

`python -m tests.golden.hostile_exports` writes them: each export to `hostile/exports/<name>.jsonl`, and what importing
it says to `<name>.err` beside it.
"""

from __future__ import annotations

import io
import itertools
import shutil
import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
from tests.forging import ForgedLine, Forgery, exported

from turnlog import LossReport, Response, Text, Tool, TurnLog
from turnlog.digest import event_digest, sri
from turnlog.errors import TurnlogError
from turnlog.projections import synchronous
from turnlog.providers import PreparedRequest
from turnlog.sources import Sources
from turnlog.store import open_store

FOLDER = Path(__file__).parent / "hostile" / "exports"
STRANGER = "03fr9cxksbd0ufbbn4sb2g000"
"""An id that is in no log here."""

_DEEP = 2_000
_REPLY = b'[{"type":"text","text":"The Loire."}]'


def _open_log(prefix: str) -> TurnLog:
    """Open a log in memory that takes the same ids, times and salts at each run."""
    numbers = {name: itertools.count() for name in ("id", "time", "salt")}
    sources = Sources(
        new_id=lambda: f"{prefix}{next(numbers['id']):03}",
        time_ms=lambda: 1_773_599_999_000 + 1000 * next(numbers["time"]),
        salt=lambda: sha256(f"{prefix}{next(numbers['salt'])}".encode()).digest()[:16],
    )
    return TurnLog(open_store("memory://", projections=synchronous()), sources=sources)


Make = Callable[[Path], bytes]
"""Makes an export. The folder is for temporary files."""


def small(folder: Path) -> bytes:
    """Return the export of a log of three turns in two streams, with bookmarks and a pointer."""
    del folder
    with _open_log("03fr9cxksbd0ufbbn4sb2e") as log:
        root = log.add_turn("Name a river.", bookmark="main")
        log.add_turn("The Loire.", role="assistant", continues="main")
        log.add_turn("And a longer one?", continues=root.id, bookmark="longer")
        log.bookmarks.set("start", root.id)
        log.pointers.set("milli", "example", "example-model-1")
        return exported(log)


def rich(folder: Path) -> bytes:
    """Return the export of a log with a document, two model calls, tools, and a confirmed register of somebody else."""
    with _open_log("03fr9cxksbd0ufbbn4sb2e") as log:
        log.add_turn("Go on? " * 12, bookmark="main")
        _ask(log)
        log.add_turn("And then? " * 12, continues="main")
        _ask(log)
        path = folder / "notes.bin"
        path.write_bytes(b"\x00notes")
        log.add_document(path, bookmark=False)
        with _open_log("03fr9cxksbd0ufbbn4sb2f") as theirs:
            theirs.pointers.set("giga", "example", "example-model-9")
            log.import_turnlog(io.BytesIO(exported(theirs)), registers="trust")
        forgery = Forgery.of(exported(log))
    # The folder is another one each time.
    _part(forgery.of_topic("gpt.turn", 4))["meta"]["original_path"] = "/documents/notes.bin"
    return forgery.content()


def _ask(log: TurnLog) -> None:
    turn = log.turn("main")
    request = PreparedRequest(
        adapter="example",
        version="1",
        provider="example",
        api="messages",
        model="example-model-1",
        stream=False,
        head=b'{"messages":[',
        messages=[message.content_json + b"," for message in log.context("main").messages],
        closing=b"null]}",
        loss_report=LossReport(entries=()),
        tools=(Tool(name="files___read", description="Read a file."),),
    )
    call = log.calls.record(turn.id, request)
    response = Response(
        content=(Text(text="Yes."),),
        model="example-model-1",
        stop_reason="stop",
        provider="example",
        api="messages",
    )
    log.calls.record_reply(call, [b'{"text":"Yes."}'], response)


# How cases are made


def _text(change: Callable[[bytes], bytes]) -> Callable[[Forgery], bytes]:
    """Change the text of the whole export."""
    return lambda forgery: change(forgery.content(seal=False, count=False))


def _replaced(old: bytes, new: bytes) -> Callable[[Forgery], bytes]:
    """Replace a text where it stands first."""
    return _text(lambda content: content.replace(old, new, 1))


def _edited(change: Callable[[Forgery], object]) -> Callable[[Forgery], bytes]:
    """Change values, and leave all hashes and digests as they were."""

    def edit(forgery: Forgery) -> bytes:
        change(forgery)
        return forgery.content(seal=False)

    return edit


def _forged(change: Callable[[Forgery], object]) -> Callable[[Forgery], bytes]:
    """Change values, and make all hashes, digests and counts what they should be then."""

    def forge(forgery: Forgery) -> bytes:
        change(forgery)
        return forgery.content()

    return forge


def _event(nth: int, **changes: Any) -> Callable[[Forgery], bytes]:
    """Change keys of the nth event's header, consistently."""
    return _forged(lambda forgery: forgery.lines[nth].event.update(changes))


def _private(nth: int, **changes: Any) -> Callable[[Forgery], bytes]:
    """Change keys of the nth event's private part, consistently."""
    return _forged(lambda forgery: _part(forgery.lines[nth]).update(changes))


def _meta(nth: int, **changes: Any) -> Callable[[Forgery], bytes]:
    """Change private metadata of the nth event, consistently."""
    return _forged(lambda forgery: _part(forgery.lines[nth])["meta"].update(changes))


def _payload(nth: int, payload: bytes) -> Callable[[Forgery], bytes]:
    """Give the nth event another payload, consistently."""
    return _forged(lambda forgery: forgery.lines[nth].set_payload(payload))


def _part(line: ForgedLine) -> dict[str, Any]:
    assert line.private is not None
    return line.private


def _swap_privates(forgery: Forgery) -> None:
    first, second = forgery.lines[1:3]
    first.private, second.private = second.private, first.private


def _swap_payloads(forgery: Forgery) -> None:
    first, second = forgery.lines[1:3]
    first.payload, second.payload = second.payload, first.payload


def _without_private(forgery: Forgery) -> None:
    """Take the private part away, as if it was erased, and leave the payload."""
    line = forgery.lines[2]
    line.private = None
    line.keys["erased"] = True


def _unsorted(forgery: Forgery) -> bytes:
    """Spell a header in another order, with the digest that it has then."""
    state = msgspec.json.encode(forgery.lines[2].event, order="sorted")
    other = msgspec.json.encode(dict(sorted(forgery.lines[2].event.items(), reverse=True)))
    content = forgery.content(seal=False, count=False).replace(state, other, 1)
    return content.replace(forgery.lines[2].keys["digest"].encode(), event_digest(other).encode(), 1)


def _cite(nth: int, relation: str, event_id: str | None, digest: str | None = None) -> Callable[[Forgery], None]:
    """Let an event cite another one: by default itself, by default with a digest that fits nothing."""

    def change(forgery: Forgery) -> None:
        line = forgery.lines[nth]
        others = [citation for citation in line.event["citations"] if citation["as"] != relation]
        cited = {"as": relation, "digest": digest or sri(b"x" * 32), "id": event_id or line.id}
        line.event["citations"] = [*others, cited]

    return change


def _cite_line(topic: str, relation: str, other: str, nth: int = 0, other_nth: int = 0) -> Callable[[Forgery], None]:
    """Let an event cite another one of the export, with its digest."""

    def change(forgery: Forgery) -> None:
        citing, cited = forgery.of_topic(topic, nth), forgery.of_topic(other, other_nth)
        others = [citation for citation in citing.event["citations"] if citation["as"] != relation]
        new = {"as": relation, "digest": cited.keys["digest"], "id": cited.id}
        citing.event["citations"] = [*others, new]

    return change


def _cycle(forgery: Forgery) -> None:
    """Let the root continue the turn that continues it. No digest can be right on both sides."""
    root, reply = forgery.lines[1:3]
    root.event["citations"] = [{"as": "parent", "digest": reply.keys["digest"], "id": reply.id}]


def _swap_calls(forgery: Forgery) -> None:
    """Let the first call build on the second one."""
    _cite_line("gpt.call", "base", "gpt.call", 0, 1)(forgery)


def _at_one_place(forgery: Forgery) -> None:
    """Let two turns follow the root in its stream."""
    root, _, fork = forgery.lines[1:4]
    fork.event |= {"stream": root.event["stream"], "position": 1}


def _second_genesis(forgery: Forgery) -> None:
    genesis = msgspec.json.decode(msgspec.json.encode(forgery.lines[0].event))
    genesis |= {"id": STRANGER, "stream": STRANGER}
    forgery.lines.append(ForgedLine(keys={"at": 7, "digest": ""}, event=genesis, private=None, payload=None))


def _repeated(forgery: Forgery) -> None:
    forgery.lines.append(forgery.lines[-1])
    again = forgery.lines[-1]
    forgery.lines[-1] = ForgedLine(again.keys | {"at": 7}, again.event, again.private, again.payload)


def _part_of_it(forgery: Forgery, *lines: int) -> None:
    """Make it the export of threads, with some of its lines."""
    forgery.lines = [forgery.lines[nth] for nth in lines]
    forgery.header = forgery.header | {"of": "threads", "head": forgery.lines[0].id}
    ordered = ("turnlog_export", "log", "of", "head", "first", "last", "events", "payload_bytes")
    forgery.header = {name: forgery.header[name] for name in ordered}


def _line_text(nth: int, change: Callable[[bytes], bytes]) -> Callable[[Forgery], bytes]:
    """Change the text of the nth event's line."""

    def changed(forgery: Forgery) -> bytes:
        lines = forgery.content(seal=False, count=False).splitlines(keepends=True)
        lines[nth + 1] = change(lines[nth + 1])
        return b"".join(lines)

    return changed


def _second_line_first(line: bytes) -> bytes:
    """Put the digest before the position."""
    at, digest = line.index(b'"at"'), line.index(b'"digest"')
    end = line.index(b',"event"')
    return line[:at] + line[digest:end] + b"," + line[at : digest - 1] + line[end:]


SMALL: Mapping[str, Callable[[Forgery], bytes]] = {
    # The file
    "empty file": lambda _: b"",
    "no header": _text(lambda content: content.split(b"\n", 1)[1]),
    "header twice": _text(lambda content: content.split(b"\n", 1)[0] + b"\n" + content),
    "not an export": lambda _: b'{"hello":"world"}\n',
    "binary": lambda _: bytes(range(256)),
    "version 1": _replaced(b'"turnlog_export":2', b'"turnlog_export":1'),
    "version 3": _replaced(b'"turnlog_export":2', b'"turnlog_export":3'),
    "header with an unknown key": _replaced(b'"of":"log"', b'"of":"log","note":"hello"'),
    "header with a key twice": _replaced(b'{"turnlog_export":2,', b'{"turnlog_export":2,"turnlog_export":2,'),
    "header with whitespace": _replaced(b'{"turnlog_export":2,', b'{"turnlog_export": 2,'),
    "whole log with a head": _replaced(b'"of":"log",', b'"of":"log","head":"03fr9cxksbd0ufbbn4sb2e001",'),
    "huge event count": _replaced(b'"last":6,"events":6', b'"last":9007199254740991,"events":9007199254740991'),
    "event count beyond all numbers": _replaced(b'"events":6', b'"events":1000000000000000000000000'),
    "negative event count": _replaced(b'"events":6', b'"events":-6'),
    "too small an event count": _replaced(b'"last":6,"events":6', b'"last":5,"events":5'),
    "another payload size": _replaced(b'"payload_bytes":', b'"payload_bytes":1'),
    "cut after a line": _text(lambda content: content[: content.rstrip(b"\n").rindex(b"\n") + 1]),
    "cut within a line": _text(lambda content: content[:-100]),
    "last line feed missing": _text(lambda content: content[:-1]),
    "more lines": _text(lambda content: content + content.splitlines(keepends=True)[-1]),
    "blank line": _text(lambda content: content.replace(b"\n", b"\n\n", 1)),
    # The line
    "line with an unknown key": _line_text(2, lambda line: line.replace(b',"event":', b',"note":1,"event":', 1)),
    "line with a key twice": _line_text(2, lambda line: line.replace(b'{"at":3,', b'{"at":3,"at":3,', 1)),
    "line with whitespace": _line_text(2, lambda line: line.replace(b'{"at":3,', b'{"at":3, ', 1)),
    "line in another order": _line_text(2, _second_line_first),
    "line that is no JSON": _line_text(2, lambda line: line.replace(b'{"at"', b'{"at', 1)),
    "line that is not UTF-8": _line_text(2, lambda line: line.replace(b"The Loire", b"\xff\xfe", 1)),
    "line with an unpaired surrogate": _line_text(2, lambda line: line.replace(b"The Loire", b"\\ud800", 1)),
    "deep payload": _line_text(
        2, lambda line: line.replace(b'"payload":', b'"payload":' + b"[" * _DEEP + b"]" * _DEEP, 1)
    ),
    "deep metadata": _line_text(
        2, lambda line: line.replace(b'"meta":', b'"meta":' + b'{"a":' * _DEEP + b"1" + b"}" * _DEEP, 1)
    ),
    # Hashes
    "wrong digest": _edited(lambda forgery: forgery.lines[2].keys.update(digest=sri(b"x" * 32))),
    "malformed digest": _edited(lambda forgery: forgery.lines[2].keys.update(digest="sha256-x")),
    "edited header": _edited(lambda forgery: forgery.lines[2].event["meta"].update(role="user")),
    "edited private part": _edited(lambda forgery: _part(forgery.lines[2])["meta"].update(head="other")),
    "private part of another event": _edited(_swap_privates),
    "private part missing": _edited(lambda forgery: setattr(forgery.lines[4], "private", None)),
    "private part where none is": _edited(lambda forgery: setattr(forgery.lines[0], "private", {"form": "plain"})),
    "private part of an unknown form": _private(2, form="sealed"),
    "payload of another event": _edited(_swap_payloads),
    "payload missing": _edited(lambda forgery: setattr(forgery.lines[2], "payload", None)),
    "payload where none is": _edited(lambda forgery: setattr(forgery.lines[0], "payload", b"[]")),
    "two payloads": _line_text(2, lambda line: line.replace(b"]}\n", b'],"payload_base64":"AAAA"}\n', 1)),
    "JSON as base64": _line_text(
        2, lambda line: line[: line.index(b',"payload":')] + b',"payload_base64":"' + b64encode(_REPLY) + b'"}\n'
    ),
    "malformed base64": _line_text(2, lambda line: line[: line.index(b',"payload":')] + b',"payload_base64":"!!!"}\n'),
    "wrong size": _private(2, size=5),
    "negative size": _private(2, size=-1),
    "short salt": _private(2, salt="AAAA"),
    # Erased events
    "erased with its private part": _edited(lambda forgery: forgery.lines[2].keys.update(erased=True)),
    "erased with a payload": _edited(_without_private),
    "erased without ever having had anything": _edited(lambda forgery: forgery.lines[0].keys.update(erased=True)),
    "erased spelled as false": _line_text(2, lambda line: line.replace(b'{"at":3,', b'{"at":3,"erased":false,', 1)),
    # Citations
    "unknown citation": _forged(_cite(2, "parent", STRANGER)),
    "citation with another digest": _forged(_cite(4, "turn", "03fr9cxksbd0ufbbn4sb2e000")),
    "self-citation": _forged(_cite(3, "parent", None)),
    "cycle": _forged(_cycle),
    "citation of the wrong topic": _forged(_cite_line("gpt.turn", "parent", "log.genesis", 1)),
    "citation as something foreign": _forged(_cite_line("gpt.turn", "base", "log.genesis", 1)),
    "parent twice": _forged(
        lambda forgery: forgery.lines[3].event["citations"].append(forgery.lines[3].event["citations"][0])
    ),
    "bookmark without a turn": _forged(lambda forgery: forgery.lines[4].event.update(citations=[])),
    # The event
    "negative time": _event(2, time=-1),
    "time beyond all times": _event(2, time=1 << 60),
    "upper-case id": _forged(
        lambda forgery: forgery.lines[5].event.update(
            id=forgery.lines[5].id.upper(), stream=forgery.lines[5].id.upper()
        )
    ),
    "id that is none": _event(5, id="x", stream="x"),
    "later format": _event(2, format=3),
    "unsorted keys": _unsorted,
    "private field in the header": _forged(lambda forgery: forgery.lines[2].event["meta"].update(head="main")),
    "unknown role": _forged(lambda forgery: forgery.lines[2].event["meta"].update(role="robot")),
    "content that is no blocks": _payload(2, b'[{"type":"nonsense"}]'),
    "content with whitespace": _payload(2, b'[{"type":"text", "text":"x"}]'),
    "control characters in a bookmark": _meta(4, name="a\x1b[2J"),
    "bookmark that looks like an id": _meta(1, head=STRANGER),
    "control characters in a pointer": _meta(5, name="milli\x07"),
    # Streams and positions
    "position gap": _text(lambda content: content.replace(b'{"at":4,', b'{"at":5,', 1)),
    "positions out of order": _forged(lambda forgery: _part_of_it(forgery, 1, 3, 2)),
    "part from which something is missing": _forged(lambda forgery: _part_of_it(forgery, 2, 3)),
    "stream of somebody else": _event(3, stream=STRANGER, position=1),
    "two turns at one place": _forged(_at_one_place),
    "later position": _event(2, position=2),
    "position beyond all positions": _event(2, position=1 << 70),
    "negative position": _event(2, position=-1),
    "same event twice": _forged(_repeated),
    "two beginnings": _forged(_second_genesis),
    "beginning of another log": _replaced(b'"log":"03fr9cxksbd0ufbbn4sb2e', b'"log":"03fr9cxksbd0ufbbn4sb2z'),
    "no beginning": _forged(lambda forgery: (forgery.lines.pop(0), forgery.renumber())),
    "beginning as a guest": _edited(lambda forgery: forgery.lines[0].keys.update(guest=True)),
}

RICH: Mapping[str, Callable[[Forgery], bytes]] = {
    "call based on itself": _forged(
        lambda forgery: _cite(forgery.lines.index(forgery.of_topic("gpt.call", 1)), "base", None)(forgery)
    ),
    "call based on a later call": _forged(_swap_calls),
    "reply without a call": _forged(lambda forgery: forgery.of_topic("gpt.reply").event.update(citations=[])),
    "reply to a turn": _forged(_cite_line("gpt.reply", "call", "gpt.turn")),
    "raw events miscounted": _forged(lambda forgery: _part(forgery.of_topic("gpt.reply"))["meta"].update(events=7)),
    "tools that are none": _forged(lambda forgery: forgery.of_topic("mcp.tools").set_payload(b'{"a":1}')),
    "document of another size": _forged(
        lambda forgery: _part(forgery.of_topic("gpt.turn", 4))["meta"].update(file_size=1)
    ),
    "confirmation of a turn": _forged(_cite_line("log.trust", "target", "gpt.turn")),
}


def cases(folder: Path) -> dict[str, bytes]:
    """Return all exports by name.

    Args:
        folder: an empty one for temporary files.
    """
    small_export, rich_export = small(folder), rich(folder)
    made = {name: make(Forgery.of(small_export)) for name, make in SMALL.items()}
    return made | {name: make(Forgery.of(rich_export)) for name, make in RICH.items()}


def refusal(content: bytes) -> str:
    """Return the one line that refuses an export."""
    with TurnLog.open("memory://") as log:
        try:
            log.import_turnlog(io.BytesIO(content))
        except TurnlogError as error:
            return str(error)
    raise AssertionError("it was taken in")


def write(folder: Path) -> int:
    """Write all cases and what refuses each, and return how many they are."""
    made = cases(folder)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name, content in made.items():
        path = FOLDER / f"{name.replace(' ', '-')}.jsonl"
        path.write_bytes(content)
        try:
            path.with_suffix(".err").write_text(refusal(content) + "\n", encoding="utf-8")
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    return len(made)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        print(f"wrote {write(Path(temporary))} hostile exports")
