"""`turnlog add`, `document` and `bookmarks`."""

from pathlib import Path

import pytest
from tests.cli.command import Command, as_json, turn_id, write_conversation

from turnlog import TurnLog

A, B = turn_id("first"), turn_id("second")


def test_add_records_a_turn_and_prints_the_record(turnlog: Command) -> None:
    """`--json` prints what `TurnLog.add_turn` returned, options and bookmark resolved."""
    turnlog.ok("add", "Hello", "-b", "main", "--id", A)
    options = ("-c", "main", "-p", "kilo", "--servers", "a,b", "--server", "c", "--no-search", "--tool-mode", "auto")
    record = turnlog.ok(
        "add", "Hi", "--role", "assistant", *options, "--inherited", '{"depth":{"n":1}}', "--cache", "--json"
    ).json
    with TurnLog.open(turnlog.url, create=False) as log:
        assert record == as_json(log.turn("main").to_record())
    assert record["meta"] == {
        "cache": True,
        "role": "assistant",
        "content_type": "application/json",
        "inherited": {"depth": {"n": 1}, "provider_ptr": "kilo", "search": False, "servers": ["a", "b", "c"]}
        | {"tool_mode": "auto"},
        "head": "main",
        "continues": [A],
    }


def test_add_tells_people_what_it_did(turnlog: Command) -> None:
    """Without `--json` there is one line, beginning with the id."""
    assert turnlog.ok("add", "Hello", "-b", "main", "--id", A).text == f"{A}  user turn on main, a new thread\n"
    assert turnlog.ok("add", "Go on", "-r", "--no-bookmark", "--id", B).text == f"{B}  user turn, continues {A}\n"


@pytest.mark.parametrize("argument", [(), ("-",)])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_add_reads_standard_input_and_drops_one_line_end(
    turnlog: Command, argument: tuple[str, ...], end: bytes
) -> None:
    """All but the last one is kept as it came."""
    turn = turnlog.ok("add", *argument, "--json", stdin=b" a\r\n\tb\n" + end).json
    assert turnlog.ok("cat", turn["id"]).stdout == rb'[{"type":"text","text":" a\r\n\tb\n"}]'


def test_add_takes_blocks_as_json(turnlog: Command) -> None:
    """With `--blocks` content is parsed and kept in its order and spelling."""
    blocks = b'[ {"type":"tool_use", "id":"t1","name":"ls","input":{"z":1.0,"a":[]}} ]\n'
    turn = turnlog.ok("add", "--blocks", "--json", stdin=blocks).json
    assert (
        turnlog.ok("cat", turn["id"]).stdout == b'[{"type":"tool_use","id":"t1","name":"ls","input":{"z":1.0,"a":[]}}]'
    )


def test_empty_servers_are_an_empty_list(turnlog: Command) -> None:
    """`--servers ''` sets no servers, which is not the same as saying nothing."""
    assert turnlog.ok("add", "x", "--servers", "", "--json").json["meta"]["inherited"] == {"servers": []}


def test_text_after_two_dashes_is_content(turnlog: Command) -> None:
    """Even what looks like an option of every command."""
    turn = turnlog.ok("add", "--json", "--", "--json").json
    assert turnlog.ok("cat", turn["id"]).stdout == b'[{"type":"text","text":"--json"}]'


def test_store_is_named_before_or_after_the_command(turnlog: Command, tmp_path: Path) -> None:
    """`--store` wins over the environment, wherever it stands."""
    other = f"sqlite:///{tmp_path / 'other.db'}"
    turnlog.ok("--store", other, "add", "x", "--id", A)
    assert turnlog.ok("show", A, f"--store={other}", "--json").json["id"] == A
    assert turnlog.ok("bookmarks", "--store", other, "--json", "set", "main", A).json == {"name": "main", "turn": A}
    assert not turnlog.store.exists()


def test_store_is_in_the_data_folder_by_default(turnlog: Command, tmp_path: Path) -> None:
    """Without `--store` and `TURNLOG_STORE` the store is a file of the user's data folder."""
    turnlog.ok("add", "x", TURNLOG_STORE="")
    assert (tmp_path / "data" / "turnlog" / "log.db").is_file()


