"""Lines of an imported session that belong to no turn, and say what an erased one said."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.rewriting import without_triggers

from turnlog import TurnLog
from turnlog.record import Note

SAID = "KELLERX is ill\nand has  the clap"
SESSION = str(UUID(int=99))


@pytest.fixture
def log() -> Iterator[TurnLog]:
    """Give an empty log."""
    with TurnLog.open("memory://") as log:
        yield log


def line(number: int, kind: str, **fields: Any) -> dict[str, Any]:
    """Return a line of a session that continues the one before it."""
    parent = str(UUID(int=number - 1)) if number > 1 else None
    names = {"uuid": str(UUID(int=number)), "parentUuid": parent, "sessionId": SESSION}
    return {"type": kind, **names, "timestamp": f"2026-01-0{number}T00:00:00Z", **fields}


def title(of: int) -> dict[str, Any]:
    """Return the line with the title of a session, as Claude Code writes it: it names the session by a line of it."""
    return {"type": "summary", "summary": "KELLERX, therapy", "leafUuid": str(UUID(int=of))}


def imported(log: TurnLog, folder: Path, *lines: dict[str, Any]) -> list[str]:
    """Import a session with a prompt, an answer and a line behind it, and further lines. Return its turns."""
    session = [
        line(1, "user", message={"role": "user", "content": SAID}),
        line(2, "assistant", message={"id": "m", "role": "assistant", "content": [{"type": "text", "text": "Since?"}]}),
        line(3, "system", subtype="turn_duration", content="took 3s"),
    ]
    file = folder / "session.jsonl"
    file.write_text("".join(json.dumps(each) + "\n" for each in [*lines[:1], *session, *lines[1:]]))
    log.import_claude_code(file)
    return [turn.header.id for turn in log.events(topics="gpt.turn")]


def left(log: TurnLog) -> list[str]:
    """Return the types of the lines that still have the name."""
    events = [event for event in log.events() if event.hash is not None]
    return [
        event.header.topic.removeprefix("claude-code.")
        for event in events
        if b"KELLERX" in log.payload(event.header.id)
    ]


@pytest.mark.parametrize("of", [1, 2, 3])
@pytest.mark.parametrize("at", ["first", "last"])
def test_title_goes_with_the_thread_whose_line_it_names(log: TurnLog, tmp_path: Path, of: int, at: str) -> None:
    """Also where the line that it names became no turn, and where it comes before that line."""
    turn, _ = imported(log, tmp_path, *([title(of)] if at == "first" else [title(7), title(of)]))
    report = log.erase(thread=turn, reason="asked")
    assert left(log) == ([] if at == "first" else ["summary"])
    assert len(report.undecided) == (at == "last")


def test_title_that_names_no_line_of_the_log_is_told(log: TurnLog, tmp_path: Path) -> None:
    """Nobody can tell of what it is the title: it stays, until the session that it names is here too."""
    turn, _ = imported(log, tmp_path, title(7))
    [kept] = [event.header.id for event in log.events(topics="claude-code.summary")]
    assert log.erase(thread=turn, reason="asked", dry_run=True).undecided == (kept,)
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps({**line(7, "user", message={"role": "user", "content": "other"}), "parentUuid": None}))
    log.import_claude_code(file)
    assert log.erase(thread=turn, reason="asked").undecided == ()
    assert left(log) == ["summary"]


def test_line_of_which_nobody_can_tell_goes_by_its_id(log: TurnLog, tmp_path: Path) -> None:
    """Somebody knows; the turns that it might be of stay."""
    imported(log, tmp_path, title(7))
    [kept] = [event.header.id for event in log.events(topics="claude-code.summary")]
    report = log.erase(turn=kept, reason="asked")
    assert (report.lines, report.turns) == ((kept,), ())
    assert left(log) == ["gpt.turn"]
    assert log.verify().clean


def test_nothing_is_undecided_where_what_is_erased_came_from_elsewhere(log: TurnLog, tmp_path: Path) -> None:
    """A title of a session is none of a turn that was recorded here."""
    imported(log, tmp_path, title(7))
    turn = log.add_turn("of something else")
    assert log.erase(turn=turn.id, reason="asked").undecided == ()


def damage(path: Path, event_id: str) -> None:
    """Have the payload of an event be another one."""
    with without_triggers(path) as connection:
        changed = connection.execute(
            "UPDATE stored_events SET payload = substr(payload, 1, length(payload) - 1) WHERE event_id = ?", (event_id,)
        )
        assert changed.rowcount == 1


@pytest.fixture
def beside(file_log: TurnLog, tmp_path: Path) -> tuple[str, str, str]:
    """Give the turns of a session, and the lines beside them: what was asked last, and what waited to be asked."""
    prompt = {"type": "last-prompt", "lastPrompt": SAID, "sessionId": SESSION}
    queued = {"type": "queue-operation", "operation": "enqueue", "content": "Else.", "sessionId": SESSION}
    turn, _ = imported(file_log, tmp_path, prompt, queued)
    [last] = file_log.events(topics="claude-code.last-prompt")
    [waiting] = file_log.events(topics="claude-code.queue-operation")
    return turn, last.header.id, waiting.header.id


@pytest.mark.parametrize("scope", ["turn", "thread"])
@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_what_is_damaged_is_erased(
    file_log: TurnLog, store_path: Path, beside: tuple[str, str, str], damaged: int, scope: str
) -> None:
    """Of a line that has to be compared with what is damaged nobody can tell whether it repeats it: that is told."""
    turn, last, waiting = beside
    damage(store_path, beside[damaged])
    report = file_log.erase(**{scope: turn}, reason="asked")
    assert turn in report.turns
    goes, told = {0: ((), (last, waiting)), 1: ((), (last,)), 2: ((last,), (waiting,))}[damaged]
    if scope == "thread":
        goes, told = (last, waiting), ()
    assert sorted({last, waiting}.intersection(report.lines)) == sorted(goes)
    assert sorted(report.undecided) == sorted(told)
    assert file_log.verify().clean == (damaged == 0 or scope == "thread")


def test_title_that_is_damaged_goes_with_its_session(file_log: TurnLog, store_path: Path, tmp_path: Path) -> None:
    """Whatever else it says; one that names no session is told."""
    turn, _ = imported(file_log, tmp_path, {**title(1), "sessionId": SESSION}, title(7))
    named, other = (event.header.id for event in file_log.events(topics="claude-code.summary"))
    damage(store_path, named)
    damage(store_path, other)
    report = file_log.erase(turn=turn, reason="asked")
    assert named in report.lines
    assert report.undecided == (other,)


def test_line_of_no_session_that_can_be_is_passed_by(log: TurnLog, tmp_path: Path) -> None:
    """As somebody else's log may have it."""
    turn, _ = imported(log, tmp_path)
    [odd] = log.add_group([Note(topic="claude-code.odd", payload=b'"x"', meta={"session": [SESSION]})])
    report = log.erase(thread=turn, reason="asked")
    assert turn in report.turns
    assert odd.header.id not in (*report.lines, *report.undecided)


