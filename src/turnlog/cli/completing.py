"""What a shell completes when Tab is pressed: names that the store has.

`--install-completion` sets the shell up. It then runs the command for each Tab, with what stands on the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from cyclopts import Parameter

from turnlog.cli.stores import is_new_store, store_url
from turnlog.log import TurnLog
from turnlog.projections.bookmarks import bookmarks_beginning

_QUOTING = re.compile(r"[\\'\"]")

_NAMES_MAX = 300
"""So many names are offered at most: nobody reads more, and a shell is slow with them."""


def complete_bookmarks(context: Any) -> list[str]:
    """Return the bookmarks that begin with what was typed, of the store that the line names, or the default one."""

    def of(log: TurnLog) -> list[str]:
        with log.store.read() as transaction:
            return [each.name for each in bookmarks_beginning(transaction, _typed(context), _NAMES_MAX)]

    return _names(context, of)


def complete_pointers(context: Any) -> list[str]:
    """Return the pointers to models."""
    return _names(context, lambda log: [pointer.name for pointer in log.pointers.all()])


def complete_servers(context: Any) -> list[str]:
    """Return the MCP servers."""
    return _names(context, lambda log: [server.name for server in log.servers.all()])


def complete_providers(context: Any) -> list[str]:
    """Return the providers: those of the store, and the adapters that there are."""
    from turnlog import providers as adapters  # noqa: PLC0415 - it takes a while to import

    named = _names(context, lambda log: [each.name for each in log.providers.all()])
    return _begun(context, sorted({*adapters.names(), *named}))


def _names(context: Any, of: Callable[[TurnLog], list[str]]) -> list[str]:
    given = context.get("--store")
    url = store_url(None if given is None else given.raw)
    if is_new_store(url):
        return []
    with TurnLog.open(url, create=False) as log:
        return _begun(context, of(log))


def _begun(context: Any, names: Iterable[str]) -> list[str]:
    """Return the names that begin with what was typed, and no more of them than a shell can show."""
    return [*islice((name for name in names if name.startswith(_typed(context))), _NAMES_MAX)]


def _typed(context: Any) -> str:
    """Return what was typed of a name, up to where it is quoted: shells give the word as it stands on the line."""
    return _QUOTING.split(context.incomplete.lstrip("'\""))[0]


HEADISH = Parameter(completer=complete_bookmarks)
"""A turn, which nobody types the id of: a bookmark."""

BOOKMARK = Parameter(completer=complete_bookmarks)
POINTER = Parameter(completer=complete_pointers)
SERVER = Parameter(completer=complete_servers)
PROVIDER = Parameter(completer=complete_providers)
