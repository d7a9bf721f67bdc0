"""Sessions of Gemini CLI in JSON lines, as newer versions write them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import blocks_of, check_erasing, check_growing, check_importing, take
from tests.unit.interop.transcripts.test_gemini_cli import MESSAGES, TOKENS, WHEN, call, looked, message, written

from turnlog import TurnLog
from turnlog.interop.finding import formats_of
from turnlog.interop.transcripts.gemini_cli import GeminiCli
from turnlog.model import Text, Usage

HEADER = {"sessionId": "s-1", "projectHash": "h", "startTime": WHEN, "lastUpdated": WHEN, "kind": "main"}
TOUCHED = {"$set": {"lastUpdated": WHEN}}


def lines(*records: Any) -> bytes:
    """Return the file of a session."""
    return b"".join(json.dumps(record).encode() + b"\n" for record in (HEADER, *records))


LINES = [
    MESSAGES[0],
    TOUCHED,
    looked(),
    looked(tokens=TOKENS),
    looked(call("a", None), call("b", None), tokens=TOKENS),
    looked(call("a", "x y"), call("b", "z"), tokens=TOKENS),
    MESSAGES[2],
    MESSAGES[3],
    {"$set": {"summary": "Counted files", "lastUpdated": WHEN}},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a session."""
    path = tmp_path / "session-1.jsonl"
    path.write_bytes(lines(*LINES))
    return path


def threads(log: TurnLog, heads: tuple[str, ...]) -> list[list[str]]:
    """Return the texts of the windows of heads."""
    windows = (log.context(head).messages for head in heads)
    return [[block.text for each in window for block in each.content if isinstance(block, Text)] for window in windows]


def taken(path: Path, *records: Any) -> tuple[list[list[str]], list[str]]:
    """Import a session. Return what its threads say, and what is wrong with it."""
    path.write_bytes(lines(*records))
    report, _ = check_importing("gemini-cli", path)
    with TurnLog.open("memory://") as log:
        said = threads(log, take(log, "gemini-cli", path).heads)
    return said, [problem.what for problem in report.problems]


def said(id: str, text: Any, kind: str = "user") -> dict[str, Any]:
    """Return a message."""
    return message(kind, id, text)


def test_texts_of_a_message_stay_in_their_order(path: Path) -> None:
    """Also where one comes twice, and where the message is written again with more."""
    texts = [{"text": text} for text in ("yes", "no", "yes", "maybe")]
    path.write_bytes(lines({"sessionId": "s-1", "kind": "main"}, said("1", texts[:2]), said("1", texts)))
    with TurnLog.open("memory://") as log:
        [head] = take(log, "gemini-cli", path).heads
        assert [text for turn in log.ancestry(head) for _, text in blocks_of(log, turn.id)] == [
            "yes",
            "no",
            "yes",
            "maybe",
        ]


def test_message_that_is_written_again_is_one_turn(path: Path) -> None:
    """With all that was written of it; a line that says nothing new is no piece."""
    report, found = check_importing("gemini-cli", path)
    assert (report.turns_added, len(report.heads), report.problems) == (4, 1, ())
    assert (report.places, report.sessions) == (10, ("s-1",))
    assert found["thinking", "**Counting**\n\nI count."] == 1
    assert (found["call", "ls", '{"path":"a"}'], found["result", "x y"], found["result", "z"]) == (1, 1, 1)
    with TurnLog.open("memory://") as log:
        [head] = take(log, "gemini-cli", path).heads
        reply = log.ancestry(head)[1].meta
    assert (reply.model, reply.usage) == (
        "example-model-1",
        Usage(input_tokens=40, cache_read_input_tokens=60, output_tokens=20, reasoning_tokens=5),
    )
    assert (report.pieces["session"], report.pieces["update"], report.pieces["gemini"]) == (1, 2, 2)


