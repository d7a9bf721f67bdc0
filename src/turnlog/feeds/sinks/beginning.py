"""What a feed can begin with: a destination that no other one fills."""

from __future__ import annotations

import shlex

from turnlog.errors import ConflictError
from turnlog.feeds.sinks.interface import Sink
from turnlog.feeds.sinks.states import FeedStates


def check_alone(states: FeedStates, name: str, sink: Sink) -> None:
    """Check that no other feed delivers where a sink does, if the position is read there.

    What is below it would never be delivered: it stands for what the other feed has delivered.

    Raises:
        ConflictError: one does.
        StoreError: the states cannot be read.
    """
    for other in states.all() if sink.knows_place else ():
        if other.name != name and other.kind == sink.kind and sink.is_at(other.destination):
            raise ConflictError(
                f"feed {other.name!r} fills {other.destination!r}, and feed {name!r} would begin where that one ends: "
                f"give it a folder of its own, or first forget that one with `turnlog feeds remove "
                f"{shlex.quote(other.name)}`"
            )
