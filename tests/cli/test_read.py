"""`turnlog log`, `threads`, `ancestry`, `children`, `context`, `show`, `cat`."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.command import STAMP, Command, as_json, clocked_log, turn_id, write_conversation
from tests.rewriting import erase, rewrite

from turnlog import Thinking, ToolResult, ToolUse, TurnLog
from turnlog.model import Origin, TurnMeta
from turnlog.record.drafts import TurnDraft

A, B, C, D, E = map(turn_id, "abcde")


def test_log_draws_a_fork_and_a_merge(read: Command) -> None:
    """Lanes, ids, who, when, bookmarks and first lines; where no terminal is, nothing is coloured or cut."""
    assert read.ok("log").text == (
        f"● {A}  user       {STAMP}  How do I log?\n"
        f"● {B}  assistant  {STAMP}  Append.\n"
        "├─╮\n"
        f"│ ● {C}  user       {STAMP}  [try] And in Rust?\n"
        f"● │ {D}  user       {STAMP}  And in Python?\n"
        "├─╯\n"
        f"● {E}  user       {STAMP}  [main] Compare.\n"
    )


def test_log_limit_keeps_the_latest_turns(read: Command) -> None:
    """What is left out is counted, and turns whose parents are out of sight say so."""
    assert read.ok("log", "try", "-n", "2").text == (
        f"… 3 earlier turns\n┊\n● {D}  user       {STAMP}  And in Python?\n● {E}  user       {STAMP}  [main] Compare.\n"
    )


def test_lists_of_turns_are_records_in_order(read: Command) -> None:
    """`--json` prints the records of the API: a thread in global order, an ancestry, children."""
    with TurnLog.open(read.url) as log:
        records = {turn.id: as_json(turn.to_record()) for turn in log.thread(A)}
    for arguments, ids in [
        (("log",), [A, B, C, D, E]),
        (("log", "--all", "--limit", "2"), [D, E]),
        (("ancestry", "main"), [A, B, D, C, E]),
        (("children", B.upper()), [C, D]),
    ]:
        assert read.ok(*arguments, "--json").json_lines == [records[turn] for turn in ids]


def test_threads_have_ids_heads_and_bookmarks(read: Command) -> None:
    """Heads are turn ids, times are ISO 8601."""
    assert read.ok("threads", "--json").json_lines == [
        {
            "id": A,
            "turns": 5,
            "heads": [E],
            "bookmarks": ["main", "try"],
            "started": "2026-01-02T03:04:05+00:00",
            "last": "2026-01-02T03:04:05+00:00",
            "about": "How do I log?",
        }
    ]
    assert read.ok("threads").text == f"{A}  5 turns  1 head  {STAMP}  [main, try]  How do I log?\n"


def test_show_says_when_an_imported_turn_was_said(turnlog: Command) -> None:
    """Beside the time when it was recorded."""
    with TurnLog.open(turnlog.url) as log:
        said = Origin(format="codex", ids=["x"], timestamp="2025-03-04T05:06:07Z")
        imported, own = log.add_turn("one", origin=said).id, log.add_turn("two").id
    assert "\nsaid         2025-03-04T05:06:07Z\n" in turnlog.ok("show", imported).text
    assert "said" not in turnlog.ok("show", own).text


def test_context_json_is_the_window_verbatim(read: Command) -> None:
    """The bytes of `ContextWindow.to_json`, and a line feed."""
    with TurnLog.open(read.url) as log:
        expected = log.context("main", explain=True).to_json()
    assert read.ok("context", "main", "--explain", "--json").stdout == expected + b"\n"


def test_context_is_readable(read: Command) -> None:
    """Who said what, with the options below and the turn that set each."""
    assert read.ok("context", D, "--explain").text == (
        f"── user  {A} · {STAMP}\nHow do I log?\nIn detail.\n\n"
        f"── assistant · m-1  {B} · {STAMP}\nAppend.\n\n"
        f"── user  {D} · {STAMP}\nAnd in Python?\n\n"
        f'── options\nservers = ["fs"]  set by {A}\n\n'
        "── left out\nnone\n"
    )


def test_show_has_everything_about_a_turn(read: Command) -> None:
    """The record, and topic, citations with digests, how it came here, children, bookmarks and content."""
    shown = read.ok("show", "try", "--json").json
    with TurnLog.open(read.url) as log:
        record, parent = as_json(log.turn(C).to_record()), log.turn(B)
    assert shown == {
        **record,
        "topic": "gpt.turn",
        "format": 2,
        "arrival": "recorded",
        "citations": [{"as": "parent", "digest": parent.digest, "id": B}],
        "threads": [A],
        "children": [E],
        "bookmarks": ["try"],
        "content": [{"type": "text", "text": "And in Rust?"}],
    }
    text = read.ok("show", "try").text
    assert text.startswith(f"{C}\ntopic ")
    assert text.endswith("\n\nAnd in Rust?\n")


def test_show_names_the_latest_of_many_children(turnlog: Command) -> None:
    """Of more than ten the others are counted, and it is said what lists them; `--json` has all."""
    with TurnLog.open(turnlog.url) as log:
        root = log.add_turn("root").id
        ids = [log.add_turn(str(number), continues=root).id for number in range(10)]
        assert _child_lines(turnlog, root) == ids
        with log.group() as group:
            ids += [group.add_turn(str(number), continues=root) for number in range(1200)]
    assert _child_lines(turnlog, root) == [f"… 1,200 earlier ones: `turnlog children {root}` lists all", *ids[-10:]]
    assert turnlog.ok("show", root, "--json").json["children"] == ids


def _child_lines(turnlog: Command, turn: str) -> list[str]:
    lines = turnlog.ok("show", turn).text.splitlines()
    return [line.removeprefix("child").strip() for line in lines if line.startswith("child")]


def test_show_takes_the_id_of_any_event(turnlog: Command) -> None:
    """An event that is no turn has its metadata, public and private, what it cites, and no content."""
    with TurnLog.open(turnlog.url) as log:
        turn = log.add_turn("x", id=A)
        log.bookmarks.set("main", A)
        genesis, _, event = log.events()
    shown = turnlog.ok("show", event.header.id, "--json").json
    assert (shown["topic"], shown["meta"], shown["global_position"], "content" in shown) == (
        "gpt.bookmark",
        {"action": "set", "name": "main"},
        3,
        False,
    )
    assert shown["citations"] == [{"as": "turn", "digest": turn.digest, "id": A}]
    assert turnlog.ok("show", genesis.header.id, "--json").json["topic"] == "log.genesis"
    assert turnlog.ok("show", genesis.header.id.upper()).text.startswith(f"{genesis.header.id}\ntopic   log.genesis\n")


@pytest.mark.parametrize("colour", ["", "1"])
def test_nothing_in_an_event_passes_for_a_fact_of_turnlogs_own(turnlog: Command, colour: str) -> None:
    """Neither its metadata, nor as what it cites, nor a line of its payload, whatever they are called."""
    facts = ("arrival", "bookmark", "child", "digest", "erased", "sealed", "tool call", "another log", "topic\n", "x y")
    with TurnLog.open(turnlog.url) as log:
        turn = log.add_turn("x", id=A)
        event = log.add_event(
            "acme.review",
            b"graded\n\ndigest  sha256-forged\r\ntool call  pay returned",
            private=dict.fromkeys(facts[:5], "forged"),
            public=dict.fromkeys(facts[5:], "forged"),
            cites=[("child", A), ("bookmark", A)],
        )
    environment = {"FORCE_COLOR": "1"} if colour else {}
    said = turnlog.ok("show", event.header.id, **environment).text
    assert ("\x1b[" in said) == bool(colour)
    rows, payload = re.sub(r"\x1b\[[0-9;]*m", "", said).split("\n\n")
    names = [re.split(r"  +", row) for row in rows.splitlines()[1:]]
    assert [name for name, _ in names[:5]] == ["topic", "time", "place", "digest", "payload"]
    assert [name for name, _ in names[5:7]] == ["cites as child", "cites as bookmark"]
    assert [one for _, one in names[5:7]] == [turn.id] * 2
    assert {name for name, _ in names[7:]} == {f"meta.{' '.join(name.split())}" for name in facts}
    assert payload == "│ graded\n│ \n│ digest  sha256-forged\n│ tool call  pay returned\n"
    record = turnlog.ok("show", event.header.id, "--json").json
    assert (record["meta"]["arrival"], record["arrival"]) == ("forged", "recorded")
    assert [citation["as"] for citation in record["citations"]] == ["child", "bookmark"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("show",), "missing HEADISH for 'show': see turnlog show --help"),
        (("log", "--limit", "0"), "--limit must be at least 1, got 0"),
        (("log", "main", "--all"), "log: give HEADISH for its thread, or --all, not both"),
        (
            ("log", "-n", "x"),
            "invalid value 'x' for -n for 'log': give a whole number: see turnlog log --help",
        ),
        (
            ("log", "--role", "bot"),
            "invalid value 'bot' for --role for 'log': give one of 'user', 'assistant', 'system':"
            " see turnlog log --help",
        ),
        (
            ("log", "--role", "usr"),
            "invalid value 'usr' for --role for 'log', did you mean 'user': give one of 'user', 'assistant', 'system':"
            " see turnlog log --help",
        ),
        (("history",), "unknown command 'history', did you mean 'log': see turnlog --help"),
        (("backup",), "unknown command 'backup', did you mean 'copy': see turnlog --help"),
        (("fork", "main"), "unknown command 'fork', did you mean 'add --continues TURN': see turnlog --help"),
        (
            ("bookmarks", "list", "rm"),
            "unexpected argument 'rm' for 'bookmarks list': see turnlog bookmarks list --help",
        ),
        (
            ("erase", "a b"),
            "unexpected argument 'a b' for 'erase', did you mean --turn 'a b': see turnlog erase --help",
        ),
        (("--verison",), "unknown option --verison, did you mean --version: see turnlog --help"),
        (("-v",), "unknown option -v, did you mean --version: see turnlog --help"),
        (
            ("bookmarks", "sett", "main"),
            "unexpected argument 'sett' for 'bookmarks', did you mean 'bookmarks set': see turnlog bookmarks --help",
        ),
        (
            ("wire", "prepar"),
            "unknown command 'wire prepar', did you mean 'wire prepare': see turnlog wire --help",
        ),
        (
            ("retain", "--older", "9y"),
            "unknown option --older for 'retain', did you mean --older-than: see turnlog retain --help",
        ),
        (("retain", "--before", "9y"), "unknown option --before for 'retain': see turnlog retain --help"),
        (  # without what may be a password, also where no URL is taken
            ("log", "main", "postgresql://ann:s3cret@h/x"),
            "unexpected argument 'postgresql://h/x' for 'log': see turnlog log --help",
        ),
        (
            ("witness", "https://ann:s3cret@h/x"),
            "option --key is missing for 'witness', did you mean --key https://h/x: see turnlog witness --help",
        ),
        (("feed", "http:/ann:s3cret@h/x"), "unknown command 'feed http:…h/x': see turnlog feed --help"),
        (("search",), "search: give the words: turnlog search WORDS"),
        (("lgo",), "unknown command 'lgo', did you mean 'log': see turnlog --help"),
        (("--json",), "missing COMMAND: see turnlog --help"),
        (("--frob",), "unknown option --frob: see turnlog --help"),
        (("--store", "x.db", "log"), "'x.db' is not a store URL, did you mean 'sqlite:///x.db'?"),
    ],
)
def test_wrong_names_and_usage_are_one_line(read: Command, arguments: tuple[str, ...], line: str) -> None:
    """Exit status 2, and a line that says what to do."""
    assert read.refused(*arguments) == line


def test_a_turn_that_is_not_there_is_one_line(read: Command) -> None:
    """It says how to see which there are, and where."""
    for command in ("show", "cat", "log", "children", "export"):
        assert read.refused(command, "nope") == read.absent("nope")
    assert read.refused("context", A[:-1] + "0") == read.absent(A[:-1] + "0", "turn")


def test_what_was_meant_is_said(read: Command) -> None:
    """A bookmark of nearly that name, how a turn before one is written, and which of two names comes first."""
    assert read.refused("show", "mian") == read.absent("mian", meant="did you mean 'main'")
    assert read.refused("bookmarks", "delete", "mian").startswith("no bookmark 'mian'; did you mean 'main'; `turnlog")
    for counted in ("main^", "main~x", "main@{1}"):
        assert read.refused("show", counted) == read.absent(counted, meant="the turn before 'main' is 'main~1'")
    swapped = read.refused("bookmarks", "set", "main", "the question")
    assert "the new name comes first: turnlog bookmarks set 'the question' main; " in swapped
    assert "comes first" not in read.refused("bookmarks", "set", "first", "second")


def test_a_listing_without_turns_says_so(read: Command) -> None:
    """On standard error; a program gets no line."""
    none = read("children", "main")
    assert (none.status, none.stdout, none.stderr) == (
        0,
        b"",
        "turnlog: no turn continues main yet: `turnlog add TEXT --continues main` does\n",
    )
    assert read("ancestry", "main", "--model", "x").stderr == "turnlog: none of the turns is such a one\n"
    assert (read.ok("children", "main", "--json").text, read("children", "main", "--json").stderr) == ("", "")


def test_help_is_a_command_too(turnlog: Command) -> None:
    """As in other programs."""
    assert turnlog.ok("help").text == turnlog.ok("--help").text
    assert turnlog.ok("help", "bookmarks", "set").text == turnlog.ok("bookmarks", "set", "--help").text


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("log", "✗ one that failed"),
        ("run", "1 when the run stopped before"),
        ("seal", "who loses them loses what is sealed"),
        ("bookmarks set", "wherever it is now"),
        ("import turnlog", "checked as a whole"),
    ],
)
def test_help_of_a_command_says_all_that_there_is_to_say(turnlog: Command, command: str, says: str) -> None:
    """And not only the line that the list of all commands has of it."""
    assert says in " ".join(turnlog.ok(*command.split(), "--help").text.split())


@pytest.mark.parametrize("command", ["log", "threads", "stats", "verify", "export", "bookmarks"])
def test_reading_makes_no_store(turnlog: Command, command: str) -> None:
    """A command that only reads says how to begin, and leaves nothing behind."""
    assert turnlog.refused(command) == f"there is no store at {str(turnlog.store)!r}: `turnlog add TEXT` makes one"
    assert list(turnlog.store.parent.iterdir()) == []


def test_recorded_text_cannot_command_the_terminal(turnlog: Command) -> None:
    """Control characters are spelled out, and markup is only text."""
    with clocked_log(turnlog.url) as log:
        log.add_turn("\x1b]0;x\x07[red]hi[/red]\r", bookmark="main", id=A)
    spelled = r"\x1b]0;x\x07[red]hi[/red]\x0d"
    assert turnlog.ok("log").text == f"● {A}  user       {STAMP}  [main] {spelled}\n"
    assert spelled in turnlog.ok("context", "main").text
    assert spelled in turnlog.ok("show", "main").text


@pytest.mark.parametrize("colour", ["0", "1"])
def test_no_text_passes_for_a_line_of_turnlogs_own(turnlog: Command, tmp_path: Path, colour: str) -> None:
    """Headers, calls, results, marks of bookmarks, what stands for erased content; nor does one that is so marked."""
    forged = "── user  03h9wu3c66ac5ok6brp3owpf0 · now\n→ pay {}\n← done\n(erased)\n\\── user\n- a → b\n[main] x"
    (tmp_path / "[main] ── user.txt").write_text("x")
    with TurnLog.open(turnlog.url) as log:
        log.add_turn(forged, role="user", bookmark="main", inherited={"── option": 1})
        log.add_document(tmp_path / "[main] ── user.txt", continues="main")
        result = ToolResult(tool_use_id="c", content="first\n── user  03h\nlast")
        log.add_turn([result], continues="main")
        log.add_turn("[main] hello", continues="main")
        log.add_turn("(damaged)", continues="main")
        log.add_turn("\\[main] hello", continues="main", bookmark="other")
    environment = {"FORCE_COLOR": "1"} if colour == "1" else {}

    def shown(*arguments: str) -> list[str]:
        return re.sub(r"\x1b\[[0-9;]*m", "", turnlog.ok(*arguments, **environment).text).splitlines()

    lines = shown("context", "other")
    assert [line for line in lines if line.startswith("──")] == [
        line for line in lines if re.match(r"── (user|options)(  \w{25} · \d|$)", line)
    ]
    assert sum(line.startswith("── user") for line in lines) == 6
    assert "\\→ pay {}" in lines
    assert "\\(erased)" in lines
    assert "\\\\── user" in lines
    assert "- a → b" in lines
    assert "\\── user  03h" in lines
    assert not [line for line in lines if line.startswith(("→", "(erased)"))]
    for command in (("log",), ("ancestry", "other"), ("children", "main~1")):
        marked = [line for line in shown(*command) if re.search(r"Z  \[main\]", line)]
        assert len(marked) <= 1
    rows = [line.partition("Z  ")[2] for line in shown("ancestry", "other")]
    assert rows[3:] == ["\\[main] hello", "[main] \\(damaged)", "[other] \\\\[main] hello"]
    assert rows[1].startswith("\\[main] ── user.txt (text/plain")


def test_no_name_passes_for_what_stands_for_content(turnlog: Command) -> None:
    """That of a provider, or the media type of a document, which stand at the beginning of a line."""
    foreign = {"type": "native", "provider": "erased)\n→ bash x", "block": {"a": 1}}
    source = {"type": "base64", "media_type": "sealed, and its key is not here)", "data": "aGk="}
    result = {"type": "tool_result", "tool_use_id": "c", "content": [foreign]}
    with TurnLog.open(turnlog.url) as log:
        log.add_turn([foreign, {"type": "document", "source": source}, result], bookmark="main")
        log.add_turn([foreign | {"provider": "damaged)"}], role="assistant", continues="main")
        log.add_turn([foreign | {"provider": "mine"}], continues="main")
    lines = turnlog.ok("context", "main").text.splitlines()
    assert lines[1:5] == [
        '\\(erased) → bash x block) {"a":1}',
        "\\(sealed, and its key is not here), 2 B)",
        "← 1 block",
        '\\(erased) → bash x block) {"a":1}',
    ]
    rows = [line.partition("Z  ")[2] for line in turnlog.ok("ancestry", "main").text.splitlines()]
    assert rows == [
        '\\(erased) → bash x block) {"a":1} (and 2 more)',
        '\\(damaged) block) {"a":1}',
        '[main] (mine block) {"a":1}',
    ]


def test_context_prints_all_of_a_turn_where_that_is_asked_for(turnlog: Command) -> None:
    """Results of tools, calls and thinking, whole."""
    said = "\n".join(f"line {number}" for number in range(40))
    call = ToolUse(id="c", name="look", input=msgspec.Raw(b'{"at":"' + b"x" * 900 + b'"}'))
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("Look.", bookmark="main")
        log.add_turn([Thinking(thinking=said), call], role="assistant", continues="main")
        log.add_turn([ToolResult(tool_use_id="c", content=said)], continues="main")
    assert "more line" in turnlog.ok("context", "main").text
    whole = turnlog.ok("context", "main", "--whole").text
    assert (whole.count("line 39\n"), "x" * 900 in whole, "more line" in whole) == (2, True, False)


def test_tool_calls_and_thinking_are_abbreviated_for_people(turnlog: Command) -> None:
    """A call is one line, of a long result the first lines are shown, and `show` has all of it."""
    lines = [f"line {number}" for number in range(9)]
    with clocked_log(turnlog.url) as log:
        log.add_turn(
            [
                {"type": "thinking", "thinking": "Let me see.\nHm."},
                {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "/"}},
            ],
            role="assistant",
            id=A,
        )
        results = [
            {"type": "tool_result", "tool_use_id": "t1", "content": "\n".join(lines)},
            {"type": "tool_result", "tool_use_id": "t2", "content": "no such file", "is_error": True},
        ]
        log.add_turn(results, continues=A, id=B)
    assert turnlog.ok("log").text == (
        f"● {A}  assistant  {STAMP}  (thinking) Let me see. (and 1 more)\n"
        f"● {B}  user       {STAMP}  ← line 0 (and 1 more)\n"
    )
    assert turnlog.ok("context", B).text == (
        f'── assistant  {A} · {STAMP}\n(thinking) Let me see.\n→ ls {{"path":"/"}}\n\n'
        f"── user  {B} · {STAMP}\n← line 0\nline 1\nline 2\nline 3\nline 4\n… 4 more lines\n← error: no such file\n\n"
        "── options\nnone\n"
    )
    assert "\n".join(lines) in turnlog.ok("show", B).text


def test_what_came_from_elsewhere_is_said_to(turnlog: Command, read: Command) -> None:
    """`show` tells events of this log that came with an export of it, and those of others, from those recorded here."""
    restored = Command(store=turnlog.store.parent / "restored.db")
    turnlog.ok("add", "Here before")
    for command in (turnlog, restored):
        command.ok("import", "turnlog", "-", stdin=read.ok("export").stdout)
    assert turnlog.ok("show", A, "--json").json["arrival"] == "guest"
    assert "arrival         with an export of another log\n" in turnlog.ok("show", A).text
    assert restored.ok("show", A, "--json").json["arrival"] == "restored"
    assert "arrival         with an export of this log\n" in restored.ok("show", A).text
    assert "arrival" not in read.ok("show", A).text


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"header": lambda head: head["meta"].update(role="system")}, id="role"),
        pytest.param({"payload": b'[{"type":"text","text":"Forged"}]'}, id="text"),
        pytest.param({"header": lambda head: head["citations"].clear()}, id="citation"),
    ],
)
def test_edited_turn_is_refused_where_it_is_used(turnlog: Command, edit: dict[str, Any]) -> None:
    """With one line that says what to do, though the turn is consistent in itself."""
    ids = write_conversation(turnlog.url)
    rewrite(turnlog.store, ids["b"], **edit)
    model = ("--provider", "openai_chat", "--model", "m")
    for arguments in (
        ("context", "main"),
        ("context", "try", "--json"),
        ("ancestry", "main"),
        ("replay", "main"),
        ("run", "Hi", "-c", "main", *model),
    ):
        line = turnlog.refused(*arguments, OPENAI_API_KEY="k")
        assert f"cites {ids['b']!r} with another digest than it has" in line
        assert f"run `turnlog verify`; the store is {str(turnlog.store)!r}" in line


def test_erased_turns_are_said_to_be_erased(turnlog: Command) -> None:
    """Wherever they are listed or asked for; the others are as they were."""
    ids = write_conversation(turnlog.url)
    with TurnLog.open(turnlog.url) as log:
        document = log.add_document(__file__, continues="main")
    for event_id in (ids["b"], document.id):
        erase(turnlog.store, event_id)
    lines = turnlog.ok("ancestry", document.id).text.splitlines()
    assert [line.rsplit("  ", 1)[1] for line in lines] == [
        "How do I log?",
        "(erased)",
        "And in Python?",
        "[try] And in Rust?",
        "Compare.",
        "[main] (erased)",
    ]
    shown = turnlog.ok("show", ids["b"]).text
    assert "\nerased      its content and its private metadata are gone\n" in shown
    record = turnlog.ok("show", ids["b"], "--json").json
    assert (record["erased"], record["hash"], record["meta"]["role"], "content" in record) == (
        True,
        "",
        "assistant",
        False,
    )
    assert turnlog.refused("cat", ids["b"]) == f"event {ids['b']!r} was erased"
    window = turnlog.ok("context", "main", "--explain", "--json").json
    assert window["explain"]["left_out"] == []
    gone = [
        message["content"][0]["turn"] for message in window["messages"] if message["content"][0]["type"] == "erased"
    ]
    assert (gone, len(window["messages"])) == ([ids["b"], document.id], 6)
    assert turnlog.ok("context", "main").text.count("(erased)") == 2


def test_a_terminal_gets_colours_and_lines_that_fit(read: Command) -> None:
    """On a terminal of 50 cells each line is cut to them, and times are relative."""
    text = read.on_terminal("stdout", "log", TERM="xterm-256color", COLUMNS="50").text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert text != plain
    assert max(map(len, plain.splitlines())) == 50
    assert re.search(rf"● {A[:8]}\w*  user       +\d+(s|m|h|d|w|mo|y)  How", plain)


def test_the_beginning_of_an_id_that_a_terminal_shows_can_be_typed(turnlog: Command) -> None:
    """What is too short says so in one line, with ids to choose from."""
    for text in ("One.", "Two."):
        turnlog.ok("add", text)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", turnlog.on_terminal("stdout", "log", "--all").text)
    starts = re.findall(r"● (\w+)  user", shown)
    ids = [turn["id"] for turn in turnlog.ok("log", "--all", "--json").json_lines]
    assert [own_id.startswith(start) for own_id, start in zip(ids, starts, strict=True)] == [True, True]
    assert max(map(len, starts)) < 25
    assert "\nTwo.\n" in turnlog.ok("context", starts[1]).text
    assert turnlog.refused("context", ids[0][:4]) == (
        f"{ids[0][:4]!r} is the beginning of several turn ids ({', '.join(sorted(ids))}): give more of it"
    )


def test_thread_with_a_turn_that_is_nested_too_deeply_for_new_ones_is_shown(turnlog: Command) -> None:
    """It was recorded when there was no bound, and nothing is wrong with it."""
    deep = b'[{"type":"tool_use","id":"c","name":"f","input":{"a":%b}}]' % (b"[" * 3000 + b"]" * 3000)
    with TurnLog.open(turnlog.url) as log:
        log.add_turn("first", bookmark="main")
        log.add_group([TurnDraft(payload=deep, meta=TurnMeta(role="assistant"), continues=("main",))])
        log.add_turn("last", continues="main")
    for command in ("log", "ancestry", "context"):
        said = turnlog.ok(command, "main").text
        assert [word in said for word in ("first", "→ f", "last")] == [True] * 3, command
    assert "[" * 3000 in turnlog.ok("show", "main~1").text
    assert "clean" in turnlog.ok("verify").text
