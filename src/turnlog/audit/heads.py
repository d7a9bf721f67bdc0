"""The last heads that were signed, kept beside the keys: what whoever writes the store can neither change nor put back.

A log signs no checkpoint that is not consistent with what it signed before (C2SP tlog-checkpoint). What the store keeps
does not tell that: an older copy of it keeps older checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from turnlog.audit import shared_files
from turnlog.audit.checkpoints import Checkpoint, parse_checkpoint
from turnlog.audit.keys import default_folder
from turnlog.errors import CorruptionError, ProofError, SigningKeyError, os_reason
from turnlog.store.files import OWN, make_folders, open_file


def default_signed_heads(environ: Mapping[str, str]) -> SignedHeads:
    """Return the heads beside the keys: in the folder that `TURNLOG_KEYS_DIR` names, else in the data folder."""
    return SignedHeads(default_folder(environ) / "signed")


FILE_BYTES_MAX = 64 * 1024
"""How large the file of a log grows before it is begun anew."""

_END = b"\n"
"""What a checkpoint in a file ends with: an empty line, as none has within."""


class SignedHeads:
    """A folder with what was signed of each log, by its origin: in a file, the last checkpoint last.

    Many processes may use it.
    """

    def __init__(self, folder: Path) -> None:
        """Take the folder, which is made when it is first needed."""
        self._folder = folder

    @contextmanager
    def signing(self) -> Generator[None]:
        """Be the only one that signs. The log is read inside: who read it before might have been overtaken.

        Raises:
            SigningKeyError: the folder cannot be used.
        """
        lock = self._folder / "signing.lock"
        with ExitStack() as stack:
            try:
                try:
                    stack.enter_context(shared_files.locked(lock))
                except FileNotFoundError:
                    make_folders(self._folder, OWN.of_folders)
                    stack.enter_context(shared_files.locked(lock))
            except OSError as error:
                raise _error(self._folder, error) from error
            yield

    def remember(self, head: Checkpoint, root_at: Callable[[int], bytes], fits: Callable[[Checkpoint], bool]) -> None:
        """Write down a head that is to be signed, if it is consistent with the one before. Call it in `signing`.

        Args:
            head: the head.
            root_at: returns the root over the first events of the log as it is; asked for at most `head.size`.
            fits: tells whether the events of the log came as a checkpoint of it says.

        Raises:
            CorruptionError: the log is not what it was when it was signed last: an older copy was put in its place, or
                events were changed.
            SigningKeyError: what was signed last cannot be read or written.
        """
        path = shared_files.file_of(self._folder, head.origin)
        last, end = _read(path)
        if last is not None and (last.size > head.size or root_at(last.size) != last.root or not fits(last)):
            raise CorruptionError(
                f"the log {head.origin!r} was signed with {last.size} events, and is not what it was then: "
                "an older copy was put in its place, or events were changed. If that was you, sign it under "
                f"another origin, or remove {str(path)!r}"
            )
        said = head.text.encode() + _END
        try:
            if end is None or end > FILE_BYTES_MAX:
                shared_files.replace(path, said)
            else:
                shared_files.append_at(path, end, said)
        except OSError as error:
            raise _error(path, error) from error


def _read(path: Path) -> tuple[Checkpoint | None, int | None]:
    """Return the last checkpoint of a file, and where it ends; None for an end where none can be added.

    What stands behind the last end is of a process that was killed, and signed nothing.
    """
    try:
        with open_file(path) as file:
            content = file.read()
        whole, mark, _ = content.rpartition(b"\n" + _END)
        if not mark:  # of a turnlog that wrote one checkpoint, and no end
            return parse_checkpoint(content.decode()), None
        begin = whole.rfind(b"\n" + _END) + 2 if b"\n" + _END in whole else 0
        return parse_checkpoint((whole[begin:] + b"\n").decode()), len(whole) + 2
    except FileNotFoundError:
        return None, None
    except (OSError, UnicodeDecodeError, ProofError) as error:
        raise _error(path, error) from error


def _error(path: Path, error: Exception) -> SigningKeyError:
    why = os_reason(error) if isinstance(error, OSError) else str(error)
    return SigningKeyError(f"what was signed last cannot be read or written at {str(path)!r}: {why}")
