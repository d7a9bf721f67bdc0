"""Running a feed: batches of the log to a sink, and how far that has come kept after each.

The position is kept when the sink has the events. A feed that is killed in between delivers some of them again, with
the same keys; none is left out.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential
from tenacity.stop import stop_never

from turnlog.errors import (
    ConflictError,
    MetaError,
    SinkError,
    StoreBusyError,
    StoreClosedError,
    StoreCutError,
    StoreLostError,
    TurnlogError,
)
from turnlog.events.times import time_of
from turnlog.feeds.erasures import FORGOTTEN
from turnlog.feeds.sinks.beginning import check_alone, check_choice
from turnlog.feeds.sinks.interface import INT64_MAX, Batch, Choice, Place, Sink
from turnlog.feeds.sinks.reading import LogReader
from turnlog.feeds.sinks.states import FeedState, FeedStates
from turnlog.feeds.stopping import Stopping
from turnlog.model.plain import check_done
from turnlog.store import Store
from turnlog.store.waiting import Latch

ATTEMPTS = 8
"""How often a batch is tried before a feed that does not follow gives up: for about half a minute."""

WAIT_S_MAX = 60.0
"""How long is waited between two attempts at most, whatever the destination asks for."""

_ERROR_CHARACTERS_MAX = 500

T = TypeVar("T")

OnRetry = Callable[[TurnlogError, float], None]
"""Called with what failed and will be tried again, and in how many seconds."""

Progress = Callable[[int, int], None]
"""Called after each batch with the global position that was reached, and where the log ends."""

OnBack = Callable[[str], None]
"""Called with one line where a feed goes on from where its destination ends: back, if that lacks what it had; behind
what a feed that begins finds there."""


class FeedStatus(Struct, frozen=True, kw_only=True):
    """How a feed is doing.

    Attributes:
        name: its name.
        kind: the kind of its sink.
        destination: where it delivers to.
        position: the global position up to which all was delivered, or is not wanted.
        lag: number of events of the log behind that.
        lag_s: how long ago the first of these was recorded, in seconds; 0 without any.
        delivered: number of events that the destination has acknowledged to the feed: without those in a folder that it
            was killed before it could count, and again with those that were delivered again.
        delivered_time: when it last did, ISO 8601 in UTC; None if it never did.
        error: why it does not go on, one line; None if it does.
        error_time: since when, ISO 8601 in UTC.
        takes_back: whether what it delivered of events that are erased is taken back.
        running: whether somebody runs it.
    """

    name: str
    kind: str
    destination: str
    position: int
    lag: int
    lag_s: float
    delivered: int
    delivered_time: str | None
    error: str | None
    error_time: str | None
    takes_back: bool
    running: bool


class Feed:
    """Delivers the events of a log to a sink. Use it from one thread; `stop` may be called from any.

    What `stop` has ended can be begun again.

    Attributes:
        name: its name: how far it has come is kept under it.
    """

    def __init__(  # noqa: PLR0913 - one argument for each option
        self,
        store: Store,
        sink: Sink,
        states: FeedStates,
        *,
        name: str | None = None,
        choice: Choice | None = None,
        after: int = 0,
        batch: int | None = None,
        attempts: int | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Take what is to be fed; see `Feeds.feed`.

        Raises:
            MetaError: something of it is not what it should be.
        """
        self.name = f"{sink.kind}:{sink.destination}" if name is None else name
        if not self.name.isprintable():
            raise MetaError(f"{self.name!r} is no name for a feed: it has control characters", field="name")
        for field, value, least in (("after", after, 0), ("batch", batch, 1), ("attempts", attempts, 1)):
            if value is not None and (type(value) is not int or value < least):
                raise MetaError(f"{field} is {value!r}: give a whole number from {least}", field=field)
        self._store = store
        self._sink = sink
        self._states = states
        self._choice = choice
        self._after = after
        self._batch_events = batch or sink.batch_events
        self._attempts = attempts
        self._now = now
        self._latch = Latch()
        self._stopping = Stopping()
        self._until: int | None = None
        """Up to where the batch goes that was tried before."""

    def run(
        self, *, progress: Progress | None = None, on_retry: OnRetry | None = None, on_back: OnBack | None = None
    ) -> FeedStatus:
        """Deliver all that the log has, and return how that went.

        On return the destination has it, and erased events are taken back where it can do that.

        Args:
            progress: told after each batch.
            on_retry: told of what failed and will be tried again.
            on_back: told that the destination lacks what it had, or, by a feed that begins, has something already.

        Raises:
            ConflictError: the feed is running already, its name is that of another, another fills its folder, or it was
                begun with other topics, `public` or `unseal`.
            SinkError: the destination refuses, or did not answer for as long as is tried. What was delivered stays.
            MissingPackageError: the package that speaks to the destination is not installed.
            StoreCutError: the feed has come further than the log has, or to another event: the log was cut or rolled
                back, or is another one.
            StoreError: the log cannot be read.
        """
        with self._stopping.once(), self._running(delivers=True) as running:
            self._go_to_place(running, on_back)
            self._catch_up(running, progress, on_retry, self._attempts or ATTEMPTS)
        return self.status()

    def follow(
        self,
        *,
        told: Callable[[FeedStatus], None] | None = None,
        on_retry: OnRetry | None = None,
        on_back: OnBack | None = None,
    ) -> None:
        """Deliver all that the log has, and then what comes, until `stop` is called.

        A destination that does not answer is tried for as long as that takes, unless the feed has a number of attempts;
        so is the server of the log.

        Args:
            told: called with how it went each time that the end of the log was reached.
            on_retry: told of what failed and will be tried again.
            on_back: told that the destination lacks what it had, or, by a feed that begins, has something already.

        Raises:
            As `run` does; StoreClosedError: the log was closed.
        """
        with self._stopping.following(), self._running(delivers=True) as running:
            self._go_to_place(running, on_back)
            while not self._stopping.is_asked:
                self._catch_up(running, None, on_retry, self._attempts)
                # What is lost while this waits is waited for by the next try, which tells of it.
                with suppress(StoreLostError):
                    if told is not None:
                        told(self.status())
                    self._wait(running)

    def take_back(self) -> None:
        """Carry out erasures in the destination, for what was delivered before them. Nothing else is delivered.

        Raises:
            As `run` does.
        """
        with self._running(delivers=False) as running:
            self._forget(running)
            # What kept it from that is gone.
            running.settled()

    def stop(self) -> None:
        """Make `follow` or `run` return when the batch that it is at is done or has failed.

        Where neither goes on, the next `follow` returns at once: a thread that has been started, and has not begun to
        follow, is stopped too. After that both can be called again.
        """
        self._stopping.ask()
        self._latch.open()

    def status(self) -> FeedStatus:
        """Return how the feed is doing."""
        return status_of(self._store, self._states, self._load(), now=self._now)

    # One run

    def _load(self) -> FeedState:
        state = self._states.load(self.name)
        mine = FeedState(
            name=self.name,
            kind=self._sink.kind,
            destination=self._sink.destination,
            position=self._after,
            takes_back=self._sink.takes_back,
            sent_to=0,
        )
        if state is None:
            return msgspec.structs.replace(mine, choice=self._choice or Choice(), keeps_choice=self._choice is not None)
        if (state.kind, state.destination) != (mine.kind, mine.destination):
            raise ConflictError(
                f"feed {self.name!r} delivers to {state.kind} {state.destination!r}: give this one another name, or "
                "forget that one with `turnlog feeds remove`"
            )
        if self._choice is None:
            return state
        if state.keeps_choice:
            check_choice(state, self._sink, self._choice)
            return state
        return state.changed(choice=self._choice, keeps_choice=True)

    @contextmanager
    def _running(self, *, delivers: bool) -> Generator[_Running]:
        """Hold the feed, and the sink open."""
        with self._states.held(self.name):
            state = self._load()
            reader = LogReader(self._store, state.choice, reads_content=self._sink.reads_content)
            running = _Running(self._states, reader, state)
            place: Place | None = None
            try:
                try:
                    if not running.is_kept:
                        # Nothing is made for a feed that cannot begin.
                        reader.check(state)
                    if delivers:
                        check_alone(self._states, self.name, self._sink)
                    place = self._done("open", self._sink.open(self._store))
                    if delivers:
                        # From here on no other one can open it: one that had begun before is kept by now.
                        check_alone(self._states, self.name, self._sink)
                    if place is not None:
                        running.found(place)
                    elif (first := self._sink.lost_from()) is not None:
                        running.lost(first)
                    yield running
                finally:
                    self._done("close", self._sink.close())
            except StoreClosedError:
                raise
            except StoreCutError as error:
                told = self._cut(running, place, error)
                running.failed(told, self._time())
                raise told from error
            except Exception as error:
                running.failed(error, self._time())
                raise
            finally:
                if not running.is_kept:
                    self._states.remove(self.name)

    def _cut(self, running: _Running, place: Place | None, error: StoreCutError) -> StoreCutError:
        """Return the error for a log that was cut or rolled back, or is another one, with what can be done."""
        if not running.is_kept and place is None:
            if error.position <= error.end:
                return error
            said = f"the log has {error.end:,} events: a feed cannot begin after global position {error.position:,}"
            return StoreCutError(said, position=error.position, end=error.end)
        if place is not None or (self._sink.takes_back and running.state.may_have_delivered):
            there = self._sink.destination
            hint = f"{there!r} keeps what it has: begin a feed of another name that delivers elsewhere"
        elif running.state.log in (None, running.reader.log()):
            hint = (
                f"`turnlog feeds move {shlex.quote(self.name)} --to POSITION` says where it is to go on, at the last "
                "event that its receiver has as the log has it; what the receiver has from above that is lost in the "
                "log, and it is to put that away"
            )
        else:
            hint = "begin a feed of another name"
        return StoreCutError(f"{error}; {hint}", position=error.position, end=error.end)

    def _go_to_place(self, running: _Running, on_back: OnBack | None) -> None:
        """Let the feed go back to where its destination ends, if that lacks what it had, and tell where it begins."""
        place, had = running.place, running.state.delivered_to
        if place is None or not (running.lacks or running.begins_behind):
            return
        if running.lacks:
            running.note(**_standing_at(place), delivered_to=place.position)
            what = (
                f"ends at global position {place.position:,}, and had come to {had:,}: what it lacks is delivered again"
            )
        else:
            what = f"has events up to global position {place.position:,}: feed {self.name!r} begins behind them"
        if on_back is not None:
            on_back(f"{self._sink.kind} {self._sink.destination!r} {what}")

    def _catch_up(
        self, running: _Running, progress: Progress | None, on_retry: OnRetry | None, attempts: int | None
    ) -> None:
        while not self._stopping.is_asked:
            batch = self._tried(running, on_retry, attempts)
            if batch is None:
                return
            if progress is not None:
                progress(batch.last, batch.end)
            del batch  # before the next one is read: both may be large

    def _tried(self, running: _Running, on_retry: OnRetry | None, attempts: int | None) -> Batch | None:
        """Deliver the next batch, as often as it takes. Each time it is read anew: something may have been erased."""

        def wait(state: RetryCallState) -> float:
            error = None if state.outcome is None else state.outcome.exception()
            asked = error.retry_after_s if isinstance(error, SinkError) and error.retry_after_s is not None else 0.0
            return min(max(asked, backoff(state)), WAIT_S_MAX)

        def note(state: RetryCallState) -> None:
            error = None if state.outcome is None else state.outcome.exception()
            if isinstance(error, TurnlogError):
                running.failed(error, self._time())
                if on_retry is not None:
                    on_retry(error, state.upcoming_sleep)

        backoff = wait_random_exponential(multiplier=0.5, max=WAIT_S_MAX)
        retrying = Retrying(
            retry=retry_if_exception(lambda error: _is_transient(error) and not self._stopping.is_asked),
            wait=wait,
            stop=stop_never if attempts is None else stop_after_attempt(attempts),
            sleep=self._sleep,
            before_sleep=note,
            reraise=True,
        )
        return retrying(self._step, running)

    def _sleep(self, seconds: float) -> None:
        latch = self._latch = Latch()
        if not self._stopping.is_asked:
            latch.wait(monotonic() + seconds)

    def _step(self, running: _Running) -> Batch | None:
        """Carry out erasures, and deliver the next batch; None where there is none, or it was stopped."""
        if self._stopping.is_asked:
            return None
        self._forget(running)
        state = running.state
        until = self._until or state.pending
        batch = running.reader.batch(
            state,
            # It may have been moved since.
            until=until if until is not None and until > state.position else None,
            events_max=self._batch_events,
            bytes_max=self._sink.batch_bytes,
        )
        if batch is None:
            running.settled()
            return None
        self._until = batch.last
        if batch.records:
            # Also what fills a folder for the first time is known before: an erasure looks where something may be.
            is_noted = self._sink.keeps_batches or (self._sink.takes_back and not state.may_have_delivered)
            if is_noted and state.pending != batch.last:
                running.save(pending=batch.last)
            elif not running.is_kept:
                running.save()
            self._done("deliver", self._sink.deliver(batch))
        has_content = bool(batch.records) and not state.choice.public
        running.save(
            log=batch.log,
            position=batch.last,
            event_id=batch.event_id,
            digest=batch.digest,
            pending=None,
            delivered=state.delivered + len(batch.records),
            delivered_to=batch.records[-1].position if batch.records else state.delivered_to,
            sent_to=max(running.state.sent, batch.last if has_content else 0),
            delivered_time=self._time() if batch.records else state.delivered_time,
            error=None,
            error_time=None,
        )
        self._until = None
        return batch

    def _forget(self, running: _Running) -> None:
        state = running.state
        due = running.reader.erasures_due(state)
        if due is None:
            return
        running.forget_error()
        if self._sink.takes_back:
            if self._done("is_emptied", self._sink.is_emptied()) and running.reader.is_erased(state, due):
                return  # its files may come back
            # What tells its place may have more, where files were put in another order.
            before = INT64_MAX if self._sink.knows_place else max(state.position, state.sent)
            for records in running.reader.erased(due.after, before):
                self._done("forget", self._sink.forget(records))
        running.note(erased_to=due.last, erased_id=due.last_id)

    def _done(self, method: str, returned: T) -> T:
        """Return what a method of the sink has returned, which is nothing that somebody has to await."""
        check_done(returned, method, f"sink {type(self._sink).__name__!r}")
        return returned

    def _wait(self, running: _Running) -> None:
        """Wait until the log goes on, and then, where the sink wants that, for a batch to fill."""
        position = running.state.position
        self._wait_beyond(position, None)
        until = monotonic() + self._sink.linger_s
        while self._sink.linger_s and not self._stopping.is_asked and monotonic() < until:
            # Before erasures are looked for: one that comes between the two is beyond it.
            with self._store.read() as transaction:
                end = transaction.log_end()
            try:
                self._forget(running)
            except SinkError:
                return  # it is tried again with what comes next
            if not position < end < position + self._batch_events:
                return
            self._wait_beyond(end, until)

    def _wait_beyond(self, position: int, until: float | None) -> None:
        """Wait until the log goes beyond a position or was cut, a time has come, or it is stopped."""
        # A new one each time: who was told before may be told once more.
        latch = self._latch = Latch()
        watch = self._store.watch(position, latch.open, backwards=True)
        try:
            told = not self._stopping.is_asked and latch.wait(until)
        finally:
            self._store.unwatch(watch)
        if told and not self._stopping.is_asked:
            watch.result()

    def _time(self) -> str:
        return datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="seconds")


