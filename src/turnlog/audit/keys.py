"""Signing keys by name, each in a file of its owner's alone, or in the system's keyring. They are never in a store.

A log can have any number of keys: to change them, make another one and sign with it from then on. Checkpoints that the
old one signed stay valid for whoever has its verifier key.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import quote, unquote

from msgspec import Struct

from turnlog.audit import shared_files
from turnlog.errors import SealError, SigningKeyError, os_reason
from turnlog.store.files import OWN, make_file, make_folders, open_file
from turnlog.store.home import data_folder

if TYPE_CHECKING:
    from turnlog.audit.notes import Signer

__all__ = [
    "FOLDER_VARIABLE",
    "FolderKeys",
    "KeyEntry",
    "KeyStore",
    "Keyring",
    "KeyringKeys",
    "default_folder",
    "default_key_store",
    "keyring_errors",
    "read_secret",
    "usable_keyring",
    "write_secret",
]

FOLDER_VARIABLE = "TURNLOG_KEYS_DIR"
"""The environment variable that names the folder of the key files."""

SERVICE = "turnlog signing keys"
"""The service name of keys in the keyring; the user name there is the key's name."""
_NAMES = "all names"
"""The user name of the list of names in the keyring. No key has a blank in its name."""

_SUFFIX = ".key"
_KEY_FILE_BYTES_MAX = 10_000

_Kind = type[SigningKeyError] | type[SealError]


class KeyEntry(Struct, frozen=True, kw_only=True):
    """One key of a list.

    Attributes:
        name: its name.
        key_id: its key id in signed notes, 8 hexadecimal digits; None if it cannot be read.
        place: where it is kept, such as `keyring` or the path of its file.
        problem: why it cannot be read; None if it can.
    """

    name: str
    key_id: str | None
    place: str
    problem: str | None = None


class KeyStore(Protocol):
    """Where signing keys are kept."""

    def new_key(self, name: str) -> Signer:
        """Make a key and keep it: on return it is kept durably.

        Raises:
            SigningKeyError: there is one of this name, the name is none, or it cannot be kept.
        """
        ...

    def list_keys(self) -> list[KeyEntry]:
        """Return all keys by name.

        Raises:
            SigningKeyError: they cannot be listed.
        """
        ...

    def load_key(self, name: str) -> Signer:
        """Return the key of a name.

        Raises:
            SigningKeyError: there is none, or it cannot be read or used.
        """
        ...

    def place_of(self, name: str) -> str:
        """Return where the key of a name is kept, or would be."""
        ...


