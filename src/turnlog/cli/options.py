"""What every command takes, and what becomes of it: the log to open."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import msgspec
from cyclopts import Parameter

from turnlog.cli.failures import UsageError
from turnlog.cli.json_text import value_of
from turnlog.cli.opened import OpenedLog
from turnlog.cli.output import go_on_unheard, keep_for_programs, note
from turnlog.cli.redaction import redaction_hooks
from turnlog.cli.sealing import environment_seals
from turnlog.cli.stores import is_new_store, store_url
from turnlog.cli.usage import options
from turnlog.events import Seals
from turnlog.log import TurnLog
from turnlog.store.sqlite.opening import file_above
from turnlog.store.urls import is_postgres, parse_url
from turnlog.web_address import without_secrets

T = TypeVar("T")


@options
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

    def __post_init__(self) -> None:
        """Keep standard output for JSON where that is asked for, before anything of others is imported."""
        if self.json:
            keep_for_programs()

    def open(self, *, create: bool = False, redact: bool = False, seals: Seals | None = None) -> OpenedLog:
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
        if not create and path is not None and not Path(os.path.realpath(path)).exists() and file_above(path) is None:
            raise UsageError(f"there is no store at {self.place!r}: `turnlog add TEXT` makes one")
        if create and path is None and not is_postgres(url):
            note("memory:// lasts as long as this command: what it records is not kept")
        log = OpenedLog.open(
            url,
            create=create,
            on_busy=_WaitingNote(_WRITER if path is not None else _SERVER),
            redact=redaction_hooks(asked=redact),
            seals=seals or environment_seals(os.environ),
        )
        log.place = self.place
        if path is not None:
            # What appends has its own already: this is for the file beside the store.
            log.store.on_busy = _WaitingNote(_FOLDING)
        if create:
            go_on_unheard()  # it is there to record
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
        return self.empty() if self.is_new else self.open()

    def empty(self, *, redact: bool | None = None) -> OpenedLog:
        """Return an empty log in memory, in place of the one that there is not yet.

        Args:
            redact: as for `open`; None to look for no secrets at all.

        Raises:
            UsageError: the environment asks for redaction hooks that there are not.
            RedactionError: what finds secrets is not installed.
        """
        log = OpenedLog.open("memory://", redact=() if redact is None else redaction_hooks(asked=redact))
        log.place = self.place
        return log

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
            from turnlog.cli.trial import Trial  # noqa: PLC0415 - once for a store

            with Trial.open("memory://", redact=redaction_hooks(asked=redact)) as trial:
                trial.place = self.place
                act(trial)
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

_WRITER = "another process that writes to the store"
_FOLDING = "another process that writes to the store's file of projections"
_SERVER = "the store's server, or another process that writes"


class _WaitingNote:
    """Tells people once what is waited for: another process that writes, or a server that may not answer at all."""

    def __init__(self, what: str) -> None:
        """Take what is waited for."""
        self._what = what
        self._said = False

    def __call__(self, _waited_s: float) -> None:
        if not self._said:
            self._said = True
            note(f"waiting for {self._what} …")


def json_object(text: str, option: str) -> dict[str, Any]:
    """Return the JSON object that was given with an option.

    Raises:
        UsageError: it is none, or a key comes twice.
    """
    try:
        value = value_of(text, option)
    except UnicodeEncodeError as error:
        raise UsageError(f"{option} is not UTF-8") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{option} is not JSON ({error}): give an object such as '{{\"search\": true}}'") from error
    except RecursionError as error:
        raise UsageError(f"{option} is nested too deeply") from error
    if not isinstance(value, dict):
        raise UsageError(f"{option} must be a JSON object, such as '{{\"search\": true}}'")
    return cast("dict[str, Any]", value)
