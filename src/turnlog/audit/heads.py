"""The last heads that were signed, kept beside the keys: what whoever writes the store can neither change nor put back.

A log signs no checkpoint that is not consistent with what it signed before (C2SP tlog-checkpoint). What the store keeps
does not tell that: an older copy of it keeps older checkpoints.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from platformdirs import user_data_path

from turnlog.audit.checkpoints import Checkpoint, parse_checkpoint
from turnlog.audit.keys import FOLDER_VARIABLE
from turnlog.errors import CorruptionError, ProofError, SigningKeyError
from turnlog.store.files import open_file, sync_folder

_FILE_BYTES_MAX = 64 * 1024
_NAME_CHARACTERS_MAX = 200


def default_signed_heads(environ: Mapping[str, str]) -> SignedHeads:
    """Return the heads beside the keys: in the folder that `TURNLOG_KEYS_DIR` names, else in the data folder."""
    folder = environ.get(FOLDER_VARIABLE)
    return SignedHeads((Path(folder) if folder else user_data_path("turnlog") / "keys") / "signed")


class SignedHeads:
    """A folder with the last checkpoint that was signed of each log, by its origin. Many processes may use it."""

    def __init__(self, folder: Path) -> None:
        """Take the folder, which is made when it is first needed."""
        self._folder = folder

    @contextmanager
    def signing(self, head: Checkpoint, root_at: Callable[[int], bytes]) -> Generator[None]:
        """Let a head be signed, and remember it before that. One log is signed by one process at a time.

        Args:
            head: what is to be signed.
            root_at: returns the root over the first events of the log as it is; asked for at most `head.size`.

        Raises:
            CorruptionError: the log is not what it was when it was signed last: an older copy was put in its place, or
                events were changed.
            SigningKeyError: what was signed last cannot be read or written.
        """
        name = quote(head.origin, safe="")[:_NAME_CHARACTERS_MAX]
        path = self._folder / f"{name}.head"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._folder / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _error(path, error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            last = _read(path)
            if last is not None and (last.size > head.size or root_at(last.size) != last.root):
                raise CorruptionError(
                    f"the log {head.origin!r} was signed with {last.size} events, and is not what it was then: "
                    "an older copy was put in its place, or events were changed. If that was you, sign it under "
                    f"another origin, or remove {str(path)!r}"
                )
            _write(path, head)
            yield
        finally:
            os.close(lock)


def _read(path: Path) -> Checkpoint | None:
    try:
        with open_file(path) as file:
            return parse_checkpoint(file.read(_FILE_BYTES_MAX).decode())
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, ProofError) as error:
        raise _error(path, error) from error


def _write(path: Path, head: Checkpoint) -> None:
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".head-")
        with os.fdopen(handle, "wb") as file:
            file.write(head.text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise _error(path, error) from error


def _error(path: Path, error: Exception) -> SigningKeyError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return SigningKeyError(f"what was signed last cannot be read or written at {str(path)!r}: {reason}")