def test_name_of_a_file_as_text_is_recorded_and_told(turnlog: Command, tmp_path: Path) -> None:
    """A text may be the name of a file; whoever meant the file is told how to record that."""
    path = tmp_path / "my notes.md"
    path.write_text("x")
    told = turnlog("add", path, "-b", "main")
    line = (
        f"turnlog: this is the name of a file, and was recorded as text: `turnlog document '{path}'` records the file\n"
    )
    assert (told.status, told.stderr) == (0, line)
    assert turnlog.ok("cat", "main").json == [{"type": "text", "text": str(path)}]
    assert turnlog.ok("add", "x" * 100_000).text.endswith("a new thread\n")


def test_document_records_a_file(turnlog: Command, tmp_path: Path) -> None:
    """The payload is the file's bytes; name, type, path and size are recorded."""
    path = tmp_path / "notes.md"
    path.write_bytes(b"# Notes\r\n\xff")
    record = turnlog.ok("document", path, "-b", "docs", "--id", A, "--json").json
    assert record["meta"] == {
        "cache": False,
        "role": "user",
        "content_type": "text/markdown",
        "head": "docs",
        "type": "document",
        "document_name": "notes.md",
        "original_path": str(path),
        "file_size": 10,
        "continues": [],
    }
    assert turnlog.ok("cat", "docs").stdout == b"# Notes\r\n\xff"
    again = turnlog.ok("document", path, "-c", "docs", "--content-type", "text/plain", "--name", "N", "--id", B)
    assert again.text == f"{B}  N (text/plain, 10 B) on docs, continues {A}\n"


def test_bookmarks_are_set_renamed_listed_and_deleted(turnlog: Command) -> None:
    """Each change is one event, and the list is by name."""
    ids = write_conversation(turnlog.url)
    set_ = turnlog.ok("bookmarks", "set", "again", "try", "--expected-head", "none", "--json")
    assert set_.json == {"name": "again", "turn": ids["c"]}
    assert turnlog.ok("bookmarks", "rename", "try", "tried").text == f"tried  {ids['c']}\n"
    assert turnlog.ok("bookmarks", "delete", "again", "--json").json == {"name": "again", "turn": None}
    assert turnlog.ok("bookmarks", "--json").json_lines == [
        {"name": "main", "turn": ids["e"]},
        {"name": "tried", "turn": ids["c"]},
    ]


@pytest.mark.parametrize(
    ("arguments", "stdin", "line"),
    [
        (("--role", "robot", "x"), b"", "role: 'robot' is unknown (one of user, assistant, system)"),
        (
            ("x", "-b", "m", "--no-bookmark"),
            b"",
            "--bookmark and --no-bookmark contradict each other: give one of them",
        ),
        (("x", "--id", ""), b"", "id: '' is not a SCRU128 id (25 characters, 0-9 and a-z)"),
        (("x", "--inherited", "[1]"), b"", """--inherited must be a JSON object, such as '{"search": true}'"""),
        (("x", "--inherited", '{"a":1,"b":{"a":2},"a":3}'), b"", "--inherited: a record has the key 'a' twice"),
        (("x", "--inherited", "[" * 2000 + "]" * 2000), b"", "--inherited is nested too deeply"),
        (("--blocks", '[{"type":"text"}]'), b"", "content[0]: object missing required field 'text'"),
        (
            ("x", "y"),
            b"",
            "unexpected argument 'y' for 'add' (put text of several words in quotes: turnlog add 'a b'):"
            " see turnlog add --help",
        ),
        (("x", "--rol", "user"), b"", "unknown option --rol for 'add', did you mean --role: see turnlog add --help"),
        (
            ("-5 degrees",),
            b"",
            "unknown option -5 degrees for 'add' (put -- before text that begins with a dash): see turnlog add --help",
        ),
        (("x", "-c"), b"", "option -c needs a value for 'add': see turnlog add --help"),
        (("x", "--store"), b"", "option --store needs a value for 'add': see turnlog add --help"),
        (
            (),
            b"",
            "standard input is empty: nothing was recorded (turnlog add '' records an empty text)",
        ),
        (
            (),
            b"caf\xe9",
            "standard input is not UTF-8 (byte 3): `turnlog document PATH` records a file of any kind",
        ),
    ],
)
def test_add_refuses_bad_input_with_one_line(
    turnlog: Command, arguments: tuple[str, ...], stdin: bytes, line: str
) -> None:
    """Exit status 2, nothing on standard output, and a line that says what to do."""
    assert turnlog.refused("add", *arguments, stdin=stdin) == line


