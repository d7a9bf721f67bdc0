"""Showing and keeping what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.measure import Figure, Report, Settings

FOLDER = Path(__file__).parent / "results"


class Result(Struct, frozen=True, kw_only=True):
    """One run of one benchmark."""

    name: str
    date: str
    size: str
    seed: int
    seconds: float
    machine: dict[str, str | int | float]
    report: Report


def result(
    name: str, report: Report, settings: Settings, machine: Mapping[str, str | int | float], seconds: float
) -> Result:
    """Return a report with all that one must know beside it."""
    return Result(
        name=name,
        date=datetime.now(UTC).date().isoformat(),
        size="quick" if settings.quick else "full",
        seed=settings.seed,
        seconds=round(seconds, 1),
        machine=dict(machine),
        report=report,
    )


def show(found: Result) -> str:
    """Return a result as text for a terminal."""
    rows = [("", "target", "measured", "spread", "reached")]
    rows += [(figure.what, *_cells(figure)) for figure in found.report.figures]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [f"\n{found.name}: {found.report.question}  ({found.size}, {found.seconds:g} s)", ""]
    for row, figure in zip(rows, (None, *found.report.figures), strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        lines.append("  " + "  ".join(cells).rstrip())
        if figure is not None:
            lines.append(f"    against {figure.baseline}")
    lines += ["", "  medians"]
    lines += [f"    {name}: {value:,}" for name, value in found.report.measured.items()]
    lines += ["  shape"]
    lines += [f"    {name}: {_number(value)}" for name, value in found.report.shape.items()]
    return "\n".join(lines)


def write(found: Result) -> None:
    """Keep a result, and write the table of all that are kept. Other files beside them are of other forms."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{found.name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    kept: list[Result] = []
    for file in sorted(FOLDER.glob("*.json")):
        with suppress(msgspec.ValidationError):
            kept.append(msgspec.json.decode(file.read_bytes(), type=Result))
    (FOLDER / "README.md").write_text(table(kept), encoding="utf-8")


def table(kept: Sequence[Result]) -> str:
    """Return results as Markdown."""
    lines = [
        "# Results",
        "",
        "Written by `python -m benchmarks --write`; `../README.md` says how it is measured. A ratio is the median of",
        "its rounds, the spread their first and third quartile. Figures without a target are told for comparison.",
    ]
    for found in kept:
        lines += ["", f"## {found.name}: {found.report.question}", ""]
        lines += ["| what | against | target | measured | spread | reached |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {figure.what} | {figure.baseline} | {' | '.join(_cells(figure))} |" for figure in found.report.figures
        ]
        measured = "; ".join(f"{name} {value:,}" for name, value in found.report.measured.items())
        shape = "; ".join(f"{name} {_number(value)}" for name, value in found.report.shape.items())
        machine = "; ".join(f"{name} {_number(value)}" for name, value in found.machine.items())
        lines += ["", f"Medians: {measured}.", "", f"Shape: {shape}; seed {found.seed}; size {found.size}."]
        lines += ["", f"Machine: {machine}. Run on {found.date}."]
    return "\n".join(lines) + "\n"


def _cells(figure: Figure) -> tuple[str, str, str, str]:
    target = "" if figure.target is None else f"{figure.target} x"
    spread = "" if figure.low is None else f"{figure.low:.3g} to {figure.high:.3g}"
    reached = {True: "yes", False: "no", None: ""}[figure.reached]
    return target, f"{figure.ratio:.3g} x", spread, reached


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,}"
