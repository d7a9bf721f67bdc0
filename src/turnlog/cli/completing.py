"""What a shell completes when Tab is pressed: names that the store has.

`--install-completion` sets the shell up. It then runs the command for each Tab, with what stands on the line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cyclopts import Parameter

from turnlog.cli.stores import is_new_store, store_url
from turnlog.log import TurnLog


def complete_bookmarks(context: Any) -> list[str]:
    """Return the bookmarks of the store that the line names, or that is used by default."""
    return _names(context, lambda log: [bookmark.name for bookmark in log.bookmarks.all()])


def complete_pointers(context: Any) -> list[str]:
    """Return the pointers to models."""
    return _names(context, lambda log: [pointer.name for pointer in log.pointers.all()])


def complete_servers(context: Any) -> list[str]:
    """Return the MCP servers."""
    return _names(context, lambda log: [server.name for server in log.servers.all()])


def complete_providers(context: Any) -> list[str]:
    """Return the providers: those of the store, and the adapters that there are."""
    from turnlog import providers as adapters  # noqa: PLC0415 - it takes a while to import

    return sorted({*adapters.names(), *_names(context, lambda log: [each.name for each in log.providers.all()])})


def _names(context: Any, of: Callable[[TurnLog], list[str]]) -> list[str]:
    given = context.get("--store")
    url = store_url(None if given is None else given.raw)
    if is_new_store(url):
        return []
    with TurnLog.open(url, create=False) as log:
        return of(log)


HEADISH = Parameter(completer=complete_bookmarks)
"""A turn, which nobody types the id of: a bookmark."""

BOOKMARK = Parameter(completer=complete_bookmarks)
POINTER = Parameter(completer=complete_pointers)
SERVER = Parameter(completer=complete_servers)
PROVIDER = Parameter(completer=complete_providers)
