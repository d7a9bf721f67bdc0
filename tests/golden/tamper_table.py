"""The table of what `verify` finds, written from the matrix of edits that it is tried on."""

from itertools import groupby
from pathlib import Path

from tests.faults.tampering import FOUND, OUT_OF_REACH, THE_SAME, TOLD

PAGE = Path(__file__).parent.parent.parent / "docs" / "reference" / "what-verify-finds.md"
FOUND_HEADING = "## What is found"
BEYOND_HEADING = "## What is out of reach without a checkpoint"


def found() -> str:
    """Return the edits that are found, a table for each kind."""
    said = "The right column is a part of the line that says so."
    parts = [FOUND_HEADING, f"Each of these {len(FOUND)} edits is found. {said}"]
    for kind, edits in groupby(FOUND, key=lambda edit: edit.kind):
        rows = [f"| {_cell(edit.name)} | `{_cell(edit.finds or '')}` |" for edit in edits]
        parts.append("\n".join([f"### {kind[:1].upper()}{kind[1:]}\n", "| edit | `verify` says |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def beyond() -> str:
    """Return the edits that are not found, and why."""
    rows = [f"| {_cell(edit.name)} | {_cell(edit.why or '')} | {_anchored(edit.name)} |" for edit in OUT_OF_REACH]
    return "\n\n".join(
        [
            BEYOND_HEADING,
            f"Each of these {len(OUT_OF_REACH)} edits leaves a store that agrees with itself. The right column is what "
            "`verify --checkpoint` says,\nwith a checkpoint that whoever edits the store could not write.",
            "\n".join(["| edit | why nothing is found | with a checkpoint from outside |", "|---|---|---|", *rows]),
        ]
    )


def _anchored(name: str) -> str:
    if name in THE_SAME:
        return "the same: nothing of the log was changed"
    return f"told: {TOLD[name]}" if name in TOLD else "**found**"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def filled(page: str) -> str:
    """Return a page with its two last sections written anew."""
    start = page.index(FOUND_HEADING)
    return f"{page[:start]}{found()}\n\n{beyond()}\n"


def write() -> None:
    """Write the tables into the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