def default_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of what is kept in files: the one that `TURNLOG_KEYS_DIR` names, else in the data folder."""
    folder = environ.get(FOLDER_VARIABLE)
    return Path(folder) if folder else data_folder() / "keys"


def default_key_store(environ: Mapping[str, str]) -> KeyStore:
    """Return where keys are kept: the folder that `TURNLOG_KEYS_DIR` names, else the keyring, else the data folder.

    Args:
        environ: the environment variables.

    Raises:
        SigningKeyError: there is a keyring that cannot be used.
    """
    keyring = None if environ.get(FOLDER_VARIABLE) else usable_keyring(SigningKeyError)
    return FolderKeys(default_folder(environ)) if keyring is None else KeyringKeys(keyring)


# -------------------------------------------------------------------------------------------------------------- folder


class FolderKeys:
    """Keys in a folder: a file for each, `NAME.key`, which only its owner may read. Many processes may use it."""

    def __init__(self, folder: Path) -> None:
        """Take a folder. It is made with the first key."""
        self._folder = folder

    def new_key(self, name: str) -> Signer:
        """Make a key and keep it: on return it is kept durably. No file is ever overwritten.

        Raises:
            SigningKeyError: there is one of this name, the name is none, or it cannot be kept.
        """
        signer = _new_signer(name)
        path = self._path(name)
        try:
            make_folders(self._folder, OWN.of_folders)
        except OSError as error:
            raise SigningKeyError(f"there can be no folder {str(self._folder)!r}: {os_reason(error)}") from error
        try:
            write_secret(path, f"{signer.skey}\n".encode(), f"the key {name!r}", SigningKeyError)
        except FileExistsError as error:
            raise _taken(name, self.place_of(name)) from error
        except OSError as error:
            raise SigningKeyError(f"the key {name!r} cannot be kept in {str(path)!r}: {os_reason(error)}") from error
        return signer

    def list_keys(self) -> list[KeyEntry]:
        """Return all keys by name. What has no name of a key file is left out.

        Raises:
            SigningKeyError: the folder cannot be read.
        """
        try:
            files = {path.name for path in self._folder.iterdir()}
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SigningKeyError(f"the keys in {str(self._folder)!r} cannot be read: {os_reason(error)}") from error
        names = {unquote(file.removesuffix(_SUFFIX)) for file in files if file.endswith(_SUFFIX)}
        return [_entry(self, name) for name in sorted(names) if self._path(name).name in files]

    def load_key(self, name: str) -> Signer:
        """Return the key of a name.

        Raises:
            SigningKeyError: there is none, others may read its file, or the file is not one that was written here.
        """
        what = f"the key file {str(self._path(name))!r}"
        content = read_secret(self._path(name), what, SigningKeyError)
        if content is None:
            raise _missing(name, f"in {str(self._folder)!r}")
        return _parsed(content.decode(errors="replace"), name, what)

    def place_of(self, name: str) -> str:
        """Return the path of the file of a key."""
        return str(self._path(name))

    def _path(self, name: str) -> Path:
        # Names are often URLs: whatever could be more than a part of a file name is escaped.
        return self._folder / (quote(name, safe="", errors="surrogatepass") + _SUFFIX)


def write_secret(path: Path, content: bytes, what: str, kind: _Kind) -> None:
    """Make a file with a secret, whole and durable, of a name that nothing has.

    Args:
        path: its path.
        content: the secret.
        what: what messages call it.
        kind: the error to raise.

    Raises:
        SigningKeyError: others could read it, whatever its permissions; or as `kind` says.
        SealError: the same.
        FileExistsError: something has the name.
        OSError: it cannot be written.
    """
    probe = path.with_name(f".{token_hex(8)}.tmp")
    handle = make_file(probe)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
        probe.unlink()
    if mode & 0o077:
        raise kind(
            f"{what} cannot be kept in {str(path.parent)!r}: its file system has no permissions, so that others could "
            f"read it (mode {mode:03o}); set {FOLDER_VARIABLE} to a folder on another one"
        )
    shared_files.write_new(path, content)


def read_secret(path: Path, what: str, kind: _Kind) -> bytes | None:
    """Return what is in a file with a secret, at most 10,000 bytes of it; None where there is none.

    Args:
        path: its path.
        what: what messages call it.
        kind: the error to raise.

    Raises:
        SigningKeyError: it cannot be read, or others may read it; or as `kind` says.
        SealError: the same.
    """
    try:
        with open_file(path) as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_KEY_FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise kind(f"{what} cannot be read: {os_reason(error)}") from error
    if mode & 0o077:
        raise kind(
            f"{what} is not its owner's alone (mode {mode:03o}): others may have read it; use another key, or "
            "chmod 600 this one if nobody has"
        )
    return content


# ------------------------------------------------------------------------------------------------------------- keyring


class Keyring(Protocol):
    """What is needed of a backend of the package keyring."""

    def get_password(self, service: str, username: str) -> str | None:
        """Return a secret, or None if there is none."""
        ...

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep a secret."""
        ...