def test_reply_that_says_nothing_is_a_turn(path: Path) -> None:
    """What it says later continues it, and its tokens count once."""
    empty = said("m2", "", "gemini")
    wholes = [
        lines(MESSAGES[0], empty),
        lines(MESSAGES[0], empty, empty | {"tokens": TOKENS}),
        lines(MESSAGES[0], empty, empty | {"tokens": TOKENS}, looked(call("a", None), tokens=TOKENS)),
    ]
    counts: list[tuple[int, int, int]] = []
    with TurnLog.open("memory://") as log:
        for whole in wholes:
            path.write_bytes(whole)
            report = take(log, "gemini-cli", path)
            total = log.feeds.total_usage()
            counts.append((report.turns_added, total.replies, total.usage.output_tokens))
            assert len(report.heads) == 1
    assert counts == [(1, 0, 0), (1, 1, 20), (1, 2, 20)]


def test_session_is_the_same_in_both_forms(path: Path) -> None:
    """A session that a newer version goes on with in lines is known."""
    with TurnLog.open("memory://") as log:
        document = path.with_suffix(".json")
        document.write_bytes(written(MESSAGES))
        before = take(log, "gemini-cli", document)
        path.write_bytes(lines(*MESSAGES, said("m5", "Thanks.")))
        after = take(log, "gemini-cli", path)
        assert (after.turns_added, after.turns_known) == (1, before.turns_added)
        assert log.turn(after.heads[0]).continues == before.heads


def test_session_that_grows_adds_what_is_new(path: Path) -> None:
    """Line by line, also where a line is written in the middle of the import."""
    wholes = [lines(*LINES[:end]) for end in range(1, len(LINES) + 1)]
    check_growing("gemini-cli", [*wholes[:3], wholes[4][:-30], *wholes[4:]], path)


@pytest.mark.parametrize("ends", [(4, 6), (4, 5, 6), (6,)])
def test_tokens_of_a_message_count_once(path: Path, ends: tuple[int, ...]) -> None:
    """However often its session was imported while it grew: what comes later does not say its tokens again."""
    with TurnLog.open("memory://") as log:
        for end in ends:
            path.write_bytes(lines(*LINES[:end]))
            assert take(log, "gemini-cli", path).problems == ()
        assert log.feeds.total_usage().usage == Usage(
            input_tokens=40, cache_read_input_tokens=60, output_tokens=20, reasoning_tokens=5
        )


def test_tokens_that_come_after_their_message_was_recorded_are_told(path: Path) -> None:
    """Once, with their line."""
    with TurnLog.open("memory://") as log:
        path.write_bytes(lines(*LINES[:3]))
        take(log, "gemini-cli", path)
        path.write_bytes(lines(*LINES[:4]))
        [problem] = take(log, "gemini-cli", path).problems
        assert (problem.place, problem.what.partition(":")[0]) == (
            5,
            "the usage of a reply that was recorded before it was written",
        )
        assert take(log, "gemini-cli", path).problems == ()


def test_heads_are_what_no_turn_of_the_log_continues(path: Path) -> None:
    """Also where more of a message was written after the next one was recorded, which goes on without it."""
    begun = [said("u1", "q"), said("g1", "a", "gemini"), said("u2", "next")]
    with TurnLog.open("memory://") as log:
        path.write_bytes(lines(*begun))
        [before] = take(log, "gemini-cli", path).heads
        path.write_bytes(lines(*begun, said("g1", [{"text": "a"}, {"text": "b"}], "gemini")))
        for _ in range(2):
            report = take(log, "gemini-cli", path)
            [rest] = [head for head in report.heads if head != before]
            assert threads(log, (before, rest)) == [["q", "a", "next"], ["q", "a", "b"]]
            assert len(report.roots) == 1


def test_rewound_messages_are_a_branch(path: Path) -> None:
    """What follows continues the message before the one that it was rewound to."""
    records = [
        said("u1", "keep"),
        said("g1", "kept", "gemini"),
        said("u2", "rewound"),
        said("g2", "gone", "gemini"),
        {"$rewindTo": "u2"},
        said("u3", "after"),
    ]
    assert taken(path, *records) == ([["keep", "kept", "rewound", "gone"], ["keep", "kept", "after"]], [])
    check_growing("gemini-cli", [lines(*records[:end]) for end in range(1, 7)], path)


