"""What was changed in a context window before a model was asked: kept with the call, so that it can be made again."""

# Annotations are not put off here: msgspec would compile each one of them again, in every process.

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Raw, Struct

from turnlog.errors import ContentError
from turnlog.model.blocks import parse_content
from turnlog.model.erased import is_erased_content
from turnlog.model.json_text import UNREADABLE
from turnlog.model.plain import plain_json
from turnlog.model.shown import shown
from turnlog.model.tools import ABSENT
from turnlog.model.window import ContextWindow, Message


class AddedMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message that a window has in place of others.

    Attributes:
        turn: the turn of the window that it is of; not there where it is of none.
        role: who speaks; not there where it is that turn's message as it is. So with all below.
        content: its content blocks; no text where it is not there.
        cache: whether the provider is asked to cache up to here.
        model: the model that it is of.
        provider: its provider.
        api: its api.
        model_asked: the model that was asked, where that is another name than `model`.
    """

    turn: str | None = None
    role: Literal["user", "assistant", "system"] | None = None
    content: Raw = ABSENT
    cache: bool = False
    model: str | None = None
    provider: str | None = None
    api: str | None = None
    model_asked: str | None = None

    __repr__ = shown


class WindowChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a window differs from that of its turn: one run of messages has others in its place.

    Attributes:
        at: index of the first message that is replaced, from 0.
        removed: how many are.
        added: those in their place, oldest first.
        options: all options, where they are others.
    """

    at: int = 0
    removed: int = 0
    added: tuple[AddedMessage, ...] = ()
    options: dict[str, Any] | None = None


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(WindowChange)


def encode_change(change: WindowChange) -> bytes:
    """Return a change as JSON.

    Raises:
        ContentError: it is none, JSON cannot carry it, or the content of a message is no content.
    """
    if not isinstance(change, WindowChange):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ContentError(f"window: expected WindowChange, got {type(change).__name__}", field="window")
    plain_json(change.options, "window.options", ContentError)
    added = cast("object", change.added)
    if not isinstance(added, tuple):
        kind = type(added).__name__
        raise ContentError(f"window.added: expected a tuple of AddedMessage, got {kind}", field="window.added")
    for index, message in enumerate(cast("tuple[object, ...]", added)):
        _check_added(message, f"window.added[{index}]")
    try:
        text = _encoder.encode(change)
        read = _decoder.decode(text)
    except (*UNREADABLE, TypeError, ValueError) as error:
        raise ContentError(f"window: it cannot be recorded: {error}", field="window") from error
    if read.at < 0 or read.removed < 0:
        raise ContentError(f"window: messages are counted from 0, got at={read.at}, removed={read.removed}")
    return text


def _check_added(message: object, field: str) -> None:
    """Check that the content of a message is a text by itself: it is spliced in, and could go on with what follows.

    Raises:
        ContentError: it is not.
    """
    if not isinstance(message, AddedMessage):
        raise ContentError(f"{field}: expected AddedMessage, got {type(message).__name__}", field=field)
    content = cast("object", message.content)
    if not isinstance(content, Raw):
        raise ContentError(f"{field}.content: expected msgspec.Raw, got {type(content).__name__}", field=field)
    if content is not ABSENT:
        parse_content(bytes(content), field=f"{field}.content")


def decode_change(text: bytes) -> WindowChange:
    """Return the change behind JSON.

    Raises:
        ContentError: it is none.
    """
    try:
        return _decoder.decode(text)
    except UNREADABLE as error:
        raise ContentError(f"the change of a window cannot be read: {error}") from error


def change_between(window: ContextWindow, given: ContextWindow) -> WindowChange | None:
    """Return how a window differs from that of its turn, None where it does not.

    Args:
        window: the window of the turn.
        given: the other one. A message of it that is of no turn of the window may have any text as its `turn`.

    Raises:
        ContentError: a message has a role or content that no message has, or the options are not JSON.
    """
    check_window(given)
    before, after = list(window.messages), list(given.messages)
    shorter = min(len(before), len(after))
    start = next((i for i in range(shorter) if not _same(before[i], after[i])), shorter)
    end = next((i for i in range(shorter - start) if not _same(before[-1 - i], after[-1 - i])), shorter - start)
    of_turn = {message.turn: message for message in before}
    added = tuple(
        _added(message, of_turn, f"messages[{start + index}]")
        for index, message in enumerate(after[start : len(after) - end])
    )
    removed = len(before) - end - start
    options: dict[str, Any] | None = None
    if given.options is not window.options:
        plain = plain_json(given.options, "options", ContentError)
        # To Python 0, False and 0.0 are equal, and a request has them as they are spelled.
        options = None if _encoder.encode(plain) == _encoder.encode(window.options) else plain
    if not added and not removed and options is None:
        return None
    return WindowChange(at=start, removed=removed, added=added, options=options)


