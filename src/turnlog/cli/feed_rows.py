"""Feeds as rows for people."""

from __future__ import annotations

from turnlog.cli.output import Piece
from turnlog.cli.text import count, one_line
from turnlog.feeds.sinks import FeedStatus


def feed_row(feed: FeedStatus) -> list[Piece]:
    """Return the row of a feed: name, how far it is, how many it delivered, and how it is doing."""
    if feed.error is not None:
        state, style = "failing", "bold red"
    elif feed.lag:
        state, style = f"{count(feed.lag, 'event')} behind, {_age(feed.lag_s)}", "yellow"
    else:
        state, style = "up to date", "green"
    if feed.running:
        state += ", running"
    return [(one_line(feed.name), "cyan"), f"to {feed.position:,}", f"{feed.delivered:,} delivered", (state, style)]


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
