"""Proof files: what they hold for, what may be withheld, and what is refused.

`tests/docs/test_stand_alone_verifier.py` edits them in every way, and compares with a verifier that shares no code.
"""

from base64 import b64decode, b64encode

import msgspec
import pytest
from tests import proof_cases as cases

from turnlog.audit import proofs
from turnlog.audit.notes import Verifier
from turnlog.audit.proofs import (
    ProofReport,
    check_consistency,
    check_proof,
    parse_proof,
    split_notes,
    write_proof,
)
from turnlog.errors import ProofError
from turnlog.events import CALL, REPLY, TURN, build, private_part
from turnlog.events.form import meta_text

KEYS = [Verifier.parse(key) for key in cases.KEYS]
ID = "03fr9cxksbd0ufbbn4sb2e5pj"


def checked(text: str) -> ProofReport:
    return check_proof(parse_proof(text), KEYS)


def refused(text: str) -> str:
    with pytest.raises(ProofError) as caught:
        checked(text)
    return str(caught.value)


def proof_with_call() -> str:
    """Return the proof of the thread that has most calls."""
    texts = [text for text in cases.good().values() if text.startswith(proofs.PROOF)]
    return max(texts, key=lambda text: sum("request" in event for event in cases.events_of(text)))


def test_proof_survives_being_written() -> None:
    """It is spelled in one way only."""
    for text in cases.good().values():
        if text.startswith(proofs.PROOF):
            assert write_proof(parse_proof(text)) == text


def test_proof_shows_a_thread_with_its_calls() -> None:
    """Turns, calls with request and loss report, replies: each is cited by one before it."""
    report = checked(proof_with_call())
    assert {TURN, CALL, REPLY} <= {event.topic for event in report.events}
    cited = {citation.id for event in report.events for citation in event.event.header.citations}
    assert {event.id for event in report.events[1:]} <= cited
    shown = {part for event in report.events if event.topic == CALL for part in event.shown}
    assert shown == {"private", "payload", "request", "loss"}
    assert report.signed.checkpoint.origin == cases.ORIGIN
    assert [verifier.name for verifier in report.signed.signed_by] == [cases.ORIGIN]


@pytest.mark.parametrize("part", cases.PARTS)
def test_what_is_withheld_is_not_in_the_file(part: str) -> None:
    """No event shows it, the rest is shown as before, and without the private part nothing but headers is."""
    text = cases.good()[f"without {part}"]
    whole, report = checked(proof_with_call()), checked(text)
    gone = {"private", "payload", "request", "loss"} if part == "private" else {part}
    assert not any(part in event for event in cases.events_of(text))
    assert {shown for event in report.events for shown in event.shown} == {*cases.PARTS} - gone
    assert [event.id for event in report.events] == [event.id for event in whole.events]
    assert any(event.withheld for event in report.events) == (
        part == "private" or any(e.withheld for e in whole.events)
    )


def test_erased_event_is_shown_as_its_header() -> None:
    """What is erased and what is withheld looks the same: a header that commits to a part that is not there."""
    erased = [
        checked(text)
        for name, text in cases.good().items()
        if name.startswith("event ") and checked(text).events[0].withheld
    ]
    assert erased
    assert all(report.events[0].shown == () for report in erased)


def test_payload_needs_its_private_part() -> None:
    """A payload alone could be any: its hash is in the private part."""
    text = cases.small()[1]
    event = cases.events_of(text)[0]
    del event["private"]
    assert "needs its private part" in refused(cases.with_events(text, [event]))


def test_payload_of_another_event_is_refused() -> None:
    """Payloads do not change places."""
    text = proof_with_call()
    events = cases.events_of(text)
    first, second = [event for event in events if "payload" in event][:2]
    first["payload"], second["payload"] = second["payload"], first["payload"]
    assert "is not the one that was recorded" in refused(cases.with_events(text, events))


def test_event_that_none_cites_is_refused() -> None:
    """Only the first event is proved by the tree: all others by citations, in order."""
    text = proof_with_call()
    events = cases.events_of(text)
    other = cases.events_of(cases.good()["event 1"])
    assert "cited by none before it" in refused(cases.with_events(text, [*events, *other]))
    assert "cited by none before it" in refused(cases.with_events(text, [events[0], *reversed(events[1:])]))


def test_other_place_is_refused() -> None:
    """The path leads to the root from one place only."""
    text = cases.small()[1]
    index = parse_proof(text).index
    assert "are needed" in refused(text.replace(f"\nindex {index}\n", "\nindex 46\n"))
    for other in {*range(32)} - {index}:
        refused(text.replace(f"\nindex {index}\n", f"\nindex {other}\n"))
    assert "has none at index" in refused(text.replace(f"\nindex {index}\n", "\nindex 4000\n"))


