"""Checks of what a caller gives for the fields of a turn. Each returns the field's stored form, or raises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

import msgspec

from turnlog.errors import MetaError
from turnlog.ids import is_id, no_name, parse_id
from turnlog.model import ROLES, ReplyFacts, ReplyFactsGiven, Usage
from turnlog.model.kinds import check_record, check_type, check_values
from turnlog.model.plain import INTEGER_MAX, plain_json, plain_text
from turnlog.record.secrets import refuse_secrets

NAME_CHARACTERS_MAX = 200
_NAMED_OPTIONS = {"search": bool, "tool_mode": str, "provider_ptr": str}


def check_role(role: str) -> Literal["user", "assistant", "system"]:
    """Return a role that is known."""
    plain = role if type(role) is str else check_type(role, str, "role")
    for known in ROLES:
        if plain == known:
            return known
    raise MetaError(f"role: {plain!r} is unknown (one of {', '.join(ROLES)})", field="role")


def check_usage(usage: Usage | Mapping[str, int] | None) -> Usage | None:
    """Return counts of tokens, all of them whole numbers from 0; they and their sum have at most 64 bits."""
    if usage is None:
        return None
    given = cast("object", msgspec.structs.asdict(usage) if isinstance(usage, Usage) else usage)
    if isinstance(given, Mapping):
        named = cast("Mapping[str, object]", plain_json(given, "usage", MetaError))
        counts = {name: count for name, count in named.items() if type(count) is int and count >= 0}
        if counts.keys() == named.keys() <= set(Usage.__struct_fields__):
            if sum(counts.values()) > INTEGER_MAX:
                raise MetaError("usage: the counts add up to more than 64 bits can hold", field="usage")
            return Usage(**counts)
    raise MetaError(f"usage: expected counts of {', '.join(Usage.__struct_fields__)}", field="usage")


class ReplyFields(TypedDict, total=False):
    """The metadata of a turn that a reply says of itself."""

    model: str | None
    provider: str | None
    api: str | None
    stop_reason: str | None
    raw_stop_reason: str | None
    usage: Usage | None
    error: str | None


def reply_facts(reply: ReplyFacts | None, facts: ReplyFactsGiven) -> ReplyFacts:
    """Return what a reply says of itself from arguments by their names.

    Raises:
        MetaError: a value is given too.
        TypeError: one of them has another name.
    """
    if reply is not None:
        raise MetaError(f"reply: it is given, and {', '.join(facts)} too: leave one of them out", field="reply")
    for name in facts:
        if name not in ReplyFacts.__struct_fields__:
            raise TypeError(f"add_turn() got an unexpected keyword argument {name!r}")
    return ReplyFacts(**facts)


def check_reply(reply: ReplyFacts) -> ReplyFields:
    """Return what a reply says of itself, each field of its type."""
    given = check_type(reply, ReplyFacts, "reply")
    return {
        "model": _text(given.model, "model"),
        "provider": _text(given.provider, "provider"),
        "api": _text(given.api, "api"),
        "stop_reason": _text(given.stop_reason, "stop_reason"),
        "raw_stop_reason": _text(given.raw_stop_reason, "raw_stop_reason"),
        "usage": check_usage(given.usage),
        "error": _text(given.error, "error"),
    }


def _text(value: str | None, field: str) -> str | None:
    return None if value is None else check_type(value, str, field)


def check_inherited(inherited: Mapping[str, Any] | None, named: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return options as plain JSON, those with an argument of their own put over the record.

    Raises:
        MetaError: the options are not JSON, or one of the known names has another type.
        SecretError: one looks like a secret.
    """
    if inherited is None and not named:
        return None
    options: dict[str, Any] = check_values(check_record(inherited, "inherited"), "inherited")
    options |= check_values(named, "inherited")
    if not options:
        return None
    servers: object = options.get("servers")
    if servers is not None and not (
        isinstance(servers, list) and all(type(name) is str for name in cast("list[object]", servers))
    ):
        raise MetaError("servers: expected a list of server names", field="inherited.servers")
    for name, expected in _NAMED_OPTIONS.items():
        if options.get(name) is not None:
            check_type(options[name], expected, f"inherited.{name}")
    refuse_secrets(options, field="inherited")
    return options


def check_continues(continues: str | Sequence[str] | None, *, respond: bool) -> tuple[str, ...]:
    """Return what a turn continues as a tuple of headishes."""
    if continues is None:
        return ()
    if respond:
        raise MetaError("respond: continues the last turn, so it goes without continues", field="respond")
    if not isinstance(continues, list | tuple):
        return (check_headish(continues, "continues"),)
    return tuple([check_headish(headish, "continues") for headish in continues])


def check_headish(value: object, field: str) -> str:
    """Return what names a turn, an id or a bookmark, as a plain text.

    Raises:
        MetaError: it is no text, or an empty one.
    """
    if not isinstance(value, str):
        raise no_name(value, field)
    if not value:
        raise MetaError(f"{field}: expected an id or a name, got an empty text", field=field)
    return plain_text(value, field, MetaError)


def check_bookmark(name: str | Literal[False] | None) -> str | Literal[False] | None:
    """Return the bookmark to move; False moves none, None leaves it to the parent."""
    return name if name is None or name is False else check_bookmark_name(name)


def check_bookmark_name(name: object, *, field: str = "bookmark") -> str:
    """Return a name if it can be that of a bookmark.

    Raises:
        MetaError: it is empty, too long, has blanks at its ends or control characters, or looks like a turn id.
    """
    text = check_name(name, field=field, what="bookmark")
    if is_id(text):
        raise MetaError(f"{field}: {text!r} looks like a turn id, which a bookmark must not", field=field)
    return text


def check_subject(subject: str | Literal[False] | None) -> str | Literal[False] | None:
    """Return a subject; False for nobody, None leaves it to the parent."""
    return subject if subject is None or subject is False else check_name(subject, field="subject")


def check_name(name: object, *, field: str, what: str = "name") -> str:
    """Return a name of something, such as a subject or a hold. One of a bookmark may be less: `check_bookmark_name`.

    Raises:
        MetaError: it is empty, too long, or has blanks at its ends or control characters.
    """
    text = check_type(name, str, field)
    if not may_be_name(text) or len(text) > NAME_CHARACTERS_MAX:
        raise MetaError(
            f"{field}: {text!r} cannot be a {what}"
            f" (1 to {NAME_CHARACTERS_MAX} printable characters, no blank at an end)",
            field=field,
        )
    return text


def may_be_name(text: str) -> bool:
    """Tell whether a text is one line with something on it, and no blank at an end. How long it is does not matter."""
    return bool(text) and text == text.strip() and text.isprintable()


def check_expected_head(expected: str | Literal[False] | None) -> str | Literal[False] | None:
    """Return the turn id that a bookmark is expected at, in stored form; None and False as they are."""
    if expected is None or expected is False:
        return expected
    return parse_id(check_type(expected, str, "expected_head"), field="expected_head")
