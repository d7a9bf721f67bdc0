"""`turnlog grant`: which roles of a database read and write a log in it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, telling, write_json
from turnlog.cli.text import one_line
from turnlog.store.urls import is_postgres


def grant(
    role: str,
    /,
    *,
    read: Annotated[bool, Parameter(negative=(), help="It may read, follow, export and verify.")] = False,
    write: Annotated[bool, Parameter(negative=(), help="It may append as well, and not change or erase.")] = False,
    nothing: Annotated[bool, Parameter(negative=(), help="Take its rights away.")] = False,
    common: Common = COMMON,
) -> None:
    """Say what a role of the database may do with the log. It has that right alone afterwards.

    Only the owner of a log can: the role that made it. The role must be there (CREATE ROLE).

    Parameters
    ----------
    role
        The name of the role, as the database has it. It may stand for a group of others.
    """
    if [read, write, nothing].count(True) != 1:
        raise UsageError("grant: give one of --read, --write and --nothing")
    if not is_postgres(common.url):
        raise UsageError("grant: only a PostgreSQL store has roles; who may use a file is said by its permissions")
    from turnlog.store.postgres import PostgresStore  # noqa: PLC0415 - an optional SDK

    may = "read" if read else "write" if write else "nothing"
    with common.open() as log:
        assert isinstance(log.store, PostgresStore)
        log.store.grant(role, may)
    with telling("that is so from now on, but it could not be printed"):
        if common.json:
            write_json({"role": role, "may": may})
        else:
            Screen.of_stdout().line(
                (one_line(role), "bold"), f" may {may} from now on" if may != "nothing" else " has no rights any more"
            )
