"""Topics that a command is to pick."""

from collections.abc import Sequence

from turnlog.cli.failures import UsageError
from turnlog.cli.output import note
from turnlog.events.topics import SHAPES, is_of_format
from turnlog.log import TurnLog

_OWN = frozenset(topic.partition(".")[0] for topic in SHAPES)


def topics_of(given: Sequence[str], log: TurnLog) -> tuple[str, ...]:
    """Return topics that were given with `--topic`.

    Topics are open: others record events of their own. One that may be a slip for one of turnlog's is told.

    Raises:
        UsageError: one of them is no topic, and can become none: nothing would ever be found.
    """
    if any(not topic.strip() for topic in given):
        raise UsageError("--topic is empty: give the name of a topic, such as gpt.turn")
    for topic in given:
        if topic not in SHAPES:
            _check_other(topic, log)
    return tuple(given)


def _check_other(topic: str, log: TurnLog) -> None:
    with log.store.read() as transaction:
        if transaction.last(topic) is not None:
            return
    from difflib import get_close_matches  # noqa: PLC0415 - who spells well needs none of it

    close = get_close_matches(topic.lower(), SHAPES, n=1)
    meant = f", did you mean {close[0]!r}" if close else ""
    if not _can_be(topic):
        known = meant or f": turnlog's are {', '.join(sorted(SHAPES))}; others are such as acme.review"
        raise UsageError(f"--topic {topic!r} is no topic{known}")
    if close and not is_of_format(topic):
        note(f"there is no event of the topic {topic!r} yet{meant}")


def _can_be(topic: str) -> bool:
    """Tell whether there can be a topic of this name that is not turnlog's own."""
    first, *others = topic.split(".")
    return first not in _OWN and bool(first and others and all(others))
