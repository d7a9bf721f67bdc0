"""What is erased is gone, from the log and from the files; what stays still proves what it proved."""

import hmac
import io
import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from tests.sealed_log import seals_in
from tests.talk import RUN, SIZES, Talk, raw_files, runs, traces

from turnlog import LossReport, TurnLog, providers
from turnlog.audit import erasing, retaining
from turnlog.audit.asking import Request
from turnlog.audit.seals import SealFolder
from turnlog.digest import sri
from turnlog.errors import (
    ConflictError,
    CorruptionError,
    ErasedError,
    HoldError,
    IdConflictError,
    MetaError,
    SealedError,
    UnknownTurnError,
)
from turnlog.events import HOLD
from turnlog.events.sealing import short
from turnlog.feeds.facade import Feeds
from turnlog.feeds.sinks import JSONLines
from turnlog.model import Origin, ReplyFacts, content_bytes
from turnlog.projections import MovedBookmark
from turnlog.providers import PreparedRequest
from turnlog.record import Note, plan_turn, turn_draft
from turnlog.sources import Sources
from turnlog.store import ReadTransaction
from turnlog.store.sqlite.schema import SCRUBS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the place of a store."""
    return tmp_path / "store" / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[TurnLog]:
    """Give an open log in a file."""
    with TurnLog.open(f"sqlite:///{path}", busy_timeout_s=2) as log:
        yield log


@pytest.mark.parametrize("scope", ["turn", "thread", "subject"])
@pytest.mark.parametrize("origin", ["claude-code", 5, ["x"], {"format": 5}])
def test_a_turn_whose_metadata_is_damaged_is_erased(log: TurnLog, scope: str, origin: Any) -> None:
    """An early version recorded whatever it was given as an origin. Erased, it is in nobody's way."""
    first = log.add_turn("before", bookmark="main", subject="Ann")
    draft = turn_draft("Zebulon", role="assistant", continues="main")
    damaged = msgspec.structs.replace(draft, meta=msgspec.structs.replace(draft.meta, origin=origin))
    turn = log.store.write(lambda t: plan_turn(t, damaged, t.placed(damaged.payload), Sources())).header.id
    last = log.add_turn("after", continues="main")
    line = log.add_group([Note(topic="claude-code.user", payload=b'"Zebulon"', turn=turn)])[0].header.id
    with pytest.raises(CorruptionError):
        log.ancestry("main")
    wanted: dict[str, Any] = {scope: {"turn": turn, "thread": first.id, "subject": "Ann"}[scope]}
    report = log.erase(**wanted, reason="asked")
    assert report.turns == ((turn,) if scope == "turn" else (first.id, turn, last.id))
    assert report.lines == (line,)
    assert log.verify().clean
    assert [each.id for each in log.ancestry(last.id)] == [first.id, turn, last.id]
    assert [sum_.replies for sum_ in log.feeds.usage()] == [1]
    assert log.feeds.search("Zebulon") == []


def proofs(log: TurnLog) -> list[tuple[int, bytes, bytes]]:
    """Return what others may hold of each event: its place, its header and its leaf hash."""
    return [(event.global_position, event.state, event.leaf_hash) for event in log.events()]


@pytest.fixture
def seals(tmp_path: Path) -> SealFolder:
    """Give keys of sealing, in a folder beside that of the store."""
    return seals_in(tmp_path / "keys")


_encoder = msgspec.json.Encoder(order="sorted")
Sealing = Literal["plain", "subject sealed", "store sealed"]
SEALED: tuple[Sealing, ...] = ("subject sealed", "store sealed")
SEALINGS: tuple[Sealing, ...] = ("plain", *SEALED)


def seal(log: TurnLog, sealing: Sealing, subject: str) -> None:
    """Have nothing sealed, or what is of a subject, or all."""
    if sealing != "plain":
        log.seal(subject if sealing == "subject sealed" else None)


ERASE: dict[str, Callable[[TurnLog, list[str], str], Any]] = {
    "turn": lambda log, ids, _: log.erase(turn=ids, reason="asked"),
    "thread": lambda log, ids, _: log.erase(thread=ids[0], reason="asked"),
    "subject": lambda log, _, subject: log.erase(subject=subject, reason="asked"),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ERASE)
@pytest.mark.parametrize("sealing", SEALINGS)
def test_no_trace_of_what_was_erased_is_left(
    path: Path, seals: SealFolder, tmp_path: Path, kind: str, sealing: Sealing
) -> None:
    """No run of 8 bytes of it is in the files of the store, in payload files, in their names or in an export.

    Where it was sealed there is none even before.
    """
    with TurnLog.open(f"sqlite:///{path}", busy_timeout_s=2, seals=seals) as log:
        _erase_without_traces(log, path, tmp_path, kind, sealing)


