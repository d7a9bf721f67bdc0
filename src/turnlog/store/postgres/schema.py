"""The tables, functions and roles of a PostgreSQL store, all in one schema of a database."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.events import FREQUENT_TOPICS
from turnlog.store.rows import IN_FILES, RARE
from turnlog.store.transactions import SyncProjection

VERSION = 2
"""The version of the tables, that of the format of events. Every one from 2 on can be opened."""

ORDINAL_BITS = 20
"""The key of an event is the number of its transaction, shifted by so many bits, and its ordinal in that."""

EVENTS_MAX = 1 << ORDINAL_BITS
"""Events that one transaction can append."""

# The first columns have the names and the meaning of eventsourcing's table of stored events; its `notification_id` is
# in the views. Text is compared by its bytes, whatever the database's collation.
EVENTS = """\
CREATE TABLE stored_events (
  order_key bigint PRIMARY KEY,
  originator_id text COLLATE "C" NOT NULL,
  originator_version bigint NOT NULL,
  topic text COLLATE "C" NOT NULL,
  state bytea NOT NULL,
  event_id text COLLATE "C" NOT NULL UNIQUE,
  leaf_hash bytea NOT NULL,
  arrival smallint NOT NULL,
  private bytea,
  payload_placement smallint NOT NULL,
  payload bytea,
  UNIQUE (originator_id, originator_version)
)"""

_COLUMNS = (
    "e.originator_id, e.originator_version, e.topic, e.state, e.event_id, e.leaf_hash, e.arrival, e.private,"
    " e.payload_placement, e.payload, e.order_key"
)

STORAGE = "ALTER TABLE stored_events ALTER payload SET STORAGE EXTERNAL, ALTER private SET STORAGE EXTERNAL"
"""Payloads are compressed already, or cannot be."""

IS_STORED_SO = (
    "SELECT bool_and(attstorage = 'e') FROM pg_attribute"
    " WHERE attrelid = to_regclass('stored_events') AND attname IN ('payload', 'private')"
)

TABLES = (
    EVENTS,
    STORAGE,
    f"CREATE INDEX stored_events_rare ON stored_events (topic, order_key) WHERE {RARE}",
    f"CREATE INDEX stored_events_files ON stored_events (payload) WHERE {IN_FILES}",
    # Derived from the keys: where each event stands. It is written behind the commits, and needs no flush.
    "CREATE TABLE log_order (global_position bigint PRIMARY KEY, order_key bigint NOT NULL UNIQUE)",
    # Nothing is ever in it. Who appends holds a lock on it, and who must be alone a stronger one.
    "CREATE TABLE log_gate (nothing integer)",
    "CREATE TABLE store_state (one integer PRIMARY KEY, version integer NOT NULL, epoch bigint NOT NULL,"
    " tables text[] NOT NULL, signature text NOT NULL)",
    'CREATE TABLE store_projections (name text COLLATE "C" PRIMARY KEY, version integer NOT NULL)',
    # Who else may use the log, so that tables which are made later can be given to them too.
    'CREATE TABLE store_roles (role text COLLATE "C" PRIMARY KEY, may text NOT NULL)',
    # One number a transaction. Up to the second one, numbers that have no event never get one.
    "CREATE SEQUENCE log_numbers AS bigint MINVALUE 0 START 1 CACHE 1",
    "CREATE SEQUENCE log_passed AS bigint MINVALUE 0 START 0 CACHE 1",
    f"CREATE VIEW log_events AS SELECT o.global_position AS notification_id, {_COLUMNS}"
    " FROM log_order o JOIN stored_events e USING (order_key)",
    # Also what has no position yet: its key stands for it, above all positions.
    "CREATE VIEW log_events_now AS"
    f" SELECT COALESCE(o.global_position, e.order_key | (1::bigint << 61)) AS notification_id, {_COLUMNS}"
    " FROM stored_events e LEFT JOIN log_order o USING (order_key)",
)

_FIXED = (
    "SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET enable_seqscan = off"
    " SET enable_bitmapscan = off SET jit = off"
)
_PLPGSQL = f"LANGUAGE plpgsql VOLATILE SECURITY DEFINER {_FIXED}"

_LOOKED_MAX = 1000
"""Numbers without events that are looked at, and locked, at a time."""

_LOCKS = "('stored_events'::regclass::oid::bigint & 32767) << 48"
"""What advisory locks on numbers of this log begin with, so that two logs in a database seldom meet."""

_SETTLING = "('stored_events'::regclass::oid::bigint & 2147483647)::integer"

OBJECTS = """\
SELECT 'column' AS kind, c.relname || '.' || a.attname AS name,
    format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END ||
    COALESCE(' collate ' || o.collname, '') || COALESCE(' default ' || pg_get_expr(d.adbin, d.adrelid), '') AS what
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_collation o ON o.oid = a.attcollation
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
  WHERE c.relnamespace = {space} AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
    AND c.relname = ANY({tables})
