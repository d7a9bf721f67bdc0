"""A witness: what it signs, what it refuses and how it says so, what it remembers, and asking it over HTTP."""

import multiprocessing
import os
import socket
import stat
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from turnlog.audit.checkpoints import Checkpoint, cosign, open_checkpoint, parse_checkpoint, sign, with_signatures
from turnlog.audit.merkle import EMPTY_ROOT, consistency_proof, leaf_hash, root
from turnlog.audit.notes import Signer, parse_note
from turnlog.audit.witness import BODY_BYTES_MAX, Response, Witness, WitnessServer, parse_log_keys, request_cosignature
from turnlog.errors import ProofError, SigningKeyError, StoreError

TIME_S = 1_767_323_045
ORIGIN = "example.com/log"
LEAVES = [leaf_hash(bytes([number])) for number in range(100)]
FORKED = [*LEAVES[:5], *map(leaf_hash, (b"other", b"leaves", b"from", b"here"))]


def signer(name: str, seed: int) -> Signer:
    return Signer(name=name, private_key=Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


LOG = signer(ORIGIN, 1)
SECOND = signer("example.com/log-2", 2)
STRANGER = signer(ORIGIN, 3)
WITNESS = signer("witness.example/w", 4)
KEYS = {ORIGIN: [LOG.verifier, SECOND.verifier], "elsewhere": [SECOND.verifier]}
VERIFIERS = [LOG.verifier, SECOND.verifier, WITNESS.cosigner_verifier]


def head(size: int, leaves: list[bytes] = LEAVES, origin: str = ORIGIN) -> Checkpoint:
    return Checkpoint(origin, size, root(leaves[:size]))


def body(old: int | str, note: str, proof: list[bytes] | None = None, leaves: list[bytes] = LEAVES) -> bytes:
    """A request; with the right proof, unless another is given."""
    if proof is None:
        size = parse_checkpoint(parse_note(note).text).size
        proof = consistency_proof(int(old), leaves[:size])
    lines = [f"old {old}", *(b64encode(each).decode() for each in proof), "", note]
    return "\n".join(lines).encode()


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    """Give a witness that has signed nothing, and whose clock stands."""
    return Witness(tmp_path / "state", WITNESS, KEYS, lambda: TIME_S + 0.9)


def grown_to(witness: Witness, size: int) -> Witness:
    """Let a witness sign a head."""
    answer = witness.add_checkpoint(body(0, sign(head(size), LOG)))
    assert answer.status == 200, answer
    return witness


def status(answer: Response) -> tuple[int, str]:
    """Status and media type; a refusal in words says so in one line."""
    assert answer.body.endswith(b"\n")
    assert answer.body.count(b"\n") == 1
    return answer.status, answer.content_type.partition(";")[0]


# --------------------------------------------------------------------------------------------------------- it signs


def test_heads_of_a_growing_log_are_signed(witness: Witness) -> None:
    """The answer is its signature line, with the time, below that of the log."""
    old = 0
    for size in (0, 1, 2, 2, 7, 8, 64, 64, 99):
        note = sign(head(size), LOG)
        answer = witness.add_checkpoint(body(old, note))
        assert status(answer) == (200, "text/plain")
        opened = open_checkpoint(with_signatures(note, [answer.body.decode()]), VERIFIERS)
        assert opened.checkpoint == head(size)
        assert opened.cosigned_by == [("witness.example/w", TIME_S)]
        old = size


def test_what_was_signed_is_remembered(tmp_path: Path, witness: Witness) -> None:
    """By another witness with the same folder too: it is on disk, as a note with both signatures, its owner's alone."""
    grown_to(witness, 7)
    again = Witness(tmp_path / "state", WITNESS, KEYS)
    assert again.add_checkpoint(body(0, sign(head(9), LOG))) == Response(409, "text/x.tlog.size", b"7\n")
    file = tmp_path / "state" / f"{sha256(ORIGIN.encode()).hexdigest()}.checkpoint"
    assert open_checkpoint(file.read_text(), VERIFIERS).cosigned_by == [("witness.example/w", TIME_S)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert {path.suffix for path in file.parent.iterdir()} == {".checkpoint", ".lock"}


def test_logs_are_apart(witness: Witness) -> None:
    """Each has its own last head."""
    grown_to(witness, 7)
    other = head(3, FORKED, "elsewhere")
    assert witness.add_checkpoint(body(0, sign(other, SECOND))).status == 200
    assert witness.add_checkpoint(body(7, sign(head(8), LOG))).status == 200


def test_any_key_of_the_log_will_do(witness: Witness) -> None:
    """Its keys can change; signatures of strangers are left out, and do not harm."""
    note = with_signatures(sign(head(4), SECOND), [STRANGER.sign(head(4).text), cosign(head(4).text, WITNESS, 5)])
    assert witness.add_checkpoint(body(0, note)).status == 200


def test_signatures_of_others_are_not_kept(tmp_path: Path, witness: Witness) -> None:
    """However many there are: what is kept has those that were checked, each once, and can be read again."""
    strangers = [cosign(head(4).text, STRANGER, time_s) for time_s in range(1, 98)]
    note = with_signatures(sign(head(4), LOG), [*strangers, SECOND.sign(head(4).text)])
    note += note.splitlines()[-1] + "\n"
    assert len(parse_note(note).signatures) == 100
    assert witness.add_checkpoint(body(0, note)).status == 200
    [file] = (tmp_path / "state").glob("*.checkpoint")
    names = [signature.name for signature in parse_note(file.read_text()).signatures]
    assert sorted(names) == [ORIGIN, "example.com/log-2", "witness.example/w"]
    assert witness.add_checkpoint(body(4, sign(head(7), LOG))).status == 200


# ------------------------------------------------------------------------------------------------------- it refuses

GOOD = sign(head(9), LOG)
PROOF = consistency_proof(7, LEAVES[:9])

MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "no checkpoint": b"old 7\n\n",
    "no empty line": f"old 7\n{GOOD}".encode(),
    "no old size": b"\n\n" + GOOD.encode(),
    "only a checkpoint": GOOD.encode(),
    "old size with a zero in front": body("07", GOOD, PROOF),
    "old size with a sign": body("+7", GOOD, PROOF),
    "negative old size": body("-7", GOOD, PROOF),
    "old size with two blanks": body(" 7", GOOD, PROOF),
    "old size in other digits": body("٧", GOOD, PROOF),
    "large old size": body(str(2**63), GOOD, PROOF),
    "carriage returns": body(7, GOOD, PROOF).replace(b"\n", b"\r\n"),
    "hash of 31 bytes": body(7, GOOD, [PROOF[0][:31], *PROOF[1:]]),
    "hash of 33 bytes": body(7, GOOD, [PROOF[0] + b"x", *PROOF[1:]]),
    "hash without padding": body(7, GOOD, PROOF).replace(b"=\n", b"\n", 1),
    "64 hashes": body(7, GOOD, [LEAVES[0]] * 64),
    "not UTF-8": body(7, GOOD, PROOF) + b"\xff",
    "too large": body(7, GOOD, PROOF) + GOOD.encode().splitlines()[-1] * (BODY_BYTES_MAX // 100),
    "not signed": body(7, "example.com/log\n9\n\n", PROOF),
    "no line feed at the end": body(7, GOOD, PROOF)[:-1],
    "not a checkpoint": body(7, f"hello\n\n{LOG.sign('hello' + chr(10))}\n", PROOF),
    "old size larger than the checkpoint's": body(10, GOOD, []),
}


@pytest.mark.parametrize("request_body", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_requests_are_refused(witness: Witness, request_body: bytes) -> None:
    """With 400, and nothing is signed."""
    grown_to(witness, 7)
    assert status(witness.add_checkpoint(request_body)) == (400, "text/plain")
    assert witness.add_checkpoint(body(7, GOOD)).status == 200


def test_other_logs_are_refused(witness: Witness) -> None:
    """With 404, whoever has signed."""
    for by in (LOG, STRANGER):
        assert status(witness.add_checkpoint(body(0, sign(head(4, LEAVES, "example.com/lag"), by)))) == (
            404,
            "text/plain",
        )


def test_other_keys_are_refused(witness: Witness) -> None:
    """With 403: a stranger's of the same name, a key of another log, and a false signature of the log's own."""
    note = sign(head(4), LOG)
    elsewhere = head(4, LEAVES, "elsewhere")
    assert status(witness.add_checkpoint(body(0, sign(head(4), STRANGER)))) == (403, "text/plain")
    assert status(witness.add_checkpoint(body(0, sign(elsewhere, LOG)))) == (403, "text/plain")
    forged = note.replace("\n4\n", "\n5\n")
    assert status(witness.add_checkpoint(body(0, forged, []))) == (403, "text/plain")
    beside = with_signatures(sign(head(4), SECOND), [LOG.sign(head(5).text)])
    assert status(witness.add_checkpoint(body(0, beside))) == (403, "text/plain")


@pytest.mark.parametrize("old", [0, 6, 8, 9])
def test_other_old_size_is_answered_with_the_last(witness: Witness, old: int) -> None:
    """With 409 and the size; also where the checkpoint is what it has signed already."""
    grown_to(witness, 7)
    assert witness.add_checkpoint(body(old, GOOD)) == Response(409, "text/x.tlog.size", b"7\n")
    if not old:
        assert witness.add_checkpoint(body(0, sign(head(7), LOG))) == Response(409, "text/x.tlog.size", b"7\n")


def test_smaller_head_is_refused(witness: Witness) -> None:
    """A log that was cut: there is no old size to get it signed with."""
    grown_to(witness, 7)
    note = sign(head(6), LOG)
    assert witness.add_checkpoint(body(6, note)).status == 409
    assert witness.add_checkpoint(body(7, note, [])).status == 400


def test_other_root_of_the_same_size_is_refused(witness: Witness) -> None:
    """With 409: a history that was written anew, of the same length. Its answer names no size to try again from."""
    grown_to(witness, 7)
    assert status(witness.add_checkpoint(body(7, sign(head(7, FORKED), LOG), []))) == (409, "text/plain")
    assert status(witness.add_checkpoint(body(7, sign(head(7), LOG), [LEAVES[0]]))) == (422, "text/plain")
    assert witness.add_checkpoint(body(7, sign(head(7), LOG))).status == 200


def test_empty_log_has_one_root(witness: Witness) -> None:
    """Also for the first head that a witness sees."""
    wrong = Checkpoint(ORIGIN, 0, LEAVES[0])
    assert status(witness.add_checkpoint(body(0, sign(wrong, LOG), []))) == (409, "text/plain")
    assert witness.add_checkpoint(body(0, sign(Checkpoint(ORIGIN, 0, EMPTY_ROOT), LOG))).status == 200


def test_fork_is_refused(witness: Witness) -> None:
    """With 422, whatever proof is given."""
    grown_to(witness, 7)
    note = sign(head(9, FORKED), LOG)
    proofs = [[], PROOF, consistency_proof(7, FORKED), PROOF[:-1], [*PROOF, LEAVES[0]], [LEAVES[0]] * 63]
    for proof in proofs:
        assert status(witness.add_checkpoint(body(7, note, proof))) == (422, "text/plain")
    for proof in [each for each in proofs if each != PROOF]:
        assert status(witness.add_checkpoint(body(7, GOOD, proof))) == (422, "text/plain")
    assert witness.add_checkpoint(body(7, GOOD, PROOF)).status == 200


def test_proof_from_nothing_must_be_empty(witness: Witness) -> None:
    """With 422."""
    assert status(witness.add_checkpoint(body(0, GOOD, [LEAVES[0]]))) == (422, "text/plain")


def test_refusal_leaves_the_state_as_it_was(tmp_path: Path, witness: Witness) -> None:
    """Byte for byte."""
    grown_to(witness, 7)
    [file] = (tmp_path / "state").glob("*.checkpoint")
    before = file.read_bytes()
    for request in (body(7, sign(head(9, FORKED), LOG), PROOF), body(0, GOOD), body(7, sign(head(9), STRANGER))):
        assert witness.add_checkpoint(request).status in (403, 409, 422)
    assert file.read_bytes() == before


# --------------------------------------------------------------------------------------------------------- its state


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\xff", GOOD.encode()[:-5], sign(head(7, origin="else"), LOG).encode()]
)
def test_damaged_state_is_never_taken_for_none(tmp_path: Path, witness: Witness, content: bytes) -> None:
    """It signs nothing until the file is put back."""
    grown_to(witness, 7)
    [file] = (tmp_path / "state").glob("*.checkpoint")
    whole = file.read_bytes()
    file.write_bytes(content)
    for old in (0, 7):
        with pytest.raises(ProofError, match="is not what the witness has signed last"):
            witness.add_checkpoint(body(old, GOOD))
    file.write_bytes(whole)
    assert witness.add_checkpoint(body(7, GOOD)).status == 200


def test_nothing_is_signed_that_is_not_kept(tmp_path: Path, witness: Witness) -> None:
    """Where the state cannot be written, there is no signature."""
    grown_to(witness, 7)
    [file] = (tmp_path / "state").glob("*.checkpoint")
    file.with_suffix(".tmp").mkdir()
    with pytest.raises(StoreError, match="nothing was recorded"):
        witness.add_checkpoint(body(7, GOOD))
    file.with_suffix(".tmp").rmdir()
    assert witness.add_checkpoint(body(0, GOOD)).body == b"7\n"


def test_state_that_was_left_half_written_is_no_harm(tmp_path: Path, witness: Witness) -> None:
    """A process was killed before the file got its name: what counts is the head before."""
    grown_to(witness, 7)
    [file] = (tmp_path / "state").glob("*.checkpoint")
    file.with_suffix(".tmp").write_bytes(b"exam")
    assert witness.add_checkpoint(body(7, GOOD)).status == 200
    assert not file.with_suffix(".tmp").exists()


def test_state_behind_a_link_is_refused(tmp_path: Path, witness: Witness) -> None:
    """Neither read nor locked: somebody else may have put it there."""
    grown_to(witness, 7)
    [file] = (tmp_path / "state").glob("*.checkpoint")
    for linked in (file, file.with_suffix(".lock")):
        linked.rename(tmp_path / "elsewhere")
        linked.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StoreError):
            witness.add_checkpoint(body(7, GOOD))
        (tmp_path / "elsewhere").rename(linked)
    assert witness.add_checkpoint(body(7, GOOD)).status == 200


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """At once, and not with the first request."""
    (tmp_path / "state").write_text("x")
    with pytest.raises(StoreError):
        Witness(tmp_path / "state", WITNESS, KEYS)


def _extended(folder: str, number: int) -> tuple[int, bytes]:
    """Ask for one of two histories from size 5 on, in a process of its own."""
    leaves = LEAVES if number % 2 else FORKED
    answer = Witness(Path(folder), WITNESS, KEYS).add_checkpoint(body(5, sign(head(9, leaves), LOG), leaves=leaves))
    return answer.status, sha256(answer.body).digest()


def test_of_two_histories_one_is_signed(tmp_path: Path, witness: Witness) -> None:
    """However many ask at once, in threads and processes: whoever is second is told the size."""
    grown_to(witness, 5)
    folder = str(tmp_path / "state")
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda number: _extended(folder, number), range(40)))
    assert [answer for answer, _ in found].count(200) == 1
    assert {answer for answer, _ in found} == {200, 409}