def test_what_is_to_be_continued_must_be_there(turnlog: Command) -> None:
    """The line says where it was looked, also where there is no store yet."""
    assert turnlog.refused("add", "x", "-c", "nope") == turnlog.absent("nope")
    assert not turnlog.store.exists()
    turnlog.ok("add", "x")
    assert turnlog.refused("add", "x", "-c", "nope") == turnlog.absent("nope")


def test_what_bookmarks_there_are_is_said_where_one_is_not(turnlog: Command) -> None:
    """With the store that has none of that name."""
    turnlog.ok("add", "x")
    line = f"no bookmark 'nope'; `turnlog bookmarks` lists what there is in {str(turnlog.store)!r}"
    assert turnlog.refused("bookmarks", "rename", "nope", "x") == line
    assert turnlog.refused("bookmarks", "delete", "nope") == line


def test_a_stale_head_is_refused(turnlog: Command) -> None:
    """`--expected-head` records nothing when the bookmark has moved."""
    ids = write_conversation(turnlog.url)
    line = turnlog.refused("add", "x", "-c", "main", "--expected-head", ids["d"])
    assert line == (f"bookmark 'main' is at {ids['e']!r}, expected {ids['d']!r}: read what is new and try again")
    line = turnlog.refused("add", "x", "-b", "main", "--expected-head", "none")
    assert line == f"bookmark 'main' is there already, at {ids['e']!r}: name another one, or go on from it"
    line = turnlog.refused("add", "x", "-b", "mian", "--expected-head", ids["e"])
    assert line == f"there is no bookmark 'mian', expected at {ids['e']!r}: it was deleted, or has another name"
    line = turnlog.refused("add", "x", "--no-bookmark", "--expected-head", "none")
    assert line == "this turn would move no bookmark, expected to make one: name it"
    with TurnLog.open(turnlog.url) as log:
        assert log.turn("main").id == ids["e"]


def test_document_refuses_what_it_cannot_record(turnlog: Command, tmp_path: Path) -> None:
    """A missing file, a folder, and a file that is too large."""
    path = tmp_path / "large.bin"
    path.write_bytes(b"1234")
    assert turnlog.refused("document", tmp_path / "none") == f"there is no file {str(tmp_path / 'none')!r}"
    assert not turnlog.store.exists()
    assert "is a folder" in turnlog.refused("document", tmp_path)
    assert "document_name: '' is no name" in turnlog.refused("document", path, "--name", "")
    assert turnlog.refused("document", path, "--max-bytes", "3") == (
        f"document {str(path)!r} has 4 bytes, more than the limit of 3: raise the limit or split it"
    )


def test_a_bookmark_that_hides_a_turn_is_told(turnlog: Command) -> None:
    """Once, where its name meant a turn; and not where nothing was recorded."""
    first = turnlog.ok("add", "one", "-b", "ferry", "--json").json["id"]
    turnlog.ok("add", "two", "-c", "ferry")

    def hides(*arguments: str, name: str = "ferry~1") -> bool:
        told = turnlog(*arguments).stderr
        assert told in ("", f"turnlog: {name!r} means this bookmark from now on, and not turn {first} any more\n")
        return bool(told)

    assert [hides("add", "other", "-b", "ferry~1"), hides("add", "more", "-b", "ferry~1")] == [True, False]
    turnlog.ok("bookmarks", "rename", "ferry~1", "other")
    assert [hides("bookmarks", "set", "ferry~1", "ferry"), hides("bookmarks", "delete", "ferry~1")] == [True, False]
    assert [hides("bookmarks", "rename", "other", "ferry~7"), hides("bookmarks", "rename", "ferry~7", "ferry~1")] == [
        False,
        True,
    ]
    assert "role: 'robot'" in turnlog.refused("add", "x", "--role", "robot", "-b", first[:20])
    assert hides("add", "x", "-b", first[:20], name=first[:20])


@pytest.mark.parametrize(
    "line", [("run", "x", "--system", "-"), ("add", "x", "--tool-mode", "-"), ("run", "x", "--schema", "-")]
)
def test_an_option_that_takes_no_standard_input_says_so(turnlog: Command, line: tuple[str, ...]) -> None:
    """A dash is never recorded as what it stands for within."""
    assert turnlog.refused(*line, stdin=b"said") == f"{line[2]} -: it takes no standard input, write it here"
    assert not turnlog.store.exists()
