"""Standard output and standard error: JSON for programs, lines for people."""

from __future__ import annotations

import os
import select
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from threading import Thread
from typing import BinaryIO, TextIO, cast

import msgspec
from msgspec import Struct
from rich.cells import cell_len

from turnlog.cli.failures import UntoldError, UsageError
from turnlog.cli.first_sign import erase_first_sign
from turnlog.cli.text import fit, json_printable, line_pieces, on_line, one_line, pad, printable
from turnlog.errors import os_reason
from turnlog.ids import ID_CHARACTERS
from turnlog.model.binary_files import whole_writes

_SGR = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
"""Styles by name, as parameters of the terminal's SELECT GRAPHIC RENDITION (ECMA-48 §8.3.117)."""

LANE_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")

_WIDTH = 80
"""How wide a terminal is taken to be that does not say."""

_WIDTH_MIN, _WIDTH_MAX = 20, 1000
"""A terminal is taken to be as wide as this at least, and at most."""

_GAP = 2
"""So many blanks are between the columns of a table."""

_LAST_PART = 4
"""The last column of a table has a part of the width, one of so many, before the others have more than they must."""

Piece = str | tuple[str, str]
"""A part of a line: text, or text and a style such as `bold green`. Its control characters are spelled out."""


def prepare_streams() -> None:
    """Make standard output and error take any text, whatever the locale, and be there even if they were closed."""
    if sys.stdout is None:
        sys.stdout = _Closed()
    if sys.stderr is None:
        sys.stderr = _Nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def settle_width() -> None:
    """Set `COLUMNS` where the terminal, or that, is so narrow that it takes for ever to lay out a page."""
    try:
        width = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        try:
            width = os.get_terminal_size(sys.stdout.fileno()).columns
        except (OSError, ValueError):
            return
    if not _WIDTH_MIN <= width <= _WIDTH_MAX:
        os.environ["COLUMNS"] = str(min(max(width, _WIDTH_MIN), _WIDTH_MAX) if width > 0 else _WIDTH)


class _Nowhere(TextIOWrapper):
    """Stands for a stream that was closed before the process began."""

    def __init__(self) -> None:
        super().__init__(open(os.devnull, "wb"), encoding="utf-8")  # noqa: PTH123, SIM115 - it stays open as the stream


class _Closed(_Nowhere):
    """Stands for standard output that was closed, until `go_on_unheard`: it refuses what is written."""

    @property
    def buffer(self) -> BinaryIO:
        """Refuse to be written to.

        Raises:
            UsageError: always.
        """
        raise _closed()

    def write(self, text: str, /) -> int:  # noqa: ARG002 - nothing is written
        """Refuse to be written to.

        Raises:
            UsageError: always.
        """
        raise _closed()


def _closed() -> UsageError:
    return UsageError("standard output is closed: there is nowhere to write to")


def go_on_unheard() -> None:
    """Let go what is printed from now on, where standard output is closed: there is more to a command than that."""
    if isinstance(sys.stdout, _Closed):
        sys.stdout = _Nowhere()


class _ForPrograms:
    """Stands for standard output that a program reads, which takes bytes alone: what is printed goes to people."""

    def __init__(self, output: TextIO) -> None:
        self.output = output

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        sys.stderr.writelines(lines)

    def __getattr__(self, name: str) -> object:
        return getattr(self.output, name)


def keep_for_programs() -> None:
    """Keep standard output for bytes, as of JSON: what anybody prints from now on, as a package of others, is none."""
    if not isinstance(sys.stdout, _ForPrograms | _Nowhere):
        sys.stdout = cast("TextIO", _ForPrograms(sys.stdout))


def give_back_output() -> None:
    """Let standard output take text again."""
    if isinstance(sys.stdout, _ForPrograms):
        sys.stdout = sys.stdout.output


def abandon_output() -> None:
    """Let nothing more be written to a standard output whose reader has gone, not even at the end of the process."""
    _abandon(sys.stdout)