def test_of_two_histories_one_is_signed_by_processes(tmp_path: Path, witness: Witness) -> None:
    """The lock is between processes too."""
    grown_to(witness, 5)
    folder = str(tmp_path / "state")
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as processes:
        found = list(processes.map(_extended, [folder] * 20, range(20), chunksize=1))
    assert [answer for answer, _ in found].count(200) == 1
    assert {answer for answer, _ in found} == {200, 409}


# ---------------------------------------------------------------------------------------------------------- its keys


def test_keys_of_logs_are_read() -> None:
    """By origin: the name of the key, or what a line says above it."""
    text = f"# logs\n\n{LOG.verifier.vkey}\norigin turnlog of the team\n{SECOND.verifier.vkey}\n{LOG.verifier.vkey}\n"
    assert parse_log_keys(text) == {
        ORIGIN: [LOG.verifier],
        "turnlog of the team": [SECOND.verifier, LOG.verifier],
    }
    assert parse_log_keys("") == {}
    for wrong in ("x", "origin \n", f"{LOG.verifier.vkey} ", LOG.skey):
        with pytest.raises(SigningKeyError):
            parse_log_keys(wrong)


def test_keys_that_are_mixed_up_are_refused(tmp_path: Path) -> None:
    """A witness's in the place of a log's, and a witness that is the log itself."""
    with pytest.raises(SigningKeyError, match="is the key of a witness"):
        Witness(tmp_path, WITNESS, {ORIGIN: [LOG.cosigner_verifier]})
    with pytest.raises(SigningKeyError, match="is that of the witness"):
        Witness(tmp_path, signer("witness.example/w", 1), KEYS)