@pytest.mark.parametrize("between", [" ", "\r\n", "\n\n  ", "\u2028"])
def test_prompt_with_other_line_breaks_is_the_same(log: TurnLog, tmp_path: Path, between: str) -> None:
    """As a history has it on one line, or with the line breaks of another system."""
    said = f"KELLERX is ill{between}and has the clap"
    turn, _ = imported(
        log,
        tmp_path,
        {"type": "last-prompt", "lastPrompt": f"{said} "[:-4] + "…", "sessionId": SESSION},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION, "content": f"> {said}?"},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION, "content": " "},
    )
    report = log.erase(turn=turn, reason="asked")
    assert left(log) == []
    assert len(report.lines) == 3


WHEN = "2026-01-01T00:00:00Z"
TITLED: dict[str, list[dict[str, Any]]] = {
    "gemini-cli": [
        {"sessionId": "s1", "projectHash": "x", "startTime": WHEN, "kind": "main"},
        {"id": "1", "timestamp": WHEN, "type": "user", "content": [{"text": "My back hurts"}]},
        {"id": "2", "timestamp": WHEN, "type": "gemini", "content": "Since when?"},
        {"$set": {"lastUpdated": WHEN, "summary": ""}},
        {"id": "3", "timestamp": WHEN, "type": "user", "content": [{"text": "Today"}]},
        {"$set": {"summary": "KELLERX asks about a back"}},
    ],
    "anthropic-export": [
        {
            "uuid": "c",
            "name": "KELLERX",
            "chat_messages": [
                {"uuid": "1", "sender": "human", "text": "My back hurts"},
                {"uuid": "2", "sender": "assistant", "text": "Since when?"},
                {"uuid": "3", "sender": "human", "text": "Today"},
            ],
        }
    ],
    "claude-code": [
        line(1, "user", message={"role": "user", "content": "My back hurts"}),
        line(2, "user", message={"role": "user", "content": "Since today"}),
        {"type": "ai-title", "aiTitle": "KELLERX and a back", "sessionId": SESSION},
    ],
    "opencode": [
        {"id": "ses_1", "slug": "s", "version": "1", "projectID": "p", "title": "KELLERX", "time": {"created": 1}},
        {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1}},
        {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", "type": "text", "text": "My back hurts"},
        {"id": "msg_2", "sessionID": "ses_1", "role": "user", "time": {"created": 2}},
        {"id": "prt_2", "messageID": "msg_2", "sessionID": "ses_1", "type": "text", "text": "Since today"},
    ],
}


@pytest.mark.parametrize("format", TITLED)
def test_what_a_session_is_about_goes_with_any_turn_of_it(tmp_path: Path, format: str) -> None:
    """Its title or summary may come from each. What else is told of the session stays, and an import adds nothing."""
    path = tmp_path / "session.jsonl"
    documents = [TITLED[format]] if format == "anthropic-export" else TITLED[format]
    path.write_text("".join(json.dumps(each) + "\n" for each in documents))
    for number in (0, -1):
        with TurnLog.open("memory://") as log:
            log.import_transcript(format, path)
            turns = [event.header.id for event in log.events(topics="gpt.turn")]
            assert (len(turns) > 1, len(left(log))) == (True, 1)
            report = log.erase(turn=turns[number], reason="asked")
            assert (left(log), report.turns) == ([], (turns[number],))
            updates = [event.erased for event in log.events(topics="gemini-cli.update")]
            assert updates == ([False, True] if format == "gemini-cli" else [])
            again = log.import_transcript(format, path)
            assert (again.turns_added, again.events_added, left(log)) == (0, 0, [])


def test_title_of_another_session_stays(tmp_path: Path) -> None:
    """It is none of the turn."""
    lines = [
        *TITLED["opencode"],
        *(json.loads(json.dumps(each).replace("_1", "_9")) for each in TITLED["opencode"][:3]),
    ]
    path = tmp_path / "session.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    with TurnLog.open("memory://") as log:
        log.import_transcript("opencode", path)
        assert len(left(log)) == 2
        log.erase(turn=next(iter(log.events(topics="gpt.turn"))).header.id, reason="asked")
        assert len(left(log)) == 1
