"""Which files there are to import, and of which format each is."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from turnlog.errors import FormatError, MissingPackageError, PluginError, os_reason
from turnlog.interop import formats
from turnlog.interop.folders import NOT_FOLLOWED, leads_out
from turnlog.interop.sqlite_files import no_transcript
from turnlog.model.json_text import UNREADABLE
from turnlog.record.files import open_regular
from turnlog.store.sqlite.opening import SQLITE_MAGIC

BEGINNING_BYTES = 64 * 1024
"""How much of a file is looked at."""

LINE_BYTES_MAX = 64 * 1024 * 1024
"""How long a line may be that goes on there: of a file that nothing is found in otherwise, it is looked at whole."""

TURNLOG = "turnlog"
"""What stands for a format where a file is what `turnlog export` wrote: its events come in as they are."""

_OF_NO_FORMAT = "it is of no format that can be imported"
_TO_A_FOLDER = "a link to a folder in it: what is there is found without it"

_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

_EXPORT = b'{"turnlog_export":'
"""How the first line of turnlog's own exports begins."""


class ToImport(Struct, frozen=True, kw_only=True):
    """A file or folder to import.

    Attributes:
        path: where it is.
        format: the name of its format, or `TURNLOG`.
    """

    path: Path
    format: str


class _Line(Struct):
    timestamp: str = ""


_first_line = msgspec.json.Decoder(_Line)


class PassedOver(Struct, frozen=True, kw_only=True):
    """Something in a folder that is not to be imported.

    Attributes:
        path: where it is.
        why: a few words.
    """

    path: Path
    why: str


class Found(Struct, frozen=True, kw_only=True):
    """What there is to import.

    Attributes:
        files: what is of a known format; of a folder what was written last is last, so that it is the latest in the log
            too, and sub-agents are behind all others, in the order in which they began.
        passed_over: what else is in a folder.
        failed: what is wrong with formats of other packages that could not be asked whether a file is theirs.
    """

    files: tuple[ToImport, ...]
    passed_over: tuple[PassedOver, ...]
    failed: tuple[str, ...] = ()


def find(paths: Sequence[Path], *, format: str | None = None) -> Found:
    """Look at files, and into folders with all that is in them, and say what there is to import.

    Args:
        paths: files and folders.
        format: take only files of this format, or `TURNLOG`. A file that is named is then taken for one.

    Raises:
        FormatError: a file is of no known format, or of several, or cannot be read; or a folder has nothing to import.
            Notes of it (`__notes__`) say what of other packages could not be asked.
        NotFoundError: there is no such format.
        PluginError: it is one of another package, and cannot be used.
    """
    if format not in (None, TURNLOG):
        formats.get(format)
    failed: dict[str, str] = {}
    try:
        found = _find(paths, format, failed)
    except FormatError as error:
        for what in failed.values():
            error.add_note(what)
        raise
    return msgspec.structs.replace(found, failed=tuple(failed.values()))


def _find(paths: Sequence[Path], format: str | None, failed: dict[str, str]) -> Found:
    files: list[ToImport] = []
    passed_over: list[PassedOver] = []
    for path in paths:
        if not path.is_dir():
            files.append(ToImport(path=path, format=_only_format(path, failed) if format is None else format))
            continue
        inside = list(_inside(path, format, path, failed))
        found = [inner for inner in inside if isinstance(inner, ToImport)]
        files += sorted(found, key=_place_in_order)
        passed_over += [inner for inner in inside if isinstance(inner, PassedOver)]
        if not found:
            what = "known format" if format is None else f"format {format!r}"
            link = next((each for each in passed_over if each.why == NOT_FOLLOWED), None)
            told = "" if link is None else f" ({str(link.path)!r} is {NOT_FOLLOWED})"
            raise FormatError(f"{str(path)!r} has no file of a {what} in it{told}; nothing was imported")
    return Found(files=tuple(files), passed_over=tuple(passed_over))


