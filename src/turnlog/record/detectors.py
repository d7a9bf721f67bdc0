"""The built-in redaction hook: finds API keys and tokens of well-known formats.

The rules are those of Kingfisher (the extra `redact`), which runs inside the process and without a network, and a few
beside them (`detectors.yaml`), together with the forms that turnlog refuses everywhere (`secrets`). Nothing is found by
its entropy alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from turnlog.errors import RedactionError
from turnlog.record.findings import Found, Place
from turnlog.record.secret_forms import FORM_CHARACTERS_MAX, forms_in
from turnlog.record.strings import SCHEMA_WORDS

if TYPE_CHECKING:
    from kingfisher_sdk import Finding, Scanner

PACKAGE = "kingfisher_sdk"
RULES = Path(__file__).with_suffix(".yaml")
"""Rules beside those of Kingfisher."""

SCAN_TIMEOUT_S = 30.0
"""How long a large text may take. The time that a text takes grows with its length, two milliseconds for a megabyte."""

TIMED_BYTES_MIN = 1 << 20
"""Shorter texts are not timed, because to look at the clock takes longer than to look at them."""

FOUND_MAX = 200
FOUND_CHARACTERS_MAX = 1 << 17
"""If turnlog itself finds more in a text than that, it is not shown to the rules: one may take half a millisecond."""

_NAME = re.compile(r"\.(?P<name>[A-Za-z_][\w -]{1,99})(?:\[\d+\])*$")
_NO_NAMES = frozenset(word[1:-1].decode() for word in SCHEMA_WORDS)
"""What content blocks call their members says nothing of a secret."""

_NOT_KIND = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"\.\d+$")
_SECRET_PART = re.compile(r"secret|passphrase|security-token")


class Secrets:
    """The hook. Safe to use from many threads; rules are loaded when the first text is looked into."""

    limits_time = True
    """It gives up by itself."""

    reach = FORM_CHARACTERS_MAX
    """The rules look at less than turnlog itself, which follows keys in PEM."""

    def __init__(self) -> None:
        """Check that the rules are there.

        Raises:
            RedactionError: the extra `redact` is not installed.
        """
        if find_spec(PACKAGE) is None:
            raise RedactionError("the rules to find secrets by are not installed: pip install 'turnlog[redact]'")
        self._loading = threading.Lock()
        self._scanner: Scanner | None = None

    def __call__(self, text: str, place: Place) -> list[Found]:
        """Return the secrets in a text, in order. What two rules find is one, by the name that turnlog has for it."""
        own = list(_own(text))
        # Stable: of two that begin alike, turnlog's own comes first and names the kind.
        spans = sorted([*own, *self._by_rules(_without(text, own), place)], key=lambda found: found.start)
        merged: list[Found] = []
        for found in spans:
            if merged and found.start < merged[-1].end:
                last = merged.pop()
                found = Found(start=last.start, end=max(last.end, found.end), kind=last.kind)  # noqa: PLW2901
            merged.append(found)
        return merged

    def _by_rules(self, text: str, place: Place) -> Iterator[Found]:
        # Many a rule knows a secret by the name before it, and the value of a member does not have its name in it.
        name = _NAME.search(place.field)
        before = "" if name is None or name["name"] in _NO_NAMES else f'"{name["name"]}": "'
        encoded = (f'{before}{text}"' if before else text).encode()
        timeout = SCAN_TIMEOUT_S if len(encoded) >= TIMED_BYTES_MIN else None
        findings = [
            finding
            for finding in self._loaded().scan(encoded, timeout=timeout)
            if finding.visible or _is_secret_part(finding)
        ]
        offsets = [(finding.location["start_offset"], finding.location["end_offset"]) for finding in findings]
        indices = _indices(encoded, offsets)
        for finding, (start, end) in zip(findings, offsets, strict=True):
            first, last = max(indices[start] - len(before), 0), min(indices[end] - len(before), len(text))
            if first < last:
                yield Found(start=first, end=last, kind=_kind(finding.rule_id))

    def _loaded(self) -> Scanner:
        with self._loading:
            if self._scanner is None:
                # It takes a while to import, and longer to load.
                from kingfisher_sdk import Rules, Scanner  # noqa: PLC0415 - an extra

                self._scanner = Scanner(Rules([RULES]))
            return self._scanner


def secrets() -> Secrets:
    """Return the hook that finds API keys and tokens of well-known formats.

    Raises:
        RedactionError: the extra `redact` is not installed.
    """
    return Secrets()


def _own(text: str) -> Iterator[Found]:
    for form in forms_in(text):
        yield Found(start=form.start, end=form.end, kind=form.kind)


def _without(text: str, own: Sequence[Found]) -> str:
    """Return a text with blanks in the place of what was found in it, if that is much."""
    if len(own) <= FOUND_MAX and sum(found.end - found.start for found in own) <= FOUND_CHARACTERS_MAX:
        return text
    pieces: list[str] = []
    at = 0
    for found in sorted(own, key=lambda found: found.start):
        start, end = max(found.start, at), max(found.end, at)
        pieces += (text[at:start], " " * (end - start))
        at = end
    return "".join((*pieces, text[at:]))


def _indices(encoded: bytes, offsets: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return by offset, in bytes, how many characters come before it."""
    indices: dict[int, int] = {}
    characters = at = 0
    for offset in sorted({offset for pair in offsets for offset in pair}):
        characters += len(encoded[at:offset].decode())
        indices[offset], at = characters, offset
    return indices


def _is_secret_part(finding: Finding) -> bool:
    """Tell whether what counts for Kingfisher only together with another part is a secret by itself."""
    return _SECRET_PART.search(finding.rule_id.rpartition("/")[2]) is not None and not finding.rule_id.endswith("-id")


def _kind(rule_id: str) -> str:
    """Return the name of a rule without where it comes from: `github-pat` of `betterleaks.github-pat`."""
    name = _NUMBER.sub("", rule_id).rpartition("/")[2].rpartition(".")[2]
    return _NOT_KIND.sub("-", name.lower()).strip("-")[:60] or "secret"
