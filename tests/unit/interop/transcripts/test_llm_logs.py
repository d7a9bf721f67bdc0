"""The log database of llm, in both generations."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import check_erasing, check_growing, check_importing, take

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop import formats
from turnlog.interop.transcripts import llm_database
from turnlog.model import Usage

TIME = "2026-02-10T17:24:01.000000"
OLDER = """
CREATE TABLE _llm_migrations (name TEXT PRIMARY KEY, applied_at TEXT);
CREATE TABLE conversations (id TEXT PRIMARY KEY, name TEXT, model TEXT);
CREATE TABLE schemas (id TEXT PRIMARY KEY, content TEXT);
CREATE TABLE responses (
  id TEXT PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, prompt_json TEXT, options_json TEXT, response TEXT,
  response_json TEXT, conversation_id TEXT, duration_ms INTEGER, datetime_utc TEXT, input_tokens INTEGER,
  output_tokens INTEGER, token_details TEXT, schema_id TEXT, resolved_model TEXT, reasoning TEXT
);
CREATE VIRTUAL TABLE responses_fts USING FTS5 (prompt, response, content=responses);
CREATE TABLE attachments (id TEXT PRIMARY KEY, type TEXT, path TEXT, url TEXT, content BLOB);
CREATE TABLE prompt_attachments (response_id TEXT, attachment_id TEXT, "order" INTEGER);
CREATE TABLE fragments (id INTEGER PRIMARY KEY, hash TEXT, content TEXT, datetime_utc TEXT, source TEXT);
CREATE TABLE prompt_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
CREATE TABLE system_fragments (response_id TEXT, fragment_id INTEGER, "order" INTEGER);
CREATE TABLE tools (id INTEGER PRIMARY KEY, hash TEXT, name TEXT, description TEXT, input_schema TEXT, plugin TEXT);
CREATE TABLE tool_responses (tool_id INTEGER, response_id TEXT);
CREATE TABLE tool_calls (
  id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT, arguments TEXT, tool_call_id TEXT
);
CREATE TABLE tool_results (
  id INTEGER PRIMARY KEY, response_id TEXT, tool_id INTEGER, name TEXT, output TEXT, tool_call_id TEXT,
  instance_id INTEGER, exception TEXT
);
CREATE TABLE tool_results_attachments (tool_result_id INTEGER, attachment_id TEXT, "order" INTEGER);
"""
NEWER = """
CREATE TABLE messages (hash TEXT PRIMARY KEY, parent_hash TEXT, role TEXT, provider_metadata TEXT);
CREATE TABLE parts (
  id INTEGER PRIMARY KEY, message_hash TEXT, position INTEGER, type TEXT, tool_name TEXT, text TEXT, payload TEXT
);
CREATE TABLE part_fragments (part_id INTEGER, fragment_id INTEGER, "order" INTEGER);
CREATE TABLE threads (id TEXT PRIMARY KEY, name TEXT, tip_message_hash TEXT, forked_from TEXT, datetime_utc TEXT);
CREATE TABLE turns (
  id TEXT PRIMARY KEY, thread_id TEXT, parent_message_hash TEXT, tip_message_hash TEXT, model TEXT,
  resolved_model TEXT, options_json TEXT, schema_id TEXT, input_tokens INTEGER, output_tokens INTEGER,
  token_details TEXT, duration_ms INTEGER, datetime_utc TEXT
);
CREATE TABLE turn_search (turn_id TEXT PRIMARY KEY, prompt TEXT, response TEXT);
"""

Rows = list[tuple[str, dict[str, Any]]]

DETAILS = json.dumps({"prompt_tokens_details": {"cached_tokens": 60}})
FIRST: Rows = [
    ("conversations", {"id": "c1", "name": "Loaves of today", "model": "example-1"}),
    ("fragments", {"id": 1, "hash": "f", "content": "a list", "source": "list.txt"}),
    ("fragments", {"id": 2, "hash": "g", "content": "be kind"}),
    ("fragments", {"id": 3, "hash": "h", "content": "not used"}),
    ("attachments", {"id": "a1", "type": "image/png", "content": b"png"}),
    ("attachments", {"id": "a2", "type": "image/png", "url": "https://example.com/a.png"}),
    (
        "responses",
        {
            "id": "r1",
            "model": "example-1",
            "prompt": "How many loaves?",
            "system": "Be brief.",
            "prompt_json": '{"messages":["How many loaves?"]}',
            "response": "",
            "conversation_id": "c1",
            "datetime_utc": TIME,
            "input_tokens": 100,
            "output_tokens": 20,
            "token_details": DETAILS,
            "reasoning": "I look.",
            "resolved_model": "example-1-2026",
        },
    ),
    ("prompt_fragments", {"response_id": "r1", "fragment_id": 1, "order": 0}),
    ("system_fragments", {"response_id": "r1", "fragment_id": 2, "order": 0}),
    ("prompt_attachments", {"response_id": "r1", "attachment_id": "a2", "order": 1}),
    ("prompt_attachments", {"response_id": "r1", "attachment_id": "a1", "order": 0}),
    ("tools", {"id": 1, "hash": "t", "name": "look"}),
    ("tool_responses", {"tool_id": 1, "response_id": "r1"}),
    ("tool_calls", {"response_id": "r1", "name": "look", "arguments": '{"at": "shelf"}', "tool_call_id": "t1"}),
    ("tool_calls", {"response_id": "r1", "name": "look", "arguments": '{"at": "oven"}', "tool_call_id": None}),
]
SECOND: Rows = [
    (
        "responses",
        {
            "id": "r2",
            "model": "example-1",
            "prompt": "",
            "system": "Be brief.",
            "response": "Two loaves.",
            "conversation_id": "c1",
            "datetime_utc": TIME,
        },
    ),
    ("system_fragments", {"response_id": "r2", "fragment_id": 2, "order": 0}),
    ("tool_results", {"id": 1, "response_id": "r2", "name": "look", "output": "two", "tool_call_id": "t1"}),
    ("tool_results", {"id": 2, "response_id": "r2", "name": "look", "output": "no", "exception": "E"}),
    ("tool_results_attachments", {"tool_result_id": 2, "attachment_id": "a1", "order": 0}),
]
SAID = {
    ("text", "be kind"): 1,
    ("text", "Be brief."): 1,
    ("text", "a list"): 1,
    ("text", "How many loaves?"): 1,
    ("document", "cG5n"): 1,
    ("thinking", "I look."): 1,
    ("call", "look", '{"at":"shelf"}'): 1,
    ("call", "look", '{"at":"oven"}'): 1,
    ("result", "two"): 1,
    ("result", "no", "…"): 1,
    ("text", "Two loaves."): 1,
}


def message(hash: str, parent: str | None, role: str, *parts: dict[str, Any]) -> Rows:
    """Return the rows of a message."""
    rows: Rows = [("messages", {"hash": hash, "parent_hash": parent, "role": role})]
    for position, part in enumerate(parts):
        payload = json.dumps(part["payload"]) if "payload" in part else None
        rows.append(("parts", part | {"message_hash": hash, "position": position, "payload": payload}))
    return rows


def turn(id: str, parent: str, tip: str, **fields: Any) -> Rows:
    """Return the row of a call."""
    row = {"id": id, "thread_id": "c9", "parent_message_hash": parent, "tip_message_hash": tip, "model": "example-2"}
    return [("turns", row | {"datetime_utc": TIME} | fields)]


REFERENCE = {"text_ref": [{"fragment": 1}, {"literal": "\nand more"}]}
MESSAGES: Rows = [
    ("fragments", {"id": 1, "hash": "f", "content": "a list", "source": "list.txt"}),
    ("attachments", {"id": "a1", "type": "image/png", "content": b"png"}),
    *message("b2:1", None, "system", {"type": "text", "text": "Be brief."}),
    *message(
        "b2:2",
        "b2:1",
        "user",
        {"type": "text", "payload": REFERENCE},
        {"type": "attachment", "payload": {"attachment": {"id": "a1"}}},
    ),
    *message(
        "b2:3",
        "b2:2",
        "assistant",
        {"type": "reasoning", "text": "I look."},
        {"type": "tool_call", "payload": {"name": "look", "arguments": {"at": "shelf"}, "tool_call_id": "t1"}},
        {"type": "tool_call", "payload": {"name": "look", "arguments": {}, "tool_call_id": "t2"}},
    ),
    *turn("r3", "b2:2", "b2:3", input_tokens=10, output_tokens=5),
    ("threads", {"id": "c9", "name": "Loaves of today", "tip_message_hash": "b2:3"}),
]
REST: Rows = [
    *message(
        "b2:4",
        "b2:3",
        "user",
        {"type": "tool_result", "payload": {"name": "look", "output": "two", "tool_call_id": "t1"}},
        {"type": "tool_result", "payload": {"name": "look", "output": "no", "tool_call_id": "t2", "exception": "E"}},
    ),
    *message("b2:5", "b2:4", "assistant", {"type": "text", "text": "Two loaves."}),
    *turn("r4", "b2:4", "b2:5"),
    *message("b2:6", "b2:4", "assistant", {"type": "text", "text": "Two."}),
    *turn("r5", "b2:4", "b2:6"),
    ("turn_search", {"turn_id": "r4", "prompt": "", "response": "Two loaves."}),
]


def written(path: Path, schema: str, rows: Rows) -> bytes:
    """Write a database, and return what the file has."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(schema)
        for table, row in rows:
            columns = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(row.values()))
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a database of the older generation."""
    path = tmp_path / "logs.db"
    written(path, OLDER, FIRST + SECOND)
    return path


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Give a database of the newer generation."""
    path = tmp_path / "newer.db"
    written(path, OLDER + NEWER, MESSAGES + REST)
    return path