def formats_of(path: Path, *, format: str | None = None, failed: dict[str, str] | None = None) -> list[str]:
    """Return the names of the formats that a file or folder is of; `TURNLOG` alone of what `turnlog export` wrote.

    Args:
        path: where it is.
        format: look only whether it is of this one.
        failed: what is wrong with formats that cannot be asked, by name. These are left out, and new ones put in.

    Raises:
        FormatError: it cannot be read.
        PluginError: a format cannot be asked, where `failed` is not given.
    """
    beginning = b"" if path.is_dir() else _beginning(path)
    # First: an export has in it what was imported, and so what that is recognized by.
    if beginning.startswith(_EXPORT):
        return [TURNLOG] if format in (None, TURNLOG) else []
    if format == TURNLOG:
        return []
    names = formats.names() if format is None else [format]

    def recognized(beginning: bytes) -> list[str]:
        return [name for name in names if _recognizes(name, path, beginning, failed)]

    found = recognized(beginning)
    if found or path.is_dir():
        return found
    # The first line of a session can be a long prompt, or long instructions.
    return recognized(_beginning(path, line_bytes_max=LINE_BYTES_MAX))


def _recognizes(name: str, path: Path, beginning: bytes, failed: dict[str, str] | None) -> bool:
    if failed is not None and name in failed:
        return False
    try:
        importer = formats.get(name)
        with formats.PLUGINS.blamed(name):
            return bool(importer.recognizes(path, beginning))
    except (PluginError, MissingPackageError) as error:
        if failed is None:
            raise
        failed[name] = str(error)
        return False


def _inside(folder: Path, format: str | None, root: Path, failed: dict[str, str]) -> Iterator[ToImport | PassedOver]:
    """Give what there is in a folder, which is the root or in it: what is of one format, and what is not."""
    found = formats_of(folder, format=format, failed=failed)
    if len(found) == 1:
        yield ToImport(path=folder, format=found[0])
        return
    for path in sorted(folder.iterdir(), key=lambda each: (each.is_dir(), each)):
        is_link = path.is_symlink()
        if is_link and leads_out(path, root):
            yield PassedOver(path=path, why=NOT_FOLLOWED)
        elif is_link and path.is_dir():
            yield PassedOver(path=path, why=_TO_A_FOLDER)
        elif path.is_dir():
            yield from _inside(path, format, root, failed)
        else:
            found = formats_of(path, format=format, failed=failed) if path.is_file() else []
            is_of_one = len(found) == 1
            yield ToImport(path=path, format=found[0]) if is_of_one else PassedOver(path=path, why=_OF_NO_FORMAT)


def _place_in_order(file: ToImport) -> tuple[bool, str, int]:
    """Return what files of a folder are sorted by: sub-agents continue turns of those that started them.

    One that another one started is written last before that one is, and so it is their beginning that counts.
    """
    is_agent = file.path.name.startswith("agent-")
    try:
        written_ns = file.path.stat().st_mtime_ns
        begun = _begun(file.path) if is_agent else ""
    except (OSError, FormatError):  # reading it will say why
        written_ns, begun = 0, ""
    return is_agent, begun, written_ns


def _begun(path: Path) -> str:
    """Return the time of the first line of a file, as it is spelled there; nothing where it has none."""
    try:
        line, _, _ = _beginning(path, line_bytes_max=LINE_BYTES_MAX).partition(b"\n")
        return _first_line.decode(line).timestamp
    except UNREADABLE:
        return ""


def _only_format(path: Path, failed: dict[str, str]) -> str:
    found = formats_of(path, failed=failed)
    if len(found) == 1:
        return found[0]
    beginning = b"" if found else _beginning(path)
    if beginning.startswith(SQLITE_MAGIC):
        raise FormatError(f"{str(path)!r} {no_transcript(path)}; nothing was imported")
    if beginning.startswith(_UTF_16):
        raise FormatError(f"{str(path)!r} is text in UTF-16: save it as UTF-8, and import that; nothing was imported")
    known = ", ".join(formats.names())
    what = f"can be {' or '.join(found)}" if found else f"is of no known format ({known})"
    raise FormatError(f"{str(path)!r} {what}: say which with --format; nothing was imported")


def _beginning(path: Path, *, line_bytes_max: int = 0) -> bytes:
    try:
        with open_regular(path, FormatError) as file:
            return file.read(BEGINNING_BYTES) + file.readline(line_bytes_max)
    except (OSError, ValueError) as error:
        raise FormatError(f"{str(path)!r} cannot be read: {os_reason(error)}") from error
