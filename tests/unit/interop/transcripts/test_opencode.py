"""Sessions of OpenCode."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.unit.interop.transcripts.promises import (
    Said,
    blocks_of,
    canonical,
    check_erasing,
    check_growing,
    check_importing,
    take,
)

from turnlog import TurnLog
from turnlog.errors import FormatError
from turnlog.interop.finding import find
from turnlog.interop.transcripts import Problem
from turnlog.interop.transcripts.opencode import OpenCode
from turnlog.model import Usage

Record = dict[str, Any]
TOKENS = {"input": 2, "output": 20, "reasoning": 5, "cache": {"read": 60, "write": 40}}


def session(id: str, **more: Any) -> Record:
    """Return the document of a session."""
    return {"id": id, "slug": "s", "version": "1", "projectID": "p", "title": "Files", "time": {"created": 1}, **more}


def message(id: str, role: str, session: str = "ses_a", **more: Any) -> Record:
    """Return the document of a message."""
    made = {"modelID": "example-model-1", "providerID": "anthropic"} if role == "assistant" else {}
    return {"id": id, "sessionID": session, "role": role, "time": {"created": 1770738110049}, **made, **more}


def part(id: str, of: str, kind: str, session: str = "ses_a", **more: Any) -> Record:
    """Return the document of a part of a message."""
    return {"id": id, "sessionID": session, "messageID": of, "type": kind, **more}


def tool(id: str, of: str, call: str, name: str = "ls", **state: Any) -> Record:
    """Return the document of a call."""
    given = {"status": "completed", "input": {"path": call}, **state}
    return part(id, of, "tool", callID=call, tool=name, state=given)


SESSION: list[Record] = [
    {"id": "p", "worktree": "/w", "vcs": "git", "time": {"created": 1}},
    session("ses_a"),
    message("msg_1", "user"),
    part("prt_01", "msg_1", "text", text="How many files?"),
    part("prt_02", "msg_1", "file", mime="image/png", filename="a.png", url="data:image/png;base64,aGk="),
    message("msg_2", "assistant", parentID="msg_1"),
    part("prt_03", "msg_2", "step-start", snapshot="0"),
    part("prt_04", "msg_2", "reasoning", text="I count.", metadata={"anthropic": {"signature": "s1"}}),
    tool("prt_05", "msg_2", "c1", output="x y", metadata={"preview": "x y"}),
    tool("prt_06", "msg_2", "c2", status="error", error="no such folder"),
    tool("prt_07", "msg_2", "c3", "task", output="Two.", metadata={"sessionId": "ses_b"}),
    part("prt_08", "msg_2", "step-finish", reason="tool-calls", tokens=TOKENS),
    part("prt_09", "msg_2", "step-start", snapshot="0"),
    part("prt_10", "msg_2", "text", text="Three files."),
    part("prt_11", "msg_2", "step-finish", reason="stop", tokens=TOKENS),
    session("ses_b", parentID="ses_a"),
    message("msg_3", "user", "ses_b"),
    part("prt_12", "msg_3", "text", "ses_b", text="Count b."),
    message("msg_4", "assistant", "ses_b", parentID="msg_3"),
    part("prt_13", "msg_4", "text", "ses_b", text="Two."),
]


def written(documents: list[Record]) -> bytes:
    """Return documents as a file has them."""
    return b"".join(json.dumps(each, indent=2).encode() for each in documents)


def before(log: TurnLog, turn: str, steps: int) -> str:
    """Return the id of a turn so many steps before another."""
    for _ in range(steps):
        [turn] = log.turn(turn).continues
    return turn


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a file of documents."""
    path = tmp_path / "opencode.jsonl"
    path.write_bytes(written(SESSION))
    return path


def test_step_is_a_turn_and_its_results_the_next(path: Path) -> None:
    """With its tokens, and why the model stopped."""
    with TurnLog.open("memory://") as log:
        report = take(log, "opencode", path)
        head, _ = report.heads
        assert [(each.role, len(each.content)) for each in log.context(head).messages] == [
            ("user", 2),
            ("assistant", 4),
            ("user", 3),
            ("assistant", 1),
        ]
        metas = [log.turn(before(log, head, steps)).meta for steps in (0, 2)]
        assert [meta.stop_reason for meta in metas] == ["stop", "tool_use"]
        assert (metas[1].model, metas[1].provider, metas[1].api) == ("example-model-1", "anthropic", "messages")
        assert metas[1].usage == Usage(
            input_tokens=2,
            output_tokens=20,
            reasoning_tokens=5,
            cache_read_input_tokens=60,
            cache_creation_input_tokens=40,
        )
    assert (report.places, report.problems, report.sessions) == (len(SESSION), (), ("ses_a", "ses_b"))


