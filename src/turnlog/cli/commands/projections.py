"""`turnlog projections`: list what is derived from the log, and build it anew."""

from __future__ import annotations

from cyclopts import App

from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, write_json_lines
from turnlog.cli.progress import progress_bar
from turnlog.projections.tree import TREE

app = App(name="projections", group_commands="Commands", help="List what is derived from the log; build it anew.")


@app.default
def list_projections(*, common: Common = COMMON) -> None:
    """List what is derived from the log and kept beside it: indexes and the like."""
    with common.open() as log, log.store.read() as transaction:
        found = [(each.name, each.version, each.tables) for each in log.store.projections]
        if transaction.has(TREE):
            found.append((TREE.name, 1, TREE.tables))
    if common.json:
        write_json_lines({"name": name, "version": version, "tables": tables} for name, version, tables in found)
        return
    Screen.of_stdout().table(
        [[(name, "cyan"), f"version {version}", ", ".join(tables)] for name, version, tables in found]
    )


@app.command(name="list")
def list_(*, common: Common = COMMON) -> None:
    """List what is derived from the log."""
    list_projections(common=common)


@app.command
def rebuild(*names: str, common: Common = COMMON) -> None:
    """Build projections anew from the log, in place. Others can append meanwhile.

    Indexes and triggers of the store that are missing are made again too.

    Parameters
    ----------
    names
        Which, such as 'bookmark heads'; all of them by default.
    """
    with common.open() as log, progress_bar("rebuilding") as progress:
        built = log.rebuild_projections(names, progress=progress)
    if common.json:
        write_json_lines({"name": name} for name in built)
        return
    screen = Screen.of_stdout()
    for name in built:
        screen.line((name, "cyan"), "  built anew from the log")