# ---------------------------------------------------------------------------------------------------------- over HTTP


@contextmanager
def served(server: HTTPServer) -> Iterator[str]:
    """Serve on a thread, and give the URL."""
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def http() -> Iterator[httpx2.Client]:
    """Give what asks."""
    with httpx2.Client(timeout=10) as client:
        yield client


@pytest.fixture
def url(witness: Witness) -> Iterator[str]:
    """Give the address of the witness."""
    server = WitnessServer(witness)
    with served(server) as address:
        assert server.url == address
        yield address


def prover(leaves: list[bytes]) -> Callable[[int], list[bytes]]:
    """Return what proves from any size to that of some leaves."""
    return lambda size: consistency_proof(size, leaves)


def test_cosignature_is_asked_for(url: str) -> None:
    """And comes back checked, for the checkpoint to be kept with."""
    key = WITNESS.cosigner_verifier
    for old, size in ((0, 5), (5, 9), (9, 9)):
        note = sign(head(size), LOG)
        line = request_cosignature(url + "/" * (size % 2), note, old, consistency_proof(old, LEAVES[:size]), key)
        opened = open_checkpoint(with_signatures(note, [line]), VERIFIERS)
        assert opened.cosigned_by == [("witness.example/w", TIME_S)]


def test_size_that_the_witness_names_is_followed(url: str) -> None:
    """Whoever does not know what the witness has signed last asks from 0."""
    key = WITNESS.cosigner_verifier
    for size, expected in ((5, []), (9, [5]), (9, [9]), (64, [9])):
        asked: list[int] = []

        def prove(old: int, size: int = size, asked: list[int] = asked) -> list[bytes]:
            asked.append(old)
            return consistency_proof(old, LEAVES[:size])

        assert request_cosignature(url, sign(head(size), LOG), 0, [], key, prove=prove)
        assert asked == expected
    with pytest.raises(ProofError, match=r"does not sign \(status 409\): 64"):
        request_cosignature(url, sign(head(70), LOG), 0, [], key)


