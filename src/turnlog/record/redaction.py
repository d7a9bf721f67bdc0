"""Redaction: hooks see content before it is stored, and what they find never gets into the log.

A hook is given one text at a time and says what to take out of it. Each finding becomes a typed marker such as
`[redacted: github-token]`, and how many there were of which kind is counted in the event's metadata. What was found is
not stored, not hashed and not repeated in an error.

`strings` walks through content, `runs` keeps texts that follow each other, `detectors` has the built-in hook.
`docs/how-to/keep-secrets-out.md` is for users.
"""

from __future__ import annotations

import binascii
import re
import threading
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar, cast

import msgspec
from msgspec import Struct

from turnlog.errors import RedactionError, SecretError
from turnlog.model import CallError, TurnMeta
from turnlog.record.drafts import TurnDraft
from turnlog.record.runs import Replacing, Runs
from turnlog.record.strings import look_at_strings

HOOK_TIMEOUT_S = 30.0
"""How long the hooks may take over one event, in seconds."""

SIGNATURE = "thinking-signature"
"""What is counted where thinking was redacted: its signature, which is that of the text as it was, goes with it."""

API_KEY = "api-key"
"""What is counted where a reply repeats the key that its call was sent with."""

API_KEY_BYTES_MIN = 8
"""Shorter ones, as people give local servers, stand in any text."""

_KIND = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_DATA_URL = re.compile(r"data:[^,]{0,200};base64,")
_SMALL_CHARACTERS = 4096
"""So short a base64 is also looked into as it stands: it may be none."""

_CLEAN_MAX = 200_000
_REFUSED = "a redaction hook found what must not enter the log"

T = TypeVar("T")


class Place(Struct, frozen=True, kw_only=True):
    """Where a text is about to be stored.

    Attributes:
        topic: topic of the event, such as `gpt.turn`.
        field: the text's place in it: `content[0].text`, `content[1].input.path`, `document_name`, `payload`, `error`.
            A key of an object is at `content[1].input (a key)`.
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
"""


def marker(kind: str) -> str:
    """Return what stands in the place of a finding."""
    return f"[redacted: {kind}]"