UNION ALL
SELECT 'index', c.relname, pg_get_indexdef(c.oid)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
  WHERE t.relnamespace = {space} AND t.relname = ANY({tables}) AND i.indisvalid
UNION ALL
SELECT 'constraint', c.relname || '.' || n.conname, pg_get_constraintdef(n.oid)
  FROM pg_constraint n JOIN pg_class c ON c.oid = n.conrelid
  WHERE c.relnamespace = {space} AND n.contype <> 'n' AND c.relname = ANY({tables})
UNION ALL
SELECT 'trigger', c.relname || '.' || t.tgname, pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
  WHERE c.relnamespace = {space} AND NOT t.tgisinternal AND c.relname = ANY({tables})
UNION ALL
SELECT 'rule', c.relname || '.' || r.rulename, pg_get_ruledef(r.oid)
  FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
  WHERE c.relnamespace = {space} AND c.relkind = 'r' AND c.relname = ANY({tables})
UNION ALL
SELECT 'view', c.relname, pg_get_viewdef(c.oid) FROM pg_class c
  WHERE c.relnamespace = {space} AND c.relkind = 'v' AND c.relname LIKE 'log\\_%'
UNION ALL
SELECT 'table', c.relname, c.relkind::text || translate(c.relpersistence::text, 't', 'p') || c.relrowsecurity::text
  FROM pg_class c WHERE c.relnamespace = {space} AND c.relkind IN ('r', 'p', 'f', 'm') AND c.relname = ANY({tables})
UNION ALL
SELECT 'sequence', c.relname, c.relkind::text FROM pg_class c
  WHERE c.relnamespace = {space} AND c.relkind = 'S' AND c.relname LIKE 'log\\_%'
UNION ALL
SELECT 'function', p.proname, p.prosrc || p.prosecdef::text FROM pg_proc p
  WHERE p.pronamespace = {space} AND p.proname LIKE 'log\\_%'
"""
"""What the schema `{space}` has of turnlog's, by kind and name; `{tables}` are the tables of it."""

_REFUSE = """\
CREATE OR REPLACE FUNCTION log_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'the log is append-only' USING ERRCODE = 'object_not_in_prerequisite_state';
END $$"""

