"""The built-in redaction hook: finds API keys and tokens of well-known formats.

The rules are those of Kingfisher (the extra `redact`), which runs inside the process and without a network, together
with the forms that turnlog refuses everywhere (`secrets`). Nothing is found by its entropy alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from turnlog.errors import RedactionError
from turnlog.record.redaction import Found, Place
from turnlog.record.secrets import forms_in

if TYPE_CHECKING:
    from kingfisher_sdk import Finding, Scanner

PACKAGE = "kingfisher_sdk"
SCAN_TIMEOUT_S = 30.0
"""How long a large text may take. The time that a text takes grows with its length, two milliseconds for a megabyte."""

TIMED_BYTES_MIN = 1 << 20
"""Shorter texts are not timed, because to look at the clock takes longer than to look at them."""

_NOT_KIND = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"\.\d+$")
_SECRET_PART = re.compile(r"secret|passphrase|security-token")


class Secrets:
    """The hook. Safe to use from many threads; rules are loaded when the first text is looked into."""

    limits_time = True
    """It gives up by itself."""

    def __init__(self) -> None:
        """Check that the rules are there.

        Raises:
            RedactionError: the extra `redact` is not installed.
        """
        if find_spec(PACKAGE) is None:
            raise RedactionError("the rules to find secrets by are not installed: pip install 'turnlog[redact]'")
        self._loading = threading.Lock()
        self._scanner: Scanner | None = None

    def __call__(self, text: str, place: Place) -> list[Found]:  # noqa: ARG002 - a secret is one everywhere
        """Return the secrets in a text, in order. What two rules find is one, by the name that turnlog has for it."""
        # Stable: of two that begin alike, turnlog's own comes first and names the kind.
        spans = sorted([*_own(text), *self._by_rules(text)], key=lambda found: found.start)
        merged: list[Found] = []
        for found in spans:
            if merged and found.start < merged[-1].end:
                last = merged.pop()
                found = Found(start=last.start, end=max(last.end, found.end), kind=last.kind)  # noqa: PLW2901
            merged.append(found)
        return merged

    def _by_rules(self, text: str) -> Iterator[Found]:
        encoded = text.encode()
        timeout = SCAN_TIMEOUT_S if len(encoded) >= TIMED_BYTES_MIN else None
        for finding in self._loaded().scan(encoded, timeout=timeout):
            if finding.visible or _is_secret_part(finding):
                place = finding.location
                start, end = place["start_offset"], place["end_offset"]
                if len(encoded) > len(text):  # offsets count bytes
                    start, end = len(encoded[:start].decode()), len(encoded[:end].decode())
                yield Found(start=start, end=end, kind=_kind(finding.rule_id))

    def _loaded(self) -> Scanner:
        with self._loading:
            if self._scanner is None:
                # It takes a while to import, and longer to load.
                from kingfisher_sdk import Scanner  # noqa: PLC0415 - an extra

                self._scanner = Scanner()
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


def _is_secret_part(finding: Finding) -> bool:
    """Tell whether what counts for Kingfisher only together with another part is a secret by itself."""
    return _SECRET_PART.search(finding.rule_id.rpartition("/")[2]) is not None and not finding.rule_id.endswith("-id")


def _kind(rule_id: str) -> str:
    """Return the name of a rule without where it comes from: `github-pat` of `betterleaks.github-pat`."""
    name = _NUMBER.sub("", rule_id).rpartition("/")[2].rpartition(".")[2]
    return _NOT_KIND.sub("-", name.lower()).strip("-")[:60] or "secret"