def test_sub_agent_continues_the_call_that_started_it(path: Path) -> None:
    """As a sidechain."""
    with TurnLog.open("memory://") as log:
        main, agent = take(log, "opencode", path).heads
        first = log.turn(before(log, agent, 1))
        assert first.continues == (before(log, main, 2),)
        assert first.meta.origin
        assert first.meta.origin.sidechain


def test_importing_again_adds_nothing(path: Path) -> None:
    """And what was said is there once."""
    _, found = check_importing("opencode", path)
    assert found["thinking", "I count."] == 1
    assert found["document", "aGk="] == 1
    assert found["result", "no such folder"] == 1
    assert found["text", "Two."] == found["result", "Two."] == 1


def test_part_that_is_written_again_does_not_repeat_what_it_says(path: Path) -> None:
    """What is new of it is an event; a text that is twice in a message is there twice."""
    texts = [part(f"prt_{number}", "msg_2", "text", text="Three files.") for number in range(20, 23)]
    said = [*SESSION[:2], message("msg_1", "user"), part("prt_01", "msg_1", "text", text="Count.")]
    said += [message("msg_2", "assistant"), *texts[:2]]
    with TurnLog.open("memory://") as log:
        path.write_bytes(written(said))
        before = take(log, "opencode", path)
        path.write_bytes(written([*said[:-1], texts[1] | {"time": {"start": 1, "end": 2}}]))
        again = take(log, "opencode", path)
        assert (again.turns_added, again.events_added, again.heads) == (0, 1, before.heads)
        finish = part("prt_30", "msg_2", "step-finish", reason="stop", tokens=TOKENS)
        path.write_bytes(written([*said, finish, message("msg_3", "user"), part("prt_31", "msg_3", "text", text="A")]))
        after = take(log, "opencode", path)
        assert (after.turns_added, log.turn(after.heads[0]).continues) == (1, before.heads)
        assert [problem.what.partition(":")[0] for problem in after.problems] == [
            "the usage of a reply that was recorded before it was written"
        ]
        path.write_bytes(written([*said, texts[2]]))
        [rest] = take(log, "opencode", path).continued
        assert [list(blocks_of(log, rest)), log.turn(rest).continues] == [[("text", "Three files.")], before.heads]


def exported(id: str) -> Record:
    """Return a session as `opencode export` writes it."""
    [info] = [each for each in SESSION if each["id"] == id]
    messages = [each for each in SESSION if each.get("sessionID") == id and "role" in each]
    parts = [[part for part in SESSION if part.get("messageID") == each["id"]] for each in messages]
    return {"info": info, "messages": [{"info": each, "parts": own} for each, own in zip(messages, parts, strict=True)]}


def test_part_that_is_there_twice_is_in_its_turn_once(path: Path) -> None:
    """As where two exports of a session stand in a file: the last one counts, and all of it is kept and told."""
    again = tool("prt_05", "msg_2", "c1", output="x y z")
    path.write_bytes(written([*SESSION, *SESSION[3:5], again]))
    report, found = check_importing("opencode", path)
    assert (found["text", "How many files?"], found["document", "aGk="]) == (1, 1)
    assert (found["call", "ls", '{"path":"c1"}'], found["result", "x y"], found["result", "x y z"]) == (1, 0, 1)
    assert report.problems == tuple(
        Problem(place=place, what=f"part {id!r} comes twice: the last one counts")
        for place, id in ((4, "prt_01"), (5, "prt_02"), (9, "prt_05"))
    )
    with TurnLog.open("memory://") as log:
        take(log, "opencode", path)
        events = [event for event in log.events() if event.header.topic == "opencode.tool"]
        assert [b'"output":"x y"' in (log.payload(event.header.id) or b"") for event in events] == [True]
    check_erasing("opencode", path, "x y", path.parent)


@pytest.mark.parametrize("id", ["ses_a", "msg_2"])
def test_earlier_version_of_a_session_or_a_message_is_an_event_of_its_kind(path: Path, id: str) -> None:
    """It is told that it came again, and nothing else of it."""
    [given] = [each for each in SESSION if each["id"] == id]
    path.write_bytes(written([*SESSION, given | {"more": "said later"}]))
    kind = "session" if id.startswith("ses_") else "message"
    with TurnLog.open("memory://") as log:
        report = take(log, "opencode", path)
        again = f"{kind} {id!r} comes twice: the last one counts"
        assert report.problems == (Problem(place=len(SESSION) + 1, what=again),)
        payloads = [log.payload(each.header.id) or b"" for each in log.events(topics=[f"opencode.{kind}"])]
        of_it = [payload for payload in payloads if json.loads(payload)["id"] == id]
        assert [b"said later" in payload for payload in of_it] == [True, False]


