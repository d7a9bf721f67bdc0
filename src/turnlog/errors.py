"""The exceptions of turnlog: one tree, so that one `except` catches all.

```
TurnlogError
├── InputError              what was given cannot be recorded; nothing was written
│   ├── ContentError        a content block is malformed (`field` says where)
│   ├── MetaError           a field of the metadata is malformed (`field` says which)
│   ├── SecretError         an API key or the like was about to enter the log
│   ├── RedactionError      a redaction hook failed, or cannot be used
│   └── DocumentError       a document cannot be read or is too large
├── NotFoundError           nothing has this name
│   ├── UnknownTurnError    no turn has this id, and no bookmark this name
│   │   └── AmbiguousTurnError  several turns have ids that begin so
│   ├── UnknownBookmarkError
│   ├── UnknownCallError    no recorded model call has this id
│   ├── UnknownProviderError
│   ├── UnknownPointerError
│   ├── UnknownServerError  no MCP server is registered under this name
│   ├── UntrustedRegisterError  a register came with an import, and nobody has confirmed it
│   └── ErasedError         what was asked for was erased
│       └── SealedError     it is sealed, and its key is not here
├── ConflictError           the log has moved on or says otherwise; nothing was written
│   ├── HeadConflictError   the bookmark is not where the caller expected it
│   ├── IdConflictError     another event has this id
│   │   └── PositionTakenError  another event has this position in its stream
│   ├── ErasedSinceError    something of a window was erased since it was read
│   ├── ToolCallTakenError  another run has begun a tool call
│   └── BookmarkExistsError
├── FormatError             a file to import is not what it should be (`line` says where)
├── UnsupportedContentError a provider's api cannot carry a block (`provider`, `block`, `turn` say which)
├── ProviderError           a model call failed (`retryable` says whether to try again)
│   ├── MissingKeyError     no API key in the environment or the keyring
│   └── MissingPackageError the package that speaks to this provider is not installed
├── ProofError              a proof or a checkpoint does not prove what it should (the message says why)
├── PlaceError              a checkpoint could not be written to a place outside the store
├── SinkError               a sink did not take events (`retryable` says whether to try again)
├── SigningKeyError         a signing key is missing, malformed or cannot be kept
├── SealError               a sealing key is missing, malformed or cannot be kept
│   └── UnusableKeyError    one of them is damaged, or of another master key
├── HoldError               a legal hold refuses that something is erased
├── PluginError             what another package adds failed, or cannot be used (the message names the package)
├── ToolServerError         an MCP server cannot be started, reached or understood
├── RunError                a run cannot begin or go on
├── OutputError             what a model said is not the value that was asked for
└── StoreError              the store cannot do its work
    ├── StoreOpenError      no store there, not a store, or of a newer version
    ├── StoreReadOnlyError
    ├── StoreDeniedError    this role, or user, may not read it, or not a payload of it
    ├── StorageError        the storage of large payloads does not answer, or refuses
    ├── StoreFullError      no space left; nothing of the append was kept
    ├── StoreBusyError      another process held the write lock for too long
    │   └── StoreLostError  the connection to the server was lost
    ├── StoreClosedError
    ├── StoreCutError       a position beyond the end of the log: it was cut or rolled back
    ├── SchemaError         the tables of the store are not what they should be, or of a newer version
    ├── UncertainError      the disk failed when it may have been recorded already
    └── CorruptionError     the stored bytes are damaged; `turnlog verify` says where
```

Messages are lower case, name things with `!r` and say what the caller can do.
Errors of drivers and libraries never leave turnlog as they are: they are raised `from`.
Every error can be copied and pickled: it comes out of a process pool with its class, message and attributes.
"""

from __future__ import annotations

import errno


class TurnlogError(Exception):
    """Be the root of every exception that turnlog raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Say how to rebuild the error: its class, message and attributes, without its keyword arguments."""
        return _rebuilt, (type(self), self.args), self.__dict__ or None


def _rebuilt(kind: type[TurnlogError], args: tuple[object, ...]) -> TurnlogError:
    # `Exception` would call `__init__` with the message alone, which fails where that asks for more.
    return kind.__new__(kind, *args)


class InputError(TurnlogError):
    """Say that what was given cannot be recorded. Nothing was written."""


class ContentError(InputError):
    """Say that a content block is malformed.

    Attributes:
        field: path of the offending field, such as `content[0].text`.
    """

    def __init__(self, message: str, *, field: str = "content") -> None:
        super().__init__(message)
        self.field = field


