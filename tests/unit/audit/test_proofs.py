"""Proof files: what they hold for, what may be withheld, and what is refused.

`tests/docs/test_stand_alone_verifier.py` edits them in every way, and compares with a verifier that shares no code.
"""

import io
from base64 import b64decode, b64encode

import msgspec
import pytest
from tests import proof_cases as cases

from turnlog.audit import base64_reading, proof_events, proofs
from turnlog.audit.checkpoints import Checkpoint, sign
from turnlog.audit.notes import Verifier
from turnlog.audit.proofs import (
    Proof,
    ProofParts,
    ProofReport,
    check_consistency,
    check_parts,
    open_parts,
    proof_pieces,
    split_notes,
    write_proof,
)
from turnlog.digest import payload_hash
from turnlog.errors import ProofError
from turnlog.events import CALL, REPLY, TURN, Event, build, private_part
from turnlog.events.form import meta_text

KEYS = [Verifier.parse(key) for key in cases.KEYS]
ID = "03fr9cxksbd0ufbbn4sb2e5pj"


def checked(text: str) -> ProofReport:
    return cases.opened(text, KEYS)[1]


def proof_of(text: str) -> Proof:
    return cases.opened(text, KEYS)[0]


def refused(text: str) -> str:
    with pytest.raises(ProofError) as caught:
        checked(text)
    return str(caught.value)


def proof_with_call() -> str:
    """Return the proof of the thread that has most calls."""
    texts = [text for text in cases.good().values() if text.startswith(proofs.PROOF)]
    return max(texts, key=lambda text: sum("request" in event for event in cases.events_of(text)))


def with_payload() -> tuple[str, dict[str, str], list[dict[str, str]]]:
    """Return a proof whose first event has a payload and nothing sealed, with that event, and the others."""
    for text in cases.good().values():
        if text.startswith(proofs.PROOF):
            first, *others = cases.events_of(text)
            if "payload" in first and "secret" not in first and len(first["payload"]) > 20:
                return text, first, others
    raise AssertionError


def test_proof_survives_being_written() -> None:
    """It is spelled in one way only."""
    for text in cases.good().values():
        if text.startswith(proofs.PROOF):
            assert write_proof(proof_of(text)) == text


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
    index = proof_of(text).index
    assert "are needed" in refused(text.replace(f"\nindex {index}\n", "\nindex 46\n"))
    for other in {*range(32)} - {index}:
        refused(text.replace(f"\nindex {index}\n", f"\nindex {other}\n"))
    assert "has none at index" in refused(text.replace(f"\nindex {index}\n", "\nindex 4000\n"))


def test_event_that_is_none_is_refused() -> None:
    """Who has the key can sign anything: it is believed only where it can be read in one way."""
    for header, why in [
        (b"{}", "cannot be read"),
        (b'{"a":1}', "cannot be read"),
        (b"[" * 100_000, "nested 128 levels deep at most"),
    ]:
        shown = refused(cases.signed_event(header))
        assert why in shown
        assert "None" not in shown
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
    proof = proof_of(text)
    monkeypatch.setattr(proofs, "PROOF_BYTES_MAX", len(text.encode()) - 1)
    assert "at most" in refused(text)
    with pytest.raises(ProofError, match="withhold payloads"):
        write_proof(proof)
    monkeypatch.undo()
    monkeypatch.setattr(proofs, "REST_BYTES_MAX", 1000)
    for other in ("x" * 1001, "é" * 501):
        with pytest.raises(ProofError, match="at most"):
            check_consistency(other, KEYS)
        assert "bytes behind its events" in refused(f"{proofs.PROOF}\nextra AAAA\nindex 0\n\n{other}")
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
        (cases.spelled(events, more=1), "not spelled as they should be"),
        (cases.spelled(events, format="another"), "which this turnlog does not know"),
        (cases.spelled([]), "has no event"),
        (cases.spelled([{**events[0], "more": ""}]), "what this turnlog does not know"),
        (cases.spelled([{**events[0], "header": events[0]["header"] + "="}]), "not base64"),
        (b"\xff", "not spelled as they should be"),
    ]:
        assert why in refused(cases.with_extra(text, extra))


