"""Store URLs: `sqlite:///path`, `memory://` and `postgresql://…`. The only place that reads them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import cast
from urllib.parse import unquote, urlsplit

from turnlog.errors import MetaError, StoreOpenError
from turnlog.events import Seals
from turnlog.model.kinds import check_callable
from turnlog.store.interface import Store
from turnlog.store.sqlite import SQLiteStore
from turnlog.store.transactions import SideTables, SyncProjection
from turnlog.web_address import without_secrets

_FORMS = "sqlite:///PATH, postgresql://… or memory://"
_QUOTED = {"%": "%25", "?": "%3F", "#": "%23"}
"""How characters of a path are written that mean something in a URL."""
BUSY_TIMEOUT_S_MAX = 10**9
"""How long somebody else can be waited for at most: thirty years, which all clocks can count."""

_SEALS = ("get", "of_subject", "make", "ids_of", "destroy", "tag")
"""The methods of `Seals`."""

_POSTGRES = ("postgresql://", "postgres://")


def parse_url(url: str) -> Path | None:
    """Return the path of a SQLite store, or None for one that is no file: in memory, or on a server.

    `sqlite:///a/b` is relative to the working folder, `sqlite:////a/b` is absolute; `%XX` is decoded. A bare path is
    refused with the form that it should have.

    Raises:
        StoreOpenError: the URL is of another form.
    """
    _check_is_text(url)
    shown = without_secrets(url)
    if "://" not in url:
        raise StoreOpenError(f"{shown!r} is not a store URL, did you mean {_meant(shown)}?")
    if not url.isprintable():
        raise StoreOpenError(f"{shown!r} is not a store URL: it has characters that cannot be printed")
    if is_postgres(url):
        return None
    if url.lower().startswith(("postgresql+", "postgres+", "psycopg", "jdbc:")):
        raise StoreOpenError(f"{shown!r} is not a store URL: write postgresql:// and name no driver")
    try:
        parts = urlsplit(url)
        path = unquote(parts.path[1:], errors="strict")
    except ValueError as error:
        raise StoreOpenError(f"{shown!r} is not a store URL: {without_secrets(str(error))}") from error
    if parts.query or parts.fragment:
        raise StoreOpenError(f"{shown!r}: a store URL has no query and no fragment (write %3F for ?, %23 for #)")
    match parts.scheme:
        case "memory" if not parts.netloc and not parts.path:
            return None
        case "memory":
            raise StoreOpenError(f"{shown!r}: a store in memory has no name, write 'memory://'")
        case "sqlite" if parts.netloc:
            meant = "sqlite:///" + shown.partition("://")[2]
            raise StoreOpenError(f"{shown!r}: write three slashes before a path, {meant!r}")
        case "sqlite" if path in ("", ":memory:") or "\0" in path:
            what = "a path has no %00" if "\0" in path else "the path is missing"
            raise StoreOpenError(f"{shown!r}: {what}, write 'sqlite:///PATH' (or 'memory://')")
        case "sqlite":
            return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises where there is no such user
        case _:
            raise StoreOpenError(f"{shown!r}: unknown kind of store {parts.scheme!r}, use {_FORMS}")


def _check_is_text(url: object) -> None:
    if not isinstance(url, str):
        meant = _meant(without_secrets(str(url))) if isinstance(url, Path) else _FORMS
        raise StoreOpenError(f"{without_secrets(repr(url))} is not a store URL, which is text: give {meant}")


def _meant(shown: str) -> str:
    if shown == ":memory:":
        return "'memory://'"
    if re.match(r"(postgres(ql)?:|(.*\s)?(host|dbname|user)\s*=)", shown, re.IGNORECASE):
        return "postgresql://USER@HOST/DATABASE"
    path = re.sub(r"^sqlite:/?", "", shown, flags=re.IGNORECASE)
    return repr("sqlite:///" + "".join(_QUOTED.get(each, each) for each in path))


def is_log_there(url: str) -> bool:
    """Tell whether there is a log at a URL of a PostgreSQL store.

    Raises:
        StoreOpenError: the URL is malformed, or it cannot be looked there.
    """
    return _postgres().is_log_there(url)


def is_postgres(url: str) -> bool:
    """Tell whether a URL is that of a store on a PostgreSQL server."""
    return url.lower().startswith(_POSTGRES)


def open_store(
    url: str,
    *,
    projections: Sequence[SyncProjection],
    sides: Sequence[SideTables] = (),
    create: bool = True,
    busy_timeout_s: float = 60.0,
    on_busy: Callable[[float], None] | None = None,
    seals: Seals | None = None,
) -> Store:
    """Open the store of a URL.

    Args:
        url: `sqlite:///path`, `memory://`, or `postgresql://user@host/database`, with more hosts and libpq's
            parameters, `schema=` for another schema than `turnlog`, and `payloads=s3://bucket/prefix` (or `file:///…`)
            for a place of large payloads.
        projections: the synchronous projections, in the order in which they fold.
        sides: the side tables that it may have.
        create: make the store, and its folder, if it does not exist.
        busy_timeout_s: how long to wait for another process that writes.
        on_busy: called now and then while an append, or a projection beside the store, waits for it, and while a server
            that is away is waited for, with the seconds. From any thread.
        seals: the keys of what is sealed.

    Raises:
        MetaError: the timeout is no number, or out of its bounds; or `on_busy` or `seals` cannot be one.
        StoreOpenError: the URL is malformed, or there is no store there that this turnlog can open.
    """
    path = parse_url(url)
    if not isinstance(cast("object", busy_timeout_s), int | float):
        raise MetaError(
            f"busy_timeout_s: expected a number of seconds, got {type(busy_timeout_s).__name__}", field="busy_timeout_s"
        )
    if not 0 <= busy_timeout_s <= BUSY_TIMEOUT_S_MAX:  # nor what is no number at all
        raise MetaError(
            f"busy_timeout_s: expected 0 to {BUSY_TIMEOUT_S_MAX:,} seconds, got {busy_timeout_s}",
            field="busy_timeout_s",
        )
    if on_busy is not None:
        check_callable(on_busy, "on_busy")
    if seals is not None and not all(callable(getattr(seals, name, None)) for name in _SEALS):
        raise MetaError(
            f"seals: expected the keys of what is sealed, as default_seals(os.environ), got {type(seals).__name__}",
            field="seals",
        )
    opened = _postgres().PostgresStore if is_postgres(url) else partial(SQLiteStore, path)
    return opened(
        url=url,
        projections=projections,
        sides=sides,
        create=create,
        busy_timeout_s=busy_timeout_s,
        on_busy=on_busy,
        seals=seals,
    )


def _postgres() -> ModuleType:
    """Return the engine of PostgreSQL stores.

    Raises:
        StoreOpenError: its extra is not installed.
    """
    try:
        return import_module("turnlog.store.postgres")
    except ImportError as error:
        # Without libpq psycopg cannot be imported, and names no module.
        if not isinstance(error, ModuleNotFoundError) and "pq wrapper" not in str(error):
            raise
        if error.name is not None and error.name.partition(".")[0] not in ("psycopg", "psycopg_pool"):
            raise
        raise StoreOpenError("a PostgreSQL store needs an extra: pip install 'turnlog[postgres]'") from error
