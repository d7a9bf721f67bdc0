"""`turnlog seal`: record sealed from now on."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import Parameter

from turnlog.audit.sealing import SealReport
from turnlog.audit.seals import SealFolder, default_seals
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, telling, write_json
from turnlog.cli.text import count, one_line


def seal(
    *,
    subject: Annotated[
        str | None, Parameter(help="Only what is of this subject, as --subject of `turnlog add` names it.")
    ] = None,
    by: Annotated[str | None, Parameter(help="Who asked for it. It is recorded.")] = None,
    common: Common = COMMON,
) -> None:
    """Record sealed from now on: encrypted under a key for each subject. What was recorded before stays as it is.

    The keys are outside the store. `turnlog erase --subject` destroys a subject's, and so what is of it in backups and
    in other copies. Keep a backup of the keys, and not beside those of the store: who loses them loses what is sealed.
    """
    keys = default_seals(os.environ)
    with common.open(create=True, seals=keys) as log:
        report = log.seal(subject, by=by)
    with telling("it is sealed from now on, and that is recorded, but it could not be printed"):
        if common.json:
            write_json(report.to_record() | {"keys": keys.name, "master": keys.master_name})
        else:
            _write(Screen.of_stdout(), report, keys)


def _write(screen: Screen, report: SealReport, keys: SealFolder) -> None:
    what = "all of the log" if report.subject is None else f"what is of {one_line(report.subject)}"
    done = "was sealed before" if report.event is None else "is sealed from now on"
    screen.line((what, "bold"), f" {done}")
    made = ", which was made now" if keys.made_master else ""
    facts = [("key", report.key), ("keys are in", keys.name), ("wrapped by", f"{keys.master_name}{made}")]
    if report.before:
        kind = "event" if report.subject is None else "turn"
        facts.append(("not sealed", f"{count(report.before, kind)} of before: erase them if they should not stay"))
    if report.event is not None:
        facts.append(("back both up", "apart from the store: without them nobody can read what is sealed"))
    screen.table([[(f"  {name}", "cyan"), one_line(value)] for name, value in facts])
