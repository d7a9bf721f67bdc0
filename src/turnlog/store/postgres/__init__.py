"""The PostgreSQL engine: many writers on many machines. `docs/adr/0035` says how they share one order."""

from turnlog.store.postgres.opening import is_log_there
from turnlog.store.postgres.store import PostgresStore

__all__ = ["PostgresStore", "is_log_there"]