class Redaction:
    """The hooks of a log, and what they are applied to. Without hooks nothing is looked at."""

    def __init__(self, hooks: Sequence[Hook] = (), *, timeout_s: float | None = None) -> None:
        """Take the hooks, and how long they may take over one event; by default `HOOK_TIMEOUT_S`.

        Raises:
            RedactionError: one cannot be called.
        """
        for hook in hooks:
            if not callable(hook):
                raise RedactionError(f"redact: expected callables, got {type(hook).__name__}")
        self.hooks = tuple(hooks)
        self._timeout_s = HOOK_TIMEOUT_S if timeout_s is None else timeout_s
        self._limits_time = all(getattr(hook, "limits_time", False) is True for hook in hooks)
        self._clean: set[int] = set()

    def __bool__(self) -> bool:
        """Whether there are any hooks."""
        return bool(self.hooks)

    def with_key(self, key: str | None, texts: Iterable[bytes]) -> Redaction:
        """Return the hooks, and one more that finds a key wherever it stands, if one of these texts repeats it.

        Args:
            key: the key that a provider was asked with. One of less than `API_KEY_BYTES_MIN` bytes is not looked for.
            texts: all that is to be recorded.
        """
        sought = (key or "").encode()
        if key is None or len(sought) < API_KEY_BYTES_MIN or not any(sought in text for text in texts):
            return self

        def api_key(text: str, _: Place) -> Iterable[Found]:
            start = text.find(key)
            while start >= 0:
                yield Found(start=start, end=start + len(key), kind=API_KEY)
                start = text.find(key, start + len(key))

        return Redaction((*self.hooks, api_key), timeout_s=self._timeout_s)

    def turn(self, draft: TurnDraft) -> TurnDraft:
        """Return a turn as it is to be stored.

        Raises:
            RedactionError: a hook failed. What it saw is not repeated.
            SecretError: something was found where nothing can stand in its place: in an option, or in a name.
        """
        if not self.hooks:
            return draft
        return self._in_time(lambda: self._turn(draft))

    def reply(self, draft: TurnDraft, events: Sequence[bytes], error: CallError | None) -> Reply:
        """Return a reply as it is to be stored.

        If there was anything to take out of the turn, of the error or of a raw event, no raw event is kept: what was
        found may be spread over many.

        Raises:
            RedactionError, SecretError: as for `turn`.
        """
        if not self.hooks:
            return Reply(turn=draft, events=events, error=error, redacted=None)
        return self._in_time(lambda: self._reply(draft, events, error))

    def line(self, line: bytes, topic: str) -> tuple[bytes, list[tuple[str, str]]]:
        """Return a JSON text of somebody else's, and what was taken out of it: field and kind of each.

        Raises:
            RedactionError: a hook failed.
        """
        if not self.hooks:
            return line, []

        def act() -> tuple[bytes, list[tuple[str, str]]]:
            looking = _Looking(self, topic)
            return looking.content(line, ""), looking.findings

        return self._in_time(act)

    def refuse(self, topic: str, texts: Mapping[str, str | bytes], *, json: Mapping[str, bytes] | None = None) -> None:
        """Raise if there is anything to take out of texts that cannot be changed.

        Args:
            topic: topic of the event.
            texts: texts by field; bytes that are no text are passed over.
            json: JSON texts by field.

        Raises:
            SecretError: there is; it names the field.
            RedactionError: a hook failed.
        """
        if not self.hooks:
            return

        def act() -> None:
            looking = _Looking(self, topic)
            for field, given in texts.items():
                text = given if isinstance(given, str) else _as_text(given)
                if text is not None:
                    looking.refuse(text, field)
            for field, given in (json or {}).items():
                look_at_strings(given, _Refusing(looking, self._clean), field)
            if len(self._clean) > _CLEAN_MAX:
                self._clean.clear()

        self._in_time(act)

    def _turn(self, draft: TurnDraft, looking: _Looking | None = None) -> TurnDraft:
        meta = draft.meta
        looking = looking or _Looking(self, "gpt.turn", meta.role)
        for field, name in (("bookmark", draft.bookmark), ("subject", draft.subject)):
            if isinstance(name, str):
                looking.refuse(name, field)
        if meta.inherited is not None:
            look_at_strings(msgspec.json.encode(meta.inherited), _Refusing(looking), "inherited")
        if meta.type == "document":
            payload = looking.document(draft.payload)
        else:
            payload = looking.content(draft.payload, "content")
        changed = _texts_of(meta, looking)
        if payload is not draft.payload and isinstance(meta.file_size, int):
            changed["file_size"] = len(payload)
        if looking.counts:
            changed["redacted"] = dict(sorted(looking.counts.items()))
        if looking.passed_over:
            changed["passed_over"] = looking.passed_over
        if not changed:
            return draft
        return msgspec.structs.replace(draft, payload=payload, meta=msgspec.structs.replace(meta, **changed))

    def _reply(self, draft: TurnDraft, events: Sequence[bytes], error: CallError | None) -> Reply:
        looking = _Looking(self, "gpt.turn", draft.meta.role)
        turn = self._turn(draft, looking)
        of_reply = _Looking(self, "gpt.reply")
        if error is not None:
            error = msgspec.structs.replace(error, message=of_reply.text(error.message, "error"))
        if events:
            of_reply.text(b"\n".join(events).decode(errors="replace"), "events")
        # What is in the turn is in the events too, often more than once.
        found = looking.counts or of_reply.counts
        if not found:
            return Reply(turn=turn, events=events, error=error, redacted=None)
        redacted = dict(sorted(found.items()))
        meta = msgspec.structs.replace(turn.meta, redacted=redacted)
        return Reply(turn=msgspec.structs.replace(turn, meta=meta), events=(), error=error, redacted=redacted)

    def apply(self, text: str, place: Place) -> tuple[str, list[str]]:
        """Return a text as the hooks leave it, and the kinds of what they took out.

        Raises:
            RedactionError: one failed.
        """
        kinds: list[str] = []
        for hook in self.hooks:
            found = _asked(hook, text, place)
            if found:
                text = _marked(text, found)
                kinds += [one.kind for one in found]
        return text, kinds

    def _in_time(self, act: Callable[[], T]) -> T:
        """Do something that calls the hooks, and give it up when it takes too long."""
        if self._limits_time:
            return act()
        outcome: list[T] = []
        failed: list[BaseException] = []

        def run() -> None:
            try:
                outcome.append(act())
            except BaseException as error:  # noqa: BLE001 - it is raised where the append was called
                failed.append(error)

        # A thread that hangs cannot be ended. As a daemon it does not keep the process from ending.
        thread = threading.Thread(target=run, name="turnlog-redaction", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if failed:
            raise failed[0]
        if not outcome:
            raise RedactionError(
                f"the redaction hooks took longer than {self._timeout_s:g} s and were given up: nothing was recorded"
            )
        return outcome[0]


NOTHING = Redaction()
"""No hooks: everything is stored as it is given."""


class Reply(Struct, frozen=True, kw_only=True):
    """A reply as it is to be stored: the turn, the raw events to keep, the error, and what was taken out of it."""

    turn: TurnDraft
    events: Sequence[bytes]
    error: CallError | None
    redacted: dict[str, int] | None


class _Looking:
    """Looks at the texts of one event, and counts."""

    def __init__(self, redaction: Redaction, topic: str, role: str | None = None) -> None:
        self.findings: list[tuple[str, str]] = []
        self.passed_over = 0
        self._redaction = redaction
        self._topic = topic
        self._role = role
        self._runs: Runs | None = None

    @property
    def counts(self) -> Counter[str]:
        return Counter(kind for _, kind in self.findings)

    def content(self, payload: bytes, field: str) -> bytes:
        """Return JSON without what is in one of its strings, or is spread over texts that follow each other."""
        findings, passed_over = len(self.findings), self.passed_over
        runs = self._runs = Runs()
        new = look_at_strings(payload, self, field)
        self._runs = None
        pieces: dict[int, str] = {}
        spread: list[tuple[str, str]] = []
        for run in runs.found():
            joined, kinds = self._joined([piece.text for piece in run], run[0].field)
            pieces |= {piece.number: text for piece, text in zip(run, joined, strict=True) if text != piece.text}
            spread += [(run[0].field, kind) for kind in kinds]
        if not pieces:
            return new
        # Once more, and what is spread goes first: of a string alone, the beginning of a secret may be taken for all.
        del self.findings[findings:]
        self.findings += spread
        self.passed_over = passed_over
        return look_at_strings(look_at_strings(payload, Replacing(pieces), field), self, field)

    def text(self, text: str, field: str) -> str:
        if self._runs is not None:
            self._runs.add(text, field)
        data = _DATA_URL.match(text)
        if data is not None:
            return data[0] + self.base64(text[data.end() :], field)
        return self._plain(text, field)

    def _plain(self, text: str, field: str) -> str:
        if not text:
            return text
        place = Place(topic=self._topic, field=field, role=self._role)
        text, kinds = self._redaction.apply(text, place)
        self.findings += [(field, kind) for kind in kinds]
        return text

    def _joined(self, texts: Sequence[str], field: str) -> tuple[list[str], list[str]]:
        """Return texts that follow each other as they are without what the hooks find in all of them, and its kinds."""
        place = Place(topic=self._topic, field=field, role=self._role)
        pieces, kinds = list(texts), list[str]()
        for hook in self._redaction.hooks:
            found = _asked(hook, "".join(pieces), place)
            pieces = cut_out(pieces, found)
            kinds += [one.kind for one in found]
        return pieces, kinds

    def base64(self, text: str, field: str) -> str:
        try:
            content = b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return self._plain(text, field)
        plain = _as_text(content)
        if plain is not None:
            new = self._plain(plain, field)
            return text if new == plain else b64encode(new.encode()).decode()
        if len(text) <= _SMALL_CHARACTERS:
            new = self._plain(text, field)
            if new != text:
                return b64encode(new.encode()).decode()
        self.passed_over += 1
        return text

    def document(self, payload: bytes) -> bytes:
        text = _as_text(payload)
        if text is None:
            self.passed_over += 1
            return payload
        new = self._plain(text, "payload")
        return payload if new == text else new.encode()

    def signature_removed(self, field: str) -> None:
        self.findings.append((field, SIGNATURE))

    def refuse(self, text: str, field: str) -> None:
        before = len(self.findings)
        self.text(text, field)
        if len(self.findings) > before:
            kind = self.findings[-1][1]
            raise SecretError(f"{field}: {_REFUSED} ({kind}): take it out, nothing was recorded", field=field)


class _Refusing:
    """Looks at texts that cannot be changed. What is known to be clean is not looked at again."""

    def __init__(self, looking: _Looking, clean: set[int] | None = None) -> None:
        self._looking = looking
        self._clean = clean

    def text(self, text: str, field: str) -> str:
        known = _known(text, field)
        if self._clean is None or known not in self._clean:
            self._looking.refuse(text, field)
            if self._clean is not None:
                self._clean.add(known)
        return text

    def base64(self, text: str, field: str) -> str:
        before = len(self._looking.findings)
        known = _known(text, field)
        if self._clean is None or known not in self._clean:
            self._looking.base64(text, field)
            if len(self._looking.findings) > before:
                kind = self._looking.findings[-1][1]
                raise SecretError(f"{field}: {_REFUSED} ({kind}): take it out, nothing was recorded", field=field)
            if self._clean is not None:
                self._clean.add(known)
        return text

    def signature_removed(self, field: str) -> None:
        """Nothing is changed, and so no signature is removed."""


def cut_out(pieces: Sequence[str], found: Sequence[Found]) -> list[str]:
    """Return texts without what was found in all of them together; a marker stands where a finding begins."""
    cut: list[str] = []
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
        cut.append("".join((*kept, piece[here - at :])))
        at = end
    return cut


def _known(text: str, field: str) -> int:
    """Return what to know a clean text by: with another name before it, it may be none."""
    return hash((text, field.rpartition(".")[2]))


_META_TEXTS = ("model", "model_asked", "raw_stop_reason", "document_name", "original_path", "error")


def _texts_of(meta: TurnMeta, looking: _Looking) -> dict[str, object]:
    """Return the texts of a turn's metadata that are to be others."""
    changed: dict[str, object] = {}
    for name in _META_TEXTS:
        text = getattr(meta, name)
        if isinstance(text, str) and (new := looking.text(text, name)) != text:
            changed[name] = new
    return changed


def _as_text(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def _asked(hook: Hook, text: str, place: Place) -> list[Found]:
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
    raise RedactionError(
        f"{place.field}: the redaction hook {_name(hook)} {broken}: nothing was recorded", field=place.field
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


def _marked(text: str, found: Sequence[Found]) -> str:
    pieces: list[str] = []
    at = 0
    for one in found:
        pieces += (text[at : one.start], marker(one.kind))
        at = one.end
    return "".join((*pieces, text[at:]))


def _name(hook: Hook) -> str:
    return getattr(hook, "__qualname__", None) or type(hook).__name__
