"""The keys of what is sealed: a folder outside the store with a file for each, wrapped by a master key.

A log that is sealed has a data key for each subject, and one for what is of no subject. Their files are what opens it:
who removes one erases all that was sealed with it, wherever copies of that are.

```
sealed/names.key                      the key that tags are made with
sealed/general.KEY-ID.key             the data key of what is of no subject
sealed/subject.TAG.KEY-ID.key         that of a subject, which a tag stands for
sealed/lock                           held by who changes something; a byte longer after each change
```

What is in a file, and how it is wrapped, is in `seal_files`.

Sources: RFC 2104 (HMAC).
"""

from __future__ import annotations

import hmac
import os
import shlex
import stat
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec
from msgspec import Struct

from turnlog.audit import shared_files
from turnlog.audit.keys import FOLDER_VARIABLE, default_folder
from turnlog.audit.masters import (
    COMMAND_VARIABLE,
    ChosenMaster,
    CommandMaster,
    FileMaster,
    MasterKey,
    printed,
)
from turnlog.audit.seal_files import GENERAL, NAMES, NAMES_FILE, KeyFile, Listing, Wrapping, ids, parts, read_key
from turnlog.errors import SealError, UnusableKeyError, os_reason
from turnlog.events import DataKey
from turnlog.events.sealing import SECRET_BYTES, Tagged, short
from turnlog.store.files import OWN, make_folders, sync_folder

__all__ = ["SealFolder", "SealKeyEntry", "default_seals"]

_LOCK = "lock"
_LOOKS_MAX = 3
"""How often to look again for a key that was removed in the meantime."""
_WITHOUT = f"without keys, as with {FOLDER_VARIABLE} set to an empty folder, a log can be verified, exported and listed"
"""What can be done all the same where a key does not open."""


class SealKeyEntry(Struct, frozen=True, kw_only=True):
    """One data key of a list. Whose it is stands nowhere.

    Attributes:
        key_id: its id, by which events name it.
        tag: what stands for its subject; None for the key of what is of no subject.
        made: when it was made; None if the file cannot be read.
        master: what people know the master key by that wrapped it; None if the file cannot be read.
        problem: why it cannot be read; None if it can. Whether the master key opens it is not tried.
    """

    key_id: str
    tag: str | None
    made: datetime | None
    master: str | None
    problem: str | None = None


def default_seals(environ: Mapping[str, str]) -> SealFolder:
    """Return the keys of sealing: in `sealed`, in the folder that `TURNLOG_KEYS_DIR` names, else in the data folder.

    The master key is the command of `TURNLOG_SEAL_COMMAND`; else a file in that folder where `TURNLOG_KEYS_DIR` is set;
    else in the keyring; else, without one, in that file. Nothing is read before a key is needed.

    Args:
        environ: the environment variables.

    Raises:
        SealError: the variable has no command line.
    """
    folder = default_folder(environ) / "sealed"
    if command := environ.get(COMMAND_VARIABLE):
        try:
            return SealFolder(folder, CommandMaster(shlex.split(command)))
        except ValueError as error:
            raise SealError(f"{COMMAND_VARIABLE} is no command line: {error}") from error
    file = folder / "master"
    return SealFolder(folder, FileMaster(file) if environ.get(FOLDER_VARIABLE) else ChosenMaster(file))


