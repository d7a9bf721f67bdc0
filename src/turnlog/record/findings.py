"""What redaction hooks are, what they find, and how it is taken out of texts."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import cast

from msgspec import Struct

from turnlog.errors import RedactionError
from turnlog.record.long_texts import LongText, Text

HOOK_TIMEOUT_S = 30.0
"""How long the hooks may take over one event, in seconds."""

CHARACTERS_PER_S = 1_000_000
"""How many characters of a long text a hook that limits its own time must get through in each further second."""

_KIND = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")


class Place(Struct, frozen=True, kw_only=True):
    """Where a text is about to be stored.

    Attributes:
        topic: topic of the event, such as `gpt.turn`.
        field: the text's place in it: `content[0].text`, `content[1].input.path`, `document_name`, `payload`, `error`,
            `provider`. A key of an object is at `content[1].input (a key)`; the raw events of a reply are one text,
            `events`, in which strings stand as what they say.
        role: of turns, who speaks.
    """

    topic: str
    field: str
    role: str | None = None


class Found(Struct, frozen=True, kw_only=True):
    """What a hook has found in a text.

    Attributes:
        start: index of its first character.
        end: index behind its last character.
        kind: what it is, for the marker and the count: 1 to 60 of `a` to `z`, digits and `-`, such as `github-token`.
    """

    start: int
    end: int
    kind: str


Hook = Callable[[str, Place], Iterable[Found]]
"""Looks into a text and returns what to take out of it, in any order.

It MUST be safe to call from many threads, and SHOULD say the same of the same text each time: an append that is
repeated under its id is recognised by what it becomes. Findings MUST lie in the text, have at least one character, and
not overlap. A hook that raises, breaks this or takes too long makes the append fail: nothing is recorded.
Of several hooks each sees what the one before it has left.

A hook with an attribute `limits_time` that is true gives up by itself, and is called in the thread of the append.
Others are given up after `HOOK_TIMEOUT_S`.

A hook with an attribute `reach`, a number of characters, is given a text of more than two million in pieces that
overlap, so that there is no Python string of all of it. Whether something is found MUST depend on nothing that stands
farther away from where it begins; what reaches the end of a piece is looked for in the whole text.
"""


def marker(kind: str) -> str:
    """Return what stands in the place of a finding."""
    return f"[redacted: {kind}]"


def cut_out(pieces: Iterable[str], found: Sequence[Found]) -> Iterator[str]:
    """Iterate over texts without what was found in all of them together; a marker stands where a finding begins."""
    pending = deque(found)
    at = 0
    for piece in pieces:
        end, kept, here = at + len(piece), list[str](), at
        while pending and pending[0].start < end:
            one = pending[0]
            kept += (piece[here - at : max(one.start, at) - at], marker(one.kind) if one.start >= at else "")
            here = min(one.end, end)
            if one.end > end:
                break
            pending.popleft()
        yield "".join((*kept, piece[here - at :]))
        at = end


def asked(hook: Hook, text: Text, place: Place) -> list[Found]:
    """Return what a hook has found, in order: a long text is shown in pieces to a hook with a reach.

    Raises:
        RedactionError: it failed, or its findings cannot be used.
    """
    if isinstance(text, str):
        return _found_in(hook, text, place)
    reach = getattr(hook, "reach", None)
    found = None if reach is None else _found_in_stretches(hook, text, place, reach)
    return _found_in(hook, str(text), place) if found is None else found


def _found_in_stretches(hook: Hook, text: LongText, place: Place, reach: int) -> list[Found] | None:
    """Return what a hook has found in the stretches of a text; None where something does not end in its own.

    Two stretches share twice the reach. What begins in the first half is found in the one before, what begins in the
    other in the one behind it: in both there is the reach around it.
    """
    found: list[Found] = []
    began = monotonic()
    for start, stretch, is_last in text.stretches(2 * reach):
        timeout_s = HOOK_TIMEOUT_S + start / CHARACTERS_PER_S
        if monotonic() - began > timeout_s:
            raise _failed(hook, place, f"took longer than {timeout_s:.0f} s")
        first, end = reach if start else 0, len(stretch) if is_last else len(stretch) - reach
        for one in _found_in(hook, stretch, place):
            if not first <= one.start < end:
                continue
            if one.end == len(stretch) and not is_last:
                return None
            here = Found(start=start + one.start, end=start + one.end, kind=one.kind)
            if found and here.start < found[-1].end:  # in its own stretch it was part of what begins before
                before = found.pop()
                here = Found(start=before.start, end=max(before.end, here.end), kind=before.kind)
            found.append(here)
    return found


def without(text: Text, found: Sequence[Found]) -> Text:
    """Return a text with a marker in the place of each finding; the same text where there is none."""
    if not found:
        return text
    if isinstance(text, str):
        return "".join(cut_out((text,), found))
    return LongText(lambda: cut_out(text.pieces(), found))


def _found_in(hook: Hook, text: str, place: Place) -> list[Found]:
    """Return what a hook has found, in order.

    Raises:
        RedactionError: it failed, or its findings cannot be used.
    """
    found: list[Found] = []
    broken = None
    try:
        found = sorted(hook(text, place), key=lambda one: one.start)
    except Exception as error:  # noqa: BLE001 - whatever it is, it may repeat the text: only its name is told
        broken = f"failed ({type(error).__name__})"
    else:
        broken = _broken(found, len(text))
    if broken is None:
        return found
    # Not in the `except`: the hook's own error, which may repeat the text, does not come along.
    raise _failed(hook, place, broken)


def _failed(hook: Hook, place: Place, how: str) -> RedactionError:
    return RedactionError(
        f"{place.field}: the redaction hook {_name(hook)} {how}: nothing was recorded", field=place.field
    )


def _broken(found: Sequence[object], length: int) -> str | None:
    """Return what is wrong with findings in a text of this length, None for nothing."""
    at = 0
    for one in found:
        if not isinstance(one, Found) or type(cast("object", one.start)) is not int:
            return "returned what is no finding"
        if type(cast("object", one.end)) is not int or not 0 <= one.start < one.end <= length:
            return "returned a finding that is not in the text"
        if one.start < at:
            return "returned findings that overlap"
        if not isinstance(cast("object", one.kind), str) or not _KIND.fullmatch(one.kind):
            return "returned a finding whose kind is not 1 to 60 of a-z, 0-9 and -"
        at = one.end
    return None


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", None) or type(hook).__name__
