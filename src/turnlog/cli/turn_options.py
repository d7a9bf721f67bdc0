"""Options of commands that record turns: where these go, what holds from there on, what is taken out of them.

Annotations are not postponed here: those of a dataclass that inherits fields would be read in the module of the heir.
"""

from typing import Annotated, Any, Literal, TypedDict

from cyclopts import Parameter

from turnlog.cli.completing import complete_bookmarks, complete_servers
from turnlog.cli.failures import UsageError
from turnlog.cli.options import json_object
from turnlog.cli.usage import options


@options
class RedactOptions:
    """What is taken out of content before it is recorded."""

    redact: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Take API keys and tokens of well-known formats out before anything is recorded. "
            "TURNLOG_REDACT=secrets does so in every command.",
        ),
    ] = False


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


@options
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


@options
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


@options
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