class Counting:
    """Counts what is taken apart."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in front of what reads an event."""
        self.read = 0
        decode = proof_events.decode

        def counted(*parts: bytes | None) -> Event:
            self.read += 1
            return decode(*parts)  # type: ignore[arg-type]

        monkeypatch.setattr(proof_events, "decode", counted)


def test_nothing_is_read_of_a_file_whose_signature_or_place_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many events it has: they cost nothing before the first is known to be in the tree."""
    counting = Counting(monkeypatch)
    text = cases.small()[1]
    [event] = cases.events_of(text)
    many = cases.with_events(text, [{**event, "header": b64encode(b"{}").decode()}, *[event] * 100])
    for wrong in (
        text.replace(cases.ORIGIN, "example.org/log", 1),
        text.replace("\nindex ", "\nindex 1", 1),
        many,
        cases.with_events(text, [{"header": ""}]),
    ):
        with pytest.raises(ProofError):
            cases.opened(wrong, KEYS)
    assert counting.read == 0


def test_nothing_is_read_of_an_event_that_none_cites(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has a proof of something can put anything behind it."""
    counting = Counting(monkeypatch)
    text = cases.small()[1]
    events = cases.events_of(text)
    more = [{"header": b64encode(b'{"meta":' + b"[" * 1000).decode()}] * 1000
    with pytest.raises(ProofError, match="event 2 of the proof is cited by none before it"):
        cases.opened(cases.with_events(text, [*events, *more]), KEYS)
    assert counting.read == 1


def test_reading_step_by_step_says_the_same_as_reading_at_once() -> None:
    """Of good files, and of edits."""
    for text in cases.good().values():
        if text.startswith(proofs.PROOF):
            proof, report = cases.opened(text, KEYS)
            assert report == check_parts(ProofParts.of(proof), KEYS)


