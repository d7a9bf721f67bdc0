"""The event: one stored fact in three parts, header, private part and payload; and its codec between values and bytes.

`docs/reference/log-format.md` is the specification. Stored bytes are written once: what is hashed or verified is always
the bytes on disk, never a re-encoding.

- `topics` names the kinds of events, and says of each field of their metadata in which part it stands.
- `form` has the parts and their codec.
- `flaws` says what is wrong with an event as such, apart from all others.
"""

from turnlog.events.flaws import flaw
from turnlog.events.form import (
    FORMAT,
    Arrival,
    Citation,
    Event,
    Header,
    Private,
    Recorded,
    build,
    check_cited,
    cite,
    decode,
    genesis,
    meta_of,
    meta_text,
    metadata,
    named_head,
    parts_of,
    private_part,
    turn_meta,
)
from turnlog.events.topics import (
    BASE,
    BOOKMARK,
    CALL,
    ERASURE,
    FREQUENT_TOPICS,
    GENESIS,
    PARENT,
    POINTER,
    PROVIDER,
    REGISTERS,
    REPLY,
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
    "PARENT",
    "POINTER",
    "PROVIDER",
    "REGISTERS",
    "REPLY",
    "SERVER",
    "SHAPES",
    "TARGET",
    "TOOLS",
    "TRUST",
    "TURN",
    "Arrival",
    "Citation",
    "Event",
    "Header",
    "Private",
    "Recorded",
    "build",
    "check_cited",
    "cite",
    "decode",
    "flaw",
    "genesis",
    "meta_of",
    "meta_text",
    "metadata",
    "named_head",
    "parts_of",
    "private_part",
    "turn_meta",
]