def _erase_without_traces(log: TurnLog, path: Path, tmp_path: Path, kind: str, sealing: Sealing) -> None:
    others = Talk(log, tmp_path, 1, alphabet="0123456789abcdef")
    kept = others.fill(subject="somebody else")
    talk = Talk(log, tmp_path, 2)
    subject = talk.name("subject")
    seal(log, sealing, subject)
    ids = talk.fill(subject=subject)
    others.fill()
    before = proofs(log)
    if sealing == "plain":
        assert runs(talk.secrets[3]) <= traces(path.parent, talk.secrets[3:4]), "the test can find what is there"
    else:
        assert traces(tmp_path, talk.secrets) == set(), "in the folder of the keys neither"
    report = ERASE[kind](log, ids, subject)
    assert report.remains is None
    assert len(report.keys) == (kind == "subject" and sealing != "plain")
    assert report.turns == tuple(ids)
    assert (len(report.calls), len(report.replies)) == (3, 3)
    if kind == "turn" and sealing == "plain":
        # A bookmark event that names a bookmark goes with a thread or a subject: its name may be in use elsewhere.
        names = [event.private_state or b"" for event in log.events(topics=["gpt.bookmark"])]
        talk.secrets = [secret for secret in talk.secrets if not any(secret in name for name in names)]
    assert traces(tmp_path, talk.secrets) == set()
    with (tmp_path / "export.jsonl").open("wb") as file:
        log.export(file)
    exported = (tmp_path / "export.jsonl").read_bytes()
    assert not [secret for secret in talk.secrets if secret[:RUN] in exported]
    # All else is as it was.
    assert proofs(log)[: len(before)] == before
    assert log.verify().damage == ()
    assert log.verify().erased == report.events
    again = ERASE[kind](log, ids, subject)
    assert (again.events, again.erasures, again.keys) == (0, (), ())
    assert (again.already > 0) == (kind != "subject")
    for turn, size in zip(kept, SIZES, strict=False):
        assert len(json.loads(log.payload(turn))[0]["text"]) == size


@pytest.mark.parametrize("kind", ERASE)
@pytest.mark.parametrize("sealing", SEALINGS)
def test_guesses_cannot_be_confirmed(
    path: Path, seals: SealFolder, tmp_path: Path, kind: str, sealing: Sealing
) -> None:
    """Whoever knows all that may have been said finds no hash of it in what stays: not in bytes, nor in names."""
    with TurnLog.open(f"sqlite:///{path}", busy_timeout_s=2, seals=seals) as log:
        _guess(log, path, tmp_path, kind, sealing)


def _guess(log: TurnLog, path: Path, tmp_path: Path, kind: str, sealing: Sealing) -> None:
    talk = Talk(log, tmp_path, 3)
    subject = talk.name("subject")
    seal(log, sealing, subject)
    ids = talk.fill(subject=subject)
    with log.store.read() as transaction:
        payloads = [transaction.payload(event) for event in transaction.log()]
        private = [_encoder.encode(event.private) for event in transaction.log() if event.private is not None]
        assert sealing != "plain" or private[-1] == list(transaction.log())[-1].private_state
    if sealing != "plain":
        _find_no_guess(raw_files(path.parent), payloads, talk.secrets)
    ERASE[kind](log, ids, subject)
    folders = {file.name for file in (path.parent / "log.db-payloads").iterdir()} - {".incoming"}
    assert folders == set()
    raw = raw_files(path.parent)
    _find_no_guess(raw, payloads, talk.secrets)
    # What is left of a private part is its hash, and in the part were 16 random bytes.
    for part in private:
        if b'"meta"' not in part:
            unsalted = re.sub(rb'"salt":"[^"]*"', b'"salt":""', part)
            assert sri(sha256(unsalted).digest()).encode() not in raw


def _find_no_guess(raw: bytes, payloads: list[bytes | None], secrets: list[bytes]) -> None:
    guesses = [payload for payload in payloads if payload is not None]
    guesses += [content_bytes(secret.decode()) for secret in secrets] + secrets
    for guess in guesses:
        digest = sha256(guess).digest()
        for form in (digest, digest.hex().encode(), sri(digest).encode()):
            assert form not in raw
    # Names are guessed more easily than texts. What stands for them is made with a key.
    for name in secrets:
        for kind in (b"", b"bookmark\x00", b"subject\x00"):
            for digest in (sha256(kind + name).digest(), hmac.digest(b"", kind + name, "sha256")):
                assert short(digest).encode() not in raw


@pytest.mark.timeout(240)
@pytest.mark.parametrize("sealing", SEALED)
def test_erasing_a_subject_closes_copies_that_were_made_before(
    path: Path, seals: SealFolder, tmp_path: Path, sealing: Sealing
) -> None:
    """A copy of the files and an export from before are sound, and nothing that was said in them can be read."""
    copy, export = tmp_path / "copy", io.BytesIO()
    with TurnLog.open(f"sqlite:///{path}", busy_timeout_s=2, seals=seals) as log:
        kept = log.add_turn("kept", subject="somebody else").id
        talk = Talk(log, tmp_path, 12)
        subject = talk.name("subject")
        seal(log, sealing, subject)
        ids = talk.fill(subject=subject)
        review = log.add_event("acme.review", b"a review", private={"by": "somebody"}, cites=[("r", ids[0])]).header.id
        log.export(export)
        shutil.copytree(path.parent, copy)
        key = log.turn(ids[0]).sealed
        assert log.erase(subject=subject, reason="asked", dry_run=True).keys == (key,)
        assert log.payload(ids[0])
        assert log.erase(subject=subject, reason="asked").keys == (key,)
        assert log.erase(subject=subject, reason="asked").keys == ()
    keys = seals_in(tmp_path / "keys")  # nothing of it is in memory
    with (
        TurnLog.open(f"sqlite:///{copy / path.name}", seals=keys) as copied,
        TurnLog.open("memory://", seals=keys) as restored,
    ):
        export.seek(0)
        restored.import_turnlog(export)
        assert restored.id == copied.id
        for log in (copied, restored):
            assert (log.payload(kept), log.payload(review)) == (content_bytes("kept"), b"a review")
            assert all(log.turn(turn).closed for turn in ids)
            for turn in ids:
                with pytest.raises(SealedError):
                    log.payload(turn)
            opened = b"".join(bytes(event.private.meta) for event in log.events() if event.private is not None)
            assert not [run for run in set().union(*map(runs, talk.secrets)) if run in opened]
            with log.store.read() as transaction:
                for event in transaction.log():
                    assert not [run for run in runs(talk.secrets[3]) if run in (transaction.payload(event) or b"")]
            report = log.verify()
            assert (report.clean, report.erased) == (True, 0)
            assert report.closed >= len(ids)