def test_refusals_are_told(url: str) -> None:
    """With the status and the reason that the witness gives."""
    key = WITNESS.cosigner_verifier
    request_cosignature(url, sign(head(7), LOG), 0, [], key)
    for note, why in (
        (sign(head(9, FORKED), LOG), "status 422"),
        (sign(head(7, FORKED), LOG), "another root of this size"),
        (sign(head(9), STRANGER), "status 403"),
        (sign(head(9, origin="x"), LOG), "status 404"),
    ):
        leaves = FORKED[: parse_checkpoint(parse_note(note).text).size]
        with pytest.raises(ProofError, match=why):
            request_cosignature(url, note, 0, [], key, prove=prover(leaves))
    with pytest.raises(ProofError, match="the log was cut or rolled back"):
        request_cosignature(url, sign(head(6), LOG), 0, [], key, prove=prover(LEAVES[:6]))


def test_witness_that_is_not_there_is_told_of() -> None:
    """Nobody listens, or the address is none."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for address in (f"http://127.0.0.1:{port}", "ftp://127.0.0.1", "http://[", "x", ""):
        with pytest.raises(ProofError, match="cannot be reached"):
            request_cosignature(address, GOOD, 0, [], WITNESS.cosigner_verifier)


def test_witness_is_named_by_its_key_and_without_what_may_be_secret() -> None:
    """The password in its address is a secret, and so can the rest be."""
    handler = type("Handler", (_Answering,), {"answers": [(403, "", b"no\n"), (409, SIZE, b"x\n"), (200, "", b"")]})
    with served(HTTPServer(("127.0.0.1", 0), handler)) as address:
        secret = address.replace("//", "//user:secret@") + "/secret?secret=secret"
        for why in ("does not sign (status 403): no", "does not say what it has signed last: ", "answers with no"):
            with pytest.raises(ProofError) as raised:
                request_cosignature(secret, GOOD, 0, [], WITNESS.cosigner_verifier, prove=prover(LEAVES[:9]))
            assert str(raised.value).startswith(f"the witness 'witness.example/w' at {address} {why}")
            assert "secret" not in str(raised.value)
    with pytest.raises(ProofError) as raised:
        request_cosignature("http://user:secret@[", GOOD, 0, [], WITNESS.cosigner_verifier)
    assert str(raised.value) == (
        "the witness 'witness.example/w' cannot be reached: its address is no URL with http:// or https://"
    )


def test_key_of_a_log_is_no_witnesss(url: str) -> None:
    """Before anybody is asked."""
    with pytest.raises(SigningKeyError, match="is not the key of a witness"):
        request_cosignature(url, GOOD, 0, [], WITNESS.verifier)


class _Answering(BaseHTTPRequestHandler):
    """Gives whatever answer a test has set."""

    answers: list[tuple[int, str, bytes]]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        code, content_type, answer = self.answers.pop(0)
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


OWN = cosign(head(9).text, WITNESS, 5).encode()
OF_ANOTHER = cosign(head(8).text, WITNESS, 5).encode()
OF_A_STRANGER = cosign(head(9).text, signer("witness.example/w", 9), 5).encode()
SIZE = "text/x.tlog.size"


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([(200, "", b"")], "answers with no signature lines"),
        ([(200, "", OWN)], "answers with no signature lines"),
        ([(200, "", OF_ANOTHER + b"\n")], "has not signed: "),
        ([(200, "", OF_A_STRANGER + b"\n")], "no key that is known here"),
        ([(200, "", OWN + b"\n" + OF_ANOTHER + b"\n")], "is not of this text"),
        ([(200, "", OWN + b"\n\n")], "malformed"),
        ([(200, "", b"\xff\xfe\n")], "malformed"),
        ([(200, "", b"x" * (BODY_BYTES_MAX + 1))], "answers with more than"),
        ([(302, "", b"")], "status 302.: no reason"),
        ([(500, "", b"out of order\nand more")], "status 500.: out of order$"),
        ([(500, "", b"x" * 5000)], "status 500.: x{200}$"),
        ([(409, "text/plain", b"5\n")], "status 409"),
        ([(409, SIZE, b"05\n")], "size of a tree"),
        ([(409, SIZE, b"")], "does not say what it has signed last: .*size of a tree"),
        ([(409, SIZE, b"0\n")], "refuses the size that it names itself"),
        ([(409, SIZE, b"10\n")], "the log was cut or rolled back"),
        ([(409, SIZE, b"5\n"), (409, SIZE, b"6\n")], "status 409.: 6"),
    ],
)
def test_witness_that_answers_amiss_is_refused(answers: list[tuple[int, str, bytes]], why: str) -> None:
    """Nothing that it says is believed without its signature; it is followed once."""
    handler = type("Handler", (_Answering,), {"answers": list(answers)})
    with (
        served(HTTPServer(("127.0.0.1", 0), handler)) as address,
        pytest.raises(ProofError, match=why),
    ):
        request_cosignature(address, GOOD, 0, [], WITNESS.cosigner_verifier, prove=prover(LEAVES[:9]))
    assert handler.answers == []  # type: ignore[attr-defined]


def test_other_lines_of_an_answer_are_left_out() -> None:
    """A witness may sign with keys that are not known here."""
    answer = OF_A_STRANGER + b"\n" + OWN + b"\n"
    handler = type("Handler", (_Answering,), {"answers": [(200, "text/plain", answer)]})
    with served(HTTPServer(("127.0.0.1", 0), handler)) as address:
        line = request_cosignature(address, GOOD, 0, [], WITNESS.cosigner_verifier)
    assert line == OWN.decode()


def test_requests_that_are_none_are_refused(url: str, http: httpx2.Client) -> None:
    """Another path, another method, no length, a body that is too long."""
    assert http.post(f"{url}/", content=b"x").status_code == 404
    assert http.post(f"{url}/add-checkpoint?x", content=b"x").status_code == 404
    assert http.get(f"{url}/add-checkpoint").status_code == 501
    assert http.post(f"{url}/add-checkpoint", content=iter([b"x"])).status_code == 411
    answer = http.post(f"{url}/add-checkpoint", content=b"x")
    assert (answer.status_code, answer.headers["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert "Python" not in answer.headers["Server"]
    for length in (str(BODY_BYTES_MAX + 1), "9" * 9):
        assert b"HTTP/1.1 413 " in raw(url, f"POST /add-checkpoint HTTP/1.1\r\nContent-Length: {length}\r\n\r\n")
    for length in ("-1", "x", "", "9" * 30, "1, 1"):
        assert b"HTTP/1.1 411 " in raw(url, f"POST /add-checkpoint HTTP/1.1\r\nContent-Length: {length}\r\n\r\n")


def raw(url: str, request: str) -> bytes:
    """Send some bytes and no more, and return what comes until the other side closes."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as connection:
        connection.sendall(request.encode())
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def test_body_that_is_cut_is_refused(url: str) -> None:
    """The connection ends before it: nothing is made of a part."""
    assert b"HTTP/1.1 408 " in raw(url, "POST /add-checkpoint HTTP/1.1\r\nContent-Length: 500\r\n\r\nold 0\n")