def _abandon(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def settle_output() -> OSError | None:
    """Write out what was printed so far; where that fails, drop it, so that it does not fail again at the end.

    Returns:
        Why it failed, None if it did not.
    """
    return _settle(sys.stdout)


def settle_errors() -> None:
    """Drop what standard error has not taken, as of a terminal that went away: Python would change the exit status."""
    _settle(sys.stderr)


def _settle(stream: TextIO) -> OSError | None:
    try:
        stream.flush()
    except OSError as error:
        _abandon(stream)
        return error
    return None


def unblock_output() -> None:
    """Drop what was printed if nobody takes it: whoever interrupts a command does not wait for a reader that waits."""
    with suppress(OSError, ValueError):
        _, ready, _ = select.select([], [sys.stdout.fileno()], [], 0)
        if not ready:
            abandon_output()


@contextmanager
def watching_reader(gone: Callable[[], None]) -> Generator[None]:
    """Have a function called, by another thread, when nobody reads standard output any more: while nothing is written.

    Files and terminals are always read.
    """
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):  # it is no stream of the system
        yield
        return
    ended, end = os.pipe()

    def watch() -> None:
        poll = select.poll()
        poll.register(output, 0)
        poll.register(ended, 0)
        if any(handle == output and event & (select.POLLERR | select.POLLHUP) for handle, event in poll.poll()):
            gone()

    thread = Thread(target=watch, name="turnlog-reader", daemon=True)
    thread.start()
    try:
        yield
    finally:
        os.close(end)
        thread.join()
        os.close(ended)


@contextmanager
def telling(done: str) -> Generator[None]:
    """Print what was done; where that fails or is interrupted, say that it is done all the same.

    Args:
        done: one line that says what is recorded, and what to do in order to be told again.

    Raises:
        UntoldError: standard output cannot be written. That it was closed from the beginning is no failure.
    """
    go_on_unheard()
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        abandon_output()
        raise UntoldError(f"{done} ({os_reason(error)})") from error
    except KeyboardInterrupt as stop:
        stop.add_note(done)
        raise


@contextmanager
def noting() -> Generator[list[str]]:
    """Give a list for lines that say what is done: an interrupt is told with what stands in it by then."""
    done: list[str] = []
    try:
        yield done
    except KeyboardInterrupt as stop:
        for line in done:
            stop.add_note(line)
        raise


def check_output() -> None:
    """Refuse to begin what is for standard output alone where that was closed before the process began.

    Raises:
        UsageError: it was.
    """
    if isinstance(sys.stdout, _Nowhere):
        raise _closed()


def binary_output() -> BinaryIO:
    """Return standard output for bytes, which are all that a command is for.

    Raises:
        UsageError: it was closed before the process began.
    """
    check_output()
    return whole_writes(sys.stdout.buffer)  # which has no buffer where PYTHONUNBUFFERED says so


def json_output() -> BinaryIO:
    """Return standard output for JSON. What would command a terminal is spelled out there, which says the same."""
    output = whole_writes(sys.stdout.buffer)
    return cast("BinaryIO", _Spelling(output)) if sys.stdout.isatty() else output