class _Running:
    """The state of a feed while it runs, and where it is kept."""

    def __init__(self, states: FeedStates, reader: LogReader, state: FeedState) -> None:
        self._states = states
        self.reader = reader
        self.state = state
        self.place: Place | None = None
        self.begins_behind = False
        """Whether it is new, and its destination has come further than where it was to begin."""
        self._kept = states.load(state.name)

    @property
    def is_kept(self) -> bool:
        """Whether there is a state of the feed."""
        return self._kept is not None

    @property
    def lacks(self) -> bool:
        """Whether the destination ends before what was delivered to it."""
        return self.place is not None and self.place.position < self.state.delivered_to

    def save(self, **changes: object) -> None:
        self.state = self.state.changed(**changes)
        self._states.save(self.state)
        self._kept = self.state

    def note(self, **changes: object) -> None:
        """Keep something of a feed that is kept, and of another one when that is."""
        if self.is_kept:
            self.save(**changes)
        else:
            self.state = self.state.changed(**changes)

    def found(self, place: Place) -> None:
        """Take in how far the destination has come: further than is kept, where the feed was killed before.

        That is kept at once: there may be nothing more to deliver, and whoever takes files away leaves no trace.
        """
        if self.state.log not in (None, place.log):
            raise ConflictError(
                f"feed {self.state.name!r} is of log {self.state.log!r}, its destination of {place.log!r}"
            )
        self.place = place
        known: dict[str, Any] = {"log": place.log}
        if self.lacks:
            # What was put back there has what was erased since.
            known |= {"erased_to": 0, "erased_id": None}
        else:
            sent_to = 0 if self.state.choice.public else place.position
            known |= {"delivered_to": place.position, "sent_to": max(self.state.sent, sent_to)}
        if place.position > self.state.position:
            self.begins_behind = not self.is_kept
            self.note(**known, **_standing_at(place))
        else:
            self.state = msgspec.structs.replace(self.state, **known)

    def lost(self, first: int) -> None:
        """Take in that the destination has nothing left of what it had from a global position on."""
        if self.state.log is not None and first <= self.state.delivered_to:
            self.place = Place(log=self.state.log, position=first - 1, event_id=None)

    def forget_error(self) -> None:
        """Keep that the feed failed, and not with what."""
        if self.state.error is not None:
            self.note(error=FORGOTTEN)

    def settled(self) -> None:
        """Keep that there is nothing to deliver."""
        if self.state.changed(error=None, error_time=None) != self._kept:
            self.save(error=None, error_time=None)

    def failed(self, error: Exception, time: str) -> None:
        """Keep why the feed does not go on, and since when. One that fails before its first delivery is not kept."""
        if not self.is_kept:
            return
        said = str(error) if isinstance(error, TurnlogError) else f"{type(error).__name__}: {error}"
        line = " ".join(said.split())[:_ERROR_CHARACTERS_MAX]
        since = time if self.state.error is None else self.state.error_time
        self.save(error=line, error_time=since)


def _standing_at(place: Place) -> dict[str, Any]:
    """Return the changes to the state of a feed that goes on at a place."""
    return {"position": place.position, "event_id": place.event_id, "digest": place.digest, "pending": None}


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, StoreBusyError) or (isinstance(error, SinkError) and error.retryable)


def status_of(
    store: Store, states: FeedStates, state: FeedState, *, now: Callable[[], float] = time.time
) -> FeedStatus:
    """Return how a feed is doing."""
    with store.read() as transaction:
        end = transaction.log_end()
        due = transaction.at_global(state.position + 1) if end > state.position else None
    lag_s = 0.0 if due is None else max(0.0, now() - time_of(due.header.time).timestamp())
    return FeedStatus(
        name=state.name,
        kind=state.kind,
        destination=state.destination,
        position=state.position,
        lag=max(0, end - state.position),
        lag_s=round(lag_s, 3),
        delivered=state.delivered,
        delivered_time=state.delivered_time,
        error=state.error,
        error_time=state.error_time,
        takes_back=state.takes_back,
        running=states.is_held(state.name),
    )
