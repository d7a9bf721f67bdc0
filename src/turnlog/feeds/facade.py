"""`TurnLog.feeds`: the projections that every log can have, a runner for those of one's own, and feeds to sinks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from turnlog.errors import CorruptionError, MetaError, NotFoundError, StoreError, TurnlogError
from turnlog.events import ERASURE
from turnlog.feeds import sinks
from turnlog.feeds.forgetting import forget_ahead, scrub
from turnlog.feeds.listings import INDEXED_EVENTS, Listings, spans
from turnlog.feeds.live import Streams
from turnlog.feeds.projection import Projection, Skip, Status
from turnlog.feeds.runner import Progress, Runner
from turnlog.feeds.search import Filter, Found, Search, SearchView, terms_of
from turnlog.feeds.selection import topics_of
from turnlog.feeds.sqlite_target import SQLiteTarget
from turnlog.feeds.statuses import ways_on
from turnlog.feeds.targets import Target
from turnlog.feeds.usage import By, ToolActivity, ToolSum, UsageOfTurns, UsageSum, UsageView
from turnlog.feeds.words import Words
from turnlog.model.kinds import check_texts, check_type
from turnlog.projections.belonging import threads_of_turns
from turnlog.projections.filters import EVERY_TURN, TurnFilter
from turnlog.projections.threads import thread_runs
from turnlog.record import find_turn
from turnlog.record.fields import check_headish
from turnlog.store import Store
from turnlog.store.home import cache_folder, data_folder
from turnlog.store.telling import logger
from turnlog.store.urls import is_postgres

_log = logger("turnlog.feeds")

SUFFIX = "-projections"
"""What the name of the file beside a store adds to that of the store, which has the projections of every log."""

NAME_CHARACTERS_MAX = 200
"""How long the name of a feed may be that is given to it."""

FEEDS_SUFFIX = "-feeds"
"""What the name of the file adds that says how far feeds to sinks have come."""


if TYPE_CHECKING:
    from turnlog.feeds.postgres_target import PostgresTarget
    from turnlog.feeds.sinks import Feed, FeedState, FeedStates, FeedStatus, Sink


class _Home(NamedTuple):
    """Where the projections are that every log can have, and what they are there."""

    target: SQLiteTarget | PostgresTarget
    search: Search
    view: Callable[[Any], SearchView]


class Feeds:
    """What is made of a log beside it. Safe to use from many threads.

    `projections` are built when they are first asked for, and brought up to date each time. Their tables are in a file
    beside the store (`log.db-projections`), which may be removed: it is built again. Of a log on a PostgreSQL server
    they are in a schema beside its own (`turnlog_projections`), which only its owner can use; for others, and on a
    standby, they are in a file in the user's cache folder.

    Attributes:
        store: the store.
        streams: hands pieces of replies that stream to those who follow the log.
    """

    def __init__(self, store: Store) -> None:
        """Take the store."""
        self.store = store
        self.streams = Streams()
        self._words = Words()

    @property
    def projections(self) -> tuple[Projection, ...]:
        """The projections that every log can have."""
        return (self._home.search, UsageOfTurns(), ToolActivity(), Listings())

    @property
    def target(self) -> SQLiteTarget | PostgresTarget:
        """The database of these projections."""
        return self._home.target

    @cached_property
    def _home(self) -> _Home:
        if is_postgres(self.store.url):
            there = import_module("turnlog.feeds.postgres_log")
            target = there.LogTarget(self.store.url)
            if target.may_be_used():
                return _Home(target, there.PostgresSearch(self._words), partial(there.PostgresSearchView, self._words))
        target = SQLiteTarget(self._beside(SUFFIX) or ":memory:", on_busy=self.store.on_busy, like=self.store.file)
        return _Home(target, Search(), partial(SearchView, self._words))

    @cached_property
    def _states(self) -> FeedStates:
        """How far feeds to sinks have come."""
        return sinks.FeedStates(self._beside(FEEDS_SUFFIX), like=self.store.file)

    def _beside(self, suffix: str) -> Path | None:
        if is_postgres(self.store.url):
            return self._at_home(suffix)
        path = self.store.file
        if path is None:
            return None
        real, named = (each.with_name(each.name + suffix) for each in (path.resolve(), path))
        # Whoever began beside a link goes on there.
        return named if named.exists() and not real.exists() else real

    def _at_home(self, suffix: str) -> Path | None:
        """Return where a file is that has to do with a log on a server: in the user's folders, by the log's identity.

        How far feeds have come is not made again from the log, so it is no cache. An empty log has no identity yet.
        """
        with self.store.read() as transaction:
            genesis = transaction.genesis()
        log = None if genesis is None else genesis.header.id
        if suffix == SUFFIX:
            return None if log is None else _named(cache_folder(), log, suffix)
        folder = data_folder()
        # Who began to feed others while the log was empty goes on in the file that it began with.
        early = _named(folder, self.store.url, suffix)
        if log is None or any(state.log in (None, log) for state in sinks.FeedStates(early).all()):
            return early
        return _named(folder, log, suffix)

    def runner(self, projections: Sequence[Projection] | None = None, target: Target | None = None) -> Runner:
        """Return what runs projections: those that every log can have, or one's own in a target of one's own."""
        self.store.check_open()
        return Runner(self.store, target or self.target, self.projections if projections is None else projections)

    def run(self, names: Sequence[str] = (), *, progress: Progress | None = None) -> list[Status]:
        """Bring projections up to date; see `Runner.run`."""
        return self.runner().run(names, progress=progress)

    def status(self) -> list[Status]:
        """Return how the projections that every log can have are doing."""
        return self.runner().status()

    def built(self) -> list[str]:
        """Return the names of the projections that are there, of those that every log can have."""
        self.store.check_open()
        return [status.name for status in self.status() if status.version] if self.target.is_made() else []

    def rebuild(self, name: str, *, progress: Progress | None = None) -> Status:
        """Build a projection anew; see `Runner.rebuild`."""
        return self.runner().rebuild(name, progress=progress)

    def skip(self, name: str, reason: str) -> Skip:
        """Pass over the event that a projection is paused at; see `Runner.skip`."""
        return self.runner().skip(name, reason)

    def search(
        self,
        query: str,
        *,
        thread: str | None = None,
        which: TurnFilter = EVERY_TURN,
        newest: bool = False,
        limit: int = 20,
        progress: Progress | None = None,
    ) -> list[Found]:
        """Return turns that have all words of a query, the best match first.

        Words are found whatever their case and, in Latin letters, accents; `"…"` is a phrase, `wor*` the beginning of a
        word. What is written without blanks between words (Chinese, Japanese, Thai, …) is found wherever it stands.
        Erased turns are not found, and neither are sealed ones.

        Args:
            query: the words.
            thread: only turns of the threads of this turn, by id or bookmark.
            which: only turns of a time, a role or a model.
            newest: the newest first instead.
            limit: how many at most, from 1 to 1,000,000.
            progress: told now and then while the index is brought up to date.

        Raises:
            MetaError: there is no word in the query, or more than 256; or another argument is not what it should be.
            UnknownTurnError: there is no such turn.
            StoreError: the index cannot be brought up to date.
        """
        terms_of(query)
        wanted = Filter(which=which, newest=newest, limit=limit)
        if thread is not None:
            check_headish(thread, "thread")
            with self.store.read() as transaction:
                header = find_turn(transaction, thread).header
                runs = thread_runs(transaction, header.stream, header.position)
            wanted = msgspec.structs.replace(wanted, runs=runs)
        self._bring_up(Search.name, progress)
        with self.target.reader() as db:
            found = self._home.view(db).find(query, wanted)
        with self.store.read() as transaction:
            threads = threads_of_turns(transaction, [each.turn for each in found])
        return [msgspec.structs.replace(each, threads=threads.get(each.turn, ())) for each in found]

    def unsearchable(self, *, progress: Progress | None = None) -> int:
        """Return how many turns are not found because they are sealed.

        Args:
            progress: told now and then while the index is brought up to date.

        Raises:
            StoreError: the index cannot be brought up to date.
        """
        self._bring_up(Search.name, progress)
        with self.target.reader() as db:
            return self._home.view(db).sealed()

    def spans(self, which: TurnFilter, *, progress: Progress | None = None) -> tuple[range, ...] | None:
        """Return global positions among which all turns are that are wanted, the last ones first.

        It is None, for all positions, of a short log, and where what finds them cannot be brought up to date.

        Args:
            which: what is wanted.
            progress: told now and then while the projection is brought up to date.
        """
        with self.store.read() as transaction:
            if transaction.log_end() < INDEXED_EVENTS:
                return None
        try:
            if self._bring_up(Listings.name, progress).skipped:
                return None
            with self.target.reader() as db:
                return spans(db, which)
        except TurnlogError as error:
            _log.info("all turns are looked at: %s", error)
            return None

    def usage(
        self, by: By | Sequence[By] = "day", *, which: TurnFilter = EVERY_TURN, progress: Progress | None = None
    ) -> list[UsageSum]:
        """Return the tokens that replies took, by day (UTC), model, provider, thread or bookmark, or by some of these.

        A reply in two threads counts in both.

        Args:
            by: what to sum by, such as `["day", "model"]`.
            which: only replies of a time or a model.
            progress: told now and then while the projection is brought up to date.

        Raises:
            MetaError: `by` is none of these, nothing, or the same twice; or `which` is no filter.
            StoreError: the projection cannot be brought up to date.
        """
        self._bring_up(UsageOfTurns.name, progress)
        with self.store.read() as transaction, self.target.reader() as db:
            return UsageView(db).by(by, transaction, which)

    def total_usage(self, *, which: TurnFilter = EVERY_TURN, progress: Progress | None = None) -> UsageSum:
        """Return the tokens that all replies took, or those of a time or a model: see `usage`."""
        self._bring_up(UsageOfTurns.name, progress)
        with self.target.reader() as db:
            return UsageView(db).total(which)

    def tools(self, *, progress: Progress | None = None) -> list[ToolSum]:
        """Return what became of the calls of each tool, the one with most calls first. Sealed turns do not count."""
        self._bring_up(ToolActivity.name, progress)
        with self.target.reader() as db:
            return UsageView(db).tools()

    def feed(
        self,
        sink: Sink,
        *,
        name: str | None = None,
        topics: str | Sequence[str] = (),
        after: int = 0,
        public: bool = False,
        unseal: bool = False,
        batch: int | None = None,
        attempts: int | None = None,
    ) -> Feed:
        """Return what delivers the events of the log to a sink: `run` all there is, `follow` also what comes.

        Each event is delivered at least once, in order, with an idempotency key. How far the feed has come is kept
        under its name beside the store (`log.db-feeds`; of a log on a server in the user's data folder), and by sinks
        that can know it themselves. So is what it was begun with of `topics`, `public` and `unseal`: a later one that
        says otherwise is refused when it runs.

        Args:
            sink: where to deliver to.
            name: the feed's name, up to 200 characters; by default the kind and the destination of the sink.
            topics: only events of these topics; empty for those that the sink wants, which are all but for few sinks.
                A sink that cannot take back what was erased is delivered erasures as well.
            after: where a new feed begins: only events above this global position; in a folder that has files, only
                those behind these, too. One feed alone fills a folder.
            public: deliver no content and no private metadata: only what stays for ever of an event.
            unseal: deliver what is sealed, too, where its key is here. Else it goes as somebody sees it without keys.
            batch: how many events are delivered together at most; by default as the sink likes it.
            attempts: how often a delivery is tried that may succeed later. By default 8 times, and by a feed that
                follows for as long as it takes.

        Raises:
            MetaError: something of it is not what it should be.
        """
        self.store.check_open()
        sinks.check_sink(sink)
        if name is not None:
            self._check_name(name)
        wanted = topics_of(topics) or sink.topics
        if wanted and sink.wants_erasures:
            wanted = tuple(dict.fromkeys((*wanted, ERASURE)))
        return sinks.Feed(
            self.store,
            sink,
            self._states,
            name=name,
            choice=sinks.Choice(topics=wanted, public=public, unseal=unseal),
            after=after,
            batch=batch,
            attempts=attempts,
        )

    def all(self) -> list[FeedStatus]:
        """Return how the feeds to sinks are doing that there are, by name.

        Raises:
            StoreError: what is kept of them cannot be read.
        """
        self.store.check_open()
        return [sinks.status_of(self.store, self._states, state) for state in self._states.all()]

    def get(self, name: str) -> FeedStatus:
        """Return how a feed is doing.

        Raises:
            NotFoundError: there is no such feed.
            StoreError: what is kept of it cannot be read.
        """
        return sinks.status_of(self.store, self._states, self._feed_state(name))

    def remove(self, name: str) -> None:
        """Forget how far a feed has come. What it delivered stays where it is, and erasures do not reach it any more.

        Raises:
            NotFoundError: there is no such feed.
            ConflictError: it is running.
        """
        self._feed_state(name)
        with self._states.held(name):
            self._states.remove(name)

    def move(self, name: str, position: int) -> FeedStatus:
        """Let a feed go on from another global position: over what its destination refuses, or back.

        A folder goes on where its files end, so that it cannot be moved back while it has files beyond.

        Args:
            name: the feed.
            position: the global position up to which all counts as delivered.

        Raises:
            MetaError: the log has no such position.
            NotFoundError: there is no such feed.
            ConflictError: it is running, is of another log, or fills a folder that has come further.
            SinkError: its folder cannot be used.
        """
        self.store.check_open()
        moved = sinks.move(self.store, self._states, name, position)
        return sinks.status_of(self.store, self._states, self._feed_state(name) if moved is None else moved)

    def delivered_to(self, events: Iterable[str]) -> list[FeedState]:
        """Return the feeds that have delivered content of what was erased, or is to be: those that take it back too.

        Args:
            events: ids of `gpt.erasure` events, which stand for what they name, and of events that are to be erased.

        Raises:
            MetaError: `events` is no list of texts.
            StoreError: what is kept of the feeds cannot be read.
        """
        self.store.check_open()
        erased = check_texts(events, "events", "the ids of events")
        return sinks.delivered_to(self.store, self._states, erased)

    def forget_erased(self) -> str | None:
        """Let erasures reach the projections and the feeds that there are.

        Returns:
            What keeps that from being done, one line; None if it is done.
        """
        self.store.check_open()
        found = [self._forget_in_projections(), self._forget_in_feeds()]
        return "; ".join(why for why in found if why is not None) or None

    def _check_name(self, name: str) -> None:
        """Check the name of a feed. One that there is may be longer: that of its destination, or of an earlier version.

        Raises:
            MetaError: it is none.
        """
        if not check_type(name, str, "name"):
            raise MetaError("the name of the feed is empty: give one, or none for what it delivers to", field="name")
        if len(name) > NAME_CHARACTERS_MAX and self._states.load(name) is None:
            raise MetaError(
                f"the name of the feed has {len(name):,} characters: give one of up to {NAME_CHARACTERS_MAX}",
                field="name",
            )

    def _feed_state(self, name: str) -> FeedState:
        self.store.check_open()
        state = self._states.load(name)
        if state is None:
            known = ", ".join(repr(each.name) for each in self._states.all())
            raise NotFoundError(f"no feed {name!r} ({f'one of {known}' if known else 'there is none'})")
        return state

    def _forget_in_feeds(self) -> str | None:
        try:
            return sinks.take_back(self.store, self._states)
        except StoreError as error:
            return f"what was erased may still be where feeds have delivered it ({error}): `turnlog erase --finish`"

    def _forget_in_projections(self) -> str | None:
        name = "the projections"
        try:
            name = repr(self.target.place)
            left = [why for why in map(self.target.sweep, self.projections) if why is not None]
            there = self.built()
            statuses = self._forgotten(there) if there else []
        except (StoreError, sqlite3.Error) as error:
            return f"what was erased may still be in {name} ({error}): `turnlog erase --finish`"
        for status in statuses:
            if status.error is not None and (status.paused_at is None or status.has_traces):
                return (
                    f"what was erased may still be in {name}: projection {status.name!r} is paused, "
                    f"`turnlog projections rebuild {status.name}`"
                )
        if left:
            return f"what was erased may still be in {', and in '.join(left)}, `turnlog erase --finish`"
        if any(status.has_traces for status in statuses):
            return f"what was erased may still be in {name}, which somebody reads: `turnlog erase --finish`"
        return None

    def _forgotten(self, names: Sequence[str]) -> list[Status]:
        """Bring projections up to date, or let those forget what was erased that damage keeps from going on."""
        try:
            return self.run(names)
        except CorruptionError:
            chosen = [given for given in self.projections if given.name in names]
            are_done = [forget_ahead(self.store, self.target, given) for given in chosen]
            for given in chosen:
                scrub(self.target, given)
            if not all(are_done):
                raise
            return self.runner().status(names)

    def close(self) -> None:
        """Release everything."""
        if "_home" in vars(self):
            self._home.target.close()
        self._words.close()

    def _bring_up(self, name: str, progress: Progress | None) -> Status:
        [status] = self.run([name], progress=progress)
        if status.paused_event is not None:
            raise StoreError(
                f"projection {name!r} is paused at event {status.paused_event!r} ({status.error}): {ways_on(status)}"
            )
        if status.error is not None:
            raise StoreError(status.error)
        return status


def _named(folder: Path, what: str, suffix: str) -> Path:
    """Return the file of a log on a server, in one of the user's folders."""
    return folder / "logs" / (sha256(what.encode()).hexdigest()[:32] + suffix)