class SealFolder:
    """Keys of sealing in a folder: see `turnlog.events.Seals`. Any number of threads and processes may use it.

    A key that was used once stays in memory, and each use looks whether its file is still there.
    """

    def __init__(
        self, folder: Path, master: MasterKey, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Take the folder, which is made with the first key, and the master key, which is asked when one is needed.

        Args:
            folder: the folder. It is to be outside the store, and its backups apart from the store's.
            master: what wraps the keys.
            now: returns the time, in UTC.
        """
        self._folder = folder
        self._place = str(folder)
        self._lock_file = str(folder / _LOCK)
        self._wrapping = Wrapping(master)
        self._now = now
        self._mutex = Lock()
        self._listing: Listing | None = None
        self._opened: dict[str, _Opened] = {}
        self.made = False
        """Whether a data key was made here."""

    @property
    def made_master(self) -> bool:
        """Whether the master key was made here, for the first key: a copy of it is needed."""
        return self._wrapping.made_master

    @property
    def name(self) -> str:
        """Where the keys are: the path of the folder."""
        return self._place

    @property
    def master_name(self) -> str:
        """What people know the master key by."""
        return self._wrapping.name

    def get(self, key_id: str) -> DataKey | None:
        """Return a data key by its id; None where it is not here, or its file is damaged while others are not.

        Raises:
            SealError: the keys cannot be read.
        """
        for _ in range(_LOOKS_MAX):
            listing = self._listing
            file = None if listing is None else listing.by_id.get(key_id)
            if listing is None or file is None or file in listing.unusable:
                listing = self._list()
                file = listing.by_id.get(key_id)
            if file is None or file in listing.unusable:
                return None
            try:
                key = self._key(file)
            except UnusableKeyError:
                self._names(listing)  # with the wrong master key, no other file opens either
                listing.unusable.add(file)
                return None
            if key is not None:
                return key
            self._listing = None
        return None

    def of_subject(self, subject: str | None) -> DataKey | None:
        """Return the data key of a subject, or (None) that of what has no subject; None where there is none.

        Of several the one that was made last.

        Raises:
            SealError: the keys cannot be read.
        """
        for _ in range(_LOOKS_MAX):
            listing = self._list()
            file = self._newest(listing, self._owner(subject, listing))
            if file is None:
                return None
            key = self._key(file)
            if key is not None:
                return key
            self._listing = None
        return None

    def make(self, subject: str | None) -> DataKey:
        """Return the data key of a subject, made if there is none. On return it is kept durably.

        Raises:
            SealError: it cannot be kept.
        """
        key = self.of_subject(subject)
        if key is not None:
            return key
        with self._changing() as changed:
            self._sweep()
            if self._names(self._list()) is None:
                self._keep(NAMES, NAMES_FILE, changed)
            key = self.of_subject(subject)  # another process may have been faster
            return key or self._keep(self._owner_of(subject), None, changed)

    def ids_of(self, subject: str) -> tuple[str, ...]:
        """Return the ids of the data keys of a subject: what `destroy` would return.

        Raises:
            SealError: the keys cannot be read, or one of these does not open.
        """
        listing = self._list()
        files = listing.by_owner.get(self._owner(subject, listing) or "", ())
        self._check_own(files)
        return ids(files)

    def destroy(self, subject: str) -> tuple[str, ...]:
        """Destroy the data keys of a subject, durably, and return their ids. Does nothing where there are none.

        Raises:
            SealError: one does not open: it may have the key of somebody else, and none was destroyed. Or one cannot be
                destroyed. Try again: those that could are.
        """
        listing = self._list()
        owner = self._owner(subject, listing)
        if owner is None or owner not in listing.by_owner:
            return ()
        with self._changing() as changed:
            files = self._list().by_owner.get(owner, ())
            self._check_own(files)
            for file in files:
                try:
                    (self._folder / file).unlink(missing_ok=True)
                    sync_folder(self._folder)
                except OSError as error:
                    raise SealError(
                        f"the key file {str(self._folder / file)!r} cannot be removed: {os_reason(error)}; it still "
                        "opens what it sealed"
                    ) from error
                finally:
                    changed()
        return ids(files)

    def tag(self, kind: Tagged, name: str) -> str:
        """Return what stands for a name in what is stored: the same for the same name, and it says nothing of it.

        Args:
            kind: what it is the name of.
            name: the name.

        Raises:
            SealError: the keys cannot be read, or there are none: no other tag may stand for the name.
        """
        names = self._names_now() or self._names(self._list())
        if names is None:
            raise SealError(
                f"there are no keys of sealing in {self._place!r}: put them there, or set {FOLDER_VARIABLE} to "
                "where they are"
            )
        return _tag(names, kind, name)

    def list_keys(self) -> list[SealKeyEntry]:
        """Return all data keys, by when they were made. The master key is not asked for that.

        Raises:
            SealError: the folder cannot be read.
        """
        found: list[SealKeyEntry] = []
        for file in self._list().by_id.values():
            owner, key_id = parts(file)
            made = master = problem = None
            try:
                content = read_key(self._folder / file)
            except SealError as error:
                problem = str(error)
            else:
                if content is None:
                    continue
                made, master = content.made, printed(content.master)
            tag = None if owner == GENERAL else owner.partition(".")[2]
            found.append(SealKeyEntry(key_id=key_id, tag=tag, made=made, master=master, problem=problem))
        return sorted(found, key=lambda entry: (entry.made is None, entry.made or _NEVER, entry.key_id))

    # What is in the folder

    def _list(self) -> Listing:
        """Return what files there are. They are listed again once something has changed."""
        listing, state = self._listing, self._state()
        if listing is not None and listing.state == state:
            return listing
        try:
            found = os.listdir(self._folder) if state is not None else []  # noqa: PTH208 - a Path for each is slow
        except FileNotFoundError:
            found = []
        except OSError as error:
            raise self._unreadable(error) from error
        made = Listing.of(state, found)
        for file in list(self._opened):
            if file not in made.files:
                self._opened.pop(file, None)
        self._listing = made
        return made

    def _state(self) -> tuple[int, ...] | None:
        """Return what is another after each change; None where there is no folder.

        Times of a folder are as coarse as some milliseconds. So the lock file grows with each change, too: that counts
        what turnlog does, and the times show what people do.
        """
        try:
            folder = os.lstat(self._place)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(error) from error
        if not stat.S_ISDIR(folder.st_mode):
            raise SealError(f"the keys of sealing in {self._place!r} cannot be read: not a folder")
        try:
            changes = os.lstat(self._lock_file).st_size
        except FileNotFoundError:
            changes = -1
        except OSError as error:
            raise self._unreadable(error) from error
        return folder.st_dev, folder.st_ino, folder.st_mtime_ns, folder.st_ctime_ns, changes

    def _owner(self, subject: str | None, listing: Listing) -> str | None:
        """Return what a subject's files have in their names; None where no subject has any: no key is needed then."""
        return None if subject is not None and not listing.has_subjects else self._owner_of(subject)

    def _owner_of(self, subject: str | None) -> str:
        return GENERAL if subject is None else f"subject.{self.tag('subject', subject)}"

    def _newest(self, listing: Listing, owner: str | None) -> str | None:
        """Return the file of the key of an owner that was made last."""
        files = listing.by_owner.get(owner or "", ())
        if len(files) < 2:
            return files[0] if files else None
        newest = listing.newest.get(files)
        if newest is None:
            made = [(content.made, file) for file in files if (content := read_key(self._folder / file)) is not None]
            newest = listing.newest[files] = max(made)[1] if made else files[0]
        return newest

    # Keys in memory

    def _names(self, listing: Listing) -> DataKey | None:
        """Return the key that tags are made with; None where nothing was made here yet."""
        names = self._key(NAMES_FILE)
        if names is None and listing.by_id:
            # A new one would have other tags: the keys of a subject would no longer be found when it is erased.
            raise SealError(
                f"{str(self._folder / NAMES_FILE)!r} is missing, and the keys beside it cannot be told apart without: "
                "put it back from your copy"
            )
        return names

    def _names_now(self) -> DataKey | None:
        """Return the same, if it is in memory already."""
        return self._key(NAMES_FILE) if NAMES_FILE in self._opened else None

    def _key(self, file: str) -> DataKey | None:
        """Return the key in a file, from memory as long as the file is there; None where it is not."""
        opened = self._opened.get(file)
        if opened is None:
            with self._mutex:
                opened = self._opened.get(file)
                if opened is None:
                    return self._open(file)
        try:
            if stat.S_ISREG(os.lstat(opened.path).st_mode):
                return opened.key
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._unreadable(error) from error
        self._opened.pop(file, None)
        return None

    def _open(self, file: str) -> DataKey | None:
        """Unwrap the key in a file, and keep it in memory."""
        content = read_key(self._folder / file)
        if content is None:
            return None
        path = self._folder / file
        owner = parts(file)[0]
        try:
            secret = self._wrapping.unwrap(content.wrapped, owner, content.id)
        except SealError as error:
            told = "" if content.master == self.master_name else f" (it was wrapped with {printed(content.master)!r})"
            kind = UnusableKeyError if isinstance(error, UnusableKeyError) else SealError
            raise kind(f"the key file {str(path)!r} does not open: {error}{told}; {_WITHOUT}") from error
        key = DataKey.of(secret)
        if key.id != content.id:
            raise UnusableKeyError(
                f"the key file {str(path)!r} has another key than it says: put it back from your copy"
            )
        self._opened[file] = _Opened(key, str(path))
        return key

    def _check_own(self, files: Iterable[str]) -> None:
        """Look whether files have the keys that they are named after, whatever is in memory of them.

        Raises:
            SealError: one does not open.
        """
        for file in files:
            try:
                with self._mutex:
                    self._open(file)
            except UnusableKeyError as error:
                raise UnusableKeyError(f"{error}; no key is destroyed before that is mended") from error

    # Changes

    @contextmanager
    def _changing(self) -> Generator[Callable[[], None]]:
        """Be the only one that changes the folder. Gives what is to be called after each change."""
        with ExitStack() as stack:
            try:
                make_folders(self._folder, OWN.of_folders)
                self._state()
                handle = stack.enter_context(shared_files.locked(self._folder / _LOCK))
            except OSError as error:
                raise SealError(f"keys cannot be kept in {self._place!r}: {os_reason(error)}") from error

            def changed() -> None:
                self._listing = None
                try:
                    os.ftruncate(handle, os.fstat(handle).st_size + 1)
                except OSError as error:
                    raise SealError(f"{self._lock_file!r} cannot be written: {os_reason(error)}") from error

            yield changed

    def _sweep(self) -> None:
        """Remove what killed processes have left half made. Nothing was sealed with it."""
        for file in self._list().half_made:
            try:
                (self._folder / file).unlink(missing_ok=True)
            except OSError as error:
                raise SealError(f"{str(self._folder / file)!r} cannot be removed: {os_reason(error)}") from error

    def _keep(self, owner: str, file: str | None, changed: Callable[[], None]) -> DataKey:
        """Make a key, and keep it in a file."""
        key = DataKey.of(os.urandom(SECRET_BYTES))
        path = self._folder / (file or f"{owner}.{key.id}.key")
        wrapped = self._wrapping.wrap(key, owner)
        content = KeyFile(
            form="seal-key-1", id=key.id, made=self._now().astimezone(UTC), master=self.master_name, wrapped=wrapped
        )
        try:
            shared_files.replace(path, msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        except OSError as error:
            raise SealError(f"a key cannot be kept in {str(path)!r}: {os_reason(error)}") from error
        self.made = True
        changed()
        self._opened[path.name] = _Opened(key, str(path))
        return key

    def _unreadable(self, error: OSError) -> SealError:
        return SealError(f"the keys of sealing in {self._place!r} cannot be read: {os_reason(error)}")


class _Opened(NamedTuple):
    key: DataKey
    path: str


def _tag(names: DataKey, kind: Tagged, name: str) -> str:
    return short(hmac.digest(names.secret, kind.encode() + b"\x00" + name.encode(errors="surrogatepass"), "sha256"))


_NEVER = datetime.min.replace(tzinfo=UTC)