def test_second_erasure_is_a_no_op(log: TurnLog) -> None:
    """Nothing is appended, and the report says that it was erased before."""
    turn = log.add_turn("once", bookmark="main")
    first = log.erase(turn="main", reason="asked", by="them")
    end = log.stats().events
    second = log.erase(turn=turn.id, reason="asked again")
    assert (len(first.erasures), first.already) == (1, 0)
    assert (second.erasures, second.events, second.already) == ((), 0, 1)
    assert log.stats().events == end
    erasure = log.event(first.erasures[0])
    assert [(citation.relation, citation.id) for citation in erasure.header.citations] == [("target", turn.id)]
    assert json.loads(bytes(erasure.private.meta)) == {"by": "them", "reason": "asked"} if erasure.private else False


def test_second_erasure_takes_what_came_in_between(log: TurnLog, tmp_path: Path) -> None:
    """A run that had read the turn before records its request afterwards: to erase again takes that too."""
    talk = Talk(log, tmp_path, 4)
    turn = log.add_turn(talk.text(100), bookmark="main")
    stale = log.context("main").messages[0].content_json
    log.erase(turn=turn.id, reason="asked")
    request = PreparedRequest(
        adapter="openai_chat",
        version="1",
        provider="openai",
        api="chat",
        model="m",
        stream=True,
        head=b"",
        messages=[stale],
        closing=b"",
        loss_report=LossReport(),
    )
    call = log.calls.record(turn.id, request)
    assert log.calls.request(call) == stale
    report = log.erase(turn=turn.id, reason="asked")
    assert (report.calls, report.already) == ((call,), 1)
    with pytest.raises(ErasedError):
        log.calls.request(call)


def test_dry_run_does_nothing(log: TurnLog) -> None:
    """It says what would go, and appends no event."""
    log.add_turn("one", bookmark="main")
    log.add_turn("two", continues="main")
    end = log.stats().events
    report = log.erase(thread="main", reason="asked", dry_run=True)
    assert (len(report.turns), report.erasures, report.dry_run, report.payload_bytes) == (2, (), True, 60)
    assert log.stats().events == end
    assert [message.erased for message in log.context("main").messages] == [False, False]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"turn": "main", "subject": "x"},
        {"turn": ()},
        {"thread": 5},
        {"subject": " x"},
        {"turn": "main", "reason": " "},
    ],
)
def test_malformed_requests_are_refused(log: TurnLog, asked: dict[str, Any]) -> None:
    """One of the three is given, and a reason."""
    log.add_turn("one", bookmark="main")
    with pytest.raises(MetaError):
        log.erase(**({"reason": "asked"} | asked))
    with pytest.raises(UnknownTurnError):
        log.erase(turn="nope", reason="asked")
    assert log.stats().events == 2


def test_shared_payload_is_kept_for_others(log: TurnLog, path: Path) -> None:
    """A file that another thread needs stays, and is told; when that goes too, the file does."""
    text = "shared " * 20_000
    one = log.add_turn(text)
    other = log.add_turn(text)
    first = log.erase(turn=one.id, reason="asked")
    assert (first.files_removed, first.files_shared) == (0, 1)
    assert log.payload(other.id) == content_bytes(text)
    second = log.erase(turn=other.id, reason="asked")
    assert (second.files_removed, second.files_shared) == (1, 0)
    assert log.stats().file_count == 0
    assert traces(path.parent, [b"shared shared"]) == set()
    assert log.verify().damage == ()
    again = log.add_turn(text)
    assert log.payload(again.id) == content_bytes(text)


def test_windows_show_that_something_was_erased(log: TurnLog) -> None:
    """In its place stands a block with the id and the time of the turn; role and model are public and stay."""
    log.add_turn("system words", role="system", bookmark="main", inherited={"search": True})
    asked = log.add_turn("a question", continues="main")
    log.add_turn("an answer", role="assistant", continues="main", reply=ReplyFacts(model="m", provider="p", api="a"))
    failed = log.add_turn(
        "x", role="assistant", continues="main", reply=ReplyFacts(stop_reason="error"), bookmark=False
    )
    log.erase(turn=[asked.id, failed.id], reason="asked")
    window = log.context("main", explain=True)
    assert [message.role for message in window.messages] == ["system", "user", "assistant"]
    assert json.loads(window.messages[1].content_json) == [{"type": "erased", "turn": asked.id, "time": asked.time_ms}]
    assert window.explanation is not None
    assert window.explanation.left_out == ()
    assert window.options == {"search": True}
    assert len(log.context(failed.id, include_failed=True).messages) == 4
    with pytest.raises(ErasedError):
        log.payload(asked.id)


def test_bookmarks_are_where_they_would_be_without(log: TurnLog) -> None:
    """A bookmark falls back to where it last stood outside of what was erased, and is gone if that is nowhere."""
    first = log.add_turn("one", bookmark="main")
    second = log.add_turn("two", continues="main")
    log.bookmarks.set("side", second.id)
    log.bookmarks.rename("side", "aside")
    report = log.erase(turn=second.id, reason="asked")
    assert {found.name: found.turn for found in log.bookmarks.all()} == {"main": first.id, "aside": second.id}
    assert report.moved_bookmarks == (MovedBookmark(name="main", before=second.id, after=first.id),)
    report = log.erase(thread=first.id, reason="asked")
    assert log.bookmarks.all() == []
    assert report.moved_bookmarks == (MovedBookmark(name="main", before=first.id, after=None),)
    assert log.verify().damage == ()
    log.rebuild_projections()
    assert log.bookmarks.all() == []


