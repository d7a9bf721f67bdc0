"""What an import of a session file stores about lines: the metadata of their events."""

from __future__ import annotations

from msgspec import Struct


class LineMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The private metadata of a `claude-code.<type>` event.

    The event cites as its `turn` the one that the line became, whole or in part; a line that is no message the nearest
    turn up its parent chain, if there is one.

    Attributes:
        uuid: the line's own uuid.
        session: the line's sessionId.
        line_type: the line's type, where the topic does not spell it the same way.
        redacted: how many of which kind redaction hooks took out of the line, but for what is in its turn.
    """

    uuid: str | None = None
    session: str | None = None
    line_type: str | None = None
    redacted: dict[str, int] | None = None