def test_large_parts_are_read_when_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say the same then, and what was edited is refused, however little is read at a time."""
    texts = {text: proof_of(text) for text in cases.good().values() if text.startswith(proofs.PROOF)}
    monkeypatch.setattr(proofs, "HELD_BYTES_MAX", 0)
    for characters in (1024 * 1024, 100):
        monkeypatch.setattr(base64_reading, "_PIECE_CHARACTERS", characters)
        for text, whole in texts.items():
            parts, report = open_parts(io.BytesIO(text.encode()), KEYS)
            assert (parts.whole(), report) == (whole, check_parts(parts, KEYS))
            assert b"".join(proof_pieces(parts)) == text.encode()
        text, event, events = with_payload()
        for payload, why in (
            (event["payload"][:-4], "not the one that was recorded"),
            ("*" + event["payload"][1:], "not spelled"),
            (event["payload"][4:8] + event["payload"][4:], "not the one that was recorded"),
            (event["payload"] + "=", "not base64"),
            (event["payload"][:8] + "====" + event["payload"][8:], "not base64"),
        ):
            edited = cases.with_events(text, [{**event, "payload": payload}, *events])
            with pytest.raises(ProofError, match=why):
                open_parts(io.BytesIO(edited.encode()), KEYS)


def test_large_part_that_was_changed_since_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was checked may be another one when it is read again."""
    monkeypatch.setattr(proofs, "HELD_BYTES_MAX", 0)
    text, event, events = with_payload()
    other = event["payload"][4:8] + event["payload"][4:]
    file = io.BytesIO(text.encode())
    parts, _ = open_parts(file, KEYS)
    payload = parts.events[0].payload
    assert payload is not None
    assert payload.whole() == b64decode(event["payload"])
    for changed in (cases.with_events(text, [{**event, "payload": other}, *events]), text[: len(text) // 10]):
        file.seek(0)
        file.truncate()
        file.write(changed.encode())
        with pytest.raises(ProofError, match="changed while it was read"):
            payload.whole()


def test_headers_and_private_parts_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken apart takes more memory than it has bytes: neither written nor read."""
    text = cases.small()[1]
    proof = proof_of(text)
    monkeypatch.setattr(proofs, "PART_BYTES_MAX", len(proof.events[0].header) - 10)
    assert "at most" in refused(text)
    with pytest.raises(ProofError, match="an event has a header or a private part of more than"):
        write_proof(proof)
    monkeypatch.setattr(proofs, "PART_BYTES_MAX", len(proof.events[0].header))
    assert write_proof(proof_of(text)) == text


def test_what_is_cited_and_not_shown_is_listed() -> None:
    """By id, each once, in the order in which it is cited."""
    whole = checked(proof_with_call())
    cited = [citation.id for event in whole.events for citation in event.event.header.citations]
    shown = {event.id for event in whole.events}
    assert list(whole.not_shown) == list(dict.fromkeys(id for id in cited if id not in shown))
    one = checked(cases.good()["one event alone"])
    assert list(one.not_shown) == [citation.id for citation in one.events[0].event.header.citations] != []


@pytest.mark.parametrize(
    ("runs", "possible"), [("1 0\n", False), ("1 1\n", False), ("1 2\n", True), ("1 0\n2 2\n", True), (None, True)]
)
def test_guests_are_possible_unless_the_checkpoint_says_that_there_are_none(runs: str | None, possible: bool) -> None:
    """Its line about arrivals is a hash: only of the plainest runs it is known what it says."""
    event = build(topic="acme.note", id=ID, time=0, meta=meta_text({}), private=None)
    extensions = () if runs is None else (f"turnlog-arrivals {payload_hash(runs.encode())}",)
    text = cases.signed_event(event.state)
    note = sign(Checkpoint(cases.ORIGIN, 1, event.leaf_hash, extensions), cases.LOG)
    report = checked(text.partition("\n\n")[0] + "\n\n" + note)
    assert report.guests_possible is possible
    for guests, guests_possible in ((["1 0\n"], False), (["1 0\n2 2\n"], True), (["1 0\n", "1 0\n"], True)):
        more = tuple(f"turnlog-guests {payload_hash(runs.encode())}" for runs in guests)
        note = sign(Checkpoint(cases.ORIGIN, 1, event.leaf_hash, extensions + more), cases.LOG)
        found = checked(text.partition("\n\n")[0] + "\n\n" + note)
        assert found.guests_possible is (guests_possible or not extensions)
    doubled = sign(Checkpoint(cases.ORIGIN, 1, event.leaf_hash, extensions * 2), cases.LOG)
    assert checked(text.partition("\n\n")[0] + "\n\n" + doubled).guests_possible is True


def test_messages_repeat_little_of_a_file() -> None:
    """And what they repeat is spelled out: who signed it could have written anything."""
    odd = "\x1b[2J" + "ABC" * 100_000
    header = msgspec.json.encode({"id": odd})
    text = cases.small()[1]
    wrong_id = build(topic="acme.note", id=odd, time=0, meta=meta_text({}), private=None).state
    for why in (
        refused(cases.signed_event(header)),
        refused(cases.signed_event(wrong_id)),
        refused(cases.with_extra(text, b'],"format":"' + b"\xe2\x80\xae" * 300 + b'"}')),
        refused(odd + text),
    ):
        assert len(why) < 500
        assert not any(control in why for control in "\x1b\u202e\n")


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


def test_a_torn_note_takes_none_with_it() -> None:
    """Wherever the writer was stopped, the notes behind it are whole."""
    one = cases.small()[0].partition("\n\n")[2]
    for cut in range(1, len(one)):
        # As a place writes on behind what does not end with an empty line.
        torn = one[:cut] + ("" if one[:cut].endswith("\n\n") else "\n\n")
        assert split_notes(torn + one + "\n" + one)[-2:] == [one, one]


def test_parts_are_exact_bytes() -> None:
    """The file has the parts as they are stored."""
    text = cases.small()[2]
    for written, proved in zip(cases.events_of(text), proof_of(text).events, strict=True):
        parts = {name: value for name, value in msgspec.structs.asdict(proved).items() if value is not None}
        assert {name: b64encode(value).decode() for name, value in parts.items()} == written
        assert b64decode(written["header"]) == proved.header