def test_bookmark_of_another_thread_keeps_its_name(log: TurnLog) -> None:
    """A rename of a bookmark that stood elsewhere at that time stays, though the name was in use here before."""
    here = log.add_turn("here", bookmark="name")
    there = log.add_turn("there")
    log.bookmarks.set("name", there.id)
    log.bookmarks.rename("name", "new name")
    report = log.erase(thread=here.id, reason="asked")
    assert (report.turns, report.bookmarks) == ((here.id,), ())
    assert {found.name: found.turn for found in log.bookmarks.all()} == {"new name": there.id}
    assert log.verify().damage == ()


def test_what_the_model_answered_stays(log: TurnLog, tmp_path: Path) -> None:
    """With one question go its request and the reply to it; the answer is a turn of its own."""
    talk = Talk(log, tmp_path, 5)
    asked = log.add_turn(talk.text(100), bookmark="main")
    first = talk.call("main")
    answer = talk.reply(first, "main", failed=False)
    before = log.add_turn("aside", bookmark="aside")
    elsewhere = talk.call("aside")
    report = log.erase(turn=asked.id, reason="asked")
    assert report.calls == (first,)
    assert len(report.replies) == 1
    assert log.payload(answer)
    assert log.calls.request(elsewhere)
    assert log.payload(before.id)
    report = log.erase(turn=answer, reason="asked")
    assert (report.turns, report.calls, report.already) == ((answer,), (), 1)


def test_answer_takes_its_own_reply_along(log: TurnLog, tmp_path: Path) -> None:
    """The raw events of a reply say what the turn says; the request before it does not."""
    talk = Talk(log, tmp_path, 6)
    log.add_turn("asked", bookmark="main")
    call = talk.call("main")
    answer = talk.reply(call, "main", failed=False)
    later = log.add_turn("and then", continues="main")
    after = talk.call("main")
    report = log.erase(turn=answer, reason="asked")
    assert report.calls == (after,)
    assert len(report.replies) == 1
    assert log.calls.request(call)
    assert log.payload(later.id)
    assert log.verify().damage == ()


def test_request_that_goes_on_is_recorded_whole_after_an_erasure(log: TurnLog, tmp_path: Path) -> None:
    """What a request was based on is gone: the next one is kept without it, and has the placeholder."""
    talk = Talk(log, tmp_path, 7)
    log.add_turn("asked " * 50, bookmark="main")
    secret = log.add_turn("secret " * 50, continues="main")
    talk.reply(talk.call("main"), "main", failed=False)
    log.erase(turn=secret.id, reason="asked")
    call = talk.call("main")
    assert b'"type":"erased"' in log.calls.request(call)
    assert log.verify().damage == ()


def test_lines_of_an_imported_session_go_along(log: TurnLog, path: Path, tmp_path: Path) -> None:
    """The lines that a turn was made of, and those that repeat it, are erased with it."""
    session = "11111111-1111-1111-1111-111111111111"
    uuid = "22222222-2222-2222-2222-222222222222"
    lines = [
        {"type": "user", "uuid": uuid, "parentUuid": None, "sessionId": session, "timestamp": "2026-01-01T00:00:00Z",
         "cwd": "/home/somebody", "message": {"role": "user", "content": "an imported secret"}},
        {"type": "summary", "summary": "it was about a secret", "leafUuid": uuid},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": session, "content": "a queued secret"},
    ]  # fmt: skip
    file = tmp_path / "session.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log.import_claude_code(file)
    [turn] = log.events(topics=["gpt.turn"])
    report = log.erase(thread=turn.header.id, reason="asked")
    assert len(report.lines) == 3
    assert (
        traces(path.parent, [b"imported secret", b"it was about a secret", b"queued secret", b"/home/somebody"])
        == set()
    )
    assert log.verify().damage == ()


def test_lines_of_a_session_that_name_its_model_stay(log: TurnLog, path: Path, tmp_path: Path) -> None:
    """A model's name is nothing that a turn says. What says a turn for the screen goes, also where it comes first."""
    lines = [
        {"type": "session_meta", "payload": {"id": "session-1", "model_provider": "openai"}},
        {"type": "turn_context", "payload": {"cwd": "/somewhere", "model": "gpt-5.2-codex"}},
        {"type": "response_item", "payload": {
            "type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is the river?"}]}},
        {"type": "event_msg", "payload": {"type": "agent_reasoning", "text": "I look for the secret river."}},
        {"type": "response_item", "payload": {
            "type": "reasoning", "summary": [{"type": "summary_text", "text": "I look for the secret river."}],
            "encrypted_content": "abc"}},
    ]  # fmt: skip
    file = tmp_path / "rollout.jsonl"
    file.write_text("".join(json.dumps({"timestamp": "2026-01-01T00:00:00Z", **line}) + "\n" for line in lines))
    log.import_transcript("codex", file)
    file.unlink()
    [_, reply] = log.latest(2)
    log.erase(turn=reply.id, reason="asked")
    assert traces(path.parent, [b"secret river"]) == set()
    kept = [event.header.topic for event in log.events() if not event.erased]
    assert {"codex.session-meta", "codex.turn-context"} <= {*kept}
    assert len(log.latest(None)) == 2
    assert log.verify().damage == ()