def test_event_that_is_none_is_refused() -> None:
    """Who has the key can sign anything: it is believed only where it can be read in one way."""
    for header, why in [
        (b"{}", "cannot be read"),
        (b'{"a":1}', "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
    ]:
        assert why in refused(cases.signed_event(header))
    event = build(topic="acme.note", id=ID, time=2**53, meta=meta_text({}), private=None)
    assert "is not a time" in refused(cases.signed_event(event.state))
    event = build(topic="acme.note", id=ID, time=0, meta=meta_text({}), private=None)
    assert checked(cases.signed_event(event.state)).events[0].time_ms == 0
    assert "not in the form of the log" in refused(cases.signed_event(event.state + b" "))
    private = private_part({"a": 1}, hash=None, size=None, salt=b"short")
    event = build(topic="acme.note", id=ID, time=0, meta=meta_text({}), private=private)
    assert event.private_state is not None
    assert "its salt has 5 bytes" in refused(cases.signed_event(event.state, private=event.private_state))


def test_request_of_what_is_no_call_is_refused() -> None:
    """Only a call says what its request was."""
    meta = {"request": {"hash": "sha256-", "size": 1}}
    private = private_part(meta, hash=None, size=None, salt=bytes(16))
    event = build(topic="acme.note", id=ID, time=0, meta=meta_text({}), private=private)
    assert event.private_state is not None
    shown = refused(cases.signed_event(event.state, private=event.private_state, request=b"x"))
    assert "says nothing of a request" in shown


def test_more_than_a_proof_can_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is neither written nor read, and the limit is one of bytes."""
    text = cases.small()[1]
    proof = parse_proof(text)
    monkeypatch.setattr(proofs, "PROOF_BYTES_MAX", len(text.encode()) - 1)
    assert "at most" in refused(text)
    with pytest.raises(ProofError, match="withhold payloads"):
        write_proof(proof)
    with pytest.raises(ProofError, match="at most"):
        check_consistency("é" * len(text), KEYS)
    monkeypatch.undo()
    lines = text.split("\n")
    hashes = [lines[3]] * 64
    assert "at most 63 hashes" in refused("\n".join([*lines[:3], *hashes, *lines[lines.index("") :]]))


def test_extra_is_spelled_in_one_way() -> None:
    """No blanks, no key twice, no other fields: else two readers could read two things."""
    text = cases.small()[1]
    events = cases.events_of(text)
    for extra, why in [
        (cases.spelled(events) + b" ", "not spelled as they should be"),
        (cases.spelled(events).replace(b'"events":', b'"events":[],"events":', 1), "not spelled as they should be"),
        (cases.spelled(events, more=1), "cannot be read"),
        (cases.spelled(events, format="another"), "which this turnlog does not know"),
        (cases.spelled([]), "has no event"),
        (cases.spelled([{**events[0], "more": ""}]), "what this turnlog does not know"),
        (cases.spelled([{**events[0], "header": events[0]["header"] + "="}]), "not base64"),
        (b"\xff", "cannot be read"),
    ]:
        assert why in refused(cases.with_extra(text, extra))


def test_other_files_are_told_apart() -> None:
    """What is no proof is said to be none."""
    assert "it is no proof" in refused("")
    assert "it is no proof" in refused(cases.good()["growth from 3"])
    assert "lacks its events" in refused(f"{proofs.PROOF}\n\n")
    with pytest.raises(ProofError, match="no consistency proof"):
        check_consistency(cases.small()[0], KEYS)
    with pytest.raises(ProofError, match="two checkpoints"):
        check_consistency(cases.good()["growth from 3"] + "\n\n", KEYS)


def test_growth_names_both_checkpoints() -> None:
    """Of the same log, and with their signatures."""
    report = check_consistency(cases.good()["growth from 3"], KEYS)
    assert (report.old.checkpoint.size, report.old.checkpoint.origin) == (3, cases.ORIGIN)
    assert report.new.checkpoint.extensions == ("an extension",)
    assert cases.WITNESS.name in [name for name, _ in report.new.cosigned_by]


def test_notes_are_split() -> None:
    """Files of checkpoints have one after the other, with or without an empty line between."""
    one = cases.small()[0].partition("\n\n")[2]
    two = cases.all_signed(one)
    assert split_notes(one + two + one) == [one, two, one]
    assert split_notes(f"{one}\n{two}\n{one}\n") == [one, two, one]
    assert split_notes("") == []
    assert split_notes(one + "rest") == [one, "rest"]


def test_parts_are_exact_bytes() -> None:
    """The file has the parts as they are stored."""
    text = cases.small()[2]
    for written, proved in zip(cases.events_of(text), parse_proof(text).events, strict=True):
        parts = {name: value for name, value in msgspec.structs.asdict(proved).items() if value is not None}
        assert {name: b64encode(value).decode() for name, value in parts.items()} == written
        assert b64decode(written["header"]) == proved.header
