"""Feeding others: following the log, and what is made of it elsewhere.

- `selection` says which events are wanted, `following` gives them to whoever follows.
- `live` hands on what is going on and is not in the log yet.
- `projection` is what folds events into tables of its own, `targets` and `postgres_target` the databases that have
  these, and `runner` runs it: each event once. `erasures` says which are to be carried out, and `forgetting` does that
  where a projection does not come to them. Some, as `search` and `usage`, are projections that every log can have;
  `words` is how texts are taken apart for a search, and `postgres_log` what is different on PostgreSQL. `facade` puts
  all together, and names them.
- `sinks` are where events go outside the log, and the feeds that deliver them; `records` is the form that they have.
- `application` is the log as an application of eventsourcing.
"""

from __future__ import annotations

from importlib import import_module

import lazy_loader

from turnlog.errors import StoreOpenError

_getattr, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore[reportUnknownVariableType]


def __getattr__(name: str) -> object:
    """Return what is exported, once it is asked for.

    Raises:
        StoreOpenError: it needs an extra that is not installed.
    """
    if name != "PostgresTarget":
        return _getattr(name)
    try:
        return import_module("turnlog.feeds.postgres_target").PostgresTarget
    except ImportError as error:
        if error.name is not None and error.name.partition(".")[0] != "psycopg":
            raise
        raise StoreOpenError("projections on PostgreSQL need an extra: pip install 'turnlog[postgres]'") from error