def test_rewind_to_an_unknown_message_begins_a_thread(path: Path) -> None:
    """As Gemini CLI reads it; and that is told."""
    assert taken(path, said("u1", "a"), {"$rewindTo": "u9"}, said("u2", "b")) == (
        [["a"], ["b"]],
        ["a rewind to 'u9', which is not here: what follows begins a thread"],
    )


def test_list_of_messages_adds_those_that_are_new(path: Path) -> None:
    """Known ones stay as they are, spelled otherwise too; those of a compressed history follow."""
    parts = [{"text": "first answer", "thoughtSignature": "c2ln"}]
    records = [
        {"$set": {"messages": [said("s0", [{"text": "context"}])]}},
        said("u1", "first"),
        said("g1", "first answer", "gemini"),
        {"$set": {"messages": [said("s0", [{"text": "context"}]), said("u1", "first"), said("g1", parts, "gemini")]}},
        {"$set": {"messages": [said("x1", [{"text": "summary"}]), said("x2", "Got it.", "gemini")]}},
        said("u2", "second"),
    ]
    assert taken(path, *records) == ([["context", "first", "first answer", "summary", "Got it.", "second"]], [])
    check_growing("gemini-cli", [lines(*records[:end]) for end in range(1, 7)], path)
    with TurnLog.open("memory://") as log:
        take(log, "gemini-cli", path)
        kept = [log.payload(event.header.id) for event in log.events(topics="gemini-cli.gemini")]
    assert len([payload for payload in kept if b"c2ln" in payload]) == 1


def test_list_without_the_last_messages_takes_them_back(path: Path) -> None:
    """As when somebody stops a reply."""
    records = [said("u1", "a"), said("g1", "b", "gemini"), said("u2", "stop"), message("info", "i1", "Cancelled")]
    rolled_back = {"$set": {"messages": [said("u1", "a"), said("g1", "b", "gemini")]}}
    assert taken(path, *records, rolled_back, said("u3", "c")) == ([["a", "b", "stop"], ["a", "b", "c"]], [])


def test_calls_and_results_in_contents_are_there_once(path: Path) -> None:
    """The first of a call and the messages that repeats it counts; others are events."""
    called = {"functionCall": {"id": "a", "name": "ls", "args": {"path": "a"}}}
    answered = {"functionResponse": {"id": "a", "name": "ls", "response": {"output": "x"}}}
    anonymous = [{"functionCall": {"name": "ls", "args": {}}}, {"text": "hm"}]
    response = [{"functionResponse": {"name": "ls", "response": {"output": "y"}}}]
    path.write_bytes(
        lines(
            looked(call("a", None)),
            said("r1", [answered]),
            looked(call("a", "masked")),
            {"$set": {"messages": [looked(call("a", "masked")) | {"content": [called]}, said("r1", [answered])]}},
            said("g3", anonymous, "gemini"),
            said("r3", response),
        )
    )
    report, found = check_importing("gemini-cli", path)
    assert (found["call", "ls", '{"path":"a"}'], found["result", "x"], found["result", "masked"]) == (1, 1, 0)
    assert (found["call", "ls", "{}"], found["result", "y"]) == (1, 1)
    assert (len(report.heads), report.pieces["tool_state"]) == (1, 2)


def test_damaged_and_unknown_lines_are_told(path: Path) -> None:
    """And the rest goes in."""
    path.write_bytes(lines(MESSAGES[0], {"a": 1}, message("new", "m9", "?")) + b"[1]\n\n{cut\n" + lines(MESSAGES[3]))
    report, found = check_importing("gemini-cli", path)
    assert [(problem.place, problem.what.partition(":")[0]) for problem in report.problems] == [
        (3, "a line of no known shape"),
        (4, "a message of the unknown type 'new'"),
        (5, "not a JSON object; it was left out"),
        (7, "not JSON"),
    ]
    assert (report.damaged, report.blank, report.pieces["unknown"], found["text", "Three files."]) == (2, 1, 1, 1)


@pytest.mark.parametrize("beginning", [HEADER, {"$set": {}}, {"$rewindTo": "a"}, said("a", "b", "gemini")])
def test_is_found_by_its_lines(path: Path, beginning: Any) -> None:
    """Also where the first one is damaged."""
    path.write_bytes(b'{"sessionId":\n' + json.dumps(beginning).encode() + b"\n" + json.dumps(MESSAGES[0]).encode())
    assert formats_of(path) == ["gemini-cli"]
    assert not GeminiCli().recognizes(path, b'{"id":"a","type":"user"}\n')


