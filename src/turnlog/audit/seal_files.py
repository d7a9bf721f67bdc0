"""The files of keys of sealing: their names, what is in them, and how a master key wraps them.

A file has in JSON its form, the id of the key, when it was made, what wrapped it, and the wrapped key of 32 bytes. What
the master key binds to that is the text `turnlog seal-key-1 OWNER KEY-ID`, with `names`, `general` or `subject.TAG` for
OWNER.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from turnlog.audit.masters import MasterKey, printed, shown_as
from turnlog.errors import SealError, UnusableKeyError, os_reason
from turnlog.events import DataKey
from turnlog.events.sealing import SECRET_BYTES
from turnlog.model.json_text import UNREADABLE
from turnlog.store.files import open_file

NAMES, GENERAL = "names", "general"
NAMES_FILE = f"{NAMES}.key"

_NAME = re.compile(r"(?:names|(general|subject\.[\w-]{22})\.([\w-]{22}))\.key", re.ASCII)
_FILE_BYTES_MAX = 65_536
_WRAPPED_BYTES_MAX = 16_384
_OF_THE_FILE = {errno.EINVAL, errno.EACCES, errno.EPERM}
"""What is said of a file that is none, or not ours to read. Whatever else fails may not fail the next time."""


class KeyFile(Struct, frozen=True, kw_only=True):
    """What is in the file of a key."""

    form: Literal["seal-key-1"]
    id: str
    made: Annotated[datetime, Meta(tz=True)]
    master: str
    wrapped: bytes


class Listing(NamedTuple):
    """What files there were in the folder when it was in a state.

    `newest` has the file of the newest key, for those that share an owner, where that was asked. `unusable` has files
    that were found to be.
    """

    state: tuple[int, ...] | None
    files: frozenset[str]
    by_id: dict[str, str]
    by_owner: dict[str, tuple[str, ...]]
    has_subjects: bool
    half_made: tuple[str, ...]
    unusable: set[str]
    newest: dict[tuple[str, ...], str]

    @classmethod
    def of(cls, state: tuple[int, ...] | None, found: list[str]) -> Listing:
        """Return what there is, by the names of all files."""
        by_id: dict[str, str] = {}
        by_owner: dict[str, tuple[str, ...]] = {}
        for file in sorted(found):
            name = _NAME.fullmatch(file)
            if name is not None and name[2] is not None:
                by_id[name[2]] = file
                by_owner[name[1]] = (*by_owner.get(name[1], ()), file)
        return cls(
            state=state,
            files=frozenset(found),
            by_id=by_id,
            by_owner=by_owner,
            has_subjects=any(owner != GENERAL for owner in by_owner),
            half_made=tuple(file for file in found if file.endswith(".tmp")),
            unusable=set(),
            newest={},
        )


class Wrapping:
    """A master key, which wraps the others."""

    def __init__(self, master: MasterKey) -> None:
        """Take the master key, which is asked when it is needed."""
        self._master = master

    @property
    def made_master(self) -> bool:
        """Whether the master key was made here."""
        return getattr(self._master, "made", False) is True

    @property
    def name(self) -> str:
        """What people know the master key by."""
        return printed(self._master.name)

    def wrap(self, key: DataKey, owner: str) -> bytes:
        """Return a key wrapped.

        Raises:
            SealError: the master key cannot be used, or does not do what it is for.
        """
        wrapped = self._asked(self._master.wrap, key.secret, owner, key.id)
        if not 0 < len(wrapped) <= _WRAPPED_BYTES_MAX:
            raise SealError(f"the master key {self.name!r} makes {len(wrapped):,} bytes of a key")
        if any(shown in wrapped for shown in shown_as(key.secret)):
            raise SealError(f"the master key {self.name!r} does not wrap what it is given: nothing is sealed")
        if self.unwrap(wrapped, owner, key.id) != key.secret:
            raise SealError(f"the master key {self.name!r} does not unwrap what it has wrapped: nothing is sealed")
        return wrapped

    def unwrap(self, wrapped: bytes, owner: str, key_id: str) -> bytes:
        """Return the secret of a key.

        Raises:
            UnusableKeyError: it is none.
            SealError: the master key cannot be used.
        """
        secret = self._asked(self._master.unwrap, wrapped, owner, key_id)
        if len(secret) != SECRET_BYTES:
            raise UnusableKeyError(
                f"the master key {self.name!r} is not the one that wrapped it: {len(secret):,} bytes came out"
            )
        return secret

    def _asked(self, ask: Callable[[bytes, bytes], bytes], content: bytes, owner: str, key_id: str) -> bytes:
        try:
            return bytes(memoryview(ask(content, f"turnlog seal-key-1 {owner} {key_id}".encode())))
        except SealError:
            raise
        except Exception as error:  # the code of others, and what it speaks to
            said = printed(f"{type(error).__name__}: {error}")
            raise SealError(f"the master key {self.name!r} cannot be used: {said}") from error


def read_key(path: Path) -> KeyFile | None:
    """Return what is in a file; None where it is not there.

    Raises:
        UnusableKeyError: it is damaged, or none.
        SealError: it cannot be read now.
    """
    try:
        with open_file(path) as opened:
            content = opened.read(_FILE_BYTES_MAX)
        read = _key_file.decode(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        kind = UnusableKeyError if error.errno in _OF_THE_FILE else SealError
        raise kind(f"the key file {str(path)!r} cannot be read: {os_reason(error)}") from error
    except UNREADABLE as error:
        raise _damaged(path) from error
    if path.name != NAMES_FILE and read.id != parts(path.name)[1]:
        raise _damaged(path)
    return read


def parts(file: str) -> tuple[str, str]:
    """Return owner and key id of a file. The one of the names key has no id in its name."""
    owner, _, key_id = file.removesuffix(".key").rpartition(".")
    return (owner, key_id) if owner else (key_id, "")


def ids(files: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of the keys in files, sorted."""
    return tuple(sorted(parts(file)[1] for file in files))


def _damaged(path: Path) -> UnusableKeyError:
    lost = "" if path.name == NAMES_FILE else "; without one remove it, and what it sealed is lost"
    return UnusableKeyError(
        f"the key file {str(path)!r} is not as it was written, or of a newer turnlog: put it back from your copy{lost}"
    )


_key_file = msgspec.json.Decoder(KeyFile)
