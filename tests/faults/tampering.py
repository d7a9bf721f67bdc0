"""A matrix of edits to a store that has one of everything: what each is, and how it is found.

Each edit is applied to a copy of the store of `rich_store`, to its file and to the folder beside it. `finds` is a part
of the line that `verify` says of it. An edit without one is out of reach of whoever has nothing but the store, or says
nothing else than the store said: `why` says why. A signed checkpoint that was noted elsewhere tells of the former.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import zstandard
from tests.faults.edits import (
    Edit,
    also_cites,
    another_log,
    back_again,
    beyond,
    bytes_behind,
    changed_literals,
    cites,
    closed_gap,
    column,
    copied,
    cut,
    endless,
    erased_by_whoever,
    flipped,
    forged_loss,
    forged_window,
    frame,
    frame_of_12_gb,
    hidden_column,
    in_folder,
    index_page,
    linked,
    loss,
    more_literals,
    of_file,
    older_copy,
    page_of_noise,
    parts,
    private,
    public,
    removed,
    renumbered,
    replaced,
    request,
    rewritten,
    schema,
    second_genesis,
    second_turn,
    shifted,
    shorter,
    sql,
    table_anew,
    then,
    twin,
    update,
    wal_frame,
    window,
    with_dictionary,
    without,
    without_positions,
    without_uniqueness,
)
from tests.faults.rich_store import AT

from turnlog.digest import payload_hash
from turnlog.ids import derived_id

_HASH = payload_hash(b"another one")


ROWS = [
    ("stream beside the event", column("second", "originator_id", "'x'"), "beside it are not those in its header"),
    (
        "position beside the event",
        column("second", "originator_version", "77"),
        "beside it are not those in its header",
    ),
    ("position that is a fraction", column("second", "originator_version", "1.5"), "position is 1.5"),
    ("topic beside the event", column("second", "topic", "'gpt.call'"), "beside it are not those in its header"),
    (
        "topic that is no UTF-8",
        column("second", "topic", "CAST(x'ff' AS TEXT)"),
        "beside it are not those in its header",
    ),
    ("id beside the event", column("second", "event_id", "'x'"), "beside it are not those in its header"),
    ("id as bytes", column("second", "event_id", "CAST(event_id AS BLOB)"), "its event_id is 25 bytes"),
    ("leaf hash", column("last", "leaf_hash", "zeroblob(32)"), "does not have the leaf hash"),
    ("leaf hash cut", column("last", "leaf_hash", "substr(leaf_hash, 1, 31)"), "does not have the leaf hash"),
    ("leaf hash as text", column("last", "leaf_hash", "hex(leaf_hash)"), "leaf_hash is"),
    ("header, one byte", column("last", "state", "CAST(replace(state, 'user', 'uzer') AS BLOB)"), "leaf hash"),
    ("header cut", column("last", "state", "substr(state, 1, length(state) - 1)"), "cannot be read"),
    ("header empty", column("last", "state", "x''"), "cannot be read"),
    ("header as text", column("last", "state", "CAST(state AS TEXT)"), "state is '"),
    ("header as a number", column("last", "state", "5"), "state is 5"),
    ("header nested too deeply", column("last", "state", f"CAST('{'[' * 100_000}' AS BLOB)"), "cannot be read"),
    ("arrival that means nothing", column("second", "arrival", "7"), "arrival is 7, which means nothing"),
    ("arrival as text", column("second", "arrival", "'here'"), "arrival is 'here'"),
    ("placement that means nothing", column("second", "payload_placement", "99"), "placement is 99"),
    ("placement as text", column("second", "payload_placement", "'x'"), "placement is 'x'"),
    ("another placement", column("second", "payload_placement", "2"), "there is no Zstandard frame"),
    ("placement of a file", column("second", "payload_placement", "3"), "not the hash that the event says"),
    ("private part missing", column("second", "private", "NULL"), "private part is missing"),
    ("private part, one byte", column("second", "private", "CAST(private || ' ' AS BLOB)"), "the one that its header"),
    ("private part as text", column("second", "private", "CAST(private AS TEXT)"), "private is '"),
    (
        "private part of another event",
        column("second", "private", f"(SELECT private FROM stored_events WHERE notification_id = {AT['third']})"),
        "is not the one that its header commits to",
    ),
    (
        "private part beside an event without one",
        column("genesis", "private", "x'7b7d'"),
        "beside an event that has none",
    ),
    ("payload missing", column("second", "payload", "NULL"), "nothing is stored"),
    ("payload, one byte", column("second", "payload", "CAST(replace(payload, 'c', 'k') AS BLOB)"), "hash differs"),
    (
        "payload longer",
        column("second", "payload", "CAST(payload || ' ' AS BLOB)"),
        "bytes are stored, and the event says",
    ),
    ("payload as text", column("second", "payload", "CAST(payload AS TEXT)"), "payload is '"),
    ("payload as a number", column("second", "payload", "5"), "payload is 5"),
    (
        "payload beside an event without one",
        column("pointer", "payload", "x'00'"),
        "kept beside an event that has none",
    ),
    ("placement beside an event without a payload", column("genesis", "payload_placement", "1"), "that has none"),
    (
        "payloads of two events swapped",
        sql(
            "CREATE TEMP TABLE kept AS SELECT notification_id AS id, payload FROM stored_events",
            f"UPDATE stored_events SET payload = (SELECT payload FROM kept WHERE id = {AT['second'] + AT['last']}"
            f" - notification_id) WHERE notification_id IN ({AT['second']}, {AT['last']})",
        ),
        "bytes are stored, and the event says",
    ),
    ("frame cut", column("third", "payload", "substr(payload, 1, length(payload) - 1)"), "cannot be read"),
    ("bytes behind a frame", column("third", "payload", "CAST(payload || x'00' AS BLOB)"), "cannot be read"),
    ("second frame behind a frame", column("third", "payload", "CAST(payload || payload AS BLOB)"), "cannot be read"),
    ("frame that claims 12 GB", frame(frame_of_12_gb), "not of the size that the event says"),
    ("frame with a dictionary", frame(with_dictionary), "cannot be read"),
    (
        "frame without the size of its content",
        frame(zstandard.ZstdCompressor(write_content_size=False).compress),
        "not of the size that the event says",
    ),
    (
        "frame larger than its content",
        frame(zstandard.ZstdCompressor().compress, "last"),
        "not smaller than its content",
    ),
]
"""Edits of rows, which change nothing else to fit."""

ERASURES = [
    (
        "erased on nobody's word",
        column("lonely", "(private, payload_placement, payload)", "(NULL, 5, NULL)"),
        "no gpt.erasure event names it",
    ),
    (
        "marked as erased alone",
        column("lonely", "payload_placement", "5"),
        "marked as erased, and its private part is there",
    ),
    ("erased and not marked", column("secret", "payload_placement", "0"), "private part is missing"),
    (
        "payload beside an erased event",
        column("secret", "payload", "x'00'"),
        "a payload is kept beside an erased event",
    ),
    ("role of an erased event", rewritten("secret", header=public(role=True), follow=True), "cannot be read"),
    (
        "erasure that cites another",
        cites("erasure", "target", "second", nth=1),
        "no gpt.erasure event names it",
    ),
    (
        "erased, by an erasure before it",
        then(
            column("after the secret", "(private, payload_placement, payload)", "(NULL, 5, NULL)"),
            also_cites("trust", "target", "after the secret"),
        ),
        "no gpt.erasure event names it",
    ),
    (
        "erasure of what is there",
        also_cites("erasure", "target", "after the secret"),
        "a gpt.erasure event names it, and its content is here",
    ),
]

FILES = [
    ("file missing", of_file(Path.unlink), "no such file"),
    ("file, one byte", of_file(lambda file: file.write_bytes(flipped(file.read_bytes(), 9))), "hash differs"),
    ("file cut", of_file(lambda file: file.write_bytes(file.read_bytes()[:-1])), "its file has"),
    ("file empty", of_file(lambda file: file.write_bytes(b"")), "its file has 0 bytes"),
    ("bytes behind a file", of_file(lambda file: file.write_bytes(file.read_bytes() + b"x")), "its file has"),
    (
        "bytes behind a frame in a file",
        of_file(lambda file: file.write_bytes(file.read_bytes() + b"x"), "table"),
        "behind",
    ),
    (
        "frame in a file, one byte",
        of_file(lambda file: file.write_bytes(flipped(file.read_bytes(), -9)), "story"),
        "payload",
    ),
    (
        "frame in a file that claims 12 GB",
        of_file(lambda f: f.write_bytes(frame_of_12_gb(b"")), "table"),
        "the event says",
    ),
    ("folder in the place of a file", of_file(lambda file: replaced(file, Path.mkdir)), "not a regular file"),
    ("FIFO in the place of a file", of_file(lambda file: replaced(file, os.mkfifo)), "not a regular file"),
    ("link to the same bytes", of_file(lambda f: replaced(f, linked)), "not a regular file"),
    ("file of no event", in_folder("ab/" + "0" * 62), "belongs to no event"),
    ("compressed file of no event", in_folder("ab/" + "0" * 62 + ".zst"), "belongs to no event"),
    ("file of another name", in_folder("notes.txt"), "belongs to no event"),
    ("folder of another name", in_folder("more/notes.txt"), "belongs to no event"),
    (
        "hash of another file, of a payload that was read before",
        column("noise again", "payload", "x'00'"),
        "not the hash",
    ),
    ("hash of another file", column("noise", "payload", "zeroblob(32)"), "not the hash that the event says"),
]
"""Edits of the payload folder."""

HEADERS = [
    ("role", rewritten("second", header=public(role="user")), "with another digest"),
    ("time", rewritten("second", header=update(time=1)), "with another digest"),
    ("time that is none", rewritten("lonely", header=update(time=1 << 60)), "is not a time"),
    ("text", rewritten("second", payload=b'[{"type":"text","text":"forged"}]'), "with another digest"),
    ("blank", rewritten("lonely", state=lambda state: state.replace(b'":', b'": ', 1)), "not in the form of the log"),
    ("blank at the end", rewritten("lonely", state=lambda state: state + b" "), "not in the form of the log"),
    (
        "order of keys",
        rewritten(
            "lonely", state=lambda state: msgspec.json.encode(dict(reversed(msgspec.json.decode(state).items())))
        ),
        "not in the form of the log",
    ),
    (
        "key twice",
        rewritten("lonely", state=lambda state: state[:-1] + b',"topic":"gpt.turn"}'),
        "not in the form of the log",
    ),
    (
        "other spelling of a text",
        rewritten("lonely", state=lambda state: state.replace(b"user", b"\\u0075ser")),
        "not in the form of the log",
    ),
    ("format of tomorrow", rewritten("lonely", header=update(format=3)), "format version 3"),
    ("format as text", rewritten("lonely", header=update(format="2")), "cannot be read"),
    ("no citations", rewritten("lonely", header=lambda header: header.pop("citations")), "cannot be read"),
    ("id in capitals", rewritten("lonely", header=lambda h: h.update(id=h["id"].upper())), "not an id in stored form"),
    ("id that is none", rewritten("lonely", header=update(id="x")), "not an id in stored form"),
    (
        "position with a gap",
        rewritten("after the secret", header=lambda h: h.update(position=h["position"] + 1)),
        "does not follow",
    ),
    ("position below 0", rewritten("lonely", header=update(position=-1)), "does not fit stream"),
    (
        "position beyond 64 bits",
        rewritten("lonely", state=lambda s: s.replace(b'"position":0', b'"position":1' + b"0" * 30)),
        "not those in its",
    ),
    (
        "stream of no event",
        rewritten("after the secret", header=update(stream=derived_id(None, "no"))),
        "nothing before it is in",
    ),
    (
        "stream of another name",
        rewritten("lonely", header=update(stream=derived_id(None, "no"))),
        "does not fit stream",
    ),
    ("own topic", rewritten("second", header=update(topic="acme.turn")), "only turns have parents"),
    ("other topic", rewritten("lonely", header=update(topic="gpt.bookmark")), "a gpt.bookmark event has no payload"),
    (
        "digest of a parent",
        rewritten("last", header=lambda h: h["citations"][0].update(digest=_HASH)),
        "another digest",
    ),
    ("digest that is none", rewritten("last", header=lambda h: h["citations"][0].update(digest="x")), "another digest"),
    (
        "unknown parent",
        rewritten("last", header=lambda h: h["citations"][0].update(id=h["id"])),
        "not among the events",
    ),
    ("parent that comes later", cites("second", "parent", "last"), "not among the events before it"),
    ("parent that is no turn", cites("after the secret", "parent", "call"), "which is no gpt.turn event"),
    (
        "other parent",
        cites("after the secret", "parent", "second"),
        "its first parent is not the turn before it in its stream",
    ),
    ("parents swapped", rewritten("merge", header=lambda h: h["citations"].reverse()), "its first parent is not"),
    ("no parent", without("after the secret", "parent"), "it extends a stream without a parent"),
    ("parent twice", also_cites("merge", "parent", "fork"), "it cites an event twice as the same"),
    ("citation as something unknown", also_cites("lonely", "witness", "root"), "cites nothing as 'witness'"),
    ("private field in the header", rewritten("lonely", header=public(head="main")), "could never be erased"),
    (
        "public field in the private part",
        rewritten("lonely", private=private(role="user")),
        "stands in its private part",
    ),
    ("unknown role", rewritten("lonely", header=public(role="robot")), "cannot be read"),
    ("unknown type", rewritten("lonely", header=public(type="video")), "cannot be read"),
    ("metadata that is a list", rewritten("lonely", header=update(meta=[])), "its public metadata is not an object"),
    ("bookmark of a turn that is a number", rewritten("last", private=private(head=5)), "cannot be read"),
    ("bookmark of a turn", rewritten("last", private=private(head="forged")), "the bookmark heads differs"),
    ("salt of 8 bytes", rewritten("lonely", private=update(salt="AAAAAAAAAAA=")), "salt has 8 bytes"),
    ("hash without a size", rewritten("lonely", private=update(size=None)), "lacks the hash or the size"),
    ("size", rewritten("lonely", private=lambda private: private.update(size=private["size"] + 1)), "the event says"),
    ("size of 12 GB", rewritten("lonely", private=update(size=12 << 30)), "and none has more than"),
    ("size below 0", rewritten("lonely", private=update(size=-1)), "is not that of a payload"),
    ("hash", rewritten("lonely", private=update(hash=_HASH)), "hash differs"),
    ("hash that is none", rewritten("lonely", private=update(hash="md5-x")), "hash differs"),
    (
        "blank in the private part",
        rewritten("lonely", part=lambda p: p.replace(b":", b": ", 1)),
        "not in the form of the log",
    ),
    ("private part in an unknown form", rewritten("lonely", part=lambda _: b'{"form":"new"}'), "does not know"),
    ("content that is no JSON", rewritten("lonely", payload=b"text"), "its content is malformed"),
    ("content that is no blocks", rewritten("lonely", payload=b'[{"type":"video"}]'), "its content is malformed"),
    ("content in another spelling", rewritten("lonely", payload=lambda p: p.replace(b",", b", ")), "not in the form"),
    ("content without an end", rewritten("lonely", payload=b"[" * 100_000), "its content is malformed"),
    (
        "content that is no UTF-8",
        rewritten("lonely", payload=b'[{"type":"text","text":"\xff"}]'),
        "its content is malformed",
    ),
    ("size of a document", rewritten("document", private=private(file_size=5)), "its file_size is 5"),
]
"""Events rewritten with hashes, leaf hash and columns that fit. Nothing that cites them is rewritten."""


CALLS = [
    ("call without a turn", without("call aside", "turn"), "it cites no turn"),
    ("call of what is no turn", cites("call aside", "turn", "call"), "which is no gpt.turn event"),
    ("call with two turns", also_cites("call aside", "turn", "root"), "it cites more than one turn"),
    ("call of another turn", cites("call", "turn", "root"), "with another digest"),
    ("base of another thread", also_cites("call aside", "base", "call"), "is not a call of its thread"),
    ("base that is no call", also_cites("call aside", "base", "asked aside"), "which is no gpt.call event"),
    ("base that comes later", cites("call again", "base", "call failed"), "not among the events before it"),
    ("call that builds on itself", cites("call failed", "base", "call failed"), "not among the events before it"),
    ("other base", cites("call failed", "base", "call again"), "with another digest"),
    ("no base", without("call failed", "base"), "does not say of which"),
    ("tools that are none", also_cites("call aside", "tools", "call"), "which is no mcp.tools event"),
    ("hash of a request", rewritten("call failed", private=request(hash=_HASH)), "its request does not have the hash"),
    ("size of a request", rewritten("call failed", private=request(size=7)), "its parts are not 7 bytes"),
    ("size of a request of 12 GB", rewritten("call failed", private=request(size=12 << 30)), "and none has more than"),
    ("size of a request below 0", rewritten("call failed", private=request(size=-5)), "its request has -5 bytes"),
    ("no request", rewritten("call failed", private=private(request=None)), "cannot be read"),
    (
        "hash of a loss report",
        rewritten("call again", private=loss(hash=_HASH)),
        "its loss report does not have the hash",
    ),
    ("no loss report", rewritten("call again", private=private(loss=None)), "its parts are not"),
    ("loss report that is none", forged_loss, "its loss report cannot be read"),
    ("hash of a window", rewritten("call again", private=window(hash=_HASH)), "its window does not have the hash"),
    ("no window", rewritten("call again", private=private(window=None)), "its parts are not"),
    ("window that is none", forged_window, "its window cannot be read"),
    (
        "literal bytes of a request",
        rewritten("call again", payload=parts(changed_literals)),
        "the hash that was recorded",
    ),
    ("more literal bytes", rewritten("call failed", payload=parts(more_literals)), "belong to it"),
    ("other bytes of the base", rewritten("call failed", payload=parts(shifted)), "request"),
    ("bytes behind the base", rewritten("call failed", payload=parts(beyond)), "do not follow each other"),
    ("bytes of the base twice", rewritten("call failed", payload=parts(back_again)), "do not follow each other"),
    ("part missing", rewritten("call failed", payload=parts(shorter)), "its parts are not"),
    ("a terabyte of the base", rewritten("call failed", payload=parts(endless)), "its parts are not"),
    (
        "request that is no request",
        rewritten("call failed", payload=b"GET / HTTP/1.1"),
        "does not say what it is made of",
    ),
    ("request in format 2", rewritten("call failed", payload=b'{"format":2,"parts":[]}\n'), "is kept in format 2"),
    ("parts that are none", rewritten("call failed", payload=b'{"format":1,"parts":["x"]}\n'), "cannot be read"),
    ("reply without a call", without("reply failed", "call"), "it cites no call"),
    ("reply to what is no call", cites("reply failed", "call", "asked again"), "which is no gpt.call event"),
    ("number of raw events", rewritten("reply again", private=private(events=2)), "has 3 raw events, and it says 2"),
    ("raw event missing", rewritten("reply again", payload=lambda p: p[: p.rindex(b"\x1e")]), "has 2 raw events"),
    ("bytes before raw events", rewritten("reply again", payload=lambda p: b"x" + p), "is not one of raw events"),
    ("raw events that are missing", rewritten("reply failed", private=private(events=1)), "has 0 raw events"),
    ("raw event changed", rewritten("reply again", payload=lambda p: p.replace(b"1", b"7")), "with another digest"),
    ("reply of another call", cites("failed", "call", "call again"), "does not cite the call"),
    ("turn that came of no call", without("failed", "call"), "does not cite the call"),
    ("reply that is no reply", cites("failed", "reply", "call failed"), "which is no gpt.reply event"),
    ("number of tools", rewritten("tools", private=private(tools=3)), "lists 2 tools, and says 3"),
    ("tools that are no list", rewritten("tools", payload=b'{"name":"x"}'), "its tools cannot be read"),
    ("tool twice", rewritten("tools", payload=lambda p: p.replace(b"read", b"list")), "its tools cannot be read"),
    (
        "million tools",
        rewritten("tools", payload=b"[" + b'{"name":"x"},' * 1_000_000 + b"{}]"),
        "than anybody can offer",
    ),
]
"""Edits of recorded calls, rewritten with hashes that fit."""

OTHERS = [
    ("bookmark at no turn", cites("bookmark set", "turn", "call"), "which is no gpt.turn event"),
    ("bookmark set nowhere", without("bookmark set", "turn"), "to set has nothing beside its name"),
    ("bookmark renamed to nothing", rewritten("bookmark renamed", private=private(to=None)), "to rename has nothing"),
    ("bookmark that is deleted somewhere", also_cites("bookmark deleted", "turn", "root"), "to delete has turn"),
    ("bookmark eaten", rewritten("bookmark deleted", header=public(action="eat")), "cannot be read"),
    (
        "bookmark renamed in another way",
        rewritten("bookmark renamed", private=private(to="x")),
        "the bookmark heads differs",
    ),
    ("pointer that is a number", rewritten("pointer", private=private(name=5)), "cannot be read"),
    ("server that waits for a word", rewritten("server", private=private(timeout_s="long")), "cannot be read"),
    (
        "trust in a turn",
        cites("trust", "target", "root"),
        "which is no gpt.pointer or gpt.provider or mcp.server event",
    ),
    ("trust in nothing", without("trust", "target"), "it cites no target"),
    ("erasure of nothing", without("erasure", "target"), "it cites no target"),
    ("own event with a changed citation", rewritten("second", header=update(time=5)), "as its reviewed with another"),
    ("own event with a parent", also_cites("review", "parent", "root"), "only turns have parents"),
    ("own event in a stream", rewritten("grade", header=update(position=1)), "does not fit stream"),
    ("line of what is no turn", cites("line", "turn", "call"), "which is no gpt.turn event"),
    ("guest, one byte", rewritten("guest root", payload=b'[{"type":"text","text":"x"}]'), "with another digest"),
]
"""Edits of other events, rewritten with hashes that fit."""

LOG = [
    ("event removed", sql(f"DELETE FROM stored_events WHERE notification_id = {AT['third']}"), "4 to 4 are missing"),
    ("events removed at the start", sql("DELETE FROM stored_events WHERE notification_id < 3"), "1 to 2 are missing"),
    ("all events removed", sql("DELETE FROM stored_events"), "differs from its rebuild"),
    (
        "last event removed",
        sql(f"DELETE FROM stored_events WHERE notification_id = {AT['last']}"),
        "the bookmark heads",
    ),
    ("event removed, and the gap closed", lambda path: removed(path, "third"), "not among the events before it"),
    (
        "first event removed, and the gap closed",
        lambda path: removed(path, "genesis"),
        "does not begin with a log.genesis",
    ),
    ("event moved behind", column("lonely", "notification_id", "1000"), "are missing"),
    ("event moved before the first", column("lonely", "notification_id", "-3"), "before the first global position"),
    ("event moved to 0", column("lonely", "notification_id", "0"), "before the first global position"),
    ("event moved to the very end", column("lonely", "notification_id", "9223372036854775807"), "are missing"),
    (
        "event moved to the very beginning",
        column("lonely", "notification_id", "-9223372036854775808"),
        "before the first global position",
    ),
    (
        "events swapped",
        lambda path: renumbered(path, [1, 2, 4, 3, *range(5, len(AT) + 1)]),
        "not among the events before it",
    ),
    ("event twice", lambda path: copied(path, at="'x', 5", event_id="'x'"), "an event before it has the same id"),
    (
        "event twice, where nothing must be unique",
        then(table_anew(without_uniqueness), lambda path: copied(path, at="originator_id, 0", event_id="event_id")),
        "an event before it has the same id",
    ),
    (
        "two turns at one position, where nothing must be unique",
        then(table_anew(without_uniqueness), twin),
        "a turn before it is at position",
    ),
    (
        "global position that is a text",
        then(table_anew(without_positions), column("lonely", "notification_id", "'x'")),
        "a row has 'x' for its global position",
    ),
    (
        "two events at one global position",
        then(table_anew(without_positions), column("last", "notification_id", str(AT["lonely"]))),
        "another event has the same global position",
    ),
    ("second beginning", second_genesis, "stands within it"),
    ("beginning of a guest", column("genesis", "arrival", "2"), "does not begin with a log.genesis event of its own"),
    ("guest's beginning made its own", column("guest genesis", "arrival", "1"), "stands within it"),
    ("guest made its own", column("guest second", "arrival", "1"), "the bookmark heads differs"),
]
"""Edits of the order of the log."""

_ENDLESS = "WITH RECURSIVE endless(word) AS (SELECT 'x' UNION ALL SELECT word FROM endless)"
_EVIL = "CREATE TRIGGER evil BEFORE INSERT ON {} BEGIN SELECT RAISE(IGNORE); END"

SCHEMA = [
    ("trigger that swallows events", schema(_EVIL.format("stored_events")), "trigger 'evil'"),
    ("trigger that swallows bookmarks", schema(_EVIL.format("bookmarks")), "trigger 'evil'"),
    (
        "trigger dropped",
        schema("DROP TRIGGER stored_events_no_delete"),
        "trigger 'stored_events_no_delete' is missing",
    ),
    (
        "trigger made harmless",
        schema(
            "DROP TRIGGER stored_events_no_delete",
            "CREATE TRIGGER stored_events_no_delete BEFORE DELETE ON stored_events BEGIN SELECT 1; END",
        ),
        "trigger 'stored_events_no_delete' is not what it should be",
    ),
    ("index dropped", schema("DROP INDEX stored_events_rare"), "index 'stored_events_rare' is missing"),
    ("index of files dropped", schema("DROP INDEX stored_events_files"), "index 'stored_events_files' is missing"),
    (
        "index of a projection dropped",
        schema("DROP INDEX turn_links_by_child"),
        "index 'turn_links_by_child' is missing",
    ),
    (
        "index of other columns",
        schema("DROP INDEX turn_links_by_child", "CREATE INDEX turn_links_by_child ON turn_links (child_position)"),
        "index 'turn_links_by_child' is not what it should be",
    ),
    ("index added", schema("CREATE UNIQUE INDEX one_topic ON stored_events (state)"), "index 'one_topic'"),
    ("nothing must be unique", table_anew(without_uniqueness), "table 'stored_events' is not what it should be"),
    ("column added", schema("ALTER TABLE stored_events ADD COLUMN note TEXT"), "table 'stored_events' is not what"),
    (
        "column of a projection added",
        schema("ALTER TABLE threads ADD COLUMN note TEXT"),
        "table 'threads' is not what",
    ),
    ("version of tomorrow", schema("PRAGMA user_version = 3"), "of version 3"),
    ("version of yesterday", schema("PRAGMA user_version = 1"), "of version 1"),
    ("application", schema("PRAGMA application_id = 5"), "not a turnlog store"),
    ("projection of tomorrow", schema("UPDATE store_projections SET version = 9"), "of version 9"),
    ("projection that is none", schema("INSERT INTO store_projections VALUES ('own', 1)"), "says that it has the"),
    ("table of projections dropped", schema("DROP TABLE store_projections"), "store_projections"),
    (
        "view in the place of a projection",
        schema("DROP TABLE threads", f"CREATE VIEW threads AS {_ENDLESS} SELECT word AS thread FROM endless"),
        "has a view in the place of its table 'threads'",
    ),
    (
        "view in the place of the log",
        schema(
            "ALTER TABLE stored_events RENAME TO kept",
            f"CREATE VIEW stored_events AS {_ENDLESS} SELECT kept.* FROM kept, endless WHERE word = 'y'",
        ),
        "has a view in the place of its table 'stored_events'",
    ),
    ("log dropped", schema("DROP TABLE stored_events"), "has lost its table of events"),
    ("erasure that nobody began", schema("CREATE TABLE store_scrubs (x)"), "table 'store_scrubs' is not what it"),
]
"""Edits of the schema and of the settings."""

_INDEXES = {
    "bookmarks": (
        "bookmark heads",
        "name = 'main'",
        {"name": "'x'", "turn_id": "'x'", "moved_by": "'x'", "set_by_event": "5"},
    ),
    "threads": ("thread index", "thread = (SELECT thread FROM threads LIMIT 1)", {"thread": "x'00'"}),
    "turn_links": (
        "turn index",
        "child_stream = (SELECT child_stream FROM turn_links LIMIT 1)",
        {"parent_stream": "'x'", "parent_position": "77", "child_stream": "'x'", "child_position": "77"},
    ),
}


def _projections() -> list[tuple[str, Callable[[Path], None], str]]:
    edits: list[tuple[str, Callable[[Path], None], str]] = []
    for table, (name, where, columns) in _INDEXES.items():
        found = f"the {name} differs from its rebuild"
        edits += [
            (f"{table}: {column} changed", sql(f"UPDATE {table} SET {column} = {value} WHERE {where}"), found)
            for column, value in columns.items()
        ]
        row = ", ".join("'x'" for _ in columns)
        edits += [
            (f"{table}: row removed", sql(f"DELETE FROM {table} WHERE {where}"), found),
            (f"{table}: all rows removed", sql(f"DELETE FROM {table}"), found),
            (f"{table}: row added", sql(f"INSERT INTO {table} VALUES ({row})"), found),
            (f"{table}: dropped", schema(f"DROP TABLE {table}"), f"table '{table}' is missing"),
        ]
    return edits


PROJECTIONS = _projections()
"""Edits of the index tables."""

ENGINE = [
    ("write-ahead log, one bit", wal_frame, "write-ahead log"),
    ("entry of an index", index_page, "SQLite: "),
    ("page of noise", page_of_noise, "damaged"),
    ("bytes behind the last page", bytes_behind, "behind its last page"),
]
"""Edits below the tables."""

_NO_CHECKPOINT = "nothing in the store says more than the log does: only a signed checkpoint from before tells"
_SAYS_THE_SAME = "the log says what it said"

BEYOND = [
    ("last turn rewritten", rewritten("last", payload=b'[{"type":"text","text":"forged"}]'), _NO_CHECKPOINT),
    (
        "turn that nothing cites rewritten",
        rewritten("lonely", payload=b'[{"type":"text","text":"forged"}]'),
        _NO_CHECKPOINT,
    ),
    (
        "turn rewritten, and all that cites it",
        rewritten("second", payload=b'[{"type":"text","text":"forged"}]', follow=True),
        _NO_CHECKPOINT,
    ),
    ("time of a turn, and all that cites it", rewritten("root", header=update(time=5), follow=True), _NO_CHECKPOINT),
    ("beginning rewritten", rewritten("genesis", header=update(time=5)), "nothing cites it: " + _NO_CHECKPOINT),
    (
        "reply rewritten, and the turn that came of it",
        rewritten("reply failed", private=private(error={"message": "forged"}), follow=True),
        _NO_CHECKPOINT,
    ),
    ("turn that nothing cites removed, and the gap closed", closed_gap, _NO_CHECKPOINT),
    ("tail cut, with all that is derived from it", cut, _NO_CHECKPOINT),
    ("older copy put back", older_copy, _NO_CHECKPOINT),
    (
        "events swapped that do not cite each other",
        lambda path: renumbered(
            path, [*range(1, AT["pointer"]), AT["provider"], AT["pointer"], *range(AT["server"], len(AT) + 1)]
        ),
        "a header says what it rests on, not its place: " + _NO_CHECKPOINT,
    ),
    (
        "register of a guest made its own",
        column("guest pointer", "arrival", "0"),
        "how an event came is said by the store alone",
    ),
    ("own register made a guest's", column("pointer", "arrival", "2"), "how an event came is said by the store alone"),
    (
        "own register made a restored one",
        column("provider", "arrival", "1"),
        "how an event came is said by the store alone",
    ),
    ("erased, with an erasure that says so", erased_by_whoever, _NO_CHECKPOINT),
    ("event appended", second_turn, _NO_CHECKPOINT),
    ("another log in its place", another_log, _NO_CHECKPOINT),
    (
        "table of one's own",
        schema("CREATE TABLE notes (text)", "INSERT INTO notes VALUES ('x')"),
        "it is told, and is none of the log",
    ),
    ("payload compressed in another way", frame(zstandard.ZstdCompressor(level=19).compress), _SAYS_THE_SAME),
    ("payload not compressed any more", rewritten("third", payload=lambda payload: payload), _SAYS_THE_SAME),
    ("database vacuumed", schema("VACUUM"), _SAYS_THE_SAME),
    (
        "value in a column that the schema hides",
        hidden_column,
        "SQLite gives out no value that the schema has no column for",
    ),
    ("journal mode", schema("PRAGMA journal_mode = DELETE"), "it is set anew when the store is opened"),
    (
        "projection forgotten",
        schema("DELETE FROM store_projections WHERE name = 'thread index'", "DROP TABLE threads"),
        "what a store lacks is built anew when it is opened",
    ),
]
"""Edits that are out of reach of whoever has nothing but the store, or that change nothing of the log."""

_KINDS = {
    "rows": ROWS,
    "erasures": ERASURES,
    "payload files": FILES,
    "events": HEADERS,
    "calls": CALLS,
    "other events": OTHERS,
    "order of the log": LOG,
    "schema": SCHEMA,
    "index tables": PROJECTIONS,
    "engine": ENGINE,
}

FOUND = tuple(
    Edit(name=name, kind=kind, apply=apply, finds=finds)
    for kind, edits in _KINDS.items()
    for name, apply, finds in edits
)
"""All edits that are found."""

OUT_OF_REACH = tuple(Edit(name=name, kind="out of reach", apply=apply, why=why) for name, apply, why in BEYOND)
"""All that are not."""

TOLD = {
    "erased, with an erasure that says so": "an erasure is an event: what it adds is not anchored",
    "event appended": "the log may grow: what is new is not anchored",
    "table of one's own": "it is told, and is none of the log",
}
"""Edits out of reach that are told where there is a checkpoint from outside, and are no damage; with the reason."""

THE_SAME = {
    "payload compressed in another way",
    "payload not compressed any more",
    "database vacuumed",
    "value in a column that the schema hides",
    "journal mode",
    "projection forgotten",
}
"""Edits out of reach that change nothing of the log: whoever reads it gets the same bytes."""
