"""Topics that a command is to pick."""

from collections.abc import Sequence

from turnlog.cli.failures import UsageError
from turnlog.cli.output import note
from turnlog.cli.text import fit
from turnlog.events.topics import SHAPES, is_of_format
from turnlog.log import TurnLog

_OWN = frozenset(topic.partition(".")[0] for topic in SHAPES)
_SHOWN_CELLS_MAX = 60
"""What is no topic can be of any length."""
_OTHERS_MAX = 1_000
"""Among more topics than these in a log none is looked for."""


def topics_of(given: Sequence[str], log: TurnLog) -> tuple[str, ...]:
    """Return topics that were given with `--topic`.

    Topics are open: others record events of their own. One that may be a slip for one of turnlog's, or for another one
    that the log has, is told.

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
        there = transaction.rare_topics()
    from difflib import get_close_matches  # noqa: PLC0415 - who spells well needs none of it

    known = [*SHAPES, *(there if len(there) <= _OTHERS_MAX else ())]
    close = get_close_matches(topic.lower(), known, n=1)
    shown = fit(topic, _SHOWN_CELLS_MAX)
    meant = f", did you mean {fit(close[0], _SHOWN_CELLS_MAX)!r}" if close else ""
    if not _can_be(topic):
        hint = meant or f": turnlog's are {', '.join(sorted(SHAPES))}; others are such as acme.review"
        raise UsageError(f"--topic {shown!r} is no topic{hint}")
    if close and not is_of_format(topic):
        note(f"there is no event of the topic {shown!r} yet{meant}")


def _can_be(topic: str) -> bool:
    """Tell whether there can be a topic of this name that is not turnlog's own."""
    first, *others = topic.split(".")
    return first not in _OWN and bool(first and others and all(others))
