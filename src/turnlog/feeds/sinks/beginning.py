"""What a feed begins with: a destination that no other one fills, and a choice of what it delivers, which stays."""

from __future__ import annotations

import shlex

from turnlog.errors import ConflictError
from turnlog.events import ERASURE
from turnlog.feeds.sinks.interface import Choice, Sink
from turnlog.feeds.sinks.states import FeedState, FeedStates


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


def check_choice(state: FeedState, sink: Sink, choice: Choice) -> None:
    """Check that a feed is to deliver what it was begun to deliver.

    Raises:
        ConflictError: it is not.
    """
    if choice.is_same(state.choice):
        return
    where = "where its files end" if sink.knows_place else f"with --after {state.position} to go on from there"
    raise ConflictError(
        f"feed {state.name!r} was begun {_said(state.choice, sink)}: give it the same, or forget it with "
        f"`turnlog feeds remove {shlex.quote(state.name)}` and begin it again, {where}"
    )


def _said(choice: Choice, sink: Sink) -> str:
    """Return the options of a choice that were given for it."""
    topics = () if choice.topics == sink.topics else choice.topics
    if sink.wants_erasures and len(topics) > 1:
        topics = tuple(topic for topic in topics if topic != ERASURE)
    given = [f"--topic {shlex.quote(topic)}" for topic in topics]
    given += [f"--{name}" for name, is_given in (("public", choice.public), ("unseal", choice.unseal)) if is_given]
    return f"with {' '.join(given)}" if given else "without --topic, --public and --unseal"
