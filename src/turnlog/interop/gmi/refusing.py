"""Keys that stand in an input outside of `userApiKeys`: it is refused with them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from turnlog.errors import SecretError
from turnlog.interop.gmi.naming import shortened
from turnlog.model.api_keys import stands_out
from turnlog.record.secrets import refuse_secrets

_SAID = ("conversationHistoryForPrompt", "rollingSummary")
"""What was said before: that is for redaction hooks, as in all turns."""

_TOLD = ("capabilityDiscovery", "executionPolicy", "promptProfile", "userFeedback")
"""Of the metadata, what has names of its own for things, and none of a call's parameters."""

_WITH_KEYS = ("apikey", "apikeys", "apikeyoverride", "apikeyoverrides")
"""How names of keys end whatever their value is: a text, or a record or list of them."""

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SURE = frozenset(
    {"authorization", "credential", "credentials", "passphrase", "passwd", "password", "pwd", "secret", "token"}
)
"""Last words of names whose text is a secret."""

_DOUBTFUL = frozenset({"auth", "key"})
"""Last words of such names in the parameters of a call, and elsewhere of much else, as `issueKey` and `sortKey`."""

_RUN_TOGETHER = (
    *("accesskey", "accesstoken", "apitoken", "authkey", "authtoken", "authorization", "bearertoken", "clientsecret"),
    *("password", "privatekey", "refreshtoken", "secretkey", "sessiontoken"),
)
"""How such names end that are written without anything between the words."""

_HARMLESS = {
    "key": frozenset({"cache", "default", "foreign", "idempotency", "object", "partition", "primary", "public"})
    | {"routing", "sort"},
    "token": frozenset({"bos", "cls", "continuation", "cursor", "eos", "first", "last", "mask", "max", "min", "next"})
    | {"pad", "page", "sep", "special", "start", "stop", "sync", "unk"},
}
"""By the last word of a name, the words before it that make it the name of something else."""

_ANSWERS = frozenset(
    {"auto", "basic", "bearer", "false", "no", "none", "oauth", "oauth2", "off", "on", "optional", "required", "true"}
    | {"yes"}
)
"""Texts that say whether and how, and are no key."""

_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9+/=_.~-]{16,}")
_PLAIN_WORD = re.compile(r"(?:[A-Z]?[a-z]{1,14}|[A-Z]{1,15})[0-9]{0,4}|[0-9]{0,8}")
_BETWEEN_WORDS = re.compile(r"[^A-Za-z0-9]+")


def refuse_keys(stored: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Refuse an input that has something like a key in it.

    Args:
        stored: the input without `userApiKeys`, as JSON values.
        keys: the values of `userApiKeys`.

    Raises:
        SecretError: names the place; the value is not repeated.
    """
    long = list(filter(stands_out, keys))
    for place, text in _texts(stored, "input") if long else ():
        if any(key in text for key in long):
            raise _refused(place)
    checked = {name: value for name, value in stored.items() if name != "content"}
    called: dict[str, object] = {}
    if isinstance(checked.get("metadata"), dict):
        metadata = cast("dict[str, object]", checked["metadata"])
        checked["metadata"] = {name: value for name, value in metadata.items() if name not in _SAID}
        called = {name: value for name, value in metadata.items() if name not in (*_SAID, *_TOLD)}
    for place, name, value in _members_within(called.get("options"), "metadata.options"):
        if _letters(name).endswith(("header", "headers")) and _says_something(value):
            raise _refused(place)
    for place, name, value in _members_within(called, "input.metadata"):
        if _is_key(name, value, of_call=True):
            raise _refused(place)
    for place, name, value in _members_within(checked, "input"):
        if _is_key(name, value, of_call=False):
            raise _refused(place)
    refuse_secrets(checked, field="input")


def _refused(place: str) -> SecretError:
    return SecretError(
        f"{place}: looks like a key, and keys never enter the log: give it in metadata.userApiKeys,"
        " or name it otherwise if it is none",
        field=place,
    )


def _is_key(name: str, value: object, *, of_call: bool) -> bool:
    """Tell whether a member is a key by its name.

    Args:
        name: its name, in any spelling.
        value: its value.
        of_call: whether it stands among the parameters of a call, where a name is less often that of something else.
    """
    letters = _letters(name)
    if letters.endswith(_WITH_KEYS):
        return _says_something(value)
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    texts = [text for text in _texts_of(value) if text.strip().lower() not in _ANSWERS and text.strip()]
    if not words or not texts or (len(words) > 1 and words[-2] in _HARMLESS.get(words[-1], ())):
        return False
    if words[-1] in _SURE or letters.endswith(_RUN_TOGETHER) or (of_call and words[-1] in _DOUBTFUL):
        return True
    return letters.endswith((*_SURE, *_DOUBTFUL)) and any(map(_looks_random, texts))


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _says_something(value: object) -> bool:
    return value not in (None, "", {}, []) and not isinstance(value, bool | int | float)


def _texts_of(value: object) -> list[str]:
    """Return a text, or the texts of a list; nothing of all else."""
    values = cast("list[object]", value) if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]


def _looks_random(text: str) -> bool:
    """Tell whether a text is none of words and numbers, as keys are not."""
    return _RANDOM.fullmatch(text) is not None and not all(map(_PLAIN_WORD.fullmatch, _BETWEEN_WORDS.split(text)))


def _members_within(value: object, place: str) -> Iterator[tuple[str, str, object]]:
    """Yield the members of records at any depth: place, name and value of each."""
    for name, inner, inner_place in _members(value, place):
        if name:
            yield inner_place, name, inner
        yield from _members_within(inner, inner_place)


def _members(value: object, place: str) -> Iterator[tuple[str, object, str]]:
    match value:
        case Mapping():
            for name, inner in cast("Mapping[str, object]", value).items():
                yield name, inner, f"{place}.{shortened(name)}"
        case list():
            for index, inner in enumerate(cast("list[object]", value)):
                yield "", inner, f"{place}[{index}]"
        case _:
            pass


def _texts(value: object, place: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield place, value
    for name, inner, inner_place in _members(value, place):
        # The name may be the key: then its place is not told.
        yield place, name
        yield from _texts(inner, inner_place)