def test_responses_become_a_thread(path: Path) -> None:
    """With results where they were sent; a system prompt that stays the same is told once."""
    with TurnLog.open("memory://") as log:
        report = take(log, "llm", path)
        [head] = report.heads
        window = log.context(head)
        assert [(message.role, len(message.content)) for message in window.messages] == [
            ("system", 2),
            ("user", 4),
            ("assistant", 3),
            ("user", 2),
            ("assistant", 1),
        ]
        [answers] = log.turn(head).continues
        [called] = log.turn(answers).continues
        meta = log.turn(called).meta
    assert meta.usage == Usage(input_tokens=40, cache_read_input_tokens=60, output_tokens=20)
    assert (meta.model, report.sessions) == ("example-1-2026", ("c1",))
    assert [problem.what for problem in report.problems] == ["the bytes of attachment 'a2' are not in the database"]
    assert report.places == len(FIRST + SECOND)


@pytest.mark.parametrize("response", ["", None])
def test_response_that_says_nothing_is_a_turn(tmp_path: Path, response: str | None) -> None:
    """With what it took; the next question continues it."""
    path = tmp_path / "logs.db"
    empty = {"id": "r1", "prompt": "a?", "response": response, "conversation_id": "c1", "input_tokens": 100}
    written(path, OLDER, [("responses", empty), ("responses", {"id": "r2", "prompt": "b?", "conversation_id": "c1"})])
    check_importing("llm", path)
    with TurnLog.open("memory://") as log:
        [head] = take(log, "llm", path).heads
        turns = log.ancestry(head)
    assert [each.role for each in turns] == ["user", "assistant", "user", "assistant"]
    assert turns[1].meta.usage == Usage(input_tokens=100)


