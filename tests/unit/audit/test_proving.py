"""Making proofs from a store: what is shown, and when none is made."""

import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import structs
from tests import sealed_log
from tests.golden import generate
from tests.proof_cases import LOG, ORIGIN, opened

from turnlog import TurnLog
from turnlog.audit.checkpoints import Checkpoint, sign
from turnlog.audit.proofs import ProofParts, ProofReport, check_consistency, check_parts, write_proof
from turnlog.audit.proving import nothing
from turnlog.errors import CorruptionError, ProofError, UnknownTurnError
from turnlog.events import CALL, PARENT, REPLY, SUMMARY, TOOLS, TURN, Recorded
from turnlog.projections.tree import TREE
from turnlog.record.compaction import summary_content

KEYS = [LOG.verifier]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a store that has one of everything, with a checkpoint of it all."""
    path = tmp_path_factory.mktemp("filled") / "log.db"
    generate.fill(path)
    with TurnLog.open(f"sqlite:///{path}") as log:
        log.audit.checkpoint(LOG, origin=ORIGIN)
    return path.parent


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Path:
    """Give a copy of it."""
    return shutil.copytree(filled, tmp_path / "copy") / "log.db"


@pytest.fixture
def log(store: Path) -> Iterator[TurnLog]:
    """Give its log."""
    with TurnLog.open(f"sqlite:///{store}") as opened:
        yield opened


def proved(log: TurnLog, event: str, **options: object) -> ProofReport:
    """Make a proof, write it, read it, and check it."""
    return opened(write_proof(log.audit.prove(event, **options)), KEYS)[1]  # type: ignore[arg-type]


def edit(store: Path, statement: str, *parameters: object, triggers: bool = True) -> None:
    """Edit a store behind turnlog's back, without its triggers."""
    database = sqlite3.connect(store)
    with database:
        for (name,) in (
            () if not triggers else database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        ):
            database.execute(f"DROP TRIGGER {name}")
        database.execute(statement, parameters)
    database.close()


def test_every_event_can_be_proved(log: TurnLog) -> None:
    """Each is at the place that it has, also where it was erased or is a guest."""
    for recorded in log.events():
        report = proved(log, recorded.header.id)
        assert (report.index, report.events[0].id) == (recorded.global_position - 1, recorded.header.id)
        assert report.events[0].withheld == recorded.erased
        assert report.signed.checkpoint.size == len(list(log.events()))


def test_thread_is_the_ancestry(log: TurnLog) -> None:
    """All turns that a turn grew from, each once, and nothing else."""
    report = proved(log, "both", thread=True)
    ancestry = [turn.id for turn in log.ancestry("both")]
    assert sorted(event.id for event in report.events) == sorted(ancestry)
    assert report.events[0].id == log.turn("both").id
    assert {event.topic for event in report.events} == {TURN}
    assert all("payload" in event.shown for event in report.events if not event.withheld)


def test_calls_come_with_requests_tools_and_replies(log: TurnLog) -> None:
    """The exact bytes that were sent, and what was offered and answered."""
    proof = log.audit.prove("talk", thread=True, calls=True)
    report = check_parts(ProofParts.of(proof), KEYS)
    assert Counter(event.topic for event in report.events) == {TURN: 6, CALL: 3, REPLY: 3, TOOLS: 1}
    for event, shown in zip(report.events, proof.events, strict=True):
        if event.topic == CALL:
            assert shown.request == log.calls.request(event.id)
    assert [proof.loss is not None for proof in proof.events].count(True) == 1


def test_calls_of_a_thread_come_with_the_summaries_that_its_windows_show(log: TurnLog) -> None:
    """What a model was shown in the place of turns."""
    for number in range(20):
        log.add_turn(f"{number}", continues="summed" if number else None, bookmark="summed")
    for said in ("One.", "Two."):
        log.compact("summed", text=said, keep_last=2)
        for number in range(8):
            log.add_turn(f"more {number}", continues="summed")
    log.audit.checkpoint(LOG, origin=ORIGIN)
    proof = log.audit.prove("summed", thread=True, calls=True)
    assert Counter(event.topic for event in check_parts(ProofParts.of(proof), KEYS).events) == {TURN: 36, SUMMARY: 2}
    assert {summary_content("One."), summary_content("Two.")} <= {shown.payload for shown in proof.events}
    assert {event.topic for event in proved(log, "summed", thread=True).events} == {TURN}


def test_calls_without_the_thread_are_those_of_the_turn(log: TurnLog) -> None:
    """And a turn that came of no call has none."""
    assert Counter(event.topic for event in proved(log, "talk", calls=True).events) == {
        TURN: 1,
        CALL: 1,
        REPLY: 1,
        TOOLS: 1,
    }
    assert [event.topic for event in proved(log, "main", calls=True).events] == [TURN]


def test_what_is_withheld_is_asked_of_each_event(log: TurnLog) -> None:
    """So one turn can be shown and another not."""

    def withheld(recorded: Recorded) -> frozenset[str]:
        has_parents = any(citation.relation == PARENT for citation in recorded.header.citations)
        return frozenset({"payload"}) if has_parents else frozenset({"private"})

    report = proved(log, "both", thread=True, withheld=withheld)
    for event in report.events:
        expected = ("private",) if event.event.header.parents else ()
        assert event.shown == (() if event.event.private_state is None else expected)
    assert any(event.withheld for event in report.events)


