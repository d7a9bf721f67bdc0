"""All that a reader may ask of a log, sound or not: each question is answered, or refused with an error of turnlog."""

import io
from collections.abc import Callable
from contextlib import suppress

from turnlog import TurnLog
from turnlog.errors import TurnlogError

NAMES = ("main", "talk", "fork", "after", "other side", "elsewhere")


def questions(log: TurnLog) -> list[Callable[[], object]]:
    """Return what can be asked of a log, by the bookmarks of the rich store."""
    asked: list[Callable[[], object]] = [
        log.threads,
        log.bookmarks.all,
        log.stats,
        log.pointers.all,
        log.providers.all,
        log.servers.all,
        log.registers.imported,
        log.calls.replies,
        lambda: log.id,
        lambda: list(log.events()),
        lambda: [log.payload(event.header.id) for event in log.events()],
        lambda: [log.event(event.header.id) for event in log.events()],
        lambda: log.export(io.BytesIO()),
    ]
    for name in NAMES:
        asked += [
            lambda name=name: log.turn(name),
            lambda name=name: log.context(name, explain=True, include_failed=True),
            lambda name=name: log.ancestry(name),
            lambda name=name: log.thread(name),
            lambda name=name: log.children(name),
            lambda name=name: log.payload(name),
            lambda name=name: log.export(io.BytesIO(), name),
            lambda name=name: log.export(io.BytesIO(), name, ancestry=True),
            lambda name=name: log.calls.of(name),
            lambda name=name: log.calls.get(name),
            lambda name=name: log.calls.request(name),
            lambda name=name: log.calls.tools(name),
            lambda name=name: log.calls.events(name),
            lambda name=name: list(log.calls.check(name)),
        ]
    return asked


def ask_all(log: TurnLog) -> int:
    """Ask everything, and return how many questions were answered. What is no error of turnlog comes out of here."""
    answered = 0
    for question in questions(log):
        with suppress(TurnlogError):
            question()
            answered += 1
    return answered
