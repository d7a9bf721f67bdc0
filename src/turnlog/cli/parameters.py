"""Parameters of model calls on the command line: `--param NAME=VALUE`, and what a reply is to be: `--schema FILE`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from turnlog.agent.output import Output
from turnlog.cli.failures import UsageError
from turnlog.cli.json_text import value_of
from turnlog.errors import os_reason

_SECONDS_MAX = 1e6
"""No wait is longer; a file of MCP servers may say no more either."""


def parse_parameters(given: Sequence[str]) -> dict[str, Any]:
    """Return parameters by name. A value is JSON where it reads as JSON, else text.

    Raises:
        UsageError: one is not of the form NAME=VALUE, or is given twice, as a key in it may be.
    """
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"--param {text!r} is not of the form NAME=VALUE, such as max_tokens=1000")
        if name in found:
            raise UsageError(f"--param {name} is given twice")
        try:
            found[name] = value_of(value, f"--param {name}")
        except msgspec.DecodeError:
            found[name] = value
        except UnicodeEncodeError as error:
            raise UsageError(f"--param {name} is not UTF-8") from error
        except RecursionError as error:
            raise UsageError(f"--param {name} is nested too deeply") from error
    return found


def parse_schema(given: str) -> Output[Any]:
    """Return what a reply is to be from a JSON Schema: a file, or the JSON itself.

    Raises:
        UsageError: the file cannot be read, is not a JSON object, or has a key twice.
        MetaError: it is no JSON Schema.
    """
    is_text = given.lstrip().startswith("{") or (_is_json(given) and not _is_path(given))
    where = "--schema" if is_text else given
    try:
        text = given if is_text else Path(given).read_text(encoding="utf-8")
        schema = value_of(text, where)
    except OSError as error:
        raise UsageError(f"--schema {given!r}: {os_reason(error)}: give a file, or a JSON Schema itself") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise UsageError(f"{where}: it is no JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{where}: it is nested too deeply") from error
    if not isinstance(schema, dict):
        raise UsageError(f"{where}: expected a JSON Schema, a JSON object, got {type(schema).__name__}")
    return Output.of_schema(
        cast("dict[str, Any]", schema), name=None if is_text or "title" in schema else Path(given).stem
    )


def _is_json(given: str) -> bool:
    try:
        msgspec.json.decode(given)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True


def _is_path(given: str) -> bool:
    try:
        return Path(given).exists()
    except OSError:  # no file can have such a name, or nobody here may look
        return False


def seconds(timeout: float, option: str = "--timeout") -> float:
    """Return a number of seconds that can be waited.

    Raises:
        UsageError: it is none, or too large.
    """
    if not (math.isfinite(timeout) and timeout > 0):
        raise UsageError(f"{option} {timeout:g} is not a number of seconds above 0")
    if timeout > _SECONDS_MAX:
        raise UsageError(f"{option} {timeout:g} is more than {_SECONDS_MAX:,.0f} seconds")
    return timeout