# Appends events with keys of one number. `own` is the number that the transaction has drawn already, or null. Returns
# it. Whatever is wrong is an exception, so that what follows in the same pipeline does not commit.
_APPEND = f"""\
CREATE OR REPLACE FUNCTION log_append(own bigint, first_ordinal bigint, known_epoch bigint, ids text[], streams text[],
  positions bigint[], topics text[], states bytea[], leaves bytea[], arrivals smallint[], privates bytea[],
  placements smallint[], payloads bytea[]) RETURNS bigint {_PLPGSQL} AS $$
DECLARE
  number bigint := own;
  inserted bigint;
  is_own boolean;
  is_common boolean := topics <@ ARRAY[{", ".join(repr(topic) for topic in FREQUENT_TOPICS)}];
BEGIN
  IF current_setting('synchronous_commit') IN ('off', 'local') THEN
    RAISE EXCEPTION 'synchronous_commit is %: a log needs on, remote_write or remote_apply',
      current_setting('synchronous_commit') USING ERRCODE = 'object_not_in_prerequisite_state';
  END IF;
  -- Mostly it is held already. Where the plan has read nothing, this is the first statement.
  LOCK TABLE log_gate IN ROW EXCLUSIVE MODE;
  IF known_epoch <> (SELECT epoch FROM store_state WHERE one = 1) THEN
    RAISE EXCEPTION 'others have changed what this writer knows' USING ERRCODE = 'serialization_failure';
  END IF;
  IF number IS NULL THEN
    LOOP
      number := nextval('log_numbers');
      -- First the lock, then the look: who settles does it the other way round.
      EXIT WHEN pg_try_advisory_xact_lock({_LOCKS} | number)
        AND number > COALESCE(pg_sequence_last_value('log_passed'), 0);
    END LOOP;
    -- The first event of a number has its ordinal 0: by that one it is known whose number it is.
    is_own := first_ordinal = 0;
  ELSE
    is_own := EXISTS (SELECT 1 FROM stored_events e
      WHERE e.order_key = number << {ORDINAL_BITS} AND e.xmin = pg_current_xact_id()::xid);
  END IF;
  IF is_own IS NOT TRUE OR first_ordinal NOT BETWEEN 0 AND {EVENTS_MAX} - cardinality(ids) THEN
    RAISE EXCEPTION 'number % and ordinal % are not this transaction''s', number, first_ordinal
      USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF cardinality(ids) = 1 THEN
    INSERT INTO stored_events (order_key, originator_id, originator_version, topic, state, event_id, leaf_hash, arrival,
        private, payload_placement, payload)
      VALUES ((number << {ORDINAL_BITS}) + first_ordinal, streams[1], positions[1], topics[1], states[1], ids[1],
        leaves[1], arrivals[1], privates[1], placements[1], payloads[1]);
  ELSE
    INSERT INTO stored_events (order_key, originator_id, originator_version, topic, state, event_id, leaf_hash, arrival,
        private, payload_placement, payload)
      SELECT (number << {ORDINAL_BITS}) + first_ordinal + u.nth - 1, s, p, t, st, i, l, a, pr, pl, pa
        FROM unnest(ids, streams, positions, topics, states, leaves, arrivals, privates, placements, payloads)
          WITH ORDINALITY AS u(i, s, p, t, st, l, a, pr, pl, pa, nth);
  END IF;
  GET DIAGNOSTICS inserted = ROW_COUNT;
  IF inserted <> cardinality(ids) THEN
    RAISE EXCEPTION 'something swallows what is written, nothing was recorded'
      USING ERRCODE = 'triggered_action_exception';
  END IF;
  IF NOT is_common THEN
    UPDATE store_state SET epoch = epoch + 1 WHERE one = 1;
  END IF;
  RETURN number;
END $$"""

# Gives positions to committed events, in the order of their keys, up to the first number whose writer is still at it.
_SETTLE_NOW = f"""\
CREATE OR REPLACE FUNCTION log_settle_now() RETURNS bigint {_PLPGSQL} AS $$
DECLARE
  last_position bigint;
  last_key bigint;
  bound bigint;
  passed bigint := COALESCE(pg_sequence_last_value('log_passed'), 0);
  number bigint;
  dead bigint;
  looked bigint := 0;
  added bigint;
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'this needs a read committed transaction' USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM pg_advisory_xact_lock({_SETTLING}, 1);
  SELECT o.global_position, o.order_key INTO last_position, last_key
    FROM log_order o ORDER BY o.global_position DESC LIMIT 1;
  last_position := COALESCE(last_position, 0);
  last_key := COALESCE(last_key, 0);
  SELECT e.order_key INTO bound FROM stored_events e WHERE e.order_key > last_key ORDER BY e.order_key DESC LIMIT 1;
  IF bound IS NULL THEN
    RETURN last_position;
  END IF;
  FOR number IN
    SELECT n FROM (
      SELECT e.order_key >> {ORDINAL_BITS} AS high,
          lag(e.order_key >> {ORDINAL_BITS}, 1, last_key >> {ORDINAL_BITS}) OVER (ORDER BY e.order_key) AS low
        FROM stored_events e WHERE e.order_key > last_key AND e.order_key <= bound
      ) gap, generate_series(GREATEST(low, passed) + 1, LEAST(high - 1, GREATEST(low, passed) + {_LOOKED_MAX} + 1)) n
      WHERE high > low + 1 ORDER BY n
  LOOP
    looked := looked + 1;
    -- No more at a time than there is room for locks.
    IF looked <= {_LOOKED_MAX} AND pg_try_advisory_xact_lock_shared({_LOCKS} | number) THEN
      dead := number;
    ELSE
      bound := (number << {ORDINAL_BITS}) - 1;
      EXIT;
    END IF;
  END LOOP;
  IF dead > passed THEN
    PERFORM setval('log_passed', dead);
  END IF;
  -- A new snapshot, after the locks.
  INSERT INTO log_order
    SELECT last_position + row_number() OVER (ORDER BY e.order_key), e.order_key
      FROM stored_events e WHERE e.order_key > last_key AND e.order_key <= bound ORDER BY e.order_key;
  GET DIAGNOSTICS added = ROW_COUNT;
  RETURN last_position + added;
END $$"""