class MetaError(InputError):
    """Say that a field of an event's metadata is malformed.

    Attributes:
        field: name of the offending field, such as `role`.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class SecretError(InputError):
    """Say that a secret was about to enter the log.

    Attributes:
        field: path of the offending field. The value itself is never repeated.
    """

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class RedactionError(InputError):
    """Say that a redaction hook failed, or cannot be used. What it saw, and what it said about it, is not repeated.

    Attributes:
        field: path of the text that it was to look into, or None.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class DocumentError(InputError):
    """Say that a document cannot be read or is larger than allowed."""


class NotFoundError(TurnlogError):
    """Say that nothing has the name that was asked for."""


class UnknownTurnError(NotFoundError):
    """Say that no turn has this id and no bookmark has this name.

    Attributes:
        headish: what was asked for.
    """

    def __init__(self, message: str, *, headish: str) -> None:
        super().__init__(message)
        self.headish = headish


class AmbiguousTurnError(UnknownTurnError):
    """Say that the beginning of an id is that of several turns.

    Attributes:
        candidates: ids of some of them, ascending.
    """

    def __init__(self, message: str, *, headish: str, candidates: tuple[str, ...]) -> None:
        super().__init__(message, headish=headish)
        self.candidates = candidates


class UnknownBookmarkError(NotFoundError):
    """Say that no bookmark has this name.

    Attributes:
        name: what was asked for.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class UnknownCallError(NotFoundError):
    """Say that no recorded model call has this id.

    Attributes:
        call: what was asked for.
    """

    def __init__(self, message: str, *, call: str) -> None:
        super().__init__(message)
        self.call = call


class UnknownProviderError(NotFoundError):
    """Say that there is no provider of this name.

    Attributes:
        name: what was asked for.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class UnknownPointerError(NotFoundError):
    """Say that there is no pointer of this name.

    Attributes:
        name: what was asked for.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class UnknownServerError(NotFoundError):
    """Say that no MCP server is registered under this name.

    Attributes:
        name: what was asked for.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class UntrustedRegisterError(NotFoundError):
    """Say that a register came with an import, and has no effect until somebody has seen and confirmed it.

    Attributes:
        name: what was asked for.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class ErasedError(NotFoundError):
    """Say that what was asked for was erased: its header stays, its content is gone.

    Attributes:
        event_id: the id of the erased event.
    """

    def __init__(self, message: str, *, event_id: str) -> None:
        super().__init__(message)
        self.event_id = event_id


class SealedError(ErasedError):
    """Say that what was asked for is sealed, and its key is not here: never given, or destroyed."""


class UnsupportedContentError(TurnlogError):
    """Say that a provider's api cannot carry something of a context window. Nothing was sent.

    Attributes:
        provider: the adapter's name.
        block: what cannot be carried: the type of a content block, `search`, `tools`, ….
        turn: the turn it is of, or None where it is the request as a whole.
    """

    def __init__(self, message: str, *, provider: str, block: str, turn: str | None = None) -> None:
        super().__init__(message)
        self.provider = provider
        self.block = block
        self.turn = turn


class ProviderError(TurnlogError):
    """Say that a provider refused a request, or could not be reached, or broke off its reply.

    Attributes:
        provider: the adapter's name.
        status: the HTTP status, or None where there was no reply.
        retryable: whether the same request may succeed later.
        retry_after_s: how long the provider asks to wait, in seconds, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class MissingKeyError(ProviderError):
    """Say that there is no API key for a provider, and where it is looked for."""


class MissingPackageError(ProviderError):
    """Say that the package that speaks to a provider is not installed, and which extra installs it."""


class ProofError(TurnlogError):
    """Say that a proof, a checkpoint or a signature does not prove what it should."""


class PlaceError(TurnlogError):
    """Say that a checkpoint could not be written to a place outside the store."""


