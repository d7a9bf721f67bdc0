"""Master keys: what the keys of sealing are wrapped with. In a file, in the system's keyring, or behind a command.

A key service of your own (a KMS, an HSM) is a class with `name`, `wrap` and `unwrap`: see `MasterKey`.

Sources: NIST SP 800-38D (AES-256-GCM).
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, Protocol

from turnlog.audit.keys import FOLDER_VARIABLE, Keyring, keyring_errors, read_secret, usable_keyring, write_secret
from turnlog.errors import SealError, UnusableKeyError, os_reason
from turnlog.store.files import OWN, make_folders

__all__ = [
    "COMMAND_VARIABLE",
    "CONTEXT_VARIABLE",
    "ChosenMaster",
    "CommandMaster",
    "FileMaster",
    "KeyringMaster",
    "MasterKey",
]

COMMAND_VARIABLE = "TURNLOG_SEAL_COMMAND"
"""The environment variable that has the command line of a `CommandMaster`."""
CONTEXT_VARIABLE = "TURNLOG_SEAL_CONTEXT"
"""The environment variable that tells a command what a secret is, in base64."""

SERVICE = "turnlog sealing keys"
"""The service name of the master key in the keyring."""
USER = "master key"
"""The user name of it there."""

_KEY_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16
_ANSWER_BYTES_MAX = 65_536
_CHUNK_BYTES = 65_536
_SAID_CHARACTERS_MAX = 200


class MasterKey(Protocol):
    """Wraps secrets, so that they can be kept where others may read, and unwraps them again."""

    @property
    def name(self) -> str:
        """What people know it by. It is written beside what it has wrapped."""
        ...

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return a secret of 32 bytes wrapped: at most 16 KiB.

        Args:
            secret: the secret.
            context: what it is, which is no secret. It is to be bound to what is returned, as associated data.

        Raises:
            SealError: it cannot be wrapped.
        """
        ...

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret that was wrapped with the same context.

        Raises:
            SealError: it was wrapped with another master key or another context, or it was changed.
        """
        ...


class _KeptMaster(ABC):
    """32 random bytes that are kept somewhere, made when they are first needed to wrap. AES-256-GCM."""

    def __init__(self) -> None:
        self.made = False
        """Whether it was made here: a copy of it is needed, or what is sealed is lost with it."""
        self._key: bytes | None = None

    @property
    @abstractmethod
    def name(self) -> str:
        """Where it is kept."""

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return a secret wrapped: 12 random bytes, the encrypted secret, and the tag of 16 bytes.

        Raises:
            SealError: the master key cannot be read or made.
        """
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + _cipher(self._read() or self._make()).encrypt(nonce, secret, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret that was wrapped with the same context.

        Raises:
            SealError: the master key is not here, is another one, or what is wrapped was changed.
        """
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - see `_cipher`

        key = self._read()
        if key is None:
            raise SealError(f"there is no master key {self.name!r}: put it back from where you keep a copy")
        try:
            if len(wrapped) < _NONCE_BYTES + _TAG_BYTES:
                raise InvalidTag
            return _cipher(key).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], context)
        except InvalidTag as error:
            raise UnusableKeyError(
                f"the master key {self.name!r} is not the one that wrapped it, or it was changed or renamed since"
            ) from error

    def _read(self) -> bytes | None:
        if self._key is None:
            text = self._kept()
            self._key = None if text is None else self._parsed(text)
        return self._key

    def _make(self) -> bytes:
        made = os.urandom(_KEY_BYTES)
        is_first = self._keep(b64encode(made).decode())
        kept = self._read()
        if kept is None or (is_first and kept != made):
            raise SealError(
                f"the master key was not kept in {self.name!r}: set {FOLDER_VARIABLE} to a folder to keep it in a file"
            )
        self.made = is_first
        return kept

    def _parsed(self, text: str) -> bytes:
        key = _from_base64(text.strip())
        if key is None or len(key) != _KEY_BYTES:
            raise SealError(f"the master key {self.name!r} is not as it was written: put it back from your copy")
        return key

    @abstractmethod
    def _kept(self) -> str | None:
        """Return what is kept, or None."""

    @abstractmethod
    def _keep(self, text: str) -> bool:
        """Keep it, durably; return whether it is the first."""


class FileMaster(_KeptMaster):
    """A master key in a file that only its owner may read: 32 bytes, in base64."""

    def __init__(self, path: Path) -> None:
        """Take the path. The file is made when something is wrapped for the first time, and never overwritten."""
        super().__init__()
        self._path = path

    @property
    def name(self) -> str:
        """The path of the file."""
        return str(self._path)

    def _kept(self) -> str | None:
        content = read_secret(self._path, f"the master key {self.name!r}", SealError)
        return None if content is None else content.decode(errors="replace")

    def _keep(self, text: str) -> bool:
        try:
            make_folders(self._path.parent, OWN.of_folders)
            write_secret(self._path, f"{text}\n".encode(), "the master key", SealError)
        except FileExistsError:
            return False
        except OSError as error:
            raise SealError(f"the master key {self.name!r} cannot be kept: {os_reason(error)}") from error
        return True


class KeyringMaster(_KeptMaster):
    """A master key in the system's keyring. A keyring knows no "only if there is none": let one process make it."""

    def __init__(self, keyring: Keyring) -> None:
        """Take a backend of the package keyring."""
        super().__init__()
        self._keyring = keyring

    @property
    def name(self) -> str:
        """That it is in the keyring."""
        return "keyring"

    def _kept(self) -> str | None:
        with keyring_errors(SealError):
            return self._keyring.get_password(SERVICE, USER)

    def _keep(self, text: str) -> bool:
        with keyring_errors(SealError):
            self._keyring.set_password(SERVICE, USER, text)
        return True


class ChosenMaster:
    """The keyring, where there is one, else a file. It is chosen when it is first needed.

    A file that is there already goes first: a keyring that was installed later does not have what is in it.
    """

    def __init__(self, path: Path) -> None:
        """Take the path of the file."""
        self._path = path

    @property
    def name(self) -> str:
        """Where it is kept."""
        return self._chosen.name

    @property
    def made(self) -> bool:
        """Whether it was made here."""
        return "_chosen" in vars(self) and self._chosen.made

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return a secret wrapped.

        Raises:
            SealError: the master key cannot be read or made.
        """
        return self._chosen.wrap(secret, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret that was wrapped with the same context.

        Raises:
            SealError: the master key is not here, is another one, or what is wrapped was changed.
        """
        return self._chosen.unwrap(wrapped, context)

    @cached_property
    def _chosen(self) -> FileMaster | KeyringMaster:
        keyring = None if os.path.lexists(self._path) else usable_keyring(SealError)
        return FileMaster(self._path) if keyring is None else KeyringMaster(keyring)


# ------------------------------------------------------------------------------------------------------------- command


class CommandMaster:
    """A master key behind a command: it is run with `wrap` or `unwrap` as its last argument, without a shell.

    It is given the secret, or what is wrapped, in base64 on standard input, and is to print the other one in base64.
    What the secret is stands, in base64 too, in the environment variable TURNLOG_SEAL_CONTEXT.
    """

    def __init__(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> None:
        """Take the program with its arguments, and how long it may take.

        Raises:
            SealError: there is no program.
        """
        if not argv or not argv[0]:
            raise SealError(f"a command for the master key names no program: set {COMMAND_VARIABLE} to one")
        self._argv = tuple(argv)
        self._timeout_s = timeout_s

    @property
    def name(self) -> str:
        """The program. Its arguments may have a secret in them."""
        return f"command:{self._argv[0]}"

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Return what the command makes of a secret.

        Raises:
            SealError: it fails, takes too long, or prints something else than base64.
        """
        return self._run("wrap", secret, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the secret that the command finds in what it has wrapped.

        Raises:
            SealError: it fails, takes too long, or prints something else than base64.
        """
        return self._run("unwrap", wrapped, context)

    def _run(self, verb: str, content: bytes, context: bytes) -> bytes:
        end = time.monotonic() + self._timeout_s
        try:
            process = subprocess.Popen(
                [*self._argv, verb],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, CONTEXT_VARIABLE: b64encode(context).decode()},
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            why = os_reason(error) if isinstance(error, OSError) else str(error)
            raise self._failed(verb, f"it cannot be run: {why}") from error
        with process:
            try:
                answer, said = _talk(process, b64encode(content) + b"\n", end)
                status = process.wait(max(end - time.monotonic(), 0))
            except (TimeoutError, subprocess.TimeoutExpired) as error:
                raise self._failed(verb, f"it took longer than {self._timeout_s:g} s") from error
            finally:
                process.kill()  # does nothing once it has ended
        if len(answer) > _ANSWER_BYTES_MAX:
            raise self._failed(verb, f"it printed more than {_ANSWER_BYTES_MAX:,} bytes")
        if status:
            line = _first_line(said)
            if any(shown in said for shown in shown_as(content)):
                line = "it printed what it was given, which is not shown"
            raise self._failed(verb, f"it ended with status {status}" + (f": {line}" if line else ""))
        found = _from_base64("".join(answer.decode(errors="replace").split()))
        if not found:
            raise self._failed(
                verb, "it printed something that is not base64" if answer.strip() else "it printed nothing"
            )
        return found

    def _failed(self, verb: str, why: str) -> SealError:
        return SealError(f"the master key {self.name!r} could not {verb} a key: {why}")


def shown_as(secret: bytes) -> tuple[bytes, ...]:
    """Return what a secret looks like where it is shown: as it is, in base64, and in hexadecimal."""
    return secret, b64encode(secret), secret.hex().encode()


def _talk(process: subprocess.Popen[bytes], content: bytes, end: float) -> tuple[bytes, bytes]:
    """Give a process its input, and return what it printed: on standard error the beginning of it.

    It is killed once it has printed more on standard output than it may.

    Raises:
        TimeoutError: it did not close its outputs in time.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    answer, said = bytearray(), bytearray()
    with selectors.DefaultSelector() as selector:
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        selector.register(process.stdout, selectors.EVENT_READ, answer)
        selector.register(process.stderr, selectors.EVENT_READ, said)
        while selector.get_map():
            ready = selector.select(max(end - time.monotonic(), 0))
            if not ready and time.monotonic() >= end:
                raise TimeoutError
            for key, _ in ready:
                if key.fileobj is process.stdin:
                    content = _written(process.stdin, content)
                    if not content:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                chunk = os.read(key.fd, _CHUNK_BYTES)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif len(key.data) <= _ANSWER_BYTES_MAX:
                    key.data.extend(chunk)
            if len(answer) > _ANSWER_BYTES_MAX:
                process.kill()
                break
    return bytes(answer), bytes(said)


def _written(stream: IO[bytes], content: bytes) -> bytes:
    """Write what fits, and return the rest: nothing where nobody reads it."""
    try:
        return content[os.write(stream.fileno(), content) :]
    except BrokenPipeError:
        return b""


def _first_line(said: bytes) -> str:
    """Return the first line that is not blank, without what a terminal would obey."""
    return printed(said.decode(errors="replace").strip().partition("\n")[0])


def printed(text: str) -> str:
    """Return at most 200 characters of a text, on one line, without what a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text[:_SAID_CHARACTERS_MAX]).strip()


def _from_base64(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None


def _cipher(key: bytes) -> _Cipher:
    # Most logs have nothing sealed, and to import this takes as long as all the rest.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    return AESGCM(key)


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None, /) -> bytes: ...