@pytest.mark.parametrize("part", ["request", "loss"])
def test_withheld_request_is_not_in_the_payload_either(log: TurnLog, part: str) -> None:
    """The payload of a call has what is new in its request and in its loss report."""
    proof = log.audit.prove("talk", thread=True, calls=True, withheld=lambda _: frozenset({part}))
    shown = check_parts(ProofParts.of(proof), KEYS)
    calls = [proved for proved, event in zip(proof.events, shown.events, strict=True) if event.topic == CALL]
    assert [(call.payload, getattr(call, part)) for call in calls] == [(None, None)] * 3
    whole = log.audit.prove("talk", thread=True, calls=True)
    assert sum(event.payload is not None for event in whole.events) == 3 + sum(
        event.payload is not None for event in proof.events
    )


def test_request_that_rests_on_an_erased_call_is_not_shown(store: Path) -> None:
    """It can no longer be put together. All else is shown."""
    with TurnLog.open(f"sqlite:///{store}") as log:
        first, *_ = [event.header.id for event in log.events() if event.header.topic == CALL]
    edit(
        store,
        "UPDATE stored_events SET private = NULL, payload_placement = 5, payload = NULL WHERE event_id = ?",
        first,
        triggers=False,
    )
    with TurnLog.open(f"sqlite:///{store}") as log:
        report = proved(log, "talk", thread=True, calls=True)
    shown = {event.id: event.shown for event in report.events if event.topic == CALL}
    assert shown.pop(first) == ()
    assert set(shown.values()) == {("private", "payload")}


def test_proof_needs_a_checkpoint_that_covers_it(log: TurnLog) -> None:
    """The message says how to get one."""
    turn = log.add_turn("later")
    with pytest.raises(ProofError, match=r"no checkpoint covers event .* `turnlog checkpoint`"):
        log.audit.prove(turn.id)
    old = log.audit.checkpoints()[0].note
    with pytest.raises(ProofError, match="the checkpoint covers"):
        log.audit.prove(turn.id, note=old)
    new = log.audit.checkpoint(LOG)
    assert proved(log, turn.id).signed.checkpoint.size == new.size
    assert proved(log, "main", note=old).signed.checkpoint.size < new.size
    with pytest.raises(UnknownTurnError):
        log.audit.prove("nothing of this name")


def test_checkpoint_of_another_log_proves_nothing(log: TurnLog) -> None:
    """Nor one of this log as it was before it was cut, nor one that is none."""
    size = log.audit.checkpoints()[0].size
    other = sign(Checkpoint(ORIGIN, size, b"x" * 32), LOG)
    with pytest.raises(ProofError, match="not signed for the log as it is"):
        log.audit.prove("main", note=other)
    longer = sign(Checkpoint(ORIGIN, size + 5, b"x" * 32), LOG)
    with pytest.raises(ProofError, match="its end was cut off"):
        log.audit.prove("main", note=longer)
    with pytest.raises(ProofError):
        log.audit.prove("main", note="no note")