def test_lines_that_say_what_an_erased_turn_says_go_along(log: TurnLog, path: Path, tmp_path: Path) -> None:
    """Though they name nothing but its session: whole, within more, or cut short. Other lines of the session stay."""
    session = "11111111-1111-1111-1111-111111111111"
    said = "which of my notes mention the secret river, and since when"
    lines = [
        {"type": "user", "uuid": "22222222-2222-2222-2222-222222222222", "parentUuid": None, "sessionId": session,
         "timestamp": "2026-01-01T00:00:00Z", "message": {"role": "user", "content": said}},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": session, "content": said},
        {"type": "last-prompt", "lastPrompt": f"> {said}?", "sessionId": session},
        {"type": "last-prompt", "lastPrompt": "which of my notes mention the secret r…", "sessionId": session},
        {"type": "queue-operation", "operation": "enqueue", "sessionId": session, "content": "what else is there"},
    ]  # fmt: skip
    file = tmp_path / "session.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    log.import_claude_code(file)
    [turn] = log.events(topics=["gpt.turn"])
    assert len(log.erase(turn=turn.header.id, reason="asked").lines) == 4
    assert traces(path.parent, [b"secret r", b"notes mention"]) == set()
    assert any(b"what else is there" in (log.payload(line.header.id)) for line in log.events() if line.hash is not None)
    assert log.verify().damage == ()


def test_holds_on_a_subject_go_with_it(log: TurnLog, path: Path) -> None:
    """Those that were released: they name the subject. One of the same name on something else stays."""
    log.add_turn("said", bookmark="main", subject="Zebulon the patient")
    other = log.add_turn("other")
    log.holds.set("case 7", subject="Zebulon the patient", reason="Zebulon asked the court")
    log.holds.release("case 7", reason="Zebulon the patient withdrew")
    log.holds.set("case 7", thread=other.id, reason="another case")
    report = log.erase(subject="Zebulon the patient", reason="asked")
    assert (len(report.turns), len(report.holds), report.lines) == (1, 2, ())
    assert traces(path.parent, [b"Zebulon"]) == set()
    assert [hold.reason for hold in log.holds.all()] == ["another case"]
    assert log.holds.get("case 7") == log.holds.all()[0]
    assert log.verify().damage == ()
    with pytest.raises(HoldError):
        log.erase(turn=other.id, reason="asked")
    log.holds.release("case 7")
    log.holds.set("case 8", subject="nobody said anything")
    log.holds.release("case 8")
    assert len(log.erase(subject="nobody said anything", reason="asked").holds) == 2
    assert log.erase(subject="nobody said anything", reason="asked").events == 0


def test_events_of_your_own_stay_and_are_told(log: TurnLog) -> None:
    """What others say of a turn is theirs."""
    turn = log.add_turn("said")
    review = log.add_event("acme.review", b"good", cites=[("reviewed", turn.id)])
    assert log.erase(turn=turn.id, reason="asked").others == (review.header.id,)
    assert log.payload(review.header.id) == b"good"


def test_export_carries_erased_events_as_erased(log: TurnLog) -> None:
    """An export restored elsewhere is the same log: its erased events are erased, and it verifies clean."""
    turn = log.add_turn("said", bookmark="main")
    log.add_turn("and on", continues="main")
    log.erase(turn=turn.id, reason="asked")
    for headish in (None, "main"):
        file = io.BytesIO()
        log.export(file, headish)
        assert b'"erased":true' in file.getvalue()
        assert b"said" not in file.getvalue()
        file.seek(0)
        with TurnLog.open("memory://") as other:
            assert other.import_turnlog(file).erased == 1
            assert other.verify().damage == ()
            assert other.turn(turn.id).erased


def test_what_was_erased_since_an_older_copy_is_told(log: TurnLog) -> None:
    """An import takes nothing away: which turns the log has erased that it comes from is in the report."""
    turn = log.add_turn("said", bookmark="main")
    older, newer = io.BytesIO(), io.BytesIO()
    log.export(older)
    log.erase(turn=turn.id, reason="asked")
    log.export(newer)
    for own in (True, False):
        with TurnLog.open("memory://") as other:
            if not own:
                other.add_turn("of its own")
            older.seek(0)
            assert other.import_turnlog(older).not_erased == ()
            newer.seek(0)
            assert other.import_turnlog(newer).not_erased == (turn.id,)
            assert other.text(turn) == "said"
            assert other.erase(turn=turn.id, reason="asked").turns == (turn.id,)
            newer.seek(0)
            assert other.import_turnlog(newer).not_erased == ()
            assert other.verify().damage == ()


def test_older_copy_that_takes_an_erasure_of_its_own_log_in_is_told(log: TurnLog) -> None:
    """It has recorded its events itself, so that the export is somebody else's to it: nothing is erased by that."""
    turn = log.add_turn("said", bookmark="main")
    before, later, strangers = io.BytesIO(), io.BytesIO(), io.BytesIO()
    log.export(before)
    with TurnLog.open("memory://") as other, TurnLog.open("memory://") as stranger:
        other.import_turnlog(io.BytesIO(before.getvalue()))
        other.erase(turn=turn.id, reason="asked")
        other.export(later)
        stranger.add_turn("of its own")
        stranger.import_turnlog(io.BytesIO(later.getvalue()))
        stranger.export(strangers)
    # The same erasure in an export of somebody else's log is their word.
    assert [log.import_turnlog(io.BytesIO(each.getvalue())).not_erased for each in (later, strangers)] == [
        (turn.id,),
        (),
    ]
    assert log.text(turn) == "said"


def test_erased_turn_is_not_brought_back_by_an_import(log: TurnLog) -> None:
    """An older export has the turn in full: it is known here, and stays erased."""
    turn = log.add_turn("said", bookmark="main")
    older = io.BytesIO()
    log.export(older)
    log.erase(turn=turn.id, reason="asked")
    older.seek(0)
    log.import_turnlog(older)
    assert log.turn(turn.id).erased
    with pytest.raises(IdConflictError, match="erased"):
        log.add_turn("said", id=turn.id)