class _Spelling:
    """What is written as JSON for a terminal."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = getincrementaldecoder("utf-8")("surrogateescape")

    def write(self, content: bytes | bytearray | memoryview) -> int:
        text = json_printable(self._decoder.decode(bytes(content)))
        self._file.write(text.encode(errors="surrogateescape"))
        return len(content)

    def writelines(self, lines: Iterable[bytes | bytearray | memoryview]) -> None:
        for line in lines:
            self.write(line)


def write_json(value: object) -> None:
    """Print one JSON value on a line."""
    write_json_text(msgspec.json.encode(value))


def write_json_text(*pieces: bytes | memoryview) -> None:
    """Print JSON text, which may come in pieces, on a line. It is not copied for that: it may be large."""
    output = json_output()
    output.writelines(pieces)
    output.write(b"\n")


def write_json_lines(values: Iterable[object]) -> None:
    """Print JSON values, one a line."""
    for value in values:
        write_json(value)


def note(message: str) -> None:
    """Tell people something beside the output: one line on standard error. Where nobody reads it, nothing is told.

    What would command a terminal is spelled out, and line feeds become blanks, whatever a message is made of.

    Where both go to one file or pipe it stands behind what was printed before.
    """
    erase_first_sign()
    with suppress(OSError):  # what cannot be printed is found when the command ends
        sys.stdout.flush()
    with suppress(OSError):
        sys.stderr.write(f"turnlog: {one_line(message)}\n")
        sys.stderr.flush()


class Screen(Struct, frozen=True, kw_only=True):
    """Where lines for people go.

    Attributes:
        width: width in terminal cells, to which lines of listings are cut; None when the output is no terminal.
        colour: whether to use colours.
    """

    width: int | None
    colour: bool

    @classmethod
    def of_stdout(cls) -> Screen:
        """Return what standard output is. `NO_COLOR`, `FORCE_COLOR`, `TERM` and `COLUMNS` are heeded."""
        is_terminal = sys.stdout.isatty()
        if not is_terminal and not os.environ.get("FORCE_COLOR") and not os.environ.get("TTY_COMPATIBLE"):
            return cls(width=None, colour=False)
        from rich.console import Console  # noqa: PLC0415 - files and pipes need none of it

        console = Console(file=sys.stdout)
        colour = console.color_system is not None and not console.no_color
        return cls(width=console.width if is_terminal else None, colour=colour)

    def line(self, *pieces: Piece, cut: bool = False) -> None:
        """Print one line: whole, or of a listing what there is room for, which another command shows whole."""
        sys.stdout.write(self._render(pieces, self.width if cut else None) + "\n")

    def text(self, text: str, style: str = "") -> None:
        """Print text of many lines, as long as they are."""
        self.pieces(map(printable, line_pieces((text,))), style)

    def pieces(self, pieces: Iterable[str], style: str = "") -> None:
        """Print printable text of many lines, which comes in pieces, as long as they are."""
        for piece in pieces:
            plain = not (self.colour and style)
            sys.stdout.write(piece if plain else "\n".join(self._styled(line, style) for line in piece.split("\n")))
        sys.stdout.write("\n")

    def table(self, rows: Sequence[Sequence[Piece]], *, cut: bool = True, least: int = ID_CHARACTERS) -> None:
        """Print rows whose columns stand below each other.

        The last column is cut to the width, or goes on below. Where the others leave it no room, they are cut too, the
        widest first, but not to less than `least`.
        """
        widths = [max(cell_len(_text(cell)) for cell in column) for column in zip(*rows, strict=True)]
        if rows and cut and self.width is not None:
            widths = _narrowed(widths, self.width, least)
        for row in rows:
            pieces: list[Piece] = []
            for cell, width in zip(row[:-1], widths, strict=False):
                text, style = fit(_text(cell), width), _style(cell)
                pieces += [(text, style), " " * (width - cell_len(text) + _GAP)]
            self.line(*pieces, row[-1], cut=cut)

    def _render(self, pieces: Sequence[Piece], width: int | None) -> str:
        texts = [_text(piece) for piece in pieces]
        shown = texts if width is None else _fitted(texts, width)
        line = "".join(self._styled(text, _style(piece)) for text, piece in zip(shown, pieces, strict=False))
        return line if self.colour else line.rstrip()

    def _styled(self, text: str, style: str) -> str:
        if not (self.colour and style and text.strip()):
            return text
        return f"\x1b[{';'.join(_SGR[name] for name in style.split())}m{text}\x1b[0m"


def _narrowed(widths: Sequence[int], screen: int, least: int) -> list[int]:
    """Return how wide columns are on a screen, of which the last one is to have a part if it needs it."""
    *fixed, last = widths
    room = screen - _GAP * len(fixed) - min(last, screen // _LAST_PART)
    widest = max(fixed, default=0)
    while sum(fixed) > room and widest > least:
        widest -= 1
        fixed = [min(width, widest) for width in fixed]
    return [*fixed, last]


def _fitted(texts: Sequence[str], width: int) -> list[str]:
    """Return the parts of a line that fit, the last one of them with an ellipsis where something is missing."""
    shown: list[str] = []
    for at, text in enumerate(texts):
        cells = cell_len(text)
        if cells >= width:
            is_last = not any(map(str.strip, texts[at + 1 :]))
            return [*shown, fit(text.rstrip() if is_last else text + "…", width)]
        shown.append(text)
        width -= cells
    return shown


def _text(piece: Piece) -> str:
    # Ids too may be forged: nothing that is stored commands a terminal, or breaks a line.
    return on_line(piece if isinstance(piece, str) else piece[0])


def _style(piece: Piece) -> str:
    return "" if isinstance(piece, str) else piece[1]


def column(text: str, width: int, style: str = "") -> Piece:
    """Return a part of a line that is at least so many terminal cells wide."""
    return pad(text, width), style
