"""What is erased is gone, from the log and from the files; what stays still proves what it proved."""

import io
import json
import random
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from msgspec import UNSET

from turnlog import LossEntry, LossReport, Response, Text, TurnLog, providers
from turnlog.digest import sri
from turnlog.errors import ErasedError, HoldError, IdConflictError, MetaError, UnknownTurnError
from turnlog.events import HOLD
from turnlog.model import CallError, content_bytes
from turnlog.providers import PreparedRequest
from turnlog.store.sqlite.schema import SCRUBS

RUN = 8
"""No run of so many bytes of what was erased is left anywhere."""

SIZES = (8, 40, 100, 127, 128, 200, 1000, 4000, 8000, 20_000, 60_000, 65_535, 65_536, 100_000, 1_000_000)
"""Bytes of contents: in a page, over many, as files, on both sides of each limit."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give the place of a store."""
    return tmp_path / "store" / "log.db"


@pytest.fixture
def log(path: Path) -> Iterator[TurnLog]:
    """Give an open log in a file."""
    with TurnLog.open(f"sqlite:///{path}", busy_timeout_s=2) as log:
        yield log


def raw_files(folder: Path) -> bytes:
    """Return all bytes of the files below a folder, with their names, and what is in Zstandard frames among them."""
    parts: list[bytes] = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        raw = file.read_bytes()
        parts += [str(file.relative_to(folder)).encode(), raw]
        for found in re.finditer(re.escape(b"\x28\xb5\x2f\xfd"), raw):
            with suppress(zstandard.ZstdError):
                parts.append(zstandard.ZstdDecompressor().decompressobj().decompress(raw[found.start() :]))
    return b"\n".join(parts)


def runs(secret: bytes) -> set[bytes]:
    """Return all runs of a secret."""
    return {secret[place : place + RUN] for place in range(max(1, len(secret) - RUN + 1))}


def traces(folder: Path, secrets: list[bytes]) -> set[bytes]:
    """Return the runs of secrets that are in the files of a folder."""
    raw = raw_files(folder)
    wanted = set().union(*map(runs, secrets))
    return wanted.intersection(raw[at : at + RUN] for at in range(len(raw) - RUN + 1))


CYRILLIC = "".join(map(chr, range(0x410, 0x450)))
"""What the person writes in. Others do not: so no run of theirs is one of the person's by chance."""