def test_all_of_responses_is_in_the_log(path: Path) -> None:
    """What is no text of a turn is an event of its table."""
    report, found = check_importing("llm", path)
    assert {said: count for said, count in found.items() if said[0] != "native"} == SAID
    assert [said[0] for said in found if said not in SAID] == ["native"]
    assert {name: count for name, count in report.pieces.items() if name in ("fragments", "tools", "responses")} == {
        "fragments": 3,
        "responses": 2,
        "tools": 1,
    }


def test_messages_become_threads(newer: Path) -> None:
    """An answer that was asked for twice is a branch."""
    with TurnLog.open("memory://") as log:
        report = take(log, "llm", newer)
        windows = [log.context(head).messages for head in report.heads]
        meta = log.turn(report.heads[0]).meta
    shape = [("system", 1), ("user", 2), ("assistant", 3), ("user", 2), ("assistant", 1)]
    assert [[(each.role, len(each.content)) for each in window] for window in windows] == [shape, shape]
    assert (meta.model, report.problems, report.sessions) == ("example-2", (), ("c9",))
    assert report.pieces["turns"] == 3
    assert "turn-search" not in report.pieces


def asked(hash: str, parent: str | None, text: str, role: str = "user") -> Rows:
    """Return the rows of a message of one text."""
    return message(hash, parent, role, {"type": "text", "text": text})