class KeyringKeys:
    """Keys in the system's keyring: a secret for each, and one that lists their names.

    A keyring cannot say what is in it, and knows no "only if there is none". So make keys one at a time.
    """

    def __init__(self, keyring: Keyring) -> None:
        """Take a backend of the package keyring."""
        self._keyring = keyring

    def new_key(self, name: str) -> Signer:
        """Make a key and keep it.

        Raises:
            SigningKeyError: there is one of this name, the name is none, or the keyring does not keep it.
        """
        signer = _new_signer(name)
        with keyring_errors(SigningKeyError):
            if self._keyring.get_password(SERVICE, name) is not None:
                raise _taken(name, self.place_of(name))
            # The name first: a name without a key is no harm, and a key without a name would not be found.
            names = dict.fromkeys([*self._names(), name])
            self._keyring.set_password(SERVICE, _NAMES, "\n".join(names))
            self._keyring.set_password(SERVICE, name, signer.skey)
            kept = self._keyring.get_password(SERVICE, name)
        if kept != signer.skey:
            raise SigningKeyError(
                f"the keyring has not kept the key {name!r}: set {FOLDER_VARIABLE} to a folder to keep it in a file"
            )
        return signer

    def list_keys(self) -> list[KeyEntry]:
        """Return all keys by name.

        Raises:
            SigningKeyError: the keyring cannot be used.
        """
        with keyring_errors(SigningKeyError):
            names = [name for name in self._names() if self._keyring.get_password(SERVICE, name) is not None]
        return [_entry(self, name) for name in sorted(names)]

    def load_key(self, name: str) -> Signer:
        """Return the key of a name.

        Raises:
            SigningKeyError: there is none, or the keyring cannot be used.
        """
        with keyring_errors(SigningKeyError):
            skey = self._keyring.get_password(SERVICE, name)
        if skey is None or name == _NAMES:
            raise _missing(name, f"in the keyring ({FOLDER_VARIABLE} names a folder with key files)")
        return _parsed(skey, name, f"the secret {name!r} in the keyring")

    def place_of(self, name: str) -> str:  # noqa: ARG002 - all are in one place
        """Return that keys are in the keyring."""
        return "keyring"

    def _names(self) -> list[str]:
        return (self._keyring.get_password(SERVICE, _NAMES) or "").split()


@contextmanager
def keyring_errors(kind: _Kind) -> Generator[None]:
    """Tell of what the keyring refuses as turnlog does.

    Raises:
        SigningKeyError: it cannot be used; or as `kind` says.
        SealError: the same.
    """
    from keyring.errors import KeyringError  # noqa: PLC0415 - an extra

    try:
        yield
    except KeyringError as error:
        raise kind(
            f"the keyring cannot be used ({error}): set {FOLDER_VARIABLE} to a folder to keep keys in files"
        ) from error


def usable_keyring(kind: _Kind) -> Keyring | None:
    """Return the keyring, if there is one that keeps what it is given.

    Raises:
        SigningKeyError: there is one that cannot be used; or as `kind` says.
        SealError: the same.
    """
    if find_spec("keyring") is None:
        return None
    import keyring  # noqa: PLC0415 - an extra

    with keyring_errors(kind):
        backend = keyring.get_keyring()
    # The backends that stand for "there is none" have no priority: one refuses all, the other forgets all.
    return cast("Keyring", backend) if backend.priority > 0 else None


# --------------------------------------------------------------------------------------------------------------- both


def _new_signer(name: str) -> Signer:
    from turnlog.audit.notes import Signer  # noqa: PLC0415 - most who ask where keys are sign nothing

    signer = Signer.generate(name)
    if not name.isprintable():
        raise SigningKeyError(f"{name!r} cannot be the name of a key: it has characters that cannot be seen")
    return signer


def _entry(store: KeyStore, name: str) -> KeyEntry:
    try:
        signer = store.load_key(name)
    except SigningKeyError as error:
        return KeyEntry(name=name, key_id=None, place=store.place_of(name), problem=str(error))
    return KeyEntry(name=name, key_id=signer.verifier.key_id.hex(), place=store.place_of(name))


def _parsed(skey: str, name: str, where: str) -> Signer:
    from turnlog.audit.notes import Signer  # noqa: PLC0415 - as above

    try:
        signer = Signer.parse(skey)
    except SigningKeyError as error:
        raise SigningKeyError(f"{where} is not as it was written: {error}") from error
    if signer.name != name:
        raise SigningKeyError(f"{where} has the key {signer.name!r}, not {name!r}")
    return signer


def _taken(name: str, place: str) -> SigningKeyError:
    return SigningKeyError(f"there is a key {name!r} already ({place}): give the new one another name")


def _missing(name: str, where: str) -> SigningKeyError:
    return SigningKeyError(f"there is no signing key {name!r} {where}: `turnlog keys list` lists them")