class Talk:
    """Records one of everything that can carry what a person said. `secrets` has what they said."""

    def __init__(self, log: TurnLog, folder: Path, seed: int, *, alphabet: str = CYRILLIC) -> None:
        self.log = log
        self.folder = folder
        self.random = random.Random(seed)
        self.alphabet = alphabet
        self.secrets: list[bytes] = []

    def text(self, size: int) -> str:
        """Return text of the person's, half of it such that it can be compressed."""
        width = len(self.alphabet[0].encode())
        word = "".join(self.random.choices(self.alphabet, k=max(4, size // width // 2)))
        text = (word * 3)[: size // width]
        self.secrets.append(text.encode())
        return text

    def name(self, kind: str) -> str:
        return f"{kind} {self.text(16)}"

    def fill(self, subject: str | None = None) -> list[str]:
        """Record a thread of turns, documents, calls and bookmarks, and return the ids of its turns."""
        log, ids = self.log, []
        bookmark = self.name("bookmark")
        for number, size in enumerate(SIZES):
            where: dict[str, Any] = {"continues": bookmark} if number else {"bookmark": bookmark, "subject": subject}
            ids.append(log.add_turn(self.text(size), inherited={"note": self.text(20)}, **where).id)
        for size in (10, 100_000):
            document = self.folder / self.name("document")
            document.write_bytes(self.text(size).encode())
            ids.append(log.add_document(document, continues=bookmark).id)
            document.unlink()
        ids.append(log.add_turn(self.text(30), continues=bookmark, role="assistant", error=self.text(40)).id)
        for number in range(3):
            call = self.call(bookmark)
            ids.append(self.reply(call, bookmark, failed=number == 2))
        side, renamed = self.name("side"), self.name("renamed")
        log.set_bookmark(side, ids[3])
        log.rename_bookmark(side, renamed)
        log.delete_bookmark(renamed)
        return ids

    def call(self, bookmark: str) -> str:
        window = self.log.context(bookmark)
        head = self.log.turn(bookmark).id
        entry = LossEntry(kind="dropped", turn=head, block="thinking", why=self.text(20), index=0)
        request = PreparedRequest(
            adapter="openai_chat",
            version="1",
            provider="openai",
            api="chat",
            model="m",
            stream=True,
            head=b'{"model":"m","messages":[',
            messages=[message.content_json + b"," for message in window.messages],
            closing=b"{}]}",
            loss_report=LossReport(entries=(entry,)),
        )
        return self.log.calls.record(head, request, params={"user": self.text(16)})

    def reply(self, call: str, bookmark: str, *, failed: bool) -> str:
        said = self.text(300)
        response = Response(
            content=(Text(text=said),),
            model="m",
            stop_reason="error" if failed else "stop",
            provider="openai",
            api="chat",
            error=CallError(message=self.text(50)) if failed else None,
        )
        events = [msgspec.json.encode({"delta": said, "instructions": self.secrets[0].decode()})]
        return self.log.calls.record_reply(call, events, response, continues=bookmark).id


def proofs(log: TurnLog) -> list[tuple[int, bytes, bytes]]:
    """Return what others may hold of each event: its place, its header and its leaf hash."""
    return [(event.global_position, event.state, event.leaf_hash) for event in log.events()]


ERASE: dict[str, Callable[[TurnLog, list[str], str], Any]] = {
    "turn": lambda log, ids, _: log.erase(turn=ids, reason="asked"),
    "thread": lambda log, ids, _: log.erase(thread=ids[0], reason="asked"),
    "subject": lambda log, _, subject: log.erase(subject=subject, reason="asked"),
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("kind", ERASE)
def test_no_trace_of_what_was_erased_is_left(log: TurnLog, path: Path, tmp_path: Path, kind: str) -> None:
    """No run of 8 bytes of it is in the files of the store, in payload files, in their names or in an export."""
    others = Talk(log, tmp_path, 1, alphabet="0123456789abcdef")
    kept = others.fill(subject="somebody else")
    talk = Talk(log, tmp_path, 2)
    subject = talk.name("subject")
    ids = talk.fill(subject=subject)
    others.fill()
    before = proofs(log)
    assert runs(talk.secrets[3]) <= traces(path.parent, talk.secrets), "the test can find what is there"
    report = ERASE[kind](log, ids, subject)
    assert report.remains is None
    assert report.turns == tuple(ids)
    assert (len(report.calls), len(report.replies)) == (3, 3)
    if kind == "turn":
        # A bookmark event that names a bookmark goes with a thread or a subject: its name may be in use elsewhere.
        names = [event.private_state or b"" for event in log.events(topics=["gpt.bookmark"])]
        talk.secrets = [secret for secret in talk.secrets if not any(secret in name for name in names)]
    assert traces(path.parent, talk.secrets) == set()
    with (tmp_path / "export.jsonl").open("wb") as file:
        log.export(file)
    assert not [secret for secret in talk.secrets if secret[:RUN] in (tmp_path / "export.jsonl").read_bytes()]
    # All else is as it was.
    assert proofs(log)[: len(before)] == before
    assert log.verify().damage == ()
    assert log.verify().erased == report.events
    for turn, size in zip(kept, SIZES, strict=False):
        assert len(json.loads(log.payload(turn))[0]["text"]) == size


@pytest.mark.parametrize("kind", ERASE)
def test_guesses_cannot_be_confirmed(log: TurnLog, path: Path, tmp_path: Path, kind: str) -> None:
    """Whoever knows all that may have been said finds no hash of it in what stays: not in bytes, nor in names."""
    talk = Talk(log, tmp_path, 3)
    subject = talk.name("subject")
    ids = talk.fill(subject=subject)
    with log.store.read() as transaction:
        payloads = [transaction.payload(event) for event in transaction.log()]
        private = [event.private_state for event in transaction.log()]
    ERASE[kind](log, ids, subject)
    folders = {file.name for file in (path.parent / "log.db-payloads").iterdir()} - {".incoming"}
    assert folders == set()
    raw = raw_files(path.parent)
    guesses = [payload for payload in payloads if payload is not None]
    guesses += [content_bytes(secret.decode()) for secret in talk.secrets] + talk.secrets
    for guess in guesses:
        digest = sha256(guess).digest()
        for form in (digest, digest.hex().encode(), sri(digest).encode()):
            assert form not in raw
    # What is left of a private part is its hash, and in the part were 16 random bytes.
    for part in private:
        if part is not None and b'"meta"' not in part:
            unsalted = re.sub(rb'"salt":"[^"]*"', b'"salt":""', part)
            assert sri(sha256(unsalted).digest()).encode() not in raw


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
    log.add_turn("an answer", role="assistant", continues="main", model="m", provider="p", api="a")
    failed = log.add_turn("x", role="assistant", continues="main", stop_reason="error", bookmark=None)
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
    log.set_bookmark("side", second.id)
    log.rename_bookmark("side", "aside")
    log.erase(turn=second.id, reason="asked")
    assert {found.name: found.turn for found in log.bookmarks()} == {"main": first.id, "aside": second.id}
    log.erase(thread=first.id, reason="asked")
    assert log.bookmarks() == []
    assert log.verify().damage == ()
    log.rebuild_projections()
    assert log.bookmarks() == []


def test_bookmark_of_another_thread_keeps_its_name(log: TurnLog) -> None:
    """A rename of a bookmark that stood elsewhere at that time stays, though the name was in use here before."""
    here = log.add_turn("here", bookmark="name")
    there = log.add_turn("there")
    log.set_bookmark("name", there.id)
    log.rename_bookmark("name", "new name")
    report = log.erase(thread=here.id, reason="asked")
    assert (report.turns, report.bookmarks) == ((here.id,), ())
    assert {found.name: found.turn for found in log.bookmarks()} == {"new name": there.id}
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
    assert all("erased" in (check.difference or "") for check in checks)
    assert log.calls.replies() == {}


# Subjects


def test_subject_is_inherited_down_the_thread(log: TurnLog, tmp_path: Path) -> None:
    """A turn has the subject of its first parent, unless it names another one or none."""
    root = log.add_turn("one", bookmark="main", subject="Alice")
    log.add_turn("two", continues="main")
    reply = Talk(log, tmp_path, 9)
    answer = reply.reply(reply.call("main"), "main", failed=False)
    other = log.add_turn("three", continues="main", subject="Bob", bookmark=None)
    none = log.add_turn("four", continues=other.id, subject=None)
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
    log.set_hold("case 7", reason="a court said so", **{scope: held})
    later = log.add_turn("two", continues="main")
    for asked in ({"turn": root.id}, {"thread": later.id}, {"subject": "Alice"}):
        with pytest.raises(HoldError, match="'case 7' \\(a court said so\\)"):
            log.erase(reason="asked", **asked)
    if scope != "turn":
        with pytest.raises(HoldError):
            log.erase(turn=later.id, reason="asked")
    assert log.erase(turn=free.id, reason="asked").turns == (free.id,)
    with pytest.raises(HoldError, match="already"):
        log.set_hold("case 7", turn=root.id)
    assert [(hold.name, hold.scope) for hold in log.holds()] == [("case 7", scope)]
    log.release_hold("case 7")
    assert log.holds() == []
    with pytest.raises(HoldError, match="no hold"):
        log.release_hold("case 7")
    assert log.erase(thread="main", reason="asked").turns == (root.id, later.id)
    assert log.verify().damage == ()


def test_names_of_holds_are_private(log: TurnLog) -> None:
    """Nothing that names anybody is in the header of a hold."""
    turn = log.add_turn("one")
    log.set_hold("Alice v. Bob", subject="Alice", reason="court", by="Carol")
    log.set_hold("turn", turn=turn.id)
    [first, second] = log.events(topics=[HOLD])
    assert json.loads(bytes(first.header.meta)) == {"action": "set"}
    assert not [name for name in (b"Alice", b"court", b"Carol") if name in first.state]
    assert [citation.id for citation in second.header.citations] == [turn.id]


def test_request_is_held_with_its_window(log: TurnLog, tmp_path: Path) -> None:
    """To erase a later turn would take a request that has the held one: it is refused."""
    held = log.add_turn("held", bookmark="main")
    later = log.add_turn("later", continues="main")
    Talk(log, tmp_path, 10).call("main")
    log.set_hold("case", turn=held.id)
    with pytest.raises(HoldError):
        log.erase(turn=later.id, reason="asked")


def test_old_threads_are_listed_and_then_erased(log: TurnLog) -> None:
    """By default nothing is done. Threads on hold are kept, and told."""
    old = log.add_turn("old")
    held = log.add_turn("held")
    log.set_hold("case", thread=held.id)
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
        after = other.add_turn("and on", continues=turn.id)
        assert (after.meta.head, after.meta.subject) == (UNSET, UNSET)
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
    assert turn.id not in log.store._recent


def test_store_in_memory_can_be_erased_from() -> None:
    """There are no files; all else is the same."""
    with TurnLog.open("memory://") as log:
        turn = log.add_turn("said " * 30_000, bookmark="main")
        report = log.erase(turn="main", reason="asked")
        assert (report.turns, report.remains, log.bookmarks()) == ((turn.id,), None, [])
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
