"""What a message took, where its turns were recorded at different times: no token counts twice."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.model import Usage


def not_counted(usage: Usage | None, counted: Sequence[Usage | None]) -> Usage | None:
    """Return what of the usage of a message the turns do not have that the log has of it; None for nothing."""
    known = [each for each in counted if each is not None]
    if usage is None or not known:
        return usage
    rest = Usage(
        **{
            name: max(0, getattr(usage, name) - sum(getattr(each, name) for each in known))
            for name in Usage.__struct_fields__
        }
    )
    return rest if rest.total_tokens else None
