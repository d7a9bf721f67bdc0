"""`turnlog seal`: record sealed from now on."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from turnlog.audit.sealing import SealReport
from turnlog.audit.seals import SealFolder, SealKeyEntry, default_seals
from turnlog.cli.failures import EXIT_DAMAGE
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Piece, Screen, note, telling, write_json, write_json_lines
from turnlog.cli.text import count, one_line
from turnlog.errors import TurnlogError


def seal(
    *,
    subject: Annotated[
        str | None, Parameter(help="Only what is of this subject, as --subject of `turnlog add` names it.")
    ] = None,
    by: Annotated[str | None, Parameter(help="Who asked for it. It is recorded.")] = None,
    list_: Annotated[
        bool, Parameter(name="--list", negative="", help="List the keys that are here instead, and seal nothing.")
    ] = False,
    common: Common = COMMON,
) -> int:
    """Record sealed from now on: encrypted under a key for each subject. What was recorded before stays as it is.

    The keys are outside the store. `turnlog erase --subject` destroys a subject's, and so what is of it in backups and
    in other copies. Keep a backup of the keys, and not beside those of the store: who loses them loses what is sealed.
    """
    keys = default_seals(os.environ)
    if list_:
        return _list(keys, subject, common)
    with common.open(create=True, seals=keys) as log:
        try:
            report = log.seal(subject, by=by)
        except TurnlogError as error:
            if keys.made:
                error.add_note(f"keys were made, and stay in {keys.name!r}, wrapped by {_master(keys)}")
            raise
    with telling("it is sealed from now on, and that is recorded, but it could not be printed"):
        if common.json:
            write_json(report.to_record() | {"keys": keys.name, "master": keys.master_name})
        else:
            _write(Screen.of_stdout(), report, keys)
    return 0


def _list(keys: SealFolder, subject: str | None, common: Common) -> int:
    """List keys, and return 1 if one of them is damaged."""
    entries = keys.list_keys()
    if subject is not None:
        tag = keys.tag("subject", subject) if entries else None
        entries = [entry for entry in entries if entry.tag is not None and entry.tag == tag]
    if common.json:
        write_json_lines(entries)
    else:
        Screen.of_stdout().table([_row(entry) for entry in entries])
        if not entries:
            note(f"no key of sealing in {one_line(keys.name)}" + ("" if subject is None else " is of this subject"))
    return EXIT_DAMAGE if any(entry.problem for entry in entries) else 0


def _row(entry: SealKeyEntry) -> list[Piece]:
    of = "of no subject" if entry.tag is None else f"of subject {entry.tag}"
    if entry.problem is not None:
        return [(entry.key_id, "yellow"), of, "", (one_line(entry.problem), "red")]
    made = "" if entry.made is None else f"{entry.made:%Y-%m-%d %H:%M} UTC"
    return [(entry.key_id, "yellow"), of, made, (f"wrapped by {one_line(entry.master or '')}", "dim")]


def _write(screen: Screen, report: SealReport, keys: SealFolder) -> None:
    what = "all of the log" if report.subject is None else f"what is of {one_line(report.subject)}"
    done = "was sealed before" if report.event is None else "is sealed from now on"
    screen.line((what, "bold"), f" {done}")
    facts = [("key", report.key), ("keys are in", keys.name), ("wrapped by", _master(keys))]
    if report.before:
        kind = "event" if report.subject is None else "turn"
        facts.append(("not sealed", f"{count(report.before, kind)} of before: erase them if they should not stay"))
    if report.event is not None:
        facts.append(("needed by", "all who record in the log: without them what would be sealed is refused"))
        facts.append(("back both up", "apart from the store: without them nobody can read what is sealed"))
    screen.table([[(f"  {name}", "cyan"), one_line(value)] for name, value in facts], cut=False)


def _master(keys: SealFolder) -> str:
    """Return what people know the master key by, and whether it is new: a copy of it is needed then."""
    return f"{keys.master_name}{', which was made now' if keys.made_master else ''}"
