"""Lines and tables for people, cut to the width of a terminal."""

from errno import ENOENT
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.command import Command
from tests.cli.terminal import Terminal

from turnlog import TurnLog
from turnlog.cli.commands.run import not_printed
from turnlog.cli.failures import error_line
from turnlog.cli.output import Piece, Screen, note

ID = "03hama1vck24r9pdgzb7b2ra1"


def shown(capsys: pytest.CaptureFixture[str], width: int | None, *rows: list[Piece]) -> list[str]:
    """Return a table as it is printed."""
    Screen(width=width, colour=False).table(rows)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        (["[main] ", "Hello"], "[main] Hello"),
        (["[main] ", "Hello there"], "[main] Hell…"),
        (["[日本語の名前] ", "Hello"], "[日本語の名…"),
        (["x日本語の名前 ", "Hello"], "x日本語の名…"),
        (["twelve cells", "Hello"], "twelve cell…"),
        (["twelve cells", "  ", ""], "twelve cells"),
        (["ten cells ", "    ", ""], "ten cells"),
        (["ten cells ", "    ", "x"], "ten cells …"),
        (["      ", "      ", "      "], ""),
    ],
)
def test_a_line_is_cut_once(capsys: pytest.CaptureFixture[str], pieces: list[Piece], line: str) -> None:
    """With one ellipsis, and with none where nothing but blanks is missing."""
    Screen(width=12, colour=False).line(*pieces, cut=True)
    assert capsys.readouterr().out == f"{line}\n"
    assert cell_len(line) <= 12


def test_a_wide_cell_leaves_room_for_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    """All columns stand below each other, and an id is whole; what no other cell needs is the wide one's."""
    rows: list[list[Piece]] = [["main", ID, "3d", "Ferries leave at 08:10"], ["long" * 40, ID, "3d", "And by train?"]]
    assert shown(capsys, 80, *rows) == [
        f"main                         {ID}  3d  Ferries leave at 08…",
        f"longlonglonglonglonglonglo…  {ID}  3d  And by train?",
    ]
    assert shown(capsys, 60, *rows) == [
        f"main                       {ID}  3d  F…",
        f"longlonglonglonglonglong…  {ID}  3d  A…",
    ]
    assert shown(capsys, None, *rows)[1].startswith("long" * 40 + f"  {ID}")


def test_columns_are_cut_only_where_the_last_has_no_room(capsys: pytest.CaptureFixture[str]) -> None:
    """What fits is whole, however wide one column is."""
    rows: list[list[Piece]] = [["n" * 60, "12"], ["main", "3,400"]]
    assert shown(capsys, 80, *rows) == ["n" * 60 + "  12", "main" + " " * 58 + "3,400"]


def test_a_table_without_rows_is_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """On a terminal too."""
    assert (shown(capsys, 80), shown(capsys, None)) == ([], [])


@pytest.mark.parametrize("columns", [30, 80])
def test_what_a_command_has_done_is_told_whole(turnlog: Command, tmp_path: Path, columns: int) -> None:
    """However narrow the terminal is: nothing else says it."""
    name = "a-bookmark-with-a-name-that-takes-its-room-on-a-line"
    (tmp_path / "a-paper-with-a-name-that-takes-its-room-too.md").write_text("# Soup")
    for arguments, end in (
        (("add", "hi", "-b", name), "a new thread"),
        (("document", str(next(tmp_path.glob("a-paper*"))), "-c", name), ", continues 03"),
        (("keys", "new", "--name", "example.com/a-log-whose-name-takes-its-room-on-a-line"), ".key"),
        (("export", "-o", str(tmp_path / "an-export-with-a-name-that-takes-its-room.jsonl")), "events"),
    ):
        with Terminal(turnlog, *arguments, columns=columns) as terminal:
            written, status = terminal.end()
        assert (status, "…" in written) == (0, False), written
        assert end in written


@pytest.mark.parametrize("columns", ["0", "1", "2", "999999999", "many"])
@pytest.mark.parametrize("arguments", [("--help",), ("log", "--help"), ("stores",)])
def test_a_page_is_laid_out_in_any_width(turnlog: Command, columns: str, arguments: tuple[str, ...]) -> None:
    """Also where the system says that there is next to none."""
    assert turnlog.ok(*arguments, COLUMNS=columns).text


@pytest.mark.parametrize(
    "command",
    [
        ("tail", "--content"),
        ("show", "main", "--json"),
        ("context", "main", "--json"),
        ("export",),
        ("export", "main", "--format", "openai"),
        ("export", "main", "--format", "markdown"),
    ],
    ids=" ".join,
)
def test_json_commands_no_terminal(turnlog: Command, command: tuple[str, ...]) -> None:
    """It says the same there; a file or a pipe gets it as it is recorded."""
    hostile = "a\x9b2Jb\x9d52;c;eA==\x9cc\u202ed"
    with TurnLog.open(turnlog.url) as log:
        log.add_turn(hostile, bookmark="main")
    with Terminal(turnlog, *command) as terminal:
        shown, status = terminal.end()
    assert status == 0
    assert {each for each in shown if not each.isprintable()} <= {"\n", "\x1b"}
    if len(command) > 1 and command[-1] != "markdown":
        assert "a\\u009b2Jb\\u009d52;c;eA==\\u009cc\\u202ed" in shown
        assert hostile in turnlog.ok(*command).text


def test_a_note_is_one_line_whatever_it_is_made_of(capsys: pytest.CaptureFixture[str]) -> None:
    """No caller has to think of what a name, or another program, could do to a terminal."""
    note("a\x1b[2Jb\n\n  turnlog: c\x9b\r")
    assert capsys.readouterr().err == "turnlog: a\\x1b[2Jb turnlog: c\\x9b\\x0d\n"


def test_an_error_of_a_file_is_none_of_the_output() -> None:
    """It says which file, and what is recorded."""
    gone = FileNotFoundError(ENOENT, "No such file or directory", "a.txt")
    with pytest.raises(FileNotFoundError) as caught:
        not_printed(gone, "what was said is recorded")
    assert error_line(caught.value) == "turnlog: 'a.txt': no such file or directory; what was said is recorded"
