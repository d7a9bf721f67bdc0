"""Redaction: hooks see content before it is stored, and what they find never gets into the log.

A hook is given one text at a time and says what to take out of it. Each finding becomes a typed marker such as
`[redacted: github-token]`, and how many there were of which kind is counted in the event's metadata. What was found is
not stored, not hashed and not repeated in an error.

`strings` walks through content, `runs` keeps texts that follow each other, `long_texts` reads long ones in pieces,
`findings` says what hooks are and asks them, `detectors` has the built-in hook, `key_hook` that for a provider's key.
`docs/how-to/keep-secrets-out.md` is for users.
"""

from __future__ import annotations

import binascii
import re
import threading
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from turnlog.errors import RedactionError, SecretError
from turnlog.model import CONTENT_TYPE, STOP_REASONS, CallError, Origin, TurnMeta
from turnlog.model.api_keys import stands_out
from turnlog.model.pieces import decoded_text
from turnlog.record.drafts import TurnDraft
from turnlog.record.findings import HOOK_TIMEOUT_S, Hook, Place, asked, cut_out, without
from turnlog.record.key_hook import KeyHook
from turnlog.record.long_texts import LONG_BYTES, LongText, Text, joined, utf8_text
from turnlog.record.media import TOKEN
from turnlog.record.runs import Replacing, Runs
from turnlog.record.strings import as_read, look_at_strings

SIGNATURE = "thinking-signature"
"""What is counted where thinking was redacted: its signature, which is that of the text as it was, goes with it."""

_PARAMETER = rf'[ \t]*+;[ \t]*+{TOKEN}(?:=(?:{TOKEN}|"[^"\r\n]*+"))?'
_DATA_URL = re.compile(rf"data:(?:{TOKEN}/{TOKEN})?(?:{_PARAMETER})*[ \t]*+;base64,", re.IGNORECASE)
"""What comes before base64 in a data URL (RFC 2397 §3), with the blanks that media types often have in them."""

_BLANKS = b" \t\r\n\f\v"
_URL_ALPHABET = bytes.maketrans(b"-_", b"+/")
_SMALL_CHARACTERS = 4096
"""So short a base64 that is of no text is also looked into as it stands: it may be none."""

_CLEAN_MAX = 200_000
_REFUSED = "a redaction hook found what must not enter the log"

T = TypeVar("T")


