"""A witness: signs the heads of logs that it can see to have only grown, and refuses all others.

Source: C2SP tlog-witness v1.0.0, `add-checkpoint`. `Witness` is the rules and the state, `WitnessServer` puts them on
HTTP, `request_cosignature` is what asks a witness, this one or another.
"""

from __future__ import annotations

import re
import socketserver
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import AF_INET6

from msgspec import Struct

from turnlog.audit import shared_files
from turnlog.audit.checkpoints import (
    Checkpoint,
    cosign,
    parse_checkpoint,
    parse_hash,
    parse_size,
    written_hash,
    written_note,
)
from turnlog.audit.merkle import EMPTY_ROOT, verify_consistency
from turnlog.audit.notes import (
    COSIGNATURE,
    SIGNATURE,
    Note,
    Signer,
    Verifier,
    cosignature_time_s,
    parse_note,
    parse_signature,
    verified_signatures,
)
from turnlog.audit.posting import TIMEOUT_S, Answer, post
from turnlog.errors import ProofError, SigningKeyError, TurnlogError
from turnlog.store.files import OWN, file_error, make_folders, open_file
from turnlog.web_address import parsed, shown_server

__all__ = [
    "BODY_BYTES_MAX",
    "PROOF_HASHES_MAX",
    "Response",
    "Witness",
    "WitnessServer",
    "parse_log_keys",
    "request_cosignature",
]

BODY_BYTES_MAX = 128 * 1024
"""How many bytes of a request or an answer are read. Sixteen large signatures fit in."""
PROOF_HASHES_MAX = 63

_PATH = "/add-checkpoint"
_SIZE_TYPE = "text/x.tlog.size"
_TEXT_TYPE = "text/plain; charset=utf-8"
_REQUEST_TIMEOUT_S = 10.0
_REASON_CHARACTERS_MAX = 200
_ORIGIN = "origin "
_DIGITS = re.compile(r"[0-9]{1,9}")

Prove = Callable[[int], Sequence[bytes]]
"""Returns the consistency proof from a size to that of the checkpoint."""


class Response(Struct, frozen=True):
    """What a witness answers: HTTP status, media type, body."""

    status: int
    content_type: str
    body: bytes


def parse_log_keys(text: str) -> dict[str, list[Verifier]]:
    """Read whose heads a witness may sign: verifier keys, one a line, of any number of logs.

    A key is of the log whose origin is the key's name; below a line `origin ORIGIN`, of that one. Empty lines and
    those that begin with `#` are left out.

    Returns:
        The keys of each log by its origin.

    Raises:
        SigningKeyError: a line is neither.
    """
    found: dict[str, list[Verifier]] = {}
    origin: str | None = None
    for line in text.split("\n"):
        if line.startswith(_ORIGIN):
            origin = line.removeprefix(_ORIGIN)
            if not origin:
                raise SigningKeyError("a line `origin` does not name one")
        elif line.strip() and not line.startswith("#"):
            verifier = Verifier.parse(line)
            found.setdefault(verifier.name if origin is None else origin, []).append(verifier)
    return found


# ------------------------------------------------------------------------------------------------- the rules and state


