"""Places outside the store where checkpoints go: what somebody who can write the store should not be able to change."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from turnlog.audit import shared_files
from turnlog.audit.posting import TIMEOUT_S, post
from turnlog.errors import MetaError, PlaceError, os_reason
from turnlog.home import in_home
from turnlog.model.kinds import check_list, check_type
from turnlog.store.files import FILE_MODE, OWN, make_folders, not_a_file, sync_folder
from turnlog.web_address import parsed, shown_server, shown_text


class Place(Protocol):
    """Takes signed checkpoints."""

    name: str

    def write(self, size: int, note: str) -> None:
        """Write a checkpoint of so many events. On return it is there, durably where turnlog writes it itself.

        Raises:
            PlaceError: it is not.
        """
        ...


def parse_place(text: str) -> Place:
    """Return the place that a text names.

    `https://…` or `http://…` is sent the note by POST; `command:…` is a command line that is given it on standard
    input; a path that ends with a slash, or is a folder, gets a file for each; any other path is a file that each is
    appended to.

    Raises:
        PlaceError: it names none.
        MetaError: it is no text.
    """
    check_type(text, str, "place")
    if text.startswith(("https://", "http://")):
        return Webhook(text)
    if text.startswith("command:"):
        try:
            words = shlex.split(text.removeprefix("command:"))
        except ValueError as error:
            raise PlaceError(f"{text!r}: it is no command line: {error}") from error
        if not words:
            raise PlaceError("command: names no command")
        return Command(words)
    if not text or "\0" in text:
        raise PlaceError("a place for checkpoints is a path, command:… or https://…")
    if "://" in text or text.lower().startswith(("http:", "https:")):
        raise PlaceError(f"{shown_text(text)!r}: a place is a path, command:… or https://…")
    path = in_home(text, PlaceError)
    return Folder(path) if text.endswith("/") or path.is_dir() else AppendOnlyFile(path)


def check_places(given: Iterable[Place], field: str) -> tuple[Place, ...]:
    """Return the places of a list.

    Raises:
        MetaError: it is no list, or has something else in it.
    """
    such_as = "such as turnlog.audit.parse_place('PATH')"
    places = check_list(given, field, f"places, {such_as}")
    for index, place in enumerate(places):
        if not callable(getattr(place, "write", None)):
            kind = type(place).__name__
            raise MetaError(f"{field}[{index}]: expected a place, {such_as}, got {kind}", field=field)
    return places


class Folder:
    """A folder with a file for each checkpoint, `SIZE.checkpoint`, with so many zeros that names sort by size."""

    def __init__(self, path: Path) -> None:
        """Take the folder, which is made when it is missing."""
        self.name = str(path)
        self._path = path

    def write(self, size: int, note: str) -> None:
        """Write a checkpoint. One with further signatures gets a number; one with another text is refused.

        Raises:
            PlaceError: there is a different checkpoint of as many events: somebody has signed another log.
        """
        text = note.partition("\n\n")[0]
        try:
            make_folders(self._path, OWN.of_folders)
            number = 0
            while True:
                number += 1
                file = self._path / (f"{size:012}.checkpoint" if number == 1 else f"{size:012}-{number}.checkpoint")
                try:
                    shared_files.write_new(file, note.encode())
                    return
                except FileExistsError:
                    pass
                there = file.read_text(encoding="utf-8")
                if there == note:
                    return
                if there.partition("\n\n")[0] != text:
                    raise PlaceError(
                        f"{file}: it is a different checkpoint of {size} events: an older copy of the log was signed "
                        "again, or another log; nothing was written there"
                    )
        except (OSError, UnicodeDecodeError) as error:
            raise _error(self.name, error) from error


class AppendOnlyFile:
    """A file that checkpoints are appended to, with an empty line behind each."""

    def __init__(self, path: Path) -> None:
        """Take the file, which is made when it is missing."""
        self.name = str(path)
        self._path = path

    def write(self, size: int, note: str) -> None:  # noqa: ARG002 - the size is in the note
        """Append a checkpoint."""
        try:
            new = not self._path.exists()
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND | os.O_NONBLOCK, FILE_MODE)
            try:
                if not stat.S_ISREG(os.fstat(handle).st_mode):
                    raise not_a_file(self._path)
                size_before = os.fstat(handle).st_size
                torn = size_before and os.pread(handle, 2, max(0, size_before - 2)) != b"\n\n"
                _write_all(handle, ("\n\n" if torn else "") + note + "\n")
            finally:
                os.close(handle)
            if new:
                sync_folder(self._path.absolute().parent)
        except OSError as error:
            raise _error(self.name, error) from error


class Command:
    """A command that is given each checkpoint on standard input, without a shell."""

    def __init__(self, words: list[str]) -> None:
        """Take the words of the command line."""
        self.name = f"command:{words[0]}"
        self._words = words

    def write(self, size: int, note: str) -> None:
        """Run the command, with the size in TURNLOG_CHECKPOINT_SIZE. It is to end with status 0."""
        try:
            done = subprocess.run(
                self._words,
                input=note.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={**os.environ, "TURNLOG_CHECKPOINT_SIZE": str(size)},
                timeout=TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _error(self.name, error) from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
            raise PlaceError(f"{self.name}: it ended with status {done.returncode}" + (f": {said}" if said else ""))


class Webhook:
    """A web server that is sent each checkpoint by POST, as text/plain."""

    def __init__(self, url: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Take its URL, and how long it may take until it answers."""
        parts = parsed(url)
        if parts is None:
            raise PlaceError("a place on the web is a URL with http:// or https:// and a host")
        self.name = shown_server(parts)
        self._url = url
        self._timeout_s = timeout_s

    def write(self, size: int, note: str) -> None:
        """Send a checkpoint. The answer is to have a status of success; what else is in it is not read."""
        answer = post(
            self._url,
            note.encode(),
            headers={"Content-Type": "text/plain; charset=utf-8", "X-Checkpoint-Size": str(size)},
            failed=lambda why: PlaceError(f"{self.name}: a checkpoint cannot be written there: {why}"),
            timeout_s=self._timeout_s,
        )
        if not 200 <= answer.status < 300:
            raise PlaceError(f"{self.name}: it answered with status {answer.status}")


def _write_all(handle: int, text: str) -> None:
    content = text.encode()
    written = os.write(handle, content)
    if written != len(content):
        raise OSError(f"{written} of {len(content)} bytes were written")
    os.fsync(handle)


def _error(name: str, error: Exception) -> PlaceError:
    return PlaceError(f"{name}: a checkpoint cannot be written there: {os_reason(error)}")
