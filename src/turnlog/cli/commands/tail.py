"""`turnlog tail`: the events of the log as JSON lines, for other programs."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

from cyclopts import Parameter

from turnlog.cli.completing import complete_bookmarks
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.outages import at_once, waited_for
from turnlog.cli.output import watching_reader, write_json
from turnlog.cli.topics import topics_of
from turnlog.events import Recorded
from turnlog.feeds import CaughtUp, Selection
from turnlog.feeds.records import EventRecords, content_record
from turnlog.log import TurnLog


def tail(  # noqa: PLR0913 - one argument for each option
    *,
    follow: Annotated[bool, Parameter(alias="-f", negative=(), help="Wait for more, until it is interrupted.")] = False,
    after: Annotated[int | None, Parameter(help="Only events above this global position.")] = None,
    after_id: Annotated[
        str | None, Parameter(help="The id of the event at --after: if another one is there now, stop and say so.")
    ] = None,
    last: Annotated[
        int | None, Parameter(alias="-n", help="Begin with the last so many of the events that are wanted.")
    ] = None,
    topic: Annotated[
        list[str] | None, Parameter(negative=(), help="Only events of this topic; may be repeated.")
    ] = None,
    thread: Annotated[
        str | None,
        Parameter(
            completer=complete_bookmarks,
            help="Only what is about turns of the threads of this turn, by id or bookmark.",
        ),
    ] = None,
    bookmark: Annotated[
        str | None,
        Parameter(
            completer=complete_bookmarks,
            help="Only turns that moved this bookmark, what is about them, and about it.",
        ),
    ] = None,
    content: Annotated[bool, Parameter(negative=(), help="With the content of each event.")] = False,
    mark: Annotated[
        bool, Parameter(negative=(), help='Print {"caught_up": POSITION} where the log ended at the beginning.')
    ] = False,
    common: Common = COMMON,
) -> None:
    """Print events as JSON lines, in the order of the log: all of them, none twice, each as soon as it is there.

    To go on another time, give the global_position of the last line as --after, and its id as --after-id.
    """
    if last is not None and (after is not None or last < 0):
        raise UsageError("tail: give --after or --last, not both" if after is not None else "tail: --last is below 0")
    if after is not None and after < 0:
        raise UsageError("tail: --after is a global position, from 0")
    if after_id is not None and after is None:
        raise UsageError("tail: --after-id is the id of the event at --after: give --after, too")
    with common.open() as log, ExitStack() as stack:
        topics = topics_of(topic or (), log)
        start = after or 0
        if last is not None:
            wanted = Selection.of(topics, thread, bookmark)
            with log.store.read() as transaction:
                start = wanted.before_last(transaction, last)
        events = stack.enter_context(
            log.events(
                start, after_id=after_id, follow=follow, topics=topics, thread=thread, bookmark=bookmark, mark=mark
            )
        )
        if follow:
            stack.enter_context(watching_reader(events.stop))
        waiting = waited_for if follow else at_once
        records = EventRecords()
        while (event := waiting(partial(next, events, None))) is not None:
            if isinstance(event, CaughtUp):
                write_json({"caught_up": event.global_position})
            elif isinstance(event, Recorded):
                write_json(waiting(partial(_record, log, records, event, content=content)))
            sys.stdout.flush()


def _record(log: TurnLog, records: EventRecords, recorded: Recorded, *, content: bool) -> dict[str, Any]:
    has_content = content and recorded.hash is not None and not recorded.unreadable
    with log.store.read() as transaction:
        record = records.of(transaction, recorded)
        payload = transaction.payload(recorded) if has_content else None
    if has_content:
        record["content"] = None if payload is None else content_record(recorded, payload)
    return record
