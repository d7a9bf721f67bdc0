"""The event: one stored fact in three parts, header, private part and payload; and its codec between values and bytes.

`docs/reference/log-format.md` is the specification. Stored bytes are written once: what is hashed or verified is always
the bytes on disk, never a re-encoding.

- `topics` names the kinds of events, and says of each field of their metadata in which part it stands.
- `form` has the parts and their codec, `meta` what they say as values, `sealing` the sealed form of what is private,
  and what it asks of keys.
- `flaws` says what is wrong with an event as such, apart from all others.
"""

from turnlog.events.flaws import flaw, forget
from turnlog.events.form import (
    FORMAT,
    Arrival,
    Citation,
    Event,
    Header,
    Private,
    Recorded,
    Seal,
    build,
    check_cited,
    cite,
    decode,
    genesis,
    meta_text,
    parts_of,
    private_part,
    sealed_part,
)
from turnlog.events.meta import meta_of, metadata, named_head, named_subject, turn_meta, unreadable
from turnlog.events.sealing import DataKey, Sealed, Seals
from turnlog.events.topics import (
    BASE,
    BOOKMARK,
    CALL,
    ERASURE,
    FREQUENT_TOPICS,
    GENESIS,
    HOLD,
    PARENT,
    POINTER,
    PROVIDER,
    REGISTERS,
    REPLY,
    SEAL,
    SERVER,
    SHAPES,
    TARGET,
    TOOLS,
    TRUST,
    TURN,
)

__all__ = [
    "BASE",
    "BOOKMARK",
    "CALL",
    "ERASURE",
    "FORMAT",
    "FREQUENT_TOPICS",
    "GENESIS",
    "HOLD",
    "PARENT",
    "POINTER",
    "PROVIDER",
    "REGISTERS",
    "REPLY",
    "SEAL",
    "SERVER",
    "SHAPES",
    "TARGET",
    "TOOLS",
    "TRUST",
    "TURN",
    "Arrival",
    "Citation",
    "DataKey",
    "Event",
    "Header",
    "Private",
    "Recorded",
    "Seal",
    "Sealed",
    "Seals",
    "build",
    "check_cited",
    "cite",
    "decode",
    "flaw",
    "forget",
    "genesis",
    "meta_of",
    "meta_text",
    "metadata",
    "named_head",
    "named_subject",
    "parts_of",
    "private_part",
    "sealed_part",
    "turn_meta",
    "unreadable",
]
