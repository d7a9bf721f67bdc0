"""Options that commands share, and what becomes of them: the log to open, the arguments of a turn.

Annotations are not postponed here: those of a dataclass that inherits fields would be read in the module of the heir.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, TypeVar, cast

import msgspec
from cyclopts import Parameter

from turnlog.audit.seals import default_seals
from turnlog.cli.completing import complete_bookmarks, complete_servers
from turnlog.cli.failures import UsageError
from turnlog.cli.output import note
from turnlog.cli.redaction import redaction_hooks
from turnlog.cli.stores import is_new_store, store_url
from turnlog.events import Seals
from turnlog.log import TurnLog
from turnlog.store.urls import parse_url, without_secrets

T = TypeVar("T")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """What every command takes, before or after its name."""

    store: Annotated[
        str | None,
        Parameter(
            help="The store: sqlite:///PATH or postgresql://HOST/DATABASE. By default what TURNLOG_STORE says, else a"
            " file in your data folder.",
        ),
    ] = None
    json: Annotated[
        bool, Parameter(negative=(), help="Print JSON for programs: one value, or one a line for a list.")
    ] = False

    def open(self, *, create: bool = False, redact: bool = False, seals: Seals | None = None) -> TurnLog:
        """Open the log.

        Args:
            create: make the store if it does not exist. Commands that only read do not.
            redact: look for secrets in what is recorded, also where the environment does not say so.
            seals: the keys of what is sealed; by default those that the environment names.

        Raises:
            UsageError: there is no store, or the environment asks for redaction hooks that there are not.
            RedactionError: what finds secrets is not installed.
            StoreOpenError: what is there is not a store.
        """
        url = self.url
        path = parse_url(url)
        if not create and path is not None and not path.exists():
            raise UsageError(f"there is no store at {self.place!r}: `turnlog add TEXT` makes one")
        log = TurnLog.open(
            url,
            create=create,
            on_busy=_WaitingNote(),
            redact=redaction_hooks(asked=redact),
            seals=seals or default_seals(os.environ),
        )
        if create:
            try:
                from turnlog.cli.checkpointing import keep_checkpoints  # noqa: PLC0415 - reading needs none of it

                keep_checkpoints(log)
            except BaseException:
                log.close()
                raise
        return log

    def open_or_empty(self) -> TurnLog:
        """Open the log; where there is none yet, an empty one in memory, so that reading makes no store.

        Raises:
            StoreOpenError: what is there is not a store.
        """
        return TurnLog.open("memory://") if self.is_new else self.open()

    def record(
        self, act: Callable[[TurnLog], T], *, redact: bool = False, tell: Callable[[T], None] | None = None
    ) -> T:
        """Open the log, make the store if it does not exist, and record something.

        What a new store would refuse is refused before one is made.

        Args:
            act: records, and returns what.
            redact: as for `open`.
            tell: is told what was recorded before the log is closed: where checkpoints come by themselves, that takes
                as long as the places outside do.

        Raises:
            StoreOpenError: what is there is not a store.
            TurnlogError: as `act` raises them.
        """
        if self.is_new:
            with TurnLog.open("memory://", redact=redaction_hooks(asked=redact)) as empty:
                act(empty)
        with self.open(create=True, redact=redact) as log:
            done = act(log)
            if tell is not None:
                tell(done)
            return done

    @property
    def is_new(self) -> bool:
        """Whether there is no store yet: no file, or an empty one, or no log in the database.

        Raises:
            StoreOpenError: it cannot be looked there.
        """
        return is_new_store(self.url)

    @property
    def url(self) -> str:
        """The URL of the store.

        Raises:
            StoreOpenError: the option is there and empty.
        """
        return store_url(self.store)

    @property
    def place(self) -> str:
        """Where the store is, for people: its path, or its URL without what could be a password."""
        path = parse_url(self.url)
        return without_secrets(self.url) if path is None else str(path.absolute())


COMMON = Common()


class _WaitingNote:
    """Tells people once that an append waits for another process."""

    def __init__(self) -> None:
        self._said = False

    def __call__(self, _waited_s: float) -> None:
        if not self._said:
            self._said = True
            note("waiting for another process that writes to the store …")


class TurnArguments(TypedDict):
    """The arguments that `TurnLog.add_turn` and `TurnLog.add_document` have in common."""

    role: str
    continues: list[str] | None
    respond: bool
    bookmark: str | Literal[False] | None
    expected_head: str | Literal[False] | None
    inherited: dict[str, Any] | None
    cache: bool
    id: str | None
    subject: str | Literal[False] | None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """Where new turns go: what they continue, and which bookmark moves along."""

    continues: Annotated[
        tuple[str, ...],
        Parameter(
            alias="-c",
            completer=complete_bookmarks,
            negative=(),
            consume_multiple=False,
            help="The turn to continue, by id or bookmark. Give it again for each further parent.",
        ),
    ] = ()
    respond: Annotated[
        bool, Parameter(alias="-r", negative=(), help="Continue the turn that was recorded last in the log.")
    ] = False
    bookmark: Annotated[
        str | None,
        Parameter(
            alias="-b",
            completer=complete_bookmarks,
            help="The bookmark to move to this turn. By default one that is at the turn it continues.",
        ),
    ] = None
    no_bookmark: Annotated[bool, Parameter(negative=(), help="Move no bookmark.")] = False
    expected_head: Annotated[
        str | None,
        Parameter(
            help="Record only if the bookmark is at this turn id; `none`: only if there is no such bookmark yet.",
        ),
    ] = None
    subject: Annotated[
        str | None,
        Parameter(
            help="Whom it is about or of, so that all that is can be erased together. By default that of the turn it"
            " continues; '' for nobody."
        ),
    ] = None

    @property
    def moved_bookmark(self) -> str | Literal[False] | None:
        """The bookmark to move, as `TurnLog` takes it.

        Raises:
            UsageError: the options contradict each other.
        """
        if self.no_bookmark and self.bookmark is not None:
            raise UsageError("--bookmark and --no-bookmark contradict each other: give one of them")
        return False if self.no_bookmark else self.bookmark

    @property
    def wanted_head(self) -> str | Literal[False] | None:
        """Where the bookmark must be, as `TurnLog` takes it."""
        return False if self.expected_head == "none" else self.expected_head

    @property
    def named_subject(self) -> str | Literal[False] | None:
        """The subject, as `TurnLog` takes it."""
        return False if self.subject == "" else self.subject


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ThreadOptions:
    """Inherited options: they hold from this turn on."""

    servers: Annotated[
        tuple[str, ...] | None,
        Parameter(
            alias="--server",
            completer=complete_servers,
            negative=(),
            consume_multiple=False,
            help="MCP servers whose tools to offer from here on, by commas or one at a time. Empty ('') for none.",
        ),
    ] = None
    search: Annotated[bool | None, Parameter(help="Whether the provider may search, from here on.")] = None
    tool_mode: Annotated[str | None, Parameter(help="A provider's tool mode, from here on.")] = None

    @property
    def server_names(self) -> list[str] | None:
        """The names of the servers; None when the option was not given."""
        if self.servers is None:
            return None
        return [name.strip() for value in self.servers for name in value.split(",") if name.strip()]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TurnOptions(PlaceOptions):
    """What every new turn takes."""

    role: Annotated[str, Parameter(help="Who speaks: user (by default), assistant or system.")] = "user"
    inherited: Annotated[
        str | None,
        Parameter(help="Options to inherit down the thread, as a JSON object: merged by RFC 7396, null unsets."),
    ] = None
    cache: Annotated[bool, Parameter(negative=(), help="Ask the provider to cache up to this turn.")] = False
    id: Annotated[
        str | None, Parameter(help="The id to record it under. The same turn again returns the stored one.")
    ] = None

    def arguments(self) -> TurnArguments:
        """Return these options as arguments for `TurnLog`.

        Raises:
            UsageError: they contradict each other, or `--inherited` is no JSON object.
        """
        return TurnArguments(
            role=self.role,
            continues=list(self.continues) or None,
            respond=self.respond,
            bookmark=self.moved_bookmark,
            expected_head=self.wanted_head,
            inherited=None if self.inherited is None else json_object(self.inherited, "--inherited"),
            cache=self.cache,
            id=self.id,
            subject=self.named_subject,
        )


def topics_of(given: Sequence[str]) -> tuple[str, ...]:
    """Return topics that were given with `--topic`.

    Raises:
        UsageError: one of them is empty, which no topic is: nothing would be found.
    """
    if any(not topic.strip() for topic in given):
        raise UsageError("--topic is empty: give the name of a topic, such as gpt.turn")
    return tuple(given)


def json_object(text: str, option: str) -> dict[str, Any]:
    """Return the JSON object that was given with an option.

    Raises:
        UsageError: it is none.
    """
    try:
        value: object = msgspec.json.decode(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"{option} is not UTF-8") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{option} is not JSON ({error}): give an object such as '{{\"search\": true}}'") from error
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object, such as '{{\"search\": true}}'")
    return cast("dict[str, Any]", value)