def test_connection_that_says_nothing_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody holds threads for long."""
    monkeypatch.setattr("turnlog.audit.witness._Handler.timeout", 0.05)
    begun = b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 500\r\n\r\nold 0\n"
    assert sent(url, b"") == b""
    assert sent(url, begun).startswith(b"HTTP/1.1 408 ")


def sent(url: str, request: bytes) -> bytes:
    """Send some bytes, keep the connection open, and return what comes until the other side closes it."""
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_request_without_a_length_is_refused_at_once(url: str, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """No body is waited for that nobody has announced."""
    monkeypatch.setattr("turnlog.audit.witness._Handler.timeout", 3600)
    answer = sent(url, f"POST /add-checkpoint HTTP/{version}\r\nHost: witness\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 411 ")


def test_connection_is_kept(url: str, http: httpx2.Client) -> None:
    """One connection serves many requests."""
    answers = [http.post(f"{url}/add-checkpoint", content=b"x") for _ in range(3)]
    streams = {id(answer.extensions["network_stream"]) for answer in answers}
    assert len(streams) == 1


def test_failure_of_the_witness_is_told_to_who_runs_it(tmp_path: Path, witness: Witness, http: httpx2.Client) -> None:
    """Who asks learns nothing of its folders; and it goes on."""
    grown_to(witness, 7)
    [file] = (tmp_path / "state").glob("*.checkpoint")
    whole = file.read_bytes()
    file.write_bytes(b"")
    told: list[str] = []
    with served(WitnessServer(witness, told=told.append)) as address:
        answer = http.post(f"{address}/add-checkpoint", content=body(7, GOOD))
        assert (answer.status_code, answer.text) == (500, "the witness cannot sign now\n")
        file.write_bytes(whole)
        assert http.post(f"{address}/add-checkpoint", content=body(7, GOOD)).status_code == 200
    [line] = told
    assert str(file) in line


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_other_address_families(witness: Witness, http: httpx2.Client) -> None:
    """The URL has the form that the address needs."""
    try:
        server = WitnessServer(witness, "::1")
    except OSError as error:
        pytest.skip(f"there is no IPv6 here: {os.strerror(error.errno or 0)}")
    with served(server):
        assert server.url.startswith("http://[::1]:")
        assert http.post(f"{server.url}/add-checkpoint", content=b"x").status_code == 400
