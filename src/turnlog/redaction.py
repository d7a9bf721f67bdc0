"""Redaction hooks: what to write one with, and the built-in one. See `turnlog.record.findings` for the contract.

`TurnLog.open(url, redact=[secrets()])` keeps API keys and tokens of well-known formats out of the log.
"""

from turnlog.record.detectors import secrets
from turnlog.record.findings import Found, Hook, Place

__all__ = ["Found", "Hook", "Place", "secrets"]