class SinkError(TurnlogError):
    """Say that a sink did not take events. They are delivered again with the next run.

    Attributes:
        sink: the kind of sink, such as `webhook`.
        retryable: whether the same delivery may succeed later.
        retry_after_s: how long the destination asks to wait, in seconds, or None.
    """

    def __init__(self, message: str, *, sink: str, retryable: bool = False, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.sink = sink
        self.retryable = retryable
        self.retry_after_s = retry_after_s


class SigningKeyError(TurnlogError):
    """Say that a signing key is missing, malformed or cannot be kept."""


class SealError(TurnlogError):
    """Say that a sealing key is missing, malformed or cannot be kept, or that a log cannot be written without one."""


class UnusableKeyError(SealError):
    """Say that one sealing key is damaged, or was wrapped with another master key. The others may do."""


class HoldError(TurnlogError):
    """Say that a legal hold refuses that something is erased."""


class PluginError(TurnlogError):
    """Say that a class which another package adds failed, or cannot be used. The message names the package."""


class ToolServerError(TurnlogError):
    """Say that an MCP server cannot be started, reached or understood.

    Attributes:
        server: its name.
    """

    def __init__(self, message: str, *, server: str) -> None:
        super().__init__(message)
        self.server = server


class RunError(TurnlogError):
    """Say that a run cannot begin or go on. What was recorded before stays."""


class OutputError(TurnlogError):
    """Say that what a model said is not the value that was asked for."""


class ConflictError(TurnlogError):
    """Say that the log has moved on or holds something else. Nothing was written."""


class ErasedSinceError(ConflictError):
    """Say that something of a window was erased since it was read. Read it again: nothing was recorded."""


class ToolCallTakenError(ConflictError):
    """Say that another run has begun a tool call. It must not be made a second time."""


class HeadConflictError(ConflictError):
    """Say that a bookmark is not where the caller expected it.

    Attributes:
        bookmark: the bookmark, or None when the turn would move none.
        expected: the turn id that was expected, or None for "no such bookmark yet".
        actual: the turn id that the bookmark points at, or None if it does not exist.
    """

    def __init__(self, message: str, *, bookmark: str | None, expected: str | None, actual: str | None) -> None:
        super().__init__(message)
        self.bookmark = bookmark
        self.expected = expected
        self.actual = actual


class IdConflictError(ConflictError):
    """Say that another event has this id.

    Attributes:
        event_id: the id in question.
    """

    def __init__(self, message: str, *, event_id: str) -> None:
        super().__init__(message)
        self.event_id = event_id


class PositionTakenError(IdConflictError):
    """Say that another event has this position in its stream: the stream goes on another way."""


class BookmarkExistsError(ConflictError):
    """Say that a bookmark of this name exists already.

    Attributes:
        name: the bookmark.
    """

    def __init__(self, message: str, *, name: str) -> None:
        super().__init__(message)
        self.name = name


class FormatError(TurnlogError):
    """Say that a file to import is not what it should be. Nothing was written.

    Attributes:
        line: number of the offending line, from 1, or None when it is the file as a whole.
    """

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class StoreError(TurnlogError):
    """Say that the store cannot do its work. Nothing of the append was kept, unless it is an `UncertainError`."""


class StoreOpenError(StoreError):
    """Say that there is no store at a place, that it is not a store, or that it is of a newer version."""


class StoreReadOnlyError(StoreError):
    """Say that the store can be read and not written."""


class StoreDeniedError(StoreError):
    """Say that this role, or user, may not read the store or a payload of it. That says nothing of what is in it."""


class StorageError(StoreError):
    """Say that the storage of large payloads does not answer, or refuses. That says nothing of what is in it."""


class StoreFullError(StoreError):
    """Say that there is no space left for an append."""


class StoreBusyError(StoreError):
    """Say that another process held the store for too long. Trying again later may succeed."""


class StoreLostError(StoreBusyError):
    """Say that the connection to the server was lost, or none can be had: what was read may be read again."""


class StoreClosedError(StoreError):
    """Say that the store was closed, or was opened in another process."""


class StoreCutError(StoreError):
    """Say that a position lies beyond the end of the log: the log was cut, or an older copy was put in its place.

    Attributes:
        position: the global position that was asked for.
        end: the last global position of the log, 0 for an empty one.
    """

    def __init__(self, message: str, *, position: int, end: int) -> None:
        super().__init__(message)
        self.position = position
        self.end = end


class SchemaError(StoreError):
    """Say that the tables of the store are not what they should be, or of a newer version than this process knows."""


class UncertainError(StoreError):
    """Say that an append may be recorded or not: the disk failed at its end, or who recorded it was interrupted.

    Ask for the event by its id, or record it again under the same id: that writes nothing where it is there already.
    """


class CorruptionError(StoreError):
    """Say that stored bytes are damaged.

    Attributes:
        global_position: place of the damaged event in the log, or None when it is not known.
    """

    def __init__(self, message: str, *, global_position: int | None = None) -> None:
        super().__init__(message)
        self.global_position = global_position


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says of what there is no room for."""


def os_reason(error: Exception) -> str:
    """Return why something could not be done with a file, in the style of messages: `no space left on device`.

    What is no error of the system, as a path with a NUL in it, says it itself.
    """
    said = error.strerror if isinstance(error, OSError) else None
    return (said or str(error) or type(error).__name__).lower()


def tell_what_went_in(error: BaseException, went_in: str) -> None:
    """Add to an error, as a note, what was recorded before it: "nothing" is true of the last transaction alone."""
    if error.args and isinstance(error.args[0], str):
        error.args = (error.args[0].replace("; nothing was recorded", ""), *error.args[1:])
    error.add_note(went_in)


NO_THREAD = "no thread can be started: end some and try again"


def lacks_thread(error: BaseException) -> bool:
    """Tell whether an error is Python's for a thread that the system, or a limit of the user's, does not allow."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)
