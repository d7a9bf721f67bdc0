"""The tables of a SQLite store, and how a file is known to be one."""

from __future__ import annotations

from turnlog.events import FREQUENT_TOPICS

APPLICATION_ID = 0x74726E6C
"""`PRAGMA application_id` of a turnlog store: the letters trnl."""

VERSION = 1
"""`PRAGMA user_version`: the version of the tables. Every version up to it can be opened."""

PAGE_BYTES = 8192
"""The page size of a new store: most rows have about 1 KiB, and what is left of a page at its end is lost."""

# The first five columns have the names and the meaning of eventsourcing's table of stored events. SQLite gives a row
# the largest key plus one. Rows never go, so no key is given twice and keys have no gaps.
EVENTS = """\
CREATE TABLE IF NOT EXISTS stored_events (
  notification_id INTEGER PRIMARY KEY,
  originator_id TEXT NOT NULL,
  originator_version INTEGER NOT NULL,
  topic TEXT NOT NULL,
  state BLOB NOT NULL,
  event_id TEXT NOT NULL UNIQUE,
  leaf_hash BLOB NOT NULL,
  payload_placement INTEGER NOT NULL,
  payload BLOB,
  UNIQUE (originator_id, originator_version)
)"""

NO_DELETE = """\
CREATE TRIGGER IF NOT EXISTS stored_events_no_delete BEFORE DELETE ON stored_events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"""

NO_UPDATE = """\
CREATE TRIGGER IF NOT EXISTS stored_events_no_update
BEFORE UPDATE OF notification_id, originator_id, originator_version, topic, state, event_id, leaf_hash ON stored_events
BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"""

RARE = f"topic NOT IN ({', '.join(repr(topic) for topic in FREQUENT_TOPICS)})"
"""The condition of the index of rare topics. SQLite uses it for statements that say the same in the same words."""

# It costs appends of turns and calls nothing, and finds pointers, servers and the like in a log of millions. It is no
# part of the format: a store without it answers the same, and gets it when it is opened for writing.
RARE_TOPICS = f"CREATE INDEX IF NOT EXISTS stored_events_rare ON stored_events (topic, notification_id) WHERE {RARE}"

STATEMENTS = (EVENTS, NO_DELETE, NO_UPDATE, RARE_TOPICS)

RECORDED = "notification_id, state"
"""The columns of a `Recorded`, in the order in which they are read."""

PAYLOAD = "payload_placement, payload"
"""The columns of a payload, in the order in which they are read."""
