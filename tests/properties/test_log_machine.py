"""A log that is used in any order does what a model of dictionaries and lists does."""

import io
import json
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from psycopg import sql
from tests.properties.model import ConflictError, Model
from tests.soak import SOAK

from turnlog import Turn, TurnLog
from turnlog.digest import sri
from turnlog.errors import (
    BookmarkExistsError,
    HeadConflictError,
    IdConflictError,
    UnknownBookmarkError,
    UnknownTurnError,
)
from turnlog.events import Arrival, flaw, metadata
from turnlog.ids import new_id
from turnlog.model import ReplyFacts, content_bytes
from turnlog.testing.faults import facts
from turnlog.testing.strategies import options, texts

NAMES = ["main", "fork", "ü", "two words"]
_names = st.sampled_from(NAMES)
_picks = st.integers(0, 3) | st.integers(0, 1 << 20)
"""Which of the turns that there are, counted from the last one and taken modulo their number."""
_bookmarks = st.none() | st.just(False) | _names
_roles = st.sampled_from(["user", "assistant", "system"])
_parents = st.lists(_picks | _names, max_size=3)


class LogMachine(RuleBasedStateMachine):
    """Rules for a log in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.model = Model()
        self.calls: list[dict[str, Any]] = []
        self.digests: dict[str, str] = {}
        self.log = TurnLog.open(self.url("log"))
        self.copy = TurnLog.open(self.url("copy"))

    def url(self, name: str) -> str:
        """Return the URL of a log."""
        return "memory://"

    def teardown(self) -> None:
        """Check the log as a whole, once a run."""
        assert self.log.verify().damage == ()
        self.take_over()
        for turn_id in self.model.turns:
            self.window_is_that_of_the_model(turn_id)
        self.log.close()
        self.copy.close()
        shutil.rmtree(self.folder)

    # What rules are made of

    def turn_at(self, pick: int) -> str:
        """Return the id of one of the turns."""
        ids = list(self.model.turns)
        return ids[-1 - pick % len(ids)]

    def headishes(self, picks: list[int | str]) -> list[str]:
        """Return ids, some in upper case, and names of bookmarks that there are."""
        found: list[str] = []
        for pick in picks if self.model.turns else []:
            if isinstance(pick, str):
                found += [pick] if pick in self.model.bookmarks else []
            else:
                turn_id = self.turn_at(pick)
                found.append(turn_id.upper() if pick % 5 == 0 else turn_id)
        return found

    def add(self, call: dict[str, Any]) -> Turn | None:
        """Make a call to the log and to the model, and compare what they say."""
        arguments = {name: value for name, value in call.items() if value is not None and name != "failed"}
        if call["failed"]:
            arguments["reply"] = ReplyFacts(stop_reason="aborted")
        turn_id = call["id"] or "unknown"
        asked = {name: value for name, value in call.items() if name not in ("id", "content")}
        try:
            turn = self.log.add_turn(**arguments)
        except HeadConflictError:
            with pytest.raises(ConflictError):
                self.model.add(turn_id, call["content"], **asked)
            return None
        expected = self.model.add(turn.id, call["content"], **asked)
        assert list(turn.continues) == expected.parents
        assert (turn.meta.head or None) == expected.head
        assert turn.meta.role == expected.role
        self.calls.append(call | {"id": turn.id})
        self.cites(turn.id, [("parent", parent) for parent in expected.parents])
        return turn

    def cites(self, event_id: str, cited: list[tuple[str, str]]) -> None:
        """Check that the last event is this one, and that it cites others with the digests of their exact bytes."""
        recorded = self.log.event(event_id)
        assert recorded.global_position == self.model.events
        assert recorded.arrival is Arrival.RECORDED
        assert flaw(recorded) is None
        self.digests[event_id] = sri(sha256(b"\0" + recorded.state).digest())
        assert [(found.relation, found.id, found.digest) for found in recorded.header.citations] == [
            (relation, other, self.digests[other]) for relation, other in cited
        ]

    # Recording

    @initialize(text=texts(), bookmark=_bookmarks)
    def first_turn(self, text: str, bookmark: Any) -> None:
        """There is always a turn."""
        self.add_turn(text, "user", [], bookmark, None, own_id=False, failed=False)

    @rule(
        text=texts(),
        role=_roles,
        picks=_parents,
        bookmark=_bookmarks,
        inherited=st.none() | options(),
        own_id=st.booleans(),
        failed=st.sampled_from([False, False, False, True]),
    )
    def add_turn(
        self,
        text: str,
        role: str,
        picks: list[int | str],
        bookmark: Any,
        inherited: dict[str, Any] | None,
        *,
        own_id: bool,
        failed: bool,
    ) -> None:
        """Record a root, a fork, a merge or the next turn."""
        self.add(
            {
                "content": text,
                "role": role,
                "continues": self.headishes(picks),
                "bookmark": bookmark,
                "inherited": inherited,
                "id": new_id() if own_id else None,
                "failed": failed,
            }
        )

    @rule(text=texts(), name=_names, bookmark=_bookmarks, inherited=st.none() | options())
    def continue_bookmark(self, text: str, name: str, bookmark: Any, inherited: dict[str, Any] | None) -> None:
        """Continue a bookmark by its name; an unknown one is refused."""
        if name in self.model.bookmarks:
            self.add_turn(text, "assistant", [name], bookmark, inherited, own_id=True, failed=False)
            return
        with pytest.raises(UnknownTurnError):
            self.log.add_turn(text, continues=name)

    @rule(text=texts(), bookmark=_bookmarks)
    def respond(self, text: str, bookmark: Any) -> None:
        """Continue the last turn, whatever it is."""
        self.add({"content": text, "respond": True, "bookmark": bookmark, "id": None, "failed": False})

    @rule(text=texts(), picks=_parents, bookmark=_bookmarks, expected=_picks | st.none(), hit=st.booleans())
    def expect_head(self, text: str, picks: list[int | str], bookmark: Any, expected: int | None, hit: bool) -> None:
        """Record a turn only if its bookmark is where it is expected."""
        continues = self.headishes(picks)
        expected_head = False if expected is None else self.turn_at(expected)
        name = self.model.moved_bookmark(continues, bookmark, respond=False)
        if hit and name is not None:
            expected_head = self.model.bookmarks.get(name) or False
        self.add(
            {
                "content": text,
                "continues": continues,
                "bookmark": bookmark,
                "expected_head": expected_head,
                "id": None,
                "failed": False,
            }
        )

    @precondition(lambda self: self.calls)
    @rule(pick=_picks, change=st.booleans())
    def repeat(self, pick: int, change: bool) -> None:
        """Repeat an earlier call under the id that it got: nothing new, unless it differs, which is refused."""
        call = self.calls[pick % len(self.calls)]
        arguments = {name: value for name, value in call.items() if value is not None and name != "failed"}
        if call["failed"]:
            arguments["reply"] = ReplyFacts(stop_reason="aborted")
        arguments.pop("expected_head", None)
        if change:
            with pytest.raises(IdConflictError):
                self.log.add_turn(**(arguments | {"content": call["content"] + "!"}))
            return
        assert self.log.add_turn(**arguments) == self.log.turn(call["id"])

    @rule(
        works=st.lists(
            st.tuples(texts(), _picks | _names, st.sampled_from([None, False, *NAMES])), min_size=2, max_size=6
        )
    )
    def add_concurrently(self, works: list[tuple[str, int | str, Any]]) -> None:
        """Record several turns from several threads at once: the model follows in the order that the log gave them."""
        calls = [
            {"content": text, "continues": self.headishes([pick]), "bookmark": bookmark, "failed": False}
            for text, pick, bookmark in works
        ]

        def add(call: dict[str, Any]) -> Turn:
            return self.log.add_turn(**{n: v for n, v in call.items() if v is not None and n != "failed"})

        with ThreadPoolExecutor(len(calls)) as pool:
            turns = list(pool.map(add, calls))
        for turn, call in sorted(zip(turns, calls, strict=True), key=lambda pair: pair[0].global_position):
            note(f"at {turn.global_position}: {call}")
            asked = {name: value for name, value in call.items() if name != "content"}
            expected = self.model.add(turn.id, call["content"], **asked)
            assert list(turn.continues) == expected.parents
            assert (turn.meta.head or None) == expected.head
            self.cites(turn.id, [("parent", parent) for parent in expected.parents])

    @rule(
        payload=st.none() | st.binary(max_size=200),
        public=options(),
        private=options(),
        picks=st.lists(st.tuples(st.sampled_from(["subject", "see-also"]), _picks), max_size=3),
    )
    def add_event(
        self,
        payload: bytes | None,
        public: dict[str, Any],
        private: dict[str, Any],
        picks: list[tuple[str, int]],
    ) -> None:
        """Record an event of another topic, which cites turns: it is there as it was given, and is in no thread."""
        cited = list(dict.fromkeys((relation, self.turn_at(pick)) for relation, pick in picks))
        event = self.log.add_event("acme.note", payload, private=private, public=public, cites=cited)
        self.model.record("acme.note")
        self.cites(event.header.id, cited)
        assert event.private is not None or not (private or payload is not None)
        assert json.loads(bytes(event.header.meta)) == public
        assert metadata(event) == public | private  # where both have a name, the private part's
        with self.log.store.read() as transaction:
            assert transaction.payload(event) == payload

    # Moving bookmarks

    @rule(name=_names, pick=_picks | _names, expected=st.just(False) | _picks | st.none())
    def set_bookmark(self, name: str, pick: int | str, expected: Any) -> None:
        """Put a bookmark on a turn, perhaps only if it is where it is expected."""
        for headish in self.headishes([pick]):
            arguments: dict[str, Any] = {}
            if expected is not None:
                wanted = None if expected is False else self.turn_at(expected)
                arguments["expected_head"] = False if wanted is None else wanted
                if self.model.bookmarks.get(name) != wanted:
                    with pytest.raises(HeadConflictError):
                        self.log.bookmarks.set(name, headish, **arguments)
                    return
            turn_id = self.model.resolve(headish)
            assert self.log.bookmarks.set(name, headish, **arguments).turn == turn_id
            self.model.point(name, turn_id)
            self.model.record("gpt.bookmark")

    @rule(name=_names, to=_names)
    def rename_bookmark(self, name: str, to: str) -> None:
        """Rename a bookmark; an unknown one, and a taken name, are refused."""
        if name not in self.model.bookmarks:
            with pytest.raises(UnknownBookmarkError):
                self.log.bookmarks.rename(name, to)
        elif to in self.model.bookmarks:
            with pytest.raises(BookmarkExistsError):
                self.log.bookmarks.rename(name, to)
        else:
            self.log.bookmarks.rename(name, to)
            self.model.point(to, self.model.bookmarks.pop(name))
            self.model.record("gpt.bookmark")

    @rule(name=_names)
    def delete_bookmark(self, name: str) -> None:
        """Delete a bookmark; an unknown one is refused."""
        if name not in self.model.bookmarks:
            with pytest.raises(UnknownBookmarkError):
                self.log.bookmarks.delete(name)
            return
        self.log.bookmarks.delete(name)
        del self.model.bookmarks[name]
        self.model.record("gpt.bookmark")

    # Reading, and taking over

    @rule(pick=_picks)
    def window(self, pick: int) -> None:
        """The window, the ancestry, the children and the thread of any turn are those of the model."""
        self.window_is_that_of_the_model(self.turn_at(pick))

    def window_is_that_of_the_model(self, turn_id: str) -> None:
        """Compare all that is said about one turn."""
        window = self.log.context(turn_id, explain=True)
        found = [(message.turn, message.role, message.content_json) for message in window.messages]
        assert found == [(at, role, content_bytes(text)) for at, role, text in self.model.window(turn_id)]
        assert window.options == self.model.options(turn_id)
        assert window.explanation is not None
        assert list(window.explanation.turns) == [at for at, _, _ in self.model.window(turn_id)]
        ancestry = self.model.ancestry(turn_id)
        assert [left.turn for left in window.explanation.left_out] == [
            at for at in ancestry if self.model.turns[at].failed
        ]
        whole = self.log.context(turn_id, include_failed=True)
        assert [message.turn for message in whole.messages] == ancestry
        assert [turn.id for turn in self.log.ancestry(turn_id)] == ancestry
        assert [turn.id for turn in self.log.children(turn_id)] == self.model.children(turn_id)
        assert [turn.id for turn in self.log.thread(turn_id)] == self.model.thread(turn_id)

    @rule()
    def take_over(self) -> None:
        """A copy that has taken over earlier exports takes over this one, and says the same then."""
        file = io.BytesIO()
        count = self.log.export(file)
        assert count == self.model.events
        known = len(list(self.copy.events()))
        file.seek(0)
        report = self.copy.import_turnlog(file)
        assert (report.added, report.known, report.whole) == (count - known, known, True)
        assert facts(self.copy) == facts(self.log)
        assert {recorded.arrival for recorded in self.copy.events()} == {Arrival.RESTORED}
        assert self.copy.id == self.log.id
        assert self.copy.verify().clean

    @rule(pick=_picks)
    def take_over_one_thread(self, pick: int) -> None:
        """The export of one turn, imported into an empty log, verifies clean and gives the same window."""
        turn_id = self.turn_at(pick)
        file = io.BytesIO()
        self.log.export(file, turn_id)
        file.seek(0)
        with TurnLog.open("memory://") as part:
            part.import_turnlog(file)
            assert part.verify().damage == ()
            assert part.context(turn_id, explain=True) == self.log.context(turn_id, explain=True)
            assert {turn.id for turn in part.thread(turn_id)} >= set(self.model.thread(turn_id))
            assert {recorded.arrival for recorded in part.events(topics=["gpt.turn"])} == {Arrival.GUEST}
            assert part.id != self.log.id
            there = {recorded.header.id for recorded in part.events(topics=["gpt.turn"])}
            assert all(part.event(at).digest == self.log.event(at).digest for at in there)
            assert {bookmark.name: bookmark.turn for bookmark in part.bookmarks.all()}.items() >= {
                (name, at) for name, at in self.model.bookmarks.items() if at in there
            }

    # What always holds

    @invariant()
    def bookmarks_are_those_of_the_model(self) -> None:
        """Every bookmark is where the model has it."""
        assert {bookmark.name: bookmark.turn for bookmark in self.log.bookmarks.all()} == self.model.bookmarks

    @invariant()
    def threads_are_those_of_the_model(self) -> None:
        """Every thread has the turns, heads and bookmarks that the model has, in the same order."""
        expected = self.model.threads()
        found = self.log.threads()
        assert [thread.id for thread in found] == [thread["id"] for thread in expected]
        assert [thread.turns for thread in found] == [len(thread["turns"]) for thread in expected]
        assert [list(thread.heads) for thread in found] == [thread["heads"] for thread in expected]
        assert [list(thread.bookmarks) for thread in found] == [thread["bookmarks"] for thread in expected]

    @invariant()
    def nothing_else_was_written(self) -> None:
        """The log has as many events of each topic as the model; a refused call wrote none."""
        with self.log.store.read() as transaction:
            assert transaction.topics() == self.model.topics
            assert transaction.log_end() == self.model.events
            genesis = transaction.genesis()
        assert (genesis is None) == (self.model.events == 0)
        assert genesis is None or (genesis.header.topic, genesis.header.id) == ("log.genesis", self.log.id)


class DurableLogMachine(LogMachine):
    """The same rules for a log that can be closed and opened again."""

    @rule()
    def reopen(self) -> None:
        """Close the log and open it again: nothing is remembered but what is stored."""
        self.log.close()
        self.log = TurnLog.open(self.url("log"), create=False)

    @rule()
    def rebuild(self) -> None:
        """Build the projections anew: they say what they said."""
        before = facts(self.log)
        self.log.store.rebuild()
        assert facts(self.log) == before

    @rule(text=texts(), name=_names)
    def another_store_appends(self, text: str, name: str) -> None:
        """A second store that is open on the same log appends; the first one goes on from there."""
        with TurnLog.open(self.url("log"), create=False) as other:
            turn = other.add_turn(text, bookmark=name)
        self.model.add(turn.id, text, continues=[], bookmark=name)
        self.cites(turn.id, [])


class SQLiteLogMachine(DurableLogMachine):
    """The same rules for a log in a file."""

    def url(self, name: str) -> str:
        """Return the URL of a log."""
        return f"sqlite:///{self.folder}/{name}.db"


class PostgresLogMachine(DurableLogMachine):
    """The same rules for a log in PostgreSQL."""

    database: ClassVar[str]

    def url(self, name: str) -> str:
        """Return the URL of a log: each in a schema of its own."""
        return f"{self.database}?schema={self.folder.name}_{name}"

    def teardown(self) -> None:
        """Check the log as a whole, and remove it."""
        super().teardown()
        with closing(psycopg.connect(self.database, autocommit=True)) as connection:
            for name in ("log", "copy"):
                schema = sql.Identifier(f"{self.folder.name}_{name}")
                connection.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(schema))


@pytest.fixture
def machine_database(postgres_url: str) -> None:
    """Give the machine a database."""
    PostgresLogMachine.database = postgres_url


TestMemoryLogMachine = LogMachine.TestCase
TestSQLiteLogMachine = SQLiteLogMachine.TestCase
TestPostgresLogMachine = PostgresLogMachine.TestCase
TestMemoryLogMachine.settings = TestSQLiteLogMachine.settings = settings(
    stateful_step_count=30, max_examples=settings().max_examples // 2
)
# Each example makes two logs, which takes as long as many appends.
TestPostgresLogMachine.settings = settings(stateful_step_count=30, max_examples=max(8, settings().max_examples // 25))
_timeout = pytest.mark.timeout(7200 if SOAK else 600)
TestMemoryLogMachine.pytestmark = TestSQLiteLogMachine.pytestmark = [_timeout]
TestPostgresLogMachine.pytestmark = [_timeout, pytest.mark.usefixtures("machine_database")]
