"""Running a feed: batches of the log to a sink, and how far that has come kept after each.

The position is kept when the sink has the events. A feed that is killed in between delivers some of them again, with
the same keys; none is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from time import monotonic
from typing import TypeVar

import msgspec
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
from turnlog.feeds.sinks.beginning import check_alone, check_choice
from turnlog.feeds.sinks.interface import INT64_MAX, Batch, Choice, Place, Sink
from turnlog.feeds.sinks.reading import LogReader
from turnlog.feeds.sinks.running import Running, standing_at
from turnlog.feeds.sinks.states import FeedState, FeedStates
from turnlog.feeds.sinks.status import FeedStatus, status_of, way_on
from turnlog.feeds.stopping import Stopping
from turnlog.model.plain import check_done
from turnlog.plugins import said
from turnlog.store import Store
from turnlog.store.waiting import Latch

ATTEMPTS = 8
"""How often a batch is tried before a feed that does not follow gives up: for about half a minute."""

WAIT_S_MAX = 60.0
"""How long is waited between two attempts at most, whatever the destination asks for."""

T = TypeVar("T")

OnRetry = Callable[[TurnlogError, float], None]
"""Called with what failed and will be tried again, and in how many seconds."""

Progress = Callable[[int, int], None]
"""Called after each batch with the global position that was reached, and where the log ends."""

OnBack = Callable[[str], None]
"""Called with one line where a feed goes on from where its destination ends: back, if that lacks what it had; behind
what a feed that begins finds there."""


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
            raise MetaError(
                f"{self.name!r} is no name for a feed: it has characters that cannot be printed, give it one",
                field="name",
            )
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
    def _running(self, *, delivers: bool) -> Generator[Running]:
        """Hold the feed, and the sink open."""
        with self._states.held(self.name, delivers=delivers):
            state = self._load()
            reader = LogReader(self._store, state.choice, reads_content=self._sink.reads_content)
            running = Running(self._states, reader, state)
            place: Place | None = None
            try:
                if not running.is_kept:
                    # Nothing is made for a feed that cannot begin.
                    reader.check(state)
                if delivers:
                    check_alone(self._states, self.name, self._sink)
                with self._opened() as place:
                    if delivers:
                        # From here on no other one can open it: one that had begun before is kept by now.
                        check_alone(self._states, self.name, self._sink)
                    if place is not None:
                        running.found(place)
                    elif (first := self._sink.lost_from()) is not None:
                        running.lost(first)
                    yield running
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

    @contextmanager
    def _opened(self) -> Generator[Place | None]:
        """Hold the sink open, and give how far its destination has come. What goes wrong first is what is raised."""
        try:
            place = self._done("open", self._sink.open(self._store))
            if not isinstance(place, Place | None):  # pyright: ignore[reportUnnecessaryIsInstance] - callers err
                what = f"returned {type(place).__name__!r}: return a Place, or None"
                raise MetaError(f"open of sink {type(self._sink).__name__!r} {what}", field="open")
            yield place
        except BaseException as error:
            try:
                self._sink.close()
            except Exception as other:  # noqa: BLE001 - whatever it is
                error.add_note(f"and it could not be closed: {said(other)}")
            raise
        self._done("close", self._sink.close())

    def _cut(self, running: Running, place: Place | None, error: StoreCutError) -> StoreCutError:
        """Return the error for a log that was cut or rolled back, or is another one, with what can be done."""
        if not running.is_kept and place is None:
            if error.position <= error.end:
                return error
            said = f"the log has {error.end:,} events: a feed cannot begin after global position {error.position:,}"
            return StoreCutError(said, position=error.position, end=error.end)
        keeps = place is not None or (self._sink.takes_back and running.state.may_have_delivered)
        hint = way_on(running.state, running.reader.log(), keeps=keeps)
        return StoreCutError(f"{error}; {hint}", position=error.position, end=error.end)

    def _go_to_place(self, running: Running, on_back: OnBack | None) -> None:
        """Let the feed go back to where its destination ends, if that lacks what it had, and tell where it begins."""
        place, had = running.place, running.state.delivered_to
        if place is None or not (running.lacks or running.begins_behind):
            return
        if running.lacks:
            running.note(**standing_at(place), delivered_to=place.position)
            what = (
                f"ends at global position {place.position:,}, and had come to {had:,}: what it lacks is delivered again"
            )
        else:
            what = f"has events up to global position {place.position:,}: feed {self.name!r} begins behind them"
        if on_back is not None:
            on_back(f"{self._sink.kind} {self._sink.destination!r} {what}")

    def _catch_up(
        self, running: Running, progress: Progress | None, on_retry: OnRetry | None, attempts: int | None
    ) -> None:
        while not self._stopping.is_asked:
            batch = self._tried(running, on_retry, attempts)
            if batch is None:
                return
            if progress is not None:
                progress(batch.last, batch.end)
            del batch  # before the next one is read: both may be large

    def _tried(self, running: Running, on_retry: OnRetry | None, attempts: int | None) -> Batch | None:
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

    def _step(self, running: Running) -> Batch | None:
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

    def _forget(self, running: Running) -> None:
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

    def _wait(self, running: Running) -> None:
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


def _is_transient(error: BaseException) -> bool:
    return isinstance(error, StoreBusyError) or (isinstance(error, SinkError) and error.retryable)