def changed_window(window: ContextWindow, change: WindowChange) -> ContextWindow:
    """Return a window as it is after a change.

    Raises:
        ContentError: the change is not one of this window.
    """
    before = window.messages
    if not 0 <= change.at <= change.at + change.removed <= len(before):
        raise ContentError(f"the change is of messages that the window of {len(before)} messages does not have")
    of_turn = {message.turn: message for message in before}
    added = [_message(each, of_turn, change.at + index) for index, each in enumerate(change.added)]
    messages = (*before[: change.at], *added, *before[change.at + change.removed :])
    options = window.options if change.options is None else change.options
    return msgspec.structs.replace(window, messages=messages, options=options, explanation=None)


def check_window(given: object) -> None:
    """Check that what a caller gave is a window of messages, as far as it is looked at before it is compared.

    Raises:
        ContentError: it is something else.
    """
    if not isinstance(given, ContextWindow):
        raise ContentError(f"expected a ContextWindow, got {type(given).__name__}: return the window, changed or not")
    messages, options = cast("object", given.messages), cast("object", given.options)
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ContentError(f"messages: expected a list of Message, got {type(messages).__name__}")
    if not isinstance(options, Mapping):
        raise ContentError(f"options: expected a record, got {type(options).__name__}")
    for index, message in enumerate(cast("Sequence[object]", messages)):
        if not isinstance(message, Message):
            raise ContentError(f"messages[{index}]: expected a Message, got {type(message).__name__}")
        if not isinstance(cast("object", message.turn), str):
            raise ContentError(f"messages[{index}].turn: expected str, got {type(message.turn).__name__}")
        if not isinstance(cast("object", message.content_json), bytes):
            kind = type(message.content_json).__name__
            raise ContentError(f"messages[{index}].content_json: expected bytes, got {kind}: encode it")


def _same(one: Message, other: Message) -> bool:
    """Tell whether two messages are equal; most often they are one."""
    return one is other or one == other


def _added(message: Message, of_turn: dict[str, Message], place: str) -> AddedMessage:
    own = of_turn.get(message.turn)
    turn = None if own is None else message.turn
    if own == message:
        return AddedMessage(turn=turn)
    if message.document_name != _name_of(turn, of_turn):
        raise ContentError(f"{place}.document_name: expected that of its turn, got {message.document_name!r}")
    if is_erased_content(message.content_json):
        raise ContentError(f"{place}: an erased turn can be left out or moved, and not be changed")
    if message.role not in ("user", "assistant", "system"):
        raise ContentError(f"{place}.role: {message.role!r} is unknown (one of user, assistant, system)")
    return AddedMessage(
        turn=turn,
        role=message.role,
        content=Raw(parse_content(message.content_json, field=f"{place}.content")),
        cache=message.cache,
        model=message.model,
        provider=message.provider,
        api=message.api,
        model_asked=message.model_asked,
    )


def _name_of(turn: str | None, of_turn: dict[str, Message]) -> str | None:
    own = None if turn is None else of_turn.get(turn)
    return None if own is None else own.document_name


def _message(added: AddedMessage, of_turn: dict[str, Message], index: int) -> Message:
    if added.role is None or not bytes(added.content):
        own = None if added.turn is None else of_turn.get(added.turn)
        if own is None:
            raise ContentError(f"the change names turn {added.turn!r}, which the window does not have")
        return own
    return Message(
        turn=f"messages[{index}]" if added.turn is None else added.turn,
        role=added.role,
        content_json=parse_content(bytes(added.content)),
        cache=added.cache,
        model=added.model,
        provider=added.provider,
        api=added.api,
        model_asked=added.model_asked,
        document_name=_name_of(added.turn, of_turn),
    )
