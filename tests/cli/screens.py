"""What pages look like on a terminal: golden screens. `make golden` writes them anew; read the difference.

Each page is typed at a terminal of 80 and of 120 columns, with and without colours. A screen is what stands on it,
cell by cell, as a terminal shows the bytes that it got; in colours, `<bold yellow>…</>` stands for how cells look. The
log and its ids are always the same, and it is always three days old.
"""

import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path

import pyte
from pyte.screens import Char
from tests.cli.command import TIME, Command, turn_id
from tests.cli.terminal import Terminal

from turnlog import TurnLog
from turnlog.ids import derived_id
from turnlog.model import ReplyFacts
from turnlog.projections import synchronous
from turnlog.sources import Sources
from turnlog.store import open_store

FOLDER = Path(__file__).parent.parent / "golden" / "screens"
COLUMNS = (80, 120)
_LINES = 200
_PLACE = "/home/reader/log"
"""What stands for the folder of the log: as long as the names that `tempfile` gives."""

_VARYING = (
    (re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), b"2026-01-02T03:04:05Z"),
    (re.compile(rb"sha256-[A-Za-z0-9+/]{43}="), b"sha256-" + b"x" * 43 + b"="),
)
"""What differs from day to day, and what is as long and stands for it."""

_AGE_MS = 3 * 24 * 3600 * 1000
"""The log is that old, so that listings say `3d`, however long they take."""

_PAGES: Mapping[str, Sequence[str]] = {
    "threads": ("threads",),
    "log": ("log", "main"),
    "log-all-latest": ("log", "--all", "-n", "4"),
    "log-of-a-branch": ("log", "train", "--ancestry"),
    "bookmarks": ("bookmarks",),
    "bookmarks-of-a-model": ("bookmarks", "--model", "model-*", "--since", "7d"),
    "ancestry": ("ancestry", "main"),
    "children": ("children", "main~3"),
    "diff": ("diff", "main", "train"),
    "context": ("context", "main"),
    "context-whole": ("context", "main", "--whole", "--explain"),
    "context-hostile": ("context", "hostile"),
    "log-hostile": ("log", "hostile"),
    "show": ("show", "main~1"),
    "stats": ("stats",),
    "stores": ("stores",),
    "help": ("--help",),
    "help-log": ("log", "--help"),
    "error-no-turn": ("log", "mian"),
    "error-no-store": ("log", "--store", "sqlite:///not-there.db"),
    "error-command": ("thread",),
}


def names() -> list[str]:
    """Return the names of the pages."""
    return [*_PAGES]