def test_exported_session_is_the_same_turns(path: Path) -> None:
    """As its documents are, where these were imported before or after."""
    with TurnLog.open("memory://") as log:
        reports = [take(log, "opencode", path)]
        for id in ("ses_a", "ses_b"):
            path.write_bytes(written([exported(id)]))
            reports.append(take(log, "opencode", path))
        assert [report.events_added for report in reports[1:]] == [0, 0]
        assert [report.turns_added for report in reports[1:]] == [0, 0]
        assert reports[1].heads + reports[2].heads == reports[0].heads
    path.write_bytes(written([exported("ses_a"), exported("ses_b")]))
    _, found = check_importing("opencode", path)
    path.write_bytes(written(SESSION))
    assert check_importing("opencode", path)[1] == found


def test_what_an_export_has_beside_messages_is_kept_and_told(path: Path) -> None:
    """Also a message of another shape."""
    export = exported("ses_a")
    export["messages"].append({"info": message("msg_9", "user")})
    path.write_bytes(written([export | {"todo": ["bake"]}]))
    report, _ = check_importing("opencode", path)
    assert [problem.what for problem in report.problems] == ["a document of no known kind: kept as an event"]
    assert report.pieces["document"] == 2


def test_database_of_newer_versions_is_refused_with_what_to_do(tmp_path: Path) -> None:
    """By name of the format too."""
    path = tmp_path / "opencode.db"
    with closing(sqlite3.connect(path)) as connection:
        for table in ("session", "message", "part"):
            connection.execute(f"CREATE TABLE {table} (id TEXT PRIMARY KEY, data TEXT)")
    what = r"is the database of OpenCode, which cannot be read yet: `opencode export SESSION > FILE` writes"
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match=what):
        log.import_transcript("opencode", path)
    with pytest.raises(FormatError, match=what):
        find([path])


def test_file_that_grows_is_imported_as_it_grows(path: Path) -> None:
    """Whatever document it ends at."""
    check_growing("opencode", [written(SESSION[:end]) for end in range(2, len(SESSION) + 1)], path)


def test_call_that_ends_later_is_there_once(path: Path) -> None:
    """A part is written again when its call begins, and when it ends."""
    states: list[Record] = [{"status": "pending", "input": {}}, {"status": "running"}, {"output": "x y"}]
    wholes = [written([*SESSION[:8], tool("prt_05", "msg_2", "c1", **state)]) for state in states]
    check_growing("opencode", wholes, path)


def test_error_of_a_message_is_that_of_its_turn(path: Path) -> None:
    """And one that was cancelled is aborted."""
    error = {"name": "MessageAbortedError", "data": {"message": "cancelled"}}
    failed = message("msg_2", "assistant", error=error)
    path.write_bytes(written([*SESSION[1:4], failed, part("prt_03", "msg_2", "text", text="Thr")]))
    with TurnLog.open("memory://") as log:
        [head] = take(log, "opencode", path).heads
        meta = log.turn(head).meta
        assert (meta.stop_reason, meta.error) == ("aborted", "MessageAbortedError: cancelled")


def test_secret_of_a_share_is_left_out(path: Path, tmp_path: Path) -> None:
    """And said to be."""
    share = {"id": "a", "secret": "hush-hush", "url": "https://example.com/s/a"}
    path.write_bytes(written([*SESSION, share]))
    report, _ = check_importing("opencode", path)
    assert [problem.what for problem in report.problems] == ["the secret of a shared session was left out"]
    check_erasing("opencode", path, "hush-hush", tmp_path)


def test_damaged_documents_are_reported_and_the_rest_goes_in(path: Path) -> None:
    """With their numbers."""
    odd = part("prt_99", "msg_1", "hologram", text="?")
    path.write_bytes(b'{"broken": \n' + written(SESSION[:1]) + b"\n" + written([*SESSION[1:], odd]))
    report, found = check_importing("opencode", path)
    assert (report.places, report.damaged) == (len(SESSION) + 2, 1)
    assert [problem.place for problem in report.problems] == [1, len(SESSION) + 2]
    assert found["text", "Three files."] == 1