HELLO = [*asked("b2:u", None, "hello"), *asked("b2:a", "b2:u", "Hi.", "assistant")]
PIRATE = asked("b2:s", None, "You are a pirate.", "system")
TAX = [*asked("b2:t1", "b2:s", "tax"), *asked("b2:t2", "b2:t1", "Arr.", "assistant")]
CAKE = [*asked("b2:k1", "b2:s", "cake"), *asked("b2:k2", "b2:k1", "Aye.", "assistant")]
AGAIN = [
    *turn("r1", "b2:u", "b2:a", thread_id="c1", input_tokens=1),
    *turn("r2", "b2:u", "b2:a", thread_id="c2", input_tokens=2, datetime_utc="2026-02-10T17:25:00", model="other"),
]
PIRATES = [
    *turn("r3", "b2:t1", "b2:t2", thread_id="c3"),
    *turn("r4", "b2:k1", "b2:k2", thread_id="c4"),
]


def threads(path: Path) -> list[list[tuple[Any, ...]]]:
    """Import a database, and return its threads: role, session, model and tokens of each turn."""
    check_importing("llm", path)
    with TurnLog.open("memory://") as log:
        heads = take(log, "llm", path).heads
        chains = [log.ancestry(head) for head in heads]
    found: list[list[tuple[Any, ...]]] = []
    for chain in chains:
        metas = [turn.meta for turn in chain]
        found.append(
            [(m.role, m.origin and m.origin.session, m.model, m.usage and m.usage.input_tokens) for m in metas]
        )
    return found


def test_conversations_with_the_same_messages_are_threads(tmp_path: Path) -> None:
    """Each with its own calls, also where all that is said is the same."""
    path = tmp_path / "logs.db"
    written(path, NEWER + OLDER, [*HELLO, *PIRATE, *TAX, *CAKE, *AGAIN, *PIRATES])
    assert threads(path) == [
        [("user", "c1", None, None), ("assistant", "c1", "example-2", 1)],
        [("user", "c2", None, None), ("assistant", "c2", "other", 2)],
        [("system", "c3", None, None), ("user", "c3", None, None), ("assistant", "c3", "example-2", None)],
        [("system", "c4", None, None), ("user", "c4", None, None), ("assistant", "c4", "example-2", None)],
    ]


def test_same_reply_to_a_call_made_again_is_a_branch(tmp_path: Path) -> None:
    """In one conversation; a thread that was forked from one is of the same."""
    path = tmp_path / "logs.db"
    calls = [*turn("r1", "b2:u", "b2:a", input_tokens=1), *turn("r2", "b2:u", "b2:a", input_tokens=2)]
    fork = [("threads", {"id": "c9"}), ("threads", {"id": "f", "forked_from": "c9", "tip_message_hash": "b2:a"})]
    more = [*asked("b2:m", "b2:a", "more"), *turn("r3", "b2:m", "b2:m", thread_id="f", input_tokens=3)]
    written(path, NEWER + OLDER, [*HELLO, *calls, *fork, *more])
    with TurnLog.open("memory://") as log:
        assert len(take(log, "llm", path).roots) == 1
    assert [[tokens for *_, tokens in chain] for chain in threads(path)] == [[None, 1], [None, 2, None, 3]]