DAMAGE: dict[str, Callable[[Path, str], None]] = {
    "another header": lambda store, turn: edit(
        store, "UPDATE stored_events SET state = replace(state, 'user', 'uSer') WHERE event_id = ?", turn
    ),
    "another private part": lambda store, turn: edit(
        store, "UPDATE stored_events SET private = private || ' ' WHERE event_id = ?", turn
    ),
    "another payload": lambda store, turn: edit(
        store, "UPDATE stored_events SET payload = '[]', payload_placement = 1 WHERE event_id = ?", turn
    ),
    "no such event": lambda store, turn: edit(store, "DELETE FROM stored_events WHERE event_id = ?", turn),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_never_proved(name: str, store: Path) -> None:
    """No proof is written that would not hold: what is damaged is said to be."""
    with TurnLog.open(f"sqlite:///{store}") as log:
        head = log.turn("both").id
        [turn, *_] = [turn.id for turn in log.ancestry(head)]
    DAMAGE[name](store, turn)
    with TurnLog.open(f"sqlite:///{store}") as log, pytest.raises((CorruptionError, ProofError)):
        log.audit.prove(head, thread=True)


def test_growth_is_proved(log: TurnLog) -> None:
    """From any checkpoint to any later one; from none to an earlier one."""
    notes = [log.audit.checkpoints()[0].note]
    for number in range(5):
        log.add_turn(f"turn {number}", continues="main")
        notes.append(log.audit.checkpoint(LOG).note)
    for first, old in enumerate(notes):
        for new in notes[first:]:
            report = check_consistency(log.audit.prove_consistency(old, new), KEYS)
            assert report.old.note_text == old
            assert report.new.note_text == new
    with pytest.raises(ProofError, match="name the old one first"):
        log.audit.prove_consistency(notes[1], notes[0])
    forged = sign(Checkpoint(ORIGIN, 3, b"x" * 32), LOG)
    with pytest.raises(ProofError, match="not signed for the log as it is"):
        log.audit.prove_consistency(forged, notes[0])
    with pytest.raises(ProofError, match="its end was cut off"):
        log.audit.prove_consistency(notes[0], sign(Checkpoint(ORIGIN, 10_000, b"x" * 32), LOG))


def test_kept_tree_that_is_gone_is_built_again(store: Path) -> None:
    """Nothing rests on it: it follows from the leaves."""
    database = sqlite3.connect(store)
    for table in TREE.tables:
        database.execute(f"DROP TABLE {table}")
    database.close()
    with TurnLog.open(f"sqlite:///{store}") as log:
        assert len(proved(log, "both", thread=True).events) > 5


@pytest.fixture(scope="module")
def sealed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a store that is sealed but for its beginning, with a checkpoint."""
    path = tmp_path_factory.mktemp("sealed") / "log.db"
    seals = sealed_log.SealsInMemory()
    sealed_log.fill(path, seals)
    with TurnLog.open(f"sqlite:///{path}", seals=seals) as log:
        log.audit.checkpoint(LOG, origin=ORIGIN)
    return path


def all_keys() -> sealed_log.SealsInMemory:
    """Return the keys that the store was sealed with: they are the same each time."""
    seals = sealed_log.SealsInMemory()
    for subject in (None, "Ada", "Bob"):
        seals.make(subject)
    return seals


def test_sealed_events_are_opened_where_their_keys_are(sealed_store: Path) -> None:
    """The proof has the secret of each, what it says in the clear, and the request that was sent."""
    with TurnLog.open(f"sqlite:///{sealed_store}", seals=all_keys()) as log:
        proof = log.audit.prove("both", thread=True, calls=True)
        report = opened(write_proof(proof), KEYS)[1]
        for shown, proved in zip(report.events, proof.events, strict=True):
            assert "payload" in shown.shown
            assert proved.payload == log.payload(shown.id)
            assert shown.event.private is not None
            if shown.topic == CALL:
                assert proved.request == log.calls.request(shown.id)
        plain = [proved for proved in proof.events if proved.secret is None]
        secrets = {proved.secret for proved in proof.events} - {None}
    assert (len(plain), len(secrets)) == (1, len(proof.events) - 1)
    assert len({len(secret) for secret in secrets if secret}) == 1


def test_secret_opens_its_event_and_no_other(sealed_store: Path) -> None:
    """So somebody who is shown one turn reads one turn."""
    with TurnLog.open(f"sqlite:///{sealed_store}", seals=all_keys()) as log:
        proof = log.audit.prove("both", thread=True)
    first, second = [proved for proved in proof.events if proved.secret is not None][:2]
    events = tuple(
        structs.replace(proved, secret=first.secret) if proved is second else proved for proved in proof.events
    )
    with pytest.raises(ProofError, match="is not the one that it was sealed with"):
        check_parts(ProofParts.of(structs.replace(proof, events=events)), KEYS)


@pytest.mark.parametrize("how", ["withheld", "no keys", "a key that is gone"])
def test_sealed_events_stay_sealed(sealed_store: Path, how: str) -> None:
    """Where that is wanted, and where no key is here: the sealed bytes are proved, and the proof has no other."""
    seals = None if how == "no keys" else all_keys()
    withheld = (lambda _: frozenset({"secret"})) if how == "withheld" else nothing
    with TurnLog.open(f"sqlite:///{sealed_store}", seals=all_keys()) as log:
        head = log.turn("both").id
        clear = [payload for turn in log.ancestry(head) if (payload := log.payload(turn.id))][1:]
    if seals is not None and how == "a key that is gone":
        for subject in (None, "Ada", "Bob"):
            seals._keys.pop(subject)
    with TurnLog.open(f"sqlite:///{sealed_store}", seals=seals) as log:
        proof = log.audit.prove(head, thread=True, calls=True, withheld=withheld)
    report = opened(write_proof(proof), KEYS)[1]
    *sealed, plain = report.events
    assert {shown.shown for shown in sealed} == {("sealed", "sealed payload")}
    assert plain.shown == ("private", "payload")
    assert [proved.secret for proved in proof.events] == [None] * len(proof.events)
    assert not any(shown.withheld for shown in report.events)
    assert [proved.payload for proved in proof.events if proved.payload in clear] == []


def test_sealed_payload_can_be_withheld(sealed_store: Path) -> None:
    """Of what is opened and of what is not, like any other."""
    with TurnLog.open(f"sqlite:///{sealed_store}", seals=all_keys()) as log:
        for withheld, expected in (
            ({"payload"}, {("private",), ("private", "request")}),
            ({"payload", "secret"}, {("sealed",), ("private",)}),
            ({"private"}, {()}),
            ({"request"}, {("private",), ("private", "payload")}),
        ):
            proof = log.audit.prove(
                "both", thread=True, calls=True, withheld=lambda _, those=frozenset(withheld): those
            )
            assert {shown.shown for shown in check_parts(ProofParts.of(proof), KEYS).events} == expected