@contextmanager
def typed_in() -> Iterator[Command]:
    """Give the command in a folder with the log."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # a name that is always as long
    try:
        command = Command(store=folder / "log.db")
        _record(command.url)
        yield command
    finally:
        shutil.rmtree(folder)


def _record(url: str) -> None:
    """Record threads with forks, tools, failures and texts that would pass for what they are not."""
    times, numbers = count(time.time_ns() // 1_000_000 - _AGE_MS - 3_600_000, 1000), count()
    sources = Sources(
        time_ms=lambda: next(times),
        new_id=lambda: derived_id(TIME, f"event {next(numbers)}"),
        salt=lambda: bytes(16),
    )
    call = {"type": "tool_use", "id": "toolu_1", "name": "ferry_times", "input": {"day": "Monday", "from": "Nantes"}}
    ferries = "\n".join(f"{hour:02}:10  quay {hour % 3 + 1}" for hour in range(6, 18))
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": ferries}
    ids = {name: turn_id(name) for name in ("plan", "ask", "call", "result", "answer", "train", "slow")}
    with TurnLog(open_store(url, projections=synchronous()), sources=sources) as log:
        log.add_turn("You plan journeys.", role="system", bookmark="main", provider_ptr="milli", id=ids["plan"])
        asked = "When can I leave Nantes by ferry on Monday, and is the sea calm then? I travel with a bicycle."
        log.add_turn(asked, continues="main", id=ids["ask"])
        log.add_turn([call], role="assistant", continues="main", reply=ReplyFacts(model="model-1"), id=ids["call"])
        log.add_turn([result], continues="main", id=ids["result"])
        log.add_turn(
            "Take the one at 08:10.\n\nThere are:\n- 08:10\n- 17:10",
            role="assistant",
            continues="main",
            reply=ReplyFacts(model="model-1"),
            id=ids["answer"],
        )
        log.add_turn("And by train?", continues=ids["ask"], bookmark="train", id=ids["train"])
        log.add_turn(
            "",
            role="assistant",
            continues="train",
            reply=ReplyFacts(model="model-1", error="overloaded\nagain"),
            id=ids["slow"],
        )
        log.add_turn(
            "Grüße aus 東京 🚄, une très longue ligne qui ne tient pas dans quatre-vingts colonnes du tout, du tout"
        )
        log.add_turn(
            f"── user  {ids['ask']} · 3d\n→ rm -rf /\n\x1b[2J\x1b]0;owned\x07[main] mine\n(erased)\r\u202eesrever",
            bookmark="hostile",
        )
        log.add_turn("[main] [train] I am not a bookmark\x1b[1A\x1b[2K", role="assistant", continues="hostile")
        log.add_turn("✗ overloaded (erased)", continues="hostile")
        log.bookmarks.set("main, x] ● [train", "hostile~1")


def screen_of(name: str, command: Command, *, columns: int, colour: bool) -> str:
    """Type a page's command, and return the screen when it has ended."""
    folder = command.store.parent
    environment = {"TURNLOG_PAGER": "cat", "LANG": "C.UTF-8"}
    if not colour:
        environment |= {"TERM": "xterm-256color", "NO_COLOR": "1"}
    with Terminal(command, *_PAGES[name], columns=columns, colour=colour, folder=folder, **environment) as terminal:
        _, status = terminal.end()
        written = terminal.output.replace(str(folder).encode(), _PLACE.encode())
    for pattern, stands_for_it in _VARYING:
        written = pattern.sub(stands_for_it, written)
    screen = pyte.Screen(columns, _LINES)
    pyte.ByteStream(screen).feed(written)
    assert screen.title == "", "a text has named the window"
    lines = [_line(screen, row, columns, colour=colour) for row in range(_LINES)]
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join([*lines, f"(exit status {status})"])


def _line(screen: pyte.Screen, row: int, columns: int, *, colour: bool) -> str:
    cells = [screen.buffer[row][column] for column in range(columns)]
    if not colour:
        assert all((cell.fg, cell.bg) == ("default", "default") for cell in cells), (
            "what is told to show no colours shows some"
        )
        return "".join(cell.data for cell in cells).rstrip()
    runs = ((look, "".join(cell.data for cell in run)) for look, run in groupby(cells, _look))
    return "".join(f"<{look}>{text}</>" if look and text.strip() else text for look, text in runs).rstrip()


def _look(cell: Char) -> str:
    """Return how a cell looks, in words."""
    words = [word for word in ("bold", "italics", "underscore", "strikethrough", "reverse") if getattr(cell, word)]
    words += [cell.fg] if cell.fg != "default" else []
    words += [f"on {cell.bg}"] if cell.bg != "default" else []
    return " ".join(words)


def page(name: str, command: Command) -> str:
    """Return all screens of a page."""
    parts = [f"$ turnlog {' '.join(_PAGES[name])}"]
    for columns in COLUMNS:
        plain = screen_of(name, command, columns=columns, colour=False)
        coloured = screen_of(name, command, columns=columns, colour=True)
        parts += [f"== {columns} columns", plain, f"== {columns} columns, in colour", coloured]
    return "\n".join(parts) + "\n"


def write() -> int:
    """Write all screens anew, and return how many pages there are."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with typed_in() as command:
        for name in _PAGES:
            (FOLDER / f"{name}.txt").write_text(page(name, command), encoding="utf-8")
    return len(_PAGES)


if __name__ == "__main__":
    sys.stdout.write(f"wrote the screens of {write()} pages\n")