class Witness:
    """Signs heads of some logs, each only if it is consistent with the last one that was signed for its log.

    What it has signed last is in a folder, a file for each log. Threads and processes may share the folder.
    """

    def __init__(
        self,
        state_folder: Path,
        signer: Signer,
        log_verifiers: Mapping[str, Sequence[Verifier]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Make a witness.

        Args:
            state_folder: where it keeps what it has signed last; made if it is not there. Whoever removes a file of it
                makes the witness forget.
            signer: the key of the witness, of nobody else.
            log_verifiers: the keys of each log by its origin.
            clock: returns the time in seconds since 1970 UTC.

        Raises:
            SigningKeyError: a key is not one that logs sign with, or is that of the witness.
            StoreError: the folder cannot be made.
        """
        for verifier in (each for verifiers in log_verifiers.values() for each in verifiers):
            if verifier.kind != SIGNATURE:
                raise SigningKeyError(f"{verifier.vkey!r} is the key of a witness, not of a log")
            if verifier.public_key == signer.verifier.public_key:
                raise SigningKeyError(f"the key of the log {verifier.name!r} is that of the witness: make it another")
        self._folder = state_folder
        self._signer = signer
        self._log_verifiers = {origin: list(verifiers) for origin, verifiers in log_verifiers.items()}
        self._clock = clock
        try:
            make_folders(state_folder, OWN.of_folders)
        except OSError as error:
            raise file_error(error, state_folder) from error

    @property
    def verifier(self) -> Verifier:
        """The key that its signatures are checked with."""
        return self._signer.cosigner_verifier

    def add_checkpoint(self, body: bytes) -> Response:
        """Answer an `add-checkpoint` request.

        When it answers 200, with its signature line, what it has signed is on disk.

        Args:
            body: the body of the request.

        Raises:
            ProofError: what it has signed last cannot be read. Nothing is signed.
            StoreError: the state cannot be read or written. Nothing is signed.
        """
        try:
            old_size, proof, note_text = _parse_request(body)
            note = parse_note(note_text)
            new = parse_checkpoint(note.text)
        except ProofError as error:
            return _refusal(400, str(error))
        verifiers = self._log_verifiers.get(new.origin)
        if verifiers is None:
            return _refusal(404, "this witness does not know a log of this origin")
        try:
            signatures = dict(reversed(verified_signatures(note, verifiers)))  # of each key the first
        except ProofError as error:
            return _refusal(403, str(error))
        if old_size > new.size:
            return _refusal(400, "the old size is larger than the checkpoint's")
        path = shared_files.file_of(self._folder, new.origin)
        try:
            with shared_files.locked(path.with_suffix(".lock")):
                refused = _compared(_last(path, new.origin), old_size, proof, new)
                if refused is not None:
                    return refused
                line = cosign(note.text, self._signer, int(self._clock()))
                lines = [*(each.line for each in signatures.values()), line]
                shared_files.replace(path, written_note(note.text, lines).encode())
        except OSError as error:
            raise file_error(error, path) from error
        return Response(200, _TEXT_TYPE, f"{line}\n".encode())


def _parse_request(body: bytes) -> tuple[int, list[bytes], str]:
    """Return what a request says: the old size, the proof from there, and the signed note."""
    if len(body) > BODY_BYTES_MAX:
        raise ProofError(f"the request has more than {BODY_BYTES_MAX:,} bytes")
    try:
        head, blank, note_text = body.decode().partition("\n\n")
    except UnicodeDecodeError as error:
        raise ProofError("the request is not UTF-8") from error
    first, *proof = head.split("\n")
    if not blank or not first.startswith("old "):
        raise ProofError("the request is not an old size, a proof, an empty line and a checkpoint")
    if len(proof) > PROOF_HASHES_MAX:
        raise ProofError(f"the proof has more than {PROOF_HASHES_MAX} hashes")
    return parse_size(first.removeprefix("old ")), [parse_hash(line) for line in proof], note_text


def _compared(last: Checkpoint, old_size: int, proof: list[bytes], new: Checkpoint) -> Response | None:
    """Compare a head with the last one. Return the refusal, or None if the log has only grown."""
    if old_size != last.size:
        return Response(409, _SIZE_TYPE, f"{last.size}\n".encode())
    if old_size == new.size and last.root != new.root:
        return _refusal(409, "this witness has signed another root of this size")
    try:
        verify_consistency(last.size, new.size, proof, last.root, new.root)
    except ProofError as error:
        return _refusal(422, str(error))
    return None


def _refusal(status: int, reason: str) -> Response:
    return Response(status, _TEXT_TYPE, f"{reason}\n".encode())


def _last(path: Path, origin: str) -> Checkpoint:
    """Return the last head that was signed for a log; the empty one if none was.

    Raises:
        ProofError: it is damaged.
        OSError: it cannot be read.
    """
    try:
        with open_file(path) as file:
            content = file.read()
    except FileNotFoundError:
        return Checkpoint(origin=origin, size=0, root=EMPTY_ROOT)
    try:
        last = parse_checkpoint(parse_note(content.decode()).text)
        if last.origin != origin:
            raise ProofError("it is of another log")
    except (ProofError, UnicodeDecodeError) as error:
        raise ProofError(f"{str(path)!r} is not what the witness has signed last ({error}): put it back") from error
    return last


# -------------------------------------------------------------------------------------------------------------- server


class WitnessServer(ThreadingHTTPServer):
    """A witness on HTTP. It listens once it is made; `serve_forever` answers, and leaving it as a context closes it.

    It speaks no TLS and knows no users: the rules of the witness are its protection. Elsewhere than on loopback, put
    it behind a server that bounds how many may connect.
    """

    daemon_threads = True

    def __init__(
        self, witness: Witness, host: str = "127.0.0.1", port: int = 0, *, told: Callable[[str], None] | None = None
    ) -> None:
        """Listen.

        Args:
            witness: the witness.
            host: the address to listen at.
            port: the port; 0 for one that is free.
            told: is told of each request that failed here, in one line.

        Raises:
            OSError: it cannot listen there.
        """
        self.witness = witness
        self._told = told
        if ":" in host:
            self.address_family = AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind. No name is looked up for the address."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    @property
    def url(self) -> str:
        """Where it listens: the submission prefix of the witness."""
        host, port = self.server_address[:2]
        return f"http://[{host}]:{port}" if self.address_family == AF_INET6 else f"http://{host}:{port}"

    def tell(self, message: str) -> None:
        """Tell that a request failed here."""
        if self._told is not None:
            self._told(message)

    def handle_error(self, request: object, client_address: object) -> None:
        """Leave out what became of a connection that its other side gave up."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: WitnessServer  # pyright: ignore[reportIncompatibleVariableOverride] - it is made by no other
    protocol_version = "HTTP/1.1"
    server_version = "turnlog"
    sys_version = ""
    timeout = _REQUEST_TIMEOUT_S
    error_content_type = _TEXT_TYPE
    error_message_format = "%(message)s\n"

    def do_POST(self) -> None:
        """Answer a request."""
        if self.path != _PATH:
            self._refuse(404, f"there is nothing but {_PATH}")
            return
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not _DIGITS.fullmatch(length):
            self._refuse(411, "say how long the body is")
            return
        if int(length) > BODY_BYTES_MAX:
            self._refuse(413, f"the body has more than {BODY_BYTES_MAX:,} bytes")
            return
        body = self._body(int(length))
        if len(body) < int(length):
            self._refuse(408, "the body did not come")
            return
        try:
            response = self.server.witness.add_checkpoint(body)
        except TurnlogError as error:
            self.server.tell(f"a checkpoint was not signed: {error}")
            response = _refusal(500, "the witness cannot sign now")
        self._answer(response)

    def _body(self, length: int) -> bytes:
        """Return what comes of a body in the time for it."""
        body = b""
        until = time.monotonic() + _REQUEST_TIMEOUT_S
        with suppress(TimeoutError):
            while len(body) < length and time.monotonic() < until:
                chunk = self.rfile.read1(length - len(body))
                if not chunk:
                    break
                body += chunk
        return body

    def _refuse(self, status: int, reason: str) -> None:
        # What comes of the body is not read: the connection cannot go on.
        self.close_connection = True
        self._answer(_refusal(status, reason))

    def _answer(self, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(response.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(response.body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep no log of requests."""


# -------------------------------------------------------------------------------------------------------------- client


def request_cosignature(
    url: str,
    note_text: str,
    old_size: int,
    proof: Sequence[bytes],
    witness_verifier: Verifier,
    *,
    prove: Prove | None = None,
    timeout_s: float = TIMEOUT_S,
) -> str:
    """Ask a witness to sign a checkpoint. Return its signature line, checked, for `checkpoints.with_signatures`.

    Args:
        url: the submission prefix of the witness.
        note_text: the checkpoint, signed by its log.
        old_size: the size of the last checkpoint that the witness has signed; 0 if none, or if you do not know.
        proof: the consistency proof from there; empty from 0.
        witness_verifier: the key of the witness, of kind `COSIGNATURE`.
        prove: returns the proof from another size. Where the witness says that it has signed another one last, it is
            asked once more with that.
        timeout_s: how long an answer may take, all of it, in seconds.

    Raises:
        ProofError: the witness cannot be reached, refuses (it says why), or its signature is not its own. It is named
            by its key, and its address without what may be secret there.
        SigningKeyError: the key is none of a witness.
    """
    if witness_verifier.kind != COSIGNATURE:
        raise SigningKeyError(f"{witness_verifier.vkey!r} is not the key of a witness: that of a log is another kind")
    note = parse_note(note_text)
    size = parse_checkpoint(note.text).size
    asked = _Asked(url, witness_verifier, timeout_s)
    answer = asked.post(_request(old_size, proof, note_text))
    if answer.status == 409 and answer.media_type == _SIZE_TYPE and prove is not None:
        signed = asked.signed_size(answer, old_size, size)
        answer = asked.post(_request(signed, prove(signed), note_text))
    if answer.status != 200:
        raise asked.refused(answer)
    return asked.cosignature(answer, note)


def _request(old_size: int, proof: Sequence[bytes], note_text: str) -> bytes:
    return "\n".join((f"old {old_size}", *map(written_hash, proof), "", note_text)).encode()


class _Asked:
    """A witness that is asked, and what its answers mean."""

    def __init__(self, url: str, verifier: Verifier, timeout_s: float) -> None:
        self._url = url
        self._verifier = verifier
        self._timeout_s = timeout_s
        parts = parsed(url)
        self._name = f"the witness {verifier.name!r}" + ("" if parts is None else f" at {shown_server(parts)}")

    def post(self, body: bytes) -> Answer:
        """Return what it answers.

        Raises:
            ProofError: it does not, or with too much.
        """
        answer = post(
            self._url.rstrip("/") + _PATH,
            body,
            headers={"Content-Type": _TEXT_TYPE},
            failed=lambda why: ProofError(f"{self._name} cannot be reached: {why}"),
            answer_bytes=BODY_BYTES_MAX + 1,
            timeout_s=self._timeout_s,
        )
        if len(answer.body) > BODY_BYTES_MAX:
            raise ProofError(f"{self._name} answers with more than {BODY_BYTES_MAX:,} bytes")
        return answer

    def signed_size(self, answer: Answer, old_size: int, size: int) -> int:
        """Return the size that it says it has signed last.

        Raises:
            ProofError: there is no proof from there.
        """
        try:
            signed = parse_size(_text(answer).removesuffix("\n"))
        except ProofError as error:
            raise ProofError(f"{self._name} does not say what it has signed last: {error}") from error
        if signed > size:
            raise ProofError(
                f"{self._name} has signed this log with {signed:,} leaves, and the checkpoint has {size:,}: "
                "the log was cut or rolled back, or somebody else signs with its key"
            )
        if signed == old_size:
            raise ProofError(f"{self._name} refuses the size that it names itself")
        return signed

    def refused(self, answer: Answer) -> ProofError:
        """Return the error that says why it does not sign."""
        lines = _text(answer).strip()[:_REASON_CHARACTERS_MAX].splitlines()
        return ProofError(f"{self._name} does not sign (status {answer.status}): {lines[0] if lines else 'no reason'}")

    def cosignature(self, answer: Answer, note: Note) -> str:
        """Return the line of an answer that is its signature of a checkpoint.

        Raises:
            ProofError: there is none.
        """
        lines = _text(answer)
        if not lines.endswith("\n"):
            raise ProofError(f"{self._name} answers with no signature lines")
        try:
            signatures = tuple(parse_signature(line) for line in lines[:-1].split("\n"))
            signed = Note(text=note.text, signatures=signatures)
            [(_, signature), *_] = verified_signatures(signed, [self._verifier])
        except ProofError as error:
            raise ProofError(f"{self._name} has not signed: {error}") from error
        if not cosignature_time_s(signature.value):
            raise ProofError(f"{self._name} does not say when it has signed")
        return signature.line


def _text(answer: Answer) -> str:
    return answer.body.decode(errors="replace")