class Redaction:
    """The hooks of a log, and what they are applied to. Without hooks nothing is looked at."""

    def __init__(self, hooks: Sequence[Hook] = (), *, timeout_s: float | None = None) -> None:
        """Take the hooks, and how long they may take over one event; by default `HOOK_TIMEOUT_S`.

        Raises:
            RedactionError: one cannot be called, or its reach is no number of characters.
        """
        for hook in hooks:
            if not callable(hook):
                raise RedactionError(f"redact: expected callables, got {type(hook).__name__}")
            reach = getattr(hook, "reach", None)
            if reach is not None and (type(reach) is not int or reach < 0):
                raise RedactionError(f"redact: the reach of a hook is {reach!r}: expected a number of characters")
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
            key: the key that a provider was asked with. One that does not stand out is not looked for.
            texts: all that is to be recorded: texts and JSON texts.
        """
        if not stands_out(key):
            return self
        hook = KeyHook(key)
        if not any(map(hook.is_in, texts)):
            return self
        return Redaction((*self.hooks, hook), timeout_s=self._timeout_s)

    def turn(self, draft: TurnDraft) -> TurnDraft:
        """Return a turn as it is to be stored, and without the key that was to be taken out of it.

        Raises:
            RedactionError: a hook failed. What it saw is not repeated.
            SecretError: something was found where nothing can stand in its place: in an option, in a name, or in the
                content type.
        """
        if draft.api_key is not None:
            keyless = msgspec.structs.replace(draft, api_key=None)
            return self.with_key(draft.api_key, _looked_at(keyless)).turn(keyless)
        if not self.hooks:
            return draft
        return self._in_time(lambda: self._turn(draft))

    def reply(self, draft: TurnDraft, events: Sequence[bytes], error: CallError | None) -> Reply:
        """Return a reply as it is to be stored, and its turn without the key that was to be taken out of all of it.

        If there was anything to take out of the turn, of the error or of a raw event, no raw event is kept: what was
        found may be spread over many.

        Raises:
            RedactionError, SecretError: as for `turn`.
        """
        if draft.api_key is not None:
            keyless = msgspec.structs.replace(draft, api_key=None)
            said = b"" if error is None else error.message.encode()
            return self.with_key(draft.api_key, (*_looked_at(keyless), said, *events)).reply(keyless, events, error)
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
            texts: texts by field; of bytes that are no text, what can be read of them.
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
                looking.refuse(given if isinstance(given, str) else _as_readable_text(given), field)
            for field, given in (json or {}).items():
                look_at_strings(given, _Refusing(looking, self._clean), field)
            if len(self._clean) > _CLEAN_MAX:
                self._clean.clear()

        self._in_time(act)

    def _turn(self, draft: TurnDraft, looking: _Looking | None = None) -> TurnDraft:
        meta = draft.meta
        looking = looking or _Looking(self, "gpt.turn", meta.role)
        content_type = None if meta.content_type == CONTENT_TYPE else meta.content_type
        names = (("bookmark", draft.bookmark), ("subject", draft.subject), ("content_type", content_type))
        for field, name in names:
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
            error = msgspec.structs.replace(error, message=str(of_reply.text(error.message, "error")))
        if events:
            of_reply.text("\n".join(map(as_read, events)), "events")
        # What is in the turn is in the events too, often more than once.
        found = looking.counts or of_reply.counts
        if not found:
            return Reply(turn=turn, events=events, error=error, redacted=None)
        redacted = dict(sorted(found.items()))
        meta = msgspec.structs.replace(turn.meta, redacted=redacted)
        return Reply(turn=msgspec.structs.replace(turn, meta=meta), events=(), error=error, redacted=redacted)

    def apply(self, text: Text, place: Place) -> tuple[Text, list[str]]:
        """Return a text as the hooks leave it, the same where they leave all, and the kinds of what they took out.

        Raises:
            RedactionError: one failed.
        """
        kinds: list[str] = []
        for hook in self.hooks:
            found = asked(hook, text, place)
            text = without(text, found)
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


def _looked_at(draft: TurnDraft) -> list[bytes]:
    """Return all that hooks look at in a turn: for `Redaction.with_key`."""
    names = (name for name in (draft.bookmark, draft.subject) if isinstance(name, str))
    return [draft.payload, msgspec.json.encode(draft.meta), *map(str.encode, names)]


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
        pieces: dict[int, Text] = {}
        spread: list[tuple[str, str]] = []
        for run in runs.found():
            joined, kinds = self._joined([piece.text for piece in run], run[0].field)
            pieces |= {piece.number: text for piece, text in zip(run, joined, strict=True) if text != str(piece.text)}
            spread += [(run[0].field, kind) for kind in kinds]
        if not pieces:
            return new
        # Once more, and what is spread goes first: of a string alone, the beginning of a secret may be taken for all.
        del self.findings[findings:]
        self.findings += spread
        self.passed_over = passed_over
        return look_at_strings(look_at_strings(payload, Replacing(pieces), field), self, field)

    def text(self, text: Text, field: str) -> Text:
        if self._runs is not None:
            self._runs.add(text, field)
        head = _DATA_URL.match(text if isinstance(text, str) else next(text.pieces(), ""))
        if head is None:
            return self._plain(text, field)
        said = str(text)
        new = str(self._plain(head[0], field)) + str(self.base64(said[head.end() :], field))
        return text if new == said else new

    def _plain(self, text: Text, field: str) -> Text:
        if not text:
            return text
        place = Place(topic=self._topic, field=field, role=self._role)
        text, kinds = self._redaction.apply(text, place)
        self.findings += [(field, kind) for kind in kinds]
        return text

    def _joined(self, texts: Sequence[Text], field: str) -> tuple[Sequence[Text], list[str]]:
        """Return texts that follow each other as they are without what the hooks find in all of them, and its kinds.

        Where nothing is found they are the same.
        """
        place = Place(topic=self._topic, field=field, role=self._role)
        kinds: list[str] = []
        for hook in self._redaction.hooks:
            found = asked(hook, joined(texts), place)
            if found:
                texts = list(cut_out(map(str, texts), found))
                kinds += [one.kind for one in found]
        return texts, kinds

    def base64(self, text: Text, field: str) -> Text:
        said = str(text)
        strict = _strict_base64(said)
        content = _lenient_base64(said) if strict is None else strict
        if content is None:
            return self._plain(text, field)
        plain = _as_text(content)
        looked_at: list[Text] = [] if plain is None else [plain]
        if strict is None or (plain is None and len(said) <= _SMALL_CHARACTERS):
            looked_at.append(text)  # as it stands, for it may be none
        for each in looked_at:
            new = self._plain(each, field)
            if new is not each:
                return b64encode(_encoded(new)).decode()
        self.passed_over += plain is None
        return text

    def document(self, payload: bytes) -> bytes:
        text = _as_text(payload)
        if text is None:
            self.passed_over += 1
            return payload
        new = self._plain(text, "payload")
        return payload if new is text else _encoded(new)

    def signature_removed(self, field: str) -> None:
        self.findings.append((field, SIGNATURE))

    def refuse(self, text: Text, field: str) -> None:
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

    def text(self, text: Text, field: str) -> Text:
        if not self._is_known(text, field):
            self._looking.refuse(text, field)
            self._note(text, field)
        return text

    def base64(self, text: Text, field: str) -> Text:
        before = len(self._looking.findings)
        if not self._is_known(text, field):
            self._looking.base64(text, field)
            if len(self._looking.findings) > before:
                kind = self._looking.findings[-1][1]
                raise SecretError(f"{field}: {_REFUSED} ({kind}): take it out, nothing was recorded", field=field)
            self._note(text, field)
        return text

    def signature_removed(self, field: str) -> None:
        """Nothing is changed, and so no signature is removed."""

    def _is_known(self, text: Text, field: str) -> bool:
        return self._clean is not None and isinstance(text, str) and _known(text, field) in self._clean

    def _note(self, text: Text, field: str) -> None:
        # A long text is looked at each time: to know it again it would have to be read, too.
        if self._clean is not None and isinstance(text, str):
            self._clean.add(_known(text, field))


def _known(text: str, field: str) -> int:
    """Return what to know a clean text by: with another name before it, it may be none."""
    return hash((text, field.rpartition(".")[2]))


_META_TEXTS = (
    "model",
    "model_asked",
    "provider",
    "api",
    "stop_reason",
    "raw_stop_reason",
    "document_name",
    "original_path",
    "error",
)


def _texts_of(meta: TurnMeta, looking: _Looking) -> dict[str, object]:
    """Return the texts of a turn's metadata that are to be others."""
    changed: dict[str, object] = {}
    for name in _META_TEXTS:
        text = getattr(meta, name)
        if name == "stop_reason" and text in STOP_REASONS:
            continue  # a word of turnlog's
        if isinstance(text, str) and (new := looking.text(text, name)) != text:
            changed[name] = new
    if meta.origin is not None and (origin := _origin(meta.origin, looking)) != meta.origin:
        changed["origin"] = origin
    return changed


