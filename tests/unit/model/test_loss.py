"""Loss reports."""

import msgspec

from turnlog.model import LossEntry, LossReport

ENTRY = LossEntry(kind="dropped", turn="t", block="thinking", why="it is of another model", index=0)


def test_empty_report_is_false() -> None:
    """A report without entries says that nothing was lost."""
    assert not LossReport()
    assert LossReport(entries=(ENTRY,))


def test_report_with_more_entries_is_another_one() -> None:
    """Entries are added behind those that are there; the report itself stays as it was."""
    other = LossEntry(kind="renamed", turn="u", block="tool_id", why="'a_b' for 'a.b'")
    report = LossReport(entries=(ENTRY,))
    assert report.with_entries([other, ENTRY]).entries == (ENTRY, other, ENTRY)
    assert report.entries == (ENTRY,)


def test_entry_is_written_with_what_it_has() -> None:
    """An entry as JSON has kind, turn, block and reason; an index where it is of one block."""
    assert msgspec.json.encode(LossReport(entries=(ENTRY, LossEntry(kind="moved", turn="", block="x", why="y")))) == (
        b'{"entries":[{"kind":"dropped","turn":"t","block":"thinking","why":"it is of another model","index":0},'
        b'{"kind":"moved","turn":"","block":"x","why":"y"}]}'
    )