_ALONE = """\
  IF current_setting('transaction_isolation') <> 'read committed' OR pg_current_xact_id_if_assigned() IS NOT NULL THEN
    RAISE EXCEPTION 'this needs a read committed transaction of its own' USING ERRCODE = 'invalid_transaction_state';
  END IF;
  PERFORM set_config('synchronous_commit', 'off', true);"""

# The position of the last event. Settles first, where something can be.
_SETTLE = f"""\
CREATE OR REPLACE FUNCTION log_settle() RETURNS bigint {_PLPGSQL} AS $$
DECLARE
  last_position bigint;
  last_key bigint;
BEGIN
  SELECT o.global_position, o.order_key INTO last_position, last_key
    FROM log_order o ORDER BY o.global_position DESC LIMIT 1;
  IF current_setting('transaction_read_only')::boolean
    OR NOT EXISTS (SELECT 1 FROM stored_events e WHERE e.order_key > COALESCE(last_key, 0) LIMIT 1) THEN
    RETURN COALESCE(last_position, 0);
  END IF;
{_ALONE}
  RETURN log_settle_now();
END $$"""

# The position of a committed event. Mostly a read: where every number between the settled end and the event has its
# events, its position is fixed already. Else it waits for the writers of lower numbers.
_POSITION = f"""\
CREATE OR REPLACE FUNCTION log_position(id text) RETURNS bigint {_PLPGSQL} AS $$
DECLARE
  wanted bigint;
  found bigint;
  last_position bigint;
  last_key bigint;
  events bigint;
  numbers bigint;
  gap bigint;
  has_waited boolean := false;
  is_first boolean := true;
BEGIN
{_ALONE}
  SELECT e.order_key INTO wanted FROM stored_events e WHERE e.event_id = id;
  IF wanted IS NULL THEN
    RETURN NULL;
  END IF;
  LOOP
    SELECT o.global_position, o.order_key INTO last_position, last_key
      FROM log_order o ORDER BY o.global_position DESC LIMIT 1;
    last_position := COALESCE(last_position, 0);
    last_key := COALESCE(last_key, 0);
    IF wanted <= last_key THEN
      SELECT o.global_position INTO found FROM log_order o WHERE o.order_key = wanted;
      IF found IS NULL THEN
        RAISE EXCEPTION 'event % was passed over', id USING ERRCODE = 'data_corrupted';
      END IF;
      EXIT;
    END IF;
    SELECT count(*), count(*) FILTER (WHERE e.order_key & {EVENTS_MAX - 1} = 0) INTO events, numbers
      FROM stored_events e WHERE e.order_key > last_key AND e.order_key <= wanted;
    IF numbers = (wanted >> {ORDINAL_BITS}) - (last_key >> {ORDINAL_BITS}) THEN
      found := last_position + events;
      IF events >= 64 AND is_first AND pg_try_advisory_xact_lock({_SETTLING}, 1) THEN
        PERFORM log_settle_now();
      END IF;
      EXIT;
    END IF;
    IF has_waited THEN
      PERFORM log_settle_now();  -- writers that ended without events
    ELSE
      -- Until those writers have ended. Nobody else must wait for that: the lock of who settles is taken afterwards.
      FOR gap IN
        SELECT n FROM (
          SELECT e.order_key >> {ORDINAL_BITS} AS high,
              lag(e.order_key >> {ORDINAL_BITS}, 1, last_key >> {ORDINAL_BITS}) OVER (ORDER BY e.order_key) AS low
            FROM stored_events e WHERE e.order_key > last_key AND e.order_key <= wanted
          ) gaps, generate_series(low + 1, LEAST(high - 1, low + {_LOOKED_MAX})) n
          WHERE high > low + 1 ORDER BY n LIMIT {_LOOKED_MAX}
      LOOP
        PERFORM pg_advisory_xact_lock_shared({_LOCKS} | gap);
      END LOOP;
    END IF;
    has_waited := NOT has_waited;
    is_first := false;
  END LOOP;
  -- Whoever listens holds this lock shared. Without anybody it costs next to nothing.
  IF pg_try_advisory_lock({_SETTLING}, 2) THEN
    PERFORM pg_advisory_unlock({_SETTLING}, 2);
  ELSE
    PERFORM pg_notify('turnlog_' || ({_SETTLING})::text, '');
  END IF;
  RETURN found;
END $$"""