def test_folder_is_the_same_as_a_file(path: Path, tmp_path: Path) -> None:
    """Whatever is said in it."""
    storage = tmp_path / "storage"
    for each in SESSION:
        at = "project"
        if "messageID" in each:
            at = f"part/{each['messageID']}"
        elif "sessionID" in each:
            at = f"message/{each['sessionID']}"
        elif "projectID" in each:
            at = "session/p"
        (storage / at).mkdir(parents=True, exist_ok=True)
        (storage / at / f"{each['id']}.json").write_text(json.dumps(each))
    assert OpenCode().recognizes(storage, b"")
    report, found = check_importing("opencode", storage)
    whole, expected = check_importing("opencode", path)
    assert (found, report.heads, report.pieces) == (expected, whole.heads, whole.pieces)


def test_other_file_is_refused(tmp_path: Path) -> None:
    """In one line."""
    other = tmp_path / "other.json"
    other.write_text('{"a":1}\n')
    with TurnLog.open("memory://") as log, pytest.raises(FormatError, match="nothing was imported"):
        log.import_transcript("opencode", other)


def test_erased_thread_is_gone_from_its_documents_too(path: Path, tmp_path: Path) -> None:
    """Also from what repeats it for the screen."""
    check_erasing("opencode", path, "x y", tmp_path)


# ------------------------------------------------------------------------------------------------------- a real session


def independent(path: Path) -> Counter[Said]:
    """Read what documents say, in another way than the importer: a document ends where a line begins with a bracket."""
    found: Counter[Said] = Counter()
    pending = ""
    for line in path.read_text().splitlines(keepends=True):
        pending += line
        if line[0] not in "}]" and not line.rstrip().endswith(("}", "]")):
            continue
        try:
            record = json.loads(pending)
        except json.JSONDecodeError:
            continue
        pending = ""
        match record:
            case {"type": "text", "text": text}:
                found["text", text] += 1
            case {"type": "tool", "tool": name, "state": {"input": given, "output": output}}:
                found["call", name, canonical(json.dumps(given))] += 1
                found["result", output] += 1
            case _:
                pass
    assert not pending.strip()
    return found


def test_all_of_a_real_session_is_in_the_log(shared: Path) -> None:
    """Every text, call and result; and its windows go to providers."""
    path = shared / "corpus" / "opencode-claude-opus-4-5.jsonl"
    assert OpenCode().recognizes(path, path.read_bytes()[: 64 * 1024])
    report, found = check_importing("opencode", path)
    assert found == independent(path)
    assert (report.turns_added, len(report.heads)) == (262, 2)


def test_message_of_an_unknown_role_is_told(path: Path) -> None:
    """And taken for a user's."""
    path.write_bytes(written([session("ses_a"), message("msg_1", "robot"), part("prt_1", "msg_1", "text", text="Hi.")]))
    report, _ = check_importing("opencode", path)
    what = "message 'msg_1' is of the unknown role 'robot': taken for a user's"
    assert report.problems == (Problem(place=2, what=what),)


def test_what_a_call_has_beside_its_answer_is_kept(path: Path) -> None:
    """Where it is not what the answer is made of."""
    state = {"output": "x", "error": "kept-1", "attachments": {"url": "kept-2"}}
    calls = [tool("prt_1", "msg_1", "c1", **state), tool("prt_2", "msg_1", "c2", status="lost", output="kept-3")]
    path.write_bytes(written([session("ses_a"), message("msg_1", "assistant"), *calls]))
    report, found = check_importing("opencode", path)
    assert [problem.what for problem in report.problems] == [
        "a tool call of the unknown status 'lost': what it gave is kept as an event"
    ]
    assert found["result", "x"] == 1
    with TurnLog.open("memory://") as log:
        take(log, "opencode", path)
        with log.store.read() as transaction:
            kept = b"".join(transaction.payload(each) or b"" for each in transaction.log())
    for text in (b"kept-1", b"kept-2", b"kept-3"):
        assert text in kept


def test_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """What an archive was unpacked to may lead to any file; of a link to a folder nothing is read either."""
    storage = tmp_path / "storage"
    for name, record in {
        "session/p/ses_a.json": session("ses_a"),
        "message/ses_a/msg_1.json": message("msg_1", "user"),
        "part/msg_1/prt_01.json": part("prt_01", "msg_1", "text", text="Hi"),
        "../private/config.json": {"auth": "secret"},
    }.items():
        (storage / name).parent.mkdir(parents=True, exist_ok=True)
        (storage / name).write_text(json.dumps(record))
    (storage / "session" / "p" / "x.json").symlink_to(tmp_path / "private" / "config.json")
    (storage / "todo").symlink_to(tmp_path / "private")
    report, found = check_importing("opencode", storage)
    assert (found, report.places) == ({("text", "Hi"): 1}, 3)
    told = [f"{name}: a link out of the folder, not followed" for name in ("session/p/x.json", "todo")]
    assert report.problems == tuple(Problem(place=0, what=what) for what in told)