def test_log_with_erased_turns_can_be_read_everywhere(log: TurnLog, tmp_path: Path) -> None:
    """Threads, children, ancestry and calls go on working."""
    talk = Talk(log, tmp_path, 8)
    ids = talk.fill()
    log.erase(thread=ids[0], reason="asked")
    assert [turn.erased for turn in log.ancestry(ids[-1])] == [True] * len(ids)
    [thread] = log.threads()
    assert (thread.turns, thread.bookmarks) == (len(ids), ())
    assert [child.id for child in log.children(ids[0])] == [ids[1]]
    assert len(log.thread(ids[0])) == len(ids)
    checks = list(log.calls.check(ids[-1]))
    assert len(checks) == 3
    assert all(check.difference is None and "erased" in (check.unreadable or "") for check in checks)
    assert log.calls.replies() == {}


# Subjects


def test_subject_is_inherited_down_the_thread(log: TurnLog, tmp_path: Path) -> None:
    """A turn has the subject of its first parent, unless it names another one or none."""
    root = log.add_turn("one", bookmark="main", subject="Alice")
    log.add_turn("two", continues="main")
    reply = Talk(log, tmp_path, 9)
    answer = reply.reply(reply.call("main"), "main", failed=False)
    other = log.add_turn("three", continues="main", subject="Bob", bookmark=False)
    none = log.add_turn("four", continues=other.id, subject=False)
    merge = log.add_turn("five", continues=[other.id, answer])
    after = [log.turn(turn).meta.subject or None for turn in (root.id, answer, other.id, none.id, merge.id)]
    assert after == ["Alice", "Alice", "Bob", None, "Bob"]
    assert not [event for event in log.events() if b"Alice" in event.state]
    with pytest.raises(IdConflictError, match="subject"):
        log.add_turn("one", id=root.id, bookmark="main", subject="Carol")
    report = log.erase(subject="Bob", reason="asked")
    assert report.turns == (other.id, merge.id)


def test_subject_goes_on_behind_an_erased_turn(log: TurnLog) -> None:
    """An erased turn has no subject any more: a turn that continues it has that of the turn before."""
    log.add_turn("one", bookmark="main", subject="Alice")
    second = log.add_turn("two", continues="main")
    log.erase(turn=second.id, reason="asked")
    assert log.add_turn("three", continues=second.id).meta.subject == "Alice"


def test_subject_is_asked_for_behind_a_turn_with_which_one_began(log: TurnLog) -> None:
    """It would be that of the turn before, or none. Behind turns that never had one nobody is asked."""
    log.add_turn("his", bookmark="main", subject="Bob")
    hers = log.add_turn("hers", continues="main", subject="Alice")
    plain = log.add_turn("nobody's")
    log.erase(subject="Alice", reason="asked")
    log.erase(thread=plain.id, reason="asked")
    with pytest.raises(MetaError, match=r"is erased, and with it whose it was: .*--subject NAME"):
        log.add_turn("more", continues=hers.id)
    assert log.add_turn("more", continues=hers.id, subject="Alice").meta.subject == "Alice"
    assert not log.add_turn("more", continues=hers.id, subject=False).meta.subject
    assert not log.add_turn("more", continues=plain.id).meta.subject


@pytest.mark.parametrize("subject", ["", " x", "a\nb", "x" * 201, 5])
def test_malformed_subjects_are_refused(log: TurnLog, subject: Any) -> None:
    """A subject is 1 to 200 printable characters."""
    with pytest.raises(MetaError):
        log.add_turn("one", subject=subject)


# Holds and retention


@pytest.mark.parametrize("scope", ["turn", "thread", "subject"])
def test_hold_refuses_erasing_until_it_is_released(log: TurnLog, scope: str) -> None:
    """What is held stays, by whichever way it is asked for; what is not held can go."""
    root = log.add_turn("one", bookmark="main", subject="Alice")
    free = log.add_turn("free")
    held = {"turn": root.id, "thread": root.id, "subject": "Alice"}[scope]
    log.holds.set("case 7", reason="a court said so", **{scope: held})
    later = log.add_turn("two", continues="main")
    for asked in ({"turn": root.id}, {"thread": later.id}, {"subject": "Alice"}):
        with pytest.raises(HoldError, match="'case 7' \\(a court said so\\)"):
            log.erase(reason="asked", **asked)
    if scope != "turn":
        with pytest.raises(HoldError):
            log.erase(turn=later.id, reason="asked")
    assert log.erase(turn=free.id, reason="asked").turns == (free.id,)
    with pytest.raises(HoldError, match="already"):
        log.holds.set("case 7", turn=root.id)
    assert [(hold.name, hold.scope) for hold in log.holds.all()] == [("case 7", scope)]
    log.holds.release("case 7")
    assert log.holds.all() == []
    with pytest.raises(HoldError, match="no hold"):
        log.holds.release("case 7")
    assert log.erase(thread="main", reason="asked").turns == (root.id, later.id)
    assert log.verify().damage == ()


def test_names_of_holds_are_private(log: TurnLog) -> None:
    """Nothing that names anybody is in the header of a hold."""
    turn = log.add_turn("one")
    log.holds.set("Alice v. Bob", subject="Alice", reason="court", by="Carol")
    log.holds.set("turn", turn=turn.id)
    [first, second] = log.events(topics=[HOLD])
    assert json.loads(bytes(first.header.meta)) == {"action": "set"}
    assert not [name for name in (b"Alice", b"court", b"Carol") if name in first.state]
    assert [citation.id for citation in second.header.citations] == [turn.id]


def test_request_is_held_with_its_window(log: TurnLog, tmp_path: Path) -> None:
    """To erase a later turn would take a request that has the held one: it is refused."""
    held = log.add_turn("held", bookmark="main")
    later = log.add_turn("later", continues="main")
    Talk(log, tmp_path, 10).call("main")
    log.holds.set("case", turn=held.id)
    with pytest.raises(HoldError):
        log.erase(turn=later.id, reason="asked")