def test_erased_thread_is_gone(path: Path, tmp_path: Path) -> None:
    """With what the session says beside it."""
    check_erasing("gemini-cli", path, "Counted files", tmp_path)
    check_erasing("gemini-cli", path, "x y", tmp_path / "..")


# ---------------------------------------------------------------------------------------------------------- sub-agents


def family_files() -> dict[str, bytes]:
    """Return the files of a session with two sub-agents, of which one started the other; the session comes first."""
    session = "0a1b2c3d-1"
    head = HEADER | {"sessionId": session}
    files = {
        f"session-2026-02-10T17-28-{session[:8]}.jsonl": [
            head,
            said("m1", "How many?"),
            looked(call("a", "two", agentId="sub-1")),
            said("m3", "Two.", "gemini"),
        ],
        f"{session}/sub-1.jsonl": [
            head | {"sessionId": "sub-1", "kind": "subagent"},
            said("n1", "Count."),
            message("gemini", "n2", "", toolCalls=[call("d", "deep", agentId="sub-0")]),
            said("n3", "Counted.", "gemini"),
        ],
        f"{session}/sub-0.jsonl": [
            head | {"sessionId": "sub-0", "kind": "subagent"},
            said("o1", "Deeper."),
            said("o2", "Deep.", "gemini"),
        ],
    }
    return {name: "".join(json.dumps(each) + "\n" for each in records).encode() for name, records in files.items()}


@pytest.fixture
def family(tmp_path: Path) -> Path:
    """Give the folder of a session with sub-agents."""
    for name, content in family_files().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_subagents_grow_from_the_calls_that_started_them(family: Path) -> None:
    """Whichever file of a session is imported."""
    found: list[list[list[str]]] = []
    for path in sorted(family.rglob("*.jsonl")):
        with TurnLog.open("memory://") as log:
            report = take(log, "gemini-cli", path)
            assert (report.problems, len(report.roots)) == ((), 1)
            found.append(threads(log, report.heads))
            main, sub, deep = report.heads
            assert [log.turn(head).meta.origin.sidechain for head in (main, sub, deep)] == [False, True, True]
            again = [take(log, "gemini-cli", each).turns_added for each in sorted(family.rglob("*.jsonl"))]
            assert again == [0, 0, 0]
    said = ["How many? Two.", "How many? Count. Counted.", "How many? Count. Deeper. Deep."]
    assert [[" ".join(each) for each in heads] for heads in found] == [said] * 3


def test_subagent_that_no_call_names_is_a_thread(family: Path) -> None:
    """And that is told."""
    lost = family / "0a1b2c3d-1" / "sub-2.jsonl"
    lost.write_text(json.dumps(HEADER | {"sessionId": "sub-2", "kind": "subagent"}) + "\n" + json.dumps(said("p", "?")))
    with TurnLog.open("memory://") as log:
        report = take(log, "gemini-cli", lost)
    [problem] = report.problems
    assert "no call names the sub-agent 'sub-2'" in problem.what
    assert len(report.roots) == 2


def test_subagents_behind_a_link_are_not_followed(family: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Neither a file nor a folder of them that is a link out of the folder of the session; that is told."""
    private = tmp_path_factory.mktemp("private")
    main = next(family.glob("session-*.jsonl"))
    folder = family / "0a1b2c3d-1"
    folder.rename(private / "agents")
    for name, links in {
        "0a1b2c3d-1": [folder],
        "0a1b2c3d-1/sub-1.jsonl": [folder / "sub-1.jsonl", folder / "sub-0.jsonl"],
    }.items():
        if links != [folder]:
            folder.unlink()
            folder.mkdir()
        for link in links:
            link.symlink_to(private / "agents" / ("" if link == folder else link.name))
        with TurnLog.open("memory://") as log:
            report = take(log, "gemini-cli", main)
            assert threads(log, report.heads) == [["How many?", "Two."]]
        assert f"{name}: a link out of the folder, not followed" in [each.what for each in report.problems]