def test_call_that_said_nothing_is_a_turn(tmp_path: Path) -> None:
    """Without a message, or with an empty one; the next question continues it."""
    path = tmp_path / "logs.db"
    rows = [
        *asked("b2:u", None, "hello"),
        *turn("r1", "b2:u", "b2:u", input_tokens=1),
        *asked("b2:v", "b2:u", "hello?"),
        *asked("b2:w", "b2:v", "", "assistant"),
        *turn("r2", "b2:v", "b2:w", input_tokens=2),
    ]
    written(path, NEWER + OLDER, rows)
    [chain] = threads(path)
    assert [(role, tokens) for role, _, _, tokens in chain] == [
        ("user", None),
        ("assistant", 1),
        ("user", None),
        ("assistant", 2),
    ]


def test_all_of_messages_is_in_the_log(newer: Path) -> None:
    """Texts that borrow of fragments are whole."""
    _, found = check_importing("llm", newer)
    assert dict(found) == {
        ("text", "Be brief."): 1,
        ("text", "a list\nand more"): 1,
        ("document", "cG5n"): 1,
        ("thinking", "I look."): 1,
        ("call", "look", '{"at":"shelf"}'): 1,
        ("call", "look", "{}"): 1,
        ("result", "two"): 1,
        ("result", "no"): 1,
        ("text", "Two loaves."): 1,
        ("text", "Two."): 1,
    }


@pytest.mark.parametrize(
    ("schema", "parts"),
    [
        (OLDER, [FIRST, SECOND]),
        (OLDER + NEWER, [MESSAGES, REST]),
        (OLDER + NEWER, [[*HELLO, *AGAIN[:1]], AGAIN[1:]]),
        (OLDER + NEWER, [[*PIRATE, *TAX, *PIRATES[:1]], [*CAKE, *PIRATES[1:]]]),
    ],
    ids=["older", "newer", "the same later", "the same beginning later"],
)
def test_database_that_grows_adds_what_is_new(tmp_path: Path, schema: str, parts: list[Rows]) -> None:
    """Nothing twice."""
    path = tmp_path / "logs.db"
    wholes = [written(path, schema, [*parts[0], *rest]) for rest in ([], parts[1])]
    check_growing("llm", wholes, path)


def test_call_of_both_generations_is_there_once(tmp_path: Path) -> None:
    """Versions between the two wrote to both."""
    path = tmp_path / "logs.db"
    both = {"id": "r3", "prompt": "a list", "response": "x", "reasoning": "I look.", "conversation_id": "c9"}
    written(
        path, OLDER + NEWER, [*MESSAGES, ("responses", both), ("tool_calls", {"response_id": "r3", "name": "look"})]
    )
    _, found = check_importing("llm", path)
    assert (found["thinking", "I look."], found["text", "x"], found["call", "look", "{}"]) == (1, 0, 1)


def test_conversation_that_went_on_in_the_newer_tables_is_told(tmp_path: Path) -> None:
    """Once: `llm` copies what was said before, and so it comes in twice."""
    path = tmp_path / "logs.db"
    [thread] = {row["id"] for table, row in MESSAGES if table == "threads"}
    old = [("responses", {"id": f"old{n}", "prompt": "q", "response": "a", "conversation_id": thread}) for n in (1, 2)]
    written(path, OLDER + NEWER, [*MESSAGES, *old])
    report, _ = check_importing("llm", path)
    told = f"the conversation {thread!r} comes in twice: llm has copied it into its newer tables"
    assert sum(problem.what.startswith(told) for problem in report.problems) == 1


@pytest.mark.parametrize("text", ["Loaves of today", "How many loaves", "Two loaves", "a list", "cG5n", "be kind"])
def test_erased_thread_of_responses_is_gone(path: Path, tmp_path: Path, text: str) -> None:
    """With what its rows say again, its fragments and attachments."""
    check_erasing("llm", path, text, tmp_path)


@pytest.mark.parametrize("text", ["Loaves of today", "and more", "Two loaves", "a list", "cG5n"])
def test_erased_thread_of_messages_is_gone(newer: Path, tmp_path: Path, text: str) -> None:
    """Likewise."""
    check_erasing("llm", newer, text, tmp_path)