def test_old_threads_are_listed_and_then_erased(log: TurnLog) -> None:
    """By default nothing is done. Threads on hold are kept, and told."""
    old = log.add_turn("old")
    held = log.add_turn("held")
    log.holds.set("case", thread=held.id)
    with pytest.raises(MetaError):
        log.retain(timedelta(0))
    assert log.retain(timedelta(days=1)).threads == ()
    report = log.retain(timedelta(microseconds=1))
    assert (report.dry_run, {thread.id for thread in report.threads}) == (True, {old.id, held.id})
    assert list(report.held) == [held.id]
    assert not log.turn(old.id).erased
    with pytest.raises(MetaError, match="reason"):
        log.retain(timedelta(microseconds=1), dry_run=False)
    report = log.retain(timedelta(microseconds=1), dry_run=False, reason="90 days")
    assert report.erasure is not None
    assert report.erasure.turns == (old.id,)
    assert log.retain(timedelta(microseconds=1)).erasure is None


@pytest.mark.parametrize("comes", [1, 100])
def test_a_thread_that_somebody_comes_back_to_is_not_old(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, comes: int
) -> None:
    """Between the look at the log and the erasure; the other threads are erased as ever."""
    said = "2020-01-02T03:04:05Z"
    old, other = (
        log.add_turn(name, bookmark=name, origin=Origin(format="f", ids=[name], timestamp=said))
        for name in ("old", "other")
    )
    written = log.store.erase
    back: list[str] = []

    def late(*given: Any, **named: Any) -> Any:
        if len(back) < comes:
            back.append(log.add_turn(f"I am back, {len(back)}", continues="old").id)
        return written(*given, **named)

    monkeypatch.setattr(log.store, "erase", late)
    if comes == 1:
        report = log.retain(timedelta(days=365), dry_run=False, reason="old")
        assert report.erasure is not None
        assert ([thread.id for thread in report.threads], report.erasure.turns) == ([other.id], (other.id,))
        assert [log.text(turn) for turn in (old, back[0])] == ["old", "I am back, 0"]
    else:
        monkeypatch.setattr("turnlog.audit.retaining._is_old", lambda *_: True)
        with pytest.raises(ConflictError, match="gone on with all the time"):
            log.retain(timedelta(days=365), dry_run=False, reason="old")
        assert not log.turn(other.id).erased
    assert log.verify().clean


def test_no_thread_is_older_than_time(log: TurnLog) -> None:
    """What began before the calendar would be: nothing did."""
    log.add_turn("old")
    assert log.retain(timedelta(days=999_999 * 7)).threads == ()


def test_a_turn_of_the_future_keeps_no_thread(log: TurnLog) -> None:
    """Somebody else can claim any time for theirs: what was said last at a time that has been counts."""
    old = Origin(format="f", ids=["1"], timestamp="2020-01-02T03:04:05Z")
    far = Origin(format="f", ids=["2"], timestamp="9999-01-02T03:04:05Z")
    thread = log.add_turn("old", origin=old)
    log.add_turn("far", continues=thread.id, origin=far)
    assert [each.id for each in log.retain(timedelta(days=365)).threads] == [thread.id]
    log.add_turn("now", continues=thread.id)
    assert log.retain(timedelta(days=365)).threads == ()


def test_a_turn_of_a_clock_that_was_wrong_lets_no_thread_go(log: TurnLog) -> None:
    """The thread began a moment ago: that its last turn seems to be old makes it no older."""
    log.add_turn("asked today", bookmark="main")
    for time in ("2020-01-02T03:04:05Z", "2300-01-02T03:04:05Z"):
        log.add_turn("?", continues="main", origin=Origin(format="f", ids=[time], timestamp=time))
        assert log.retain(timedelta(days=365)).threads == ()