def _origin(origin: Origin, looking: _Looking) -> Origin:
    """Return where a turn comes from as it is to be stored."""
    ids = [str(looking.text(each, f"origin.ids[{index}]")) for index, each in enumerate(origin.ids)]
    said = {name: getattr(origin, name) for name in ("format", "session", "timestamp", "message_id", "request_id")}
    texts = {name: str(looking.text(text, f"origin.{name}")) for name, text in said.items() if isinstance(text, str)}
    return msgspec.structs.replace(origin, ids=ids, **texts)


def _as_text(payload: bytes) -> Text | None:
    if len(payload) >= LONG_BYTES:
        return utf8_text(payload)
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def _as_readable_text(payload: bytes) -> Text:
    """Return bytes as text, with U+FFFD for what is no UTF-8."""
    text = _as_text(payload)
    if text is not None:
        return text
    if len(payload) >= LONG_BYTES:
        return LongText(lambda: decoded_text(payload, "replace"))
    return payload.decode(errors="replace")


def _strict_base64(text: str) -> bytes | None:
    """Return the bytes of which some base64 is, None where it is none (RFC 4648 §4), or not padded."""
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def _lenient_base64(text: str) -> bytes | None:
    """Do the same with base64 as others read it.

    Blanks may be in it, padding may be missing, it may have the alphabet of URLs (RFC 4648 §5) and escapes of these.
    """
    if not text.isascii():
        return None
    digits = unquote_to_bytes(text).translate(_URL_ALPHABET, _BLANKS).rstrip(b"=")
    try:
        return b64decode(digits + b"=" * (-len(digits) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _encoded(text: Text) -> bytes:
    if isinstance(text, str):
        return text.encode()
    file = BytesIO()
    file.writelines(text.utf8())
    return file.getvalue()  # the buffer itself, and not a copy of it
