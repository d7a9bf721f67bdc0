"""A webhook: batches of events by HTTP POST, signed as Standard Webhooks has it.

Source: Standard Webhooks 1.0.0 (headers `webhook-id`, `webhook-timestamp`, `webhook-signature`; symmetric `v1`).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import chain
from typing import Literal

import msgspec

from turnlog.errors import MetaError
from turnlog.feeds.sinks.interface import Batch, Place, Sink
from turnlog.feeds.sinks.posting import TIMEOUT_S, Poster, parse_endpoint
from turnlog.model.long_strings import json_pieces
from turnlog.store import Store
from turnlog.web_address import shown

EVENT_TYPE = "turnlog.events"

Form = Literal["json", "ndjson"]
"""How a batch is written: one JSON object, or one event a line."""

_LOGIN = "sign what is posted (TURNLOG_WEBHOOK_SECRET), or give a key in the query (?NAME=KEY), which is not kept"
_PREFIX = "whsec_"
_SECRET_BYTES = (24, 64)
"""How many bytes a secret has, at least and at most (Standard Webhooks, Signature scheme)."""


class Webhook(Sink):
    """An HTTP endpoint that batches of events are posted to. See `turnlog.feeds.sinks.webhook`."""

    kind = "webhook"
    wants_erasures = True
    keeps_batches = True
    batch_events = 100
    batch_bytes = 1024 * 1024

    def __init__(
        self,
        url: str,
        *,
        secrets: Sequence[str] = (),
        form: Form = "json",
        timeout_s: float = TIMEOUT_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Take the endpoint.

        Args:
            url: its URL.
            secrets: what to sign with, each `whsec_` and base64. Several while a secret is changed: each signs. None
                for no signature.
            form: `json`, one object for a batch, or `ndjson`, one event a line.
            timeout_s: how long it may take until an answer is there, in seconds: up to a day.
            now: the clock, in seconds since 1970.

        Raises:
            MetaError: the URL is none, or has a password in it; a secret is none; or `timeout_s` is out of bounds.
        """
        self._destination = shown(parse_endpoint(url, "url", instead=_LOGIN))
        self._secrets = [parse_secret(secret) for secret in secrets]
        self._form: Form = form
        self._now = now
        self._poster = Poster(self, url, timeout_s=timeout_s)

    @property
    def destination(self) -> str:
        """The URL without its query."""
        return self._destination

    def open(self, store: Store) -> Place | None:  # noqa: ARG002 - the endpoint knows nothing of it
        """Do nothing: a connection is made with the first batch."""
        return None

    def deliver(self, batch: Batch) -> None:
        """Post a batch. An answer of status 2xx says that the endpoint has it, whatever else it says."""
        body = list(_body(batch, self._form))
        timestamp = str(int(self._now()))
        headers = {
            "content-type": "application/x-ndjson" if self._form == "ndjson" else "application/json",
            "user-agent": "turnlog",
            "webhook-id": batch.key,
            "webhook-timestamp": timestamp,
        }
        if self._secrets:
            headers["webhook-signature"] = " ".join(
                signature(secret, batch.key, timestamp, body) for secret in self._secrets
            )
        self._poster.post(body, headers)

    def close(self) -> None:
        """Close the connection."""
        self._poster.close()


def parse_secret(secret: str) -> bytes:
    """Return the bytes of a signing secret.

    Raises:
        MetaError: it is none. It is not repeated.
    """
    how = "a signing secret is `whsec_` and the base64 of 24 to 64 bytes"
    if not secret.startswith(_PREFIX):
        raise MetaError(f"{how}: this one begins otherwise", field="secrets")
    try:
        value = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise MetaError(f"{how}: this one is no base64", field="secrets") from error
    least, most = _SECRET_BYTES
    if not least <= len(value) <= most:
        raise MetaError(f"{how}: this one has {len(value)}", field="secrets")
    return value


def signature(secret: bytes, id: str, timestamp: str, body: Iterable[bytes | memoryview]) -> str:
    """Return the `v1` signature of a message, whose body comes in pieces."""
    signed = hmac.new(secret, f"{id}.{timestamp}.".encode(), sha256)
    for piece in body:
        signed.update(piece)
    return f"v1,{base64.b64encode(signed.digest()).decode()}"


def _body(batch: Batch, form: Form) -> Iterable[bytes | memoryview]:
    """Return the body of a batch, in pieces where the content of an event is long."""
    if form == "ndjson":
        return chain.from_iterable(record.line() for record in batch.records)
    value = {
        "type": EVENT_TYPE,
        "timestamp": batch.records[-1].fields["time"],
        "data": {
            "log": batch.log,
            "first": batch.first,
            "last": batch.last,
            "events": [record.fields for record in batch.records],
        },
    }
    is_long = any(record.is_long for record in batch.records)
    return json_pieces(value) if is_long else (msgspec.json.encode(value),)