def test_the_same_erasure_again_reaches_what_another_did_not(
    log: TurnLog, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was stopped before it came to index and feeds; an interrupt there says that it is recorded."""
    turn = log.add_turn("a secret river")
    assert log.feeds.search("river")
    log.feeds.feed(JSONLines(tmp_path / "lines")).run()

    def stop(_: Feeds) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Feeds, "forget_erased", stop)
        with pytest.raises(KeyboardInterrupt) as caught:
            log.erase(turn=turn.id, reason="asked")
    assert caught.value.__notes__ == [erasing.INTERRUPTED]
    assert traces(tmp_path, [b"secret river"])
    assert log.erase(turn=turn.id, reason="asked").remains is None
    assert traces(tmp_path, [b"secret river"]) == set()


def test_old_threads_are_found_in_few_looks_at_the_log(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one look for each thread: among many, those that are held are told apart, and what is erased is left out."""
    threads = [log.add_turn(f"thread {number}") for number in range(64)]
    later = [log.add_turn("more", continues=thread.id) for thread in threads[:3]]
    log.erase(turn=threads[0].id, reason="the first turn alone")
    log.erase(thread=[thread.id for thread in threads[1:3]], reason="all of it")
    log.holds.set("case", thread=threads[40].id)
    log.holds.set("other", turn=threads[60].id)
    looks: list[Request] = []

    class Counted(erasing.Search):
        def __init__(self, transaction: ReadTransaction, asked: Request, seen: int | None = None) -> None:
            looks.append(asked)
            super().__init__(transaction, asked, seen)

    for module in (erasing, retaining):
        monkeypatch.setattr(module, "Search", Counted)
    report = log.retain(timedelta(microseconds=1))
    assert report.erasure is not None
    kept = {threads[40].id, threads[60].id}
    assert set(report.erasure.turns) == {later[0].id, *(thread.id for thread in threads[3:])} - kept
    assert [(thread, "'case'" in line) for thread, line in report.held.items()] == [
        (threads[40].id, True),
        (threads[60].id, False),
    ]
    assert {thread.id for thread in report.threads} == {thread.id for thread in threads} - {t.id for t in threads[1:3]}
    assert len(looks) < 32


# Beside others


def test_reader_of_an_older_state_is_waited_for_and_told(path: Path) -> None:
    """A snapshot keeps what was erased in the write-ahead log: the report says so, and finishing removes it."""
    with TurnLog.open(f"sqlite:///{path}", busy_timeout_s=0.2) as log:
        turn = log.add_turn("a secret that is read")
        with log.store.read() as transaction:
            transaction.log_end()
            report = log.erase(turn=turn.id, reason="asked")
            assert report.remains is not None
            assert "turnlog erase --finish" in report.remains
            assert log.finish_erasing() is not None
            assert log.verify().damage == ()
            assert log.verify().others == ()
        assert log.finish_erasing() is None
        assert traces(path.parent, [b"a secret that is read"]) == set()
        assert _scrubs(path) == []


def test_opening_finishes_what_was_left(path: Path) -> None:
    """Whoever opens the store next removes what had to be left."""
    with TurnLog.open(f"sqlite:///{path}", busy_timeout_s=0.2) as log:
        turn = log.add_turn("a secret that is read")
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT COUNT(*) FROM stored_events").fetchall()
            assert log.erase(turn=turn.id, reason="asked").remains is not None
        TurnLog.open(f"sqlite:///{path}").close()
        assert traces(path.parent, [b"a secret that is read"]) == set()
        assert _scrubs(path) == []


def _scrubs(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name FROM sqlite_master WHERE name = ?", (SCRUBS,)).fetchall()


def test_other_open_log_sees_the_erasure_at_once(log: TurnLog, path: Path) -> None:
    """A window that it kept is not given any more, nor what it remembers of the turn; it goes on appending."""
    with TurnLog.open(f"sqlite:///{path}") as other:
        turn = other.add_turn("said", bookmark="main", subject="Alice")
        assert other.context("main").messages[0].content_json == content_bytes("said")
        log.erase(turn=turn.id, reason="asked")
        assert other.context(turn.id).messages[0].erased
        # It had the turn in memory, with its bookmark and its subject.
        with pytest.raises(MetaError, match="is erased, and with it whose it was"):
            other.add_turn("and on", continues=turn.id)
        after = other.add_turn("and on", continues=turn.id, subject=False)
        assert (after.meta.head, after.meta.subject) == (None, None)
        assert other.verify().damage == ()


def test_older_snapshot_does_not_bring_a_window_back(log: TurnLog) -> None:
    """What a reader resolves from before the erasure is not kept for those who read after it."""
    turn = log.add_turn("said", bookmark="main")
    with log.store.read() as transaction:
        before = transaction.event(turn.id)
        assert before is not None
        log.store.scrub()
        with TurnLog.open(log.store.url, busy_timeout_s=0.1) as other:
            other.erase(turn=turn.id, reason="asked")
        log.context(turn.id)
        log._projector.window(transaction, before)
    assert log.context(turn.id).messages[0].erased


def test_caches_of_this_process_are_dropped(log: TurnLog, tmp_path: Path) -> None:
    """Nothing that is kept for speed has what was erased: windows, requests, conversations of adapters."""
    turn = log.add_turn("said", bookmark="main")
    adapter = providers.get("anthropic")
    adapter.prepare_request(log.context("main"), model="m")
    Talk(log, tmp_path, 11).call("main")
    assert adapter._kept
    assert log.calls._kept
    assert log._projector._kept
    log.erase(turn=turn.id, reason="asked")
    assert not adapter._kept
    assert not log.calls._kept
    assert not log._projector._kept
    assert turn.id not in log.store._appender._known.recent
    assert log.store._appender._known.heads == {}


@pytest.mark.parametrize(
    "stopping",
    [
        lambda log, turn: log.erase(turn=turn, reason="asked"),
        lambda log, _: log.retain(timedelta(microseconds=1), dry_run=False, reason="old"),
    ],
    ids=["erase", "retain"],
)
def test_caches_are_dropped_where_an_interrupt_comes_behind_the_erasure(
    log: TurnLog, monkeypatch: pytest.MonkeyPatch, stopping: Callable[[TurnLog, str], object]
) -> None:
    """It is erased by then: a process that goes on shows nothing of it."""
    turn = log.add_turn("said", bookmark="main")
    assert log.context(turn.id).messages[0].content

    def stopped(_wait_s: float) -> str | None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log.store, "_scrub", stopped)
    with pytest.raises(KeyboardInterrupt):
        stopping(log, turn.id)
    assert not log._projector._kept
    assert log.context(turn.id).messages[0].erased


def test_store_in_memory_can_be_erased_from() -> None:
    """There are no files; all else is the same."""
    with TurnLog.open("memory://") as log:
        turn = log.add_turn("said " * 30_000, bookmark="main")
        report = log.erase(turn="main", reason="asked")
        assert (report.turns, report.remains, log.bookmarks.all()) == ((turn.id,), None, [])
        assert log.verify().damage == ()
        log.add_turn("and on", continues=turn.id)


def test_many_targets_are_named_by_several_events(log: TurnLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """One event names so many; all are appended in one transaction."""
    monkeypatch.setattr("turnlog.audit.erasing.TARGETS_MAX", 3)
    log.add_turn("0", bookmark="main")
    for number in range(6):
        log.add_turn(str(number), continues="main")
    report = log.erase(thread="main", reason="asked")
    assert (len(report.turns), len(report.erasures)) == (7, 3)
    assert log.verify().damage == ()