def test_what_a_server_answered_is_a_turn_that_answers(tmp_path: Path) -> None:
    """In a message of a model."""
    path = tmp_path / "logs.db"
    parts = [
        {"type": "tool_call", "payload": {"name": "search", "arguments": {}, "tool_call_id": "t1"}},
        {"type": "tool_result", "text": "found", "payload": {"name": "search", "tool_call_id": "t1"}},
        {"type": "new", "text": "?"},
    ]
    written(path, OLDER + NEWER, [*message("b2:1", None, "assistant", *parts), *message("b2:2", "gone", "user")])
    report, found = check_importing("llm", path)
    assert (found["call", "search", "{}"], found["result", "found"]) == (1, 1)
    assert [problem.what.partition(":")[0] for problem in report.problems] == [
        "the message 'b2",
        "a part of the unknown type 'new'",
    ]


def test_oldest_logs_are_read(tmp_path: Path) -> None:
    """The table that came before `responses`."""
    path = tmp_path / "logs.db"
    columns = "id INTEGER PRIMARY KEY, model TEXT, prompt TEXT, system TEXT, response TEXT, chat_id INTEGER"
    rows: Rows = [
        ("logs", {"id": 1, "prompt": "Hi", "response": "Hello", "chat_id": None}),
        ("logs", {"id": 2, "prompt": "Ho", "response": "Hello again", "chat_id": 1}),
    ]
    written(path, f"{OLDER} CREATE TABLE logs ({columns});", rows)
    with TurnLog.open("memory://") as log:
        [head] = take(log, "llm", path).heads
        assert [message.role for message in log.context(head).messages] == ["user", "assistant", "user", "assistant"]


def test_database_is_not_written_to(path: Path, tmp_path: Path) -> None:
    """Nothing is beside it either."""
    before = path.read_bytes(), path.stat().st_mtime_ns
    with TurnLog.open("memory://") as log:
        take(log, "llm", path)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before
    assert list(tmp_path.iterdir()) == [path]


def test_database_in_the_middle_of_a_write_is_refused(path: Path) -> None:
    """Until its writer has settled it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO schemas (id) VALUES ('s')")
        connection.commit()
        with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="locked or was left in the middle"):
            log.import_transcript("llm", path)
    with TurnLog.open("memory://") as log:
        assert take(log, "llm", path).pieces["schemas"] == 1


def test_link_to_a_database_in_the_middle_of_a_write_is_refused(path: Path, tmp_path: Path) -> None:
    """What is not settled lies beside the database, and not beside the link."""
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "logs.db"
    link.symlink_to(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("INSERT INTO schemas (id) VALUES ('s')")
        connection.commit()
        with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="locked or was left in the middle"):
            log.import_transcript("llm", link)
    with TurnLog.open("memory://") as log:
        assert take(log, "llm", link).pieces["schemas"] == 1


def test_damaged_database_is_refused(path: Path) -> None:
    """In one line."""
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with (
        TurnLog.open("memory://") as log,
        pytest.raises(FormatError, match=r"cannot be read: .*; nothing was imported"),
    ):
        log.import_transcript("llm", path)


def test_text_that_is_no_utf8_is_reported(path: Path) -> None:
    """With the number of its row."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE responses SET response = CAST(x'ff61' AS TEXT) WHERE id = 'r2'")
    report, found = check_importing("llm", path)
    assert found["text", "�a"] == 1
    assert sum("not UTF-8" in problem.what for problem in report.problems) == 1


TEXTS = [
    "CREATE TABLE fragments (id INTEGER PRIMARY KEY, content TEXT)",
    "CREATE TABLE fragments (id TEXT PRIMARY KEY, content TEXT) WITHOUT ROWID",
    'CREATE TABLE fragments (id TEXT, content, "rowid" TEXT)',
    "CREATE TABLE fragments (id, content TEXT, output TEXT GENERATED ALWAYS AS (content || 'a') STORED)",
    "PRAGMA encoding = 'UTF-16'; CREATE TABLE fragments (id INTEGER, content TEXT)",
]


