"""Feeding others: following the log, and what is made of it elsewhere.

- `selection` says which events are wanted, `following` gives them to whoever follows.
- `live` hands on what is going on and is not in the log yet.
"""

from turnlog.feeds.following import AsyncEvents, CaughtUp, Events, Item, Parts, Wanted
from turnlog.feeds.live import LiveDelta, Streams

__all__ = ["AsyncEvents", "CaughtUp", "Events", "Item", "LiveDelta", "Parts", "Streams", "Wanted"]