# Who follows holds the lock that tells writers so, for as long as it is connected. Returns the channel to listen to.
_FOLLOW = f"""\
CREATE OR REPLACE FUNCTION log_follow() RETURNS text {_PLPGSQL} AS $$
BEGIN
  PERFORM pg_advisory_lock_shared({_SETTLING}, 2);
  RETURN 'turnlog_' || ({_SETTLING})::text;
END $$"""

_SPACE = "(SELECT relnamespace FROM pg_class WHERE oid = 'stored_events'::regclass)"
_SIGNED = "(SELECT tables FROM store_state WHERE one = 1)::text[]"

# A digest of all that: who appends sees by it that somebody has changed something.
_SIGNATURE = f"""\
CREATE OR REPLACE FUNCTION log_signature() RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
SELECT md5(string_agg(kind || ' ' || name || ' ' || what, E'\\n' ORDER BY kind, name, what)) FROM (
{OBJECTS.format(space=_SPACE, tables=_SIGNED)}
) AS objects
$$"""

FUNCTIONS = {
    "log_refuse": _REFUSE,
    "log_append": _APPEND,
    "log_settle_now": _SETTLE_NOW,
    "log_settle": _SETTLE,
    "log_position": _POSITION,
    "log_follow": _FOLLOW,
    "log_signature": _SIGNATURE,
}
"""By name."""

TRIGGERS = (
    "CREATE TRIGGER stored_events_no_delete BEFORE DELETE ON stored_events FOR EACH ROW EXECUTE FUNCTION log_refuse()",
    "CREATE TRIGGER stored_events_no_truncate BEFORE TRUNCATE ON stored_events"
    " FOR EACH STATEMENT EXECUTE FUNCTION log_refuse()",
    "CREATE TRIGGER stored_events_no_update BEFORE UPDATE OF order_key, originator_id, originator_version, topic,"
    " state, event_id, leaf_hash, arrival ON stored_events FOR EACH ROW EXECUTE FUNCTION log_refuse()",
    "CREATE TRIGGER stored_events_no_private_update BEFORE UPDATE OF private ON stored_events"
    " FOR EACH ROW WHEN (NEW.private IS NOT NULL) EXECUTE FUNCTION log_refuse()",
)

OWN_TABLES = ("stored_events", "log_order", "log_gate", "store_state", "store_projections", "store_roles")
OWN_VIEWS = ("log_events", "log_events_now")
SEQUENCES = ("log_numbers", "log_passed")


BUILT = "SELECT name, version FROM store_projections"
"""The version that each projection was built with."""

AGAIN = "UPDATE store_state SET epoch = epoch + 1 WHERE one = 1"
"""Makes all who append look again at the state of the log."""

SIGN = "UPDATE store_state SET signature = log_signature() WHERE one = 1"
"""Goes to the end of each transaction that changes the schema."""


def versions(projections: Sequence[SyncProjection]) -> dict[str, int]:
    """Return the version of each projection, by name."""
    return {projection.name: projection.version for projection in projections}


def dialect(statement: str) -> str:
    """Return a statement that makes a projection's table as PostgreSQL should have it."""
    if not statement.startswith("CREATE TABLE"):
        return statement
    return statement.replace(" BLOB", " bytea").replace(" TEXT", ' text COLLATE "C"').replace(" INTEGER", " bigint")


def projection_statements(projection: SyncProjection) -> list[str]:
    """Return the statements that make the tables of a projection."""
    return [dialect(statement) for statement in projection.schema]


def making(projections: Sequence[SyncProjection]) -> list[str]:
    """Return the statements that make a store, in an empty schema that is the search path."""
    made = [*TABLES, *FUNCTIONS.values(), *TRIGGERS]
    return [*made, *(sql for projection in projections for sql in projection_statements(projection))]
