"""The figures of the README are those that were measured last."""

import json

import pytest
from tests.docs.test_pages import ROOT

ROWS = [
    ("append, one writer,", "append", "append, one writer: rate", "raw sqlite3"),
    ("append, 64 threads,", "append", "append, 64 threads: rate", "turnlog, one writer"),
    ("load a window of 10,000", "replay", "window of 10,000 turns, cold, content decoded: time", "raw SELECT"),
    ("the window after one more turn", "replay", "window after one more turn: how many times as fast", "cold"),
    ("fork at depth 10,000", "fork", "fork at depth 10,000: time", "turnlog, plain append"),
    ("append at 1,000,000", "scale", "append to any thread at 1,000,000 turns: rate", "turnlog at 10,000"),
    ("bytes on disk", "size", "bytes of a closed log of 10,000 turns", "JSON lines"),
    ("`verify`", "verify", "verify a log of 20,000 turns: time", "raw SELECT"),
    ("make the request of 10,000", "providers", "prepare_request and body, window of 10,000 turns", "json.dumps"),
    ("the request two turns later", "providers", "prepare_request of 10,000 turns and 2 new ones", "prepare_request"),
    ("add up a reply", "providers", "what to show of 5,000 events and what they add up to", "json.loads"),
]
"""How a row of the README begins, the file of its figures, and what these say they are, and are ratios to."""

TABLE = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "README.md").read_text("utf-8").split("## Figures")[1].split("\n## ")[0].splitlines()
    if line.startswith("|")
][2:]


def shown(ratio: float) -> str:
    """Return a ratio with two significant digits."""
    return f"{ratio:.1f}" if 1 <= ratio < 10 else f"{float(f'{ratio:.1e}'):g}"


@pytest.mark.parametrize(("row", "name", "what", "baseline"), ROWS, ids=[row[0] for row in ROWS])
def test_figures_of_the_readme_were_measured(row: str, name: str, what: str, baseline: str) -> None:
    """Of several APIs it tells the lowest and the highest. What falls short of its target is set in bold."""
    results = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
    figures = [
        figure
        for figure in results["report"]["figures"]
        if what in figure["what"] and figure["baseline"].startswith(baseline)
    ]
    ends = {shown(each(figure["ratio"] for figure in figures)) for each in (min, max)}
    told = f"{' to '.join(sorted(ends, key=float))} ×"
    falls_short = any(figure["reached"] is False for figure in figures)
    [measured] = [cells[2] for cells in TABLE if cells[0].startswith(row)]
    assert measured.replace(" as fast", "") == (f"**{told}**" if falls_short else told)


def test_every_row_is_looked_at() -> None:
    """A new one is held to its results too."""
    assert len(TABLE) == len(ROWS)
