"""Parameters of model calls on the command line: `--param NAME=VALUE`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnlog.cli.failures import UsageError


def parse_parameters(given: Sequence[str]) -> dict[str, Any]:
    """Return parameters by name. A value is JSON where it reads as JSON, else text.

    Raises:
        UsageError: one is not of the form NAME=VALUE, or is given twice.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--param {text!r} is not of the form NAME=VALUE, such as max_tokens=1000")
        if name in found:
            raise UsageError(f"--param {name} is given twice")
        try:
            found[name] = msgspec.json.decode(value.encode())
        except msgspec.DecodeError:
            found[name] = value
        except UnicodeEncodeError as error:
            raise UsageError(f"--param {name} is not UTF-8") from error
    return found
