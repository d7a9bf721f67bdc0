"""Large payloads as objects: in a bucket of S3-compatible storage, or in a folder that is used as one.

An object has the name that a payload file has, and like it is written whole or not at all. It is there before its event
is recorded. One object more, `log`, has the mark of the log whose place it is: no other writes or removes any there.
Credentials and the endpoint are those of the environment (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, …).
"""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast
from urllib.parse import unquote, urlsplit

from turnlog.errors import StorageError, StoreError, StoreOpenError
from turnlog.store.files import OWN, make_folders

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

ORPHAN_AGE = timedelta(days=1)
"""Objects that no event needs are left for so long: their events may be on their way."""

TIMEOUT_S = 30
"""How long a request may take to be answered, and all tries of it together."""

_MARK = "log"
"""The path of the object that says whose place it is."""

_NAME = re.compile(r"([0-9a-f]{2})/([0-9a-f]{62}(?:\.zst)?)")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_FORMS = "s3://BUCKET/PREFIX or file:///FOLDER"


class Listed(NamedTuple):
    """An object: its path, its name if it has that of a payload, its size in bytes, and whether it is an old one."""

    path: str
    name: str | None
    size: int
    is_old: bool


def checked_url(url: str) -> str:
    """Return the URL of a place for payloads, without a slash at its end.

    Raises:
        StoreOpenError: it is of another form.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreOpenError(f"payloads={url!r} is malformed: {error}") from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise StoreOpenError(
            f"payloads=: credentials and options are taken from the environment (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, "
            f"…): give {_FORMS} alone"
        )
    is_bucket = parts.scheme == "s3" and _BUCKET.fullmatch(parts.netloc)
    is_folder = parts.scheme == "file" and not parts.netloc and parts.path.strip("/")
    if not (is_bucket or is_folder) or not url.isprintable() or ".." in parts.path.split("/"):
        raise StoreOpenError(f"payloads={url!r} is no place for payloads, give {_FORMS}")
    return url.rstrip("/")


class Objects:
    """Objects below a place. Safe to use from many threads.

    Attributes:
        url: the place.
        mark: the mark of the log whose place it is to be; None where it has none yet: then nothing is checked.
    """

    def __init__(self, url: str) -> None:
        """Take a place. A bucket is not looked at yet, a folder is made.

        Raises:
            StoreOpenError: the URL is of another form, obstore is not installed, or its settings are wrong.
        """
        self.url = checked_url(url)
        self.mark: str | None = None
        self._is_own = False
        try:
            import obstore  # noqa: PLC0415 - an optional SDK
            from obstore.store import LocalStore, S3Store  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise StoreOpenError("payloads in object storage need an extra: pip install 'turnlog[s3]'") from error
        self._api: Any = obstore
        parts = urlsplit(self.url)
        try:
            if parts.scheme == "file":
                folder = Path(unquote(parts.path))
                # What is made in it is for whoever may enter it.
                make_folders(folder, OWN.of_folders)
                self._store: Any = LocalStore(folder)
            else:
                self._store = S3Store(
                    parts.netloc,
                    prefix=unquote(parts.path).strip("/") or None,
                    client_options={"allow_http": True, "timeout": timedelta(seconds=TIMEOUT_S)},
                    retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=TIMEOUT_S)},
                )
        except Exception as error:
            raise StoreOpenError(f"{self.url!r} cannot be used for payloads: {_said(error)}") from error

    def put(self, name: str, content: bytes) -> None:
        """Write an object, or write it again. On return it is there, whole.

        Raises:
            StoreError: the storage does not do it, or the place is another log's.
        """
        self._claim()
        with self._asking():
            self._api.put(self._store, _path(name), content)

    def ensure(self, name: str, content: bytes) -> None:
        """Write an object if it is not there with its size.

        Raises:
            StoreError: the storage does not do it, or the place is another log's.
        """
        self._claim()
        if self._size(name) != len(content):
            self.put(name, content)

    def _size(self, name: str) -> int | None:
        with self._asking(), suppress(FileNotFoundError):
            return int(self._api.head(self._store, _path(name))["size"])
        return None

    @contextmanager
    def open(self, name: str) -> Generator[tuple[BinaryIO, int]]:
        """Give an object as a file that can be read once, and its size in bytes.

        Raises:
            ValueError: there is no such object.
            StorageError: the storage does not answer, or refuses.
        """
        found = None
        with self._asking(), suppress(FileNotFoundError):
            found = self._api.get(self._store, _path(name))
        if found is None:
            raise ValueError(f"its object {_path(name)} is missing in {self.url}")
        with io.BufferedReader(_Pieces(self, found.stream())) as file:
            yield cast("BinaryIO", file), int(found.meta["size"])

    def remove(self, name: str) -> None:
        """Remove an object. Removing what is not there is allowed.

        Raises:
            StoreError: the storage does not do it, or the place is another log's.
        """
        self._claim()
        with self._asking(), suppress(FileNotFoundError):
            self._api.delete(self._store, _path(name))

    def listed(self) -> Iterator[Listed]:
        """Iterate over all objects below the place, but for the one with the mark."""
        before = datetime.now(UTC) - ORPHAN_AGE
        with self._asking():
            for page in self._api.list(self._store):
                for found in page:
                    if found["path"] == _MARK:
                        continue
                    named = _NAME.fullmatch(found["path"])
                    name = None if named is None else named[1] + named[2]
                    yield Listed(found["path"], name, int(found["size"]), found["last_modified"] < before)

    def is_anothers(self) -> bool:
        """Tell whether the place has the mark of another log.

        Raises:
            StoreError: the storage does not answer.
        """
        return self.mark is not None and self._marked() not in (None, self.mark)

    def _claim(self) -> None:
        """Have the place for the log, before the first object is written or removed in this process."""
        if self._is_own or self.mark is None:
            return
        found = self._marked()
        if found is None:
            with self._asking():
                self._api.put(self._store, _MARK, self.mark.encode())
            found = self._marked()  # another log may have been as fast
        if found != self.mark:
            raise StoreError(
                f"{self.url!r} is where another log has its large payloads: give each log a prefix of its own (if "
                f"there is no such log any more, remove the object {_MARK!r} there)"
            )
        self._is_own = True

    def _marked(self) -> str | None:
        with self._asking(), suppress(FileNotFoundError):
            return bytes(self._api.get(self._store, _MARK).bytes()).decode(errors="replace")
        return None

    @contextmanager
    def _asking(self) -> Generator[None]:
        """Convert errors of the storage.

        Raises:
            StorageError: it does not answer, or refuses.
        """
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            raise StorageError(f"the payload storage {self.url!r} does not do its work: {_said(error)}") from error


class _Pieces(io.RawIOBase):
    """An object that is read as it comes."""

    def __init__(self, objects: Objects, stream: Any) -> None:
        self._objects = objects
        self._stream = iter(stream)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        with self._objects._asking():  # pyright: ignore[reportPrivateUsage]
            while not self._rest:
                piece = next(self._stream, None)
                if piece is None:
                    return 0
                self._rest = memoryview(bytes(piece))
        target = memoryview(buffer)
        count = min(len(target), len(self._rest))
        target[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _path(name: str) -> str:
    return f"{name[:2]}/{name[2:]}"


def _said(error: Exception) -> str:
    """Return the first line of what a storage says, in the style of messages."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].strip()
