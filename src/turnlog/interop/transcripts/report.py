"""What an import of a transcript stores about pieces."""

from __future__ import annotations

from msgspec import Struct


class PieceMeta(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The private metadata of the event of a piece. It cites the turn that the piece is of as `turn`.

    Attributes:
        id: the id that it has in the format.
        session: the session that it is of.
        type: its kind in the format's own word, where the topic does not spell it the same way.
        redacted: how many of which kind redaction hooks took out of it, but for what is in its turn.
    """

    id: str | None = None
    session: str | None = None
    type: str | None = None
    redacted: dict[str, int] | None = None