@pytest.mark.parametrize("table", TEXTS)
@pytest.mark.parametrize("bytes_max", [8, 12])
def test_long_text_is_what_it_is_when_it_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, bytes_max: int
) -> None:
    """It is read in pieces, where its row has a number: also when it is not UTF-8, and when others are longer."""
    path = tmp_path / "logs.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(f"{table}; CREATE TABLE logs (id); CREATE TABLE _llm_migrations (name)")
        texts = [
            "e\N{COMBINING ACUTE ACCENT}\N{SLIGHTLY SMILING FACE}" * 3,
            '"a"\n\0' * 8,
            "b" * 40,
            "a",
            "",
            None,
            5,
            0.5,
            b"\xff" * 20,
        ]
        connection.executemany("INSERT INTO fragments (id, content) VALUES (?, ?)", enumerate(texts))
        connection.execute("INSERT INTO fragments (id, content) VALUES (99, CAST(x'c3a4c3616161616161ff' AS TEXT))")
    short = llm_database.read(path)
    monkeypatch.setattr(llm_database, "PIECE", bytes_max)
    monkeypatch.setattr(llm_database, "_LONG_MAX", 2)
    assert llm_database.read(path) == short
    assert bool(short.misspelled) is ("UTF-16" not in table)


def test_is_found_by_its_tables(path: Path, newer: Path, tmp_path: Path) -> None:
    """Another database is none of it."""
    importer = formats.get("llm")
    other = tmp_path / "other.db"
    written(other, "CREATE TABLE responses (id);", [])
    found = [importer.recognizes(each, each.read_bytes()) for each in (path, newer, other)]
    assert found == [True, True, False]
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="it has other tables"):
        log.import_transcript("llm", other)
    other.write_text("no")
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="no SQLite database"):
        log.import_transcript("llm", other)


def test_bytes_in_the_place_of_text_are_no_text(tmp_path: Path) -> None:
    """They are kept in base64 beside the turns, and told with their row."""
    path = tmp_path / "logs.db"
    answer = {"id": "r1", "prompt": b"\xffhi", "system": b"\xfe", "response": b"\xfd", "reasoning": "I look."}
    rows: Rows = [
        ("fragments", {"id": 1, "hash": "f", "content": b"\xfc"}),
        ("responses", {"model": "example-1", "datetime_utc": TIME, **answer}),
        ("prompt_fragments", {"response_id": "r1", "fragment_id": 1, "order": 0}),
    ]
    written(path, OLDER, rows)
    report, said = check_importing("llm", path)
    assert said == {("thinking", "I look."): 1}
    assert sorted(problem.what for problem in report.problems) == [
        "'content' of 'fragments' is bytes, and no text: kept in base64, it is in no turn",
        "'prompt' of 'responses' is bytes, and no text: kept in base64, it is in no turn",
        "'response' of 'responses' is bytes, and no text: kept in base64, it is in no turn",
        "'system' of 'responses' is bytes, and no text: kept in base64, it is in no turn",
        "the fragment 1 is no text: it is in no turn",
    ]
    with TurnLog.open("memory://") as log:
        take(log, "llm", path)
        with log.store.read() as transaction:
            kept = b"".join(transaction.payload(each) or b"" for each in transaction.log())
    for value in ("/2hp", "/g==", "/Q==", "/A=="):
        assert b'{"base64":"' + value.encode() + b'"}' in kept


@pytest.mark.parametrize("time", ["yesterday", "7"])
def test_time_that_is_none_is_told(tmp_path: Path, time: str) -> None:
    """For each turn of the row, by its spelling."""
    path = tmp_path / "logs.db"
    row = {"id": "r1", "model": "example-1", "prompt": "Hi.", "response": "Hello.", "datetime_utc": time}
    written(path, OLDER, [("responses", row)])
    report, _ = check_importing("llm", path)
    assert {problem.what for problem in report.problems} == {f"{time!r} is not a time: the turn is without one"}
