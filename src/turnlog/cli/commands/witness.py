"""`turnlog witness`: serve a witness, which signs heads of logs that have only grown."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from turnlog.audit.keys import default_key_store
from turnlog.audit.notes import Verifier
from turnlog.audit.witness import Witness, WitnessServer, parse_log_keys
from turnlog.cli.failures import UsageError
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, go_on_unheard, note, write_json
from turnlog.cli.text import one_line
from turnlog.errors import SigningKeyError, os_reason

_KEYS_FILE_BYTES_MAX = 1_000_000


def witness(
    *,
    key: Annotated[str, Parameter(help="Name of the key to sign with: turnlog keys new --name NAME makes one.")],
    log: Annotated[
        tuple[Path, ...],
        Parameter(
            negative=(),
            consume_multiple=False,
            help="File with verifier keys of logs, one a line. Give it again for each further file.",
        ),
    ],
    state: Annotated[Path, Parameter(help="Folder that keeps what was signed last. Lose it, and the witness forgets.")],
    listen: Annotated[str, Parameter(help="HOST:PORT to listen at: 127.0.0.1:7380 by default.")] = "127.0.0.1:7380",
    common: Common = COMMON,
) -> None:
    """Serve a witness (C2SP tlog-witness) until Ctrl-C: it signs a head of a log if that has only grown.

    Run it where whoever writes the log cannot reach its key and its state folder. A verifier key is of the log whose
    origin is the key's name; below a line 'origin ORIGIN' in the file, of that one.
    """
    host, port = _address(listen)
    if state.exists() and not state.is_dir():
        raise UsageError(f"--state: {str(state)!r} is no folder")
    logs: dict[str, list[Verifier]] = {}
    for file in log:
        for origin, verifiers in _log_keys(file).items():
            logs.setdefault(origin, []).extend(verifiers)
    served = Witness(state, default_key_store(os.environ).load_key(key), logs)

    try:
        server = WitnessServer(served, host, port, told=note)
    except OSError as error:
        raise UsageError(f"cannot listen at {listen}: {os_reason(error)}") from error
    with server:
        go_on_unheard()
        if common.json:
            write_json({"url": server.url, "name": key, "vkey": served.verifier.vkey, "origins": list(logs)})
        else:
            Screen.of_stdout().line(("listening", "bold green"), f"  {server.url}  as ", (one_line(key), "cyan"))
        sys.stdout.flush()
        server.serve_forever()


def _address(listen: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{listen}")
        host, port = parts.hostname, parts.port
        (host or "").encode("idna")  # as it is for the system, which has no other names
    except ValueError:
        host, port = None, None
    if not host or port is None or re.search(r"[/?#@\s]", listen):
        raise UsageError(f"--listen {listen!r} is not of the form HOST:PORT, such as 127.0.0.1:7380")
    return host, port


def _log_keys(file: Path) -> dict[str, list[Verifier]]:
    """Return the keys in a file, by origin.

    Raises:
        UsageError: it has none, or something else.
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        content = opened.read(_KEYS_FILE_BYTES_MAX + 1)
    if len(content) > _KEYS_FILE_BYTES_MAX:
        raise UsageError(f"{str(file)!r} is no file of verifier keys: it is too large")
    try:
        found = parse_log_keys(content.decode())
    except (SigningKeyError, UnicodeDecodeError) as error:
        raise UsageError(f"{str(file)!r} is no file of verifier keys: {error}") from error
    if not found:
        raise UsageError(f"{str(file)!r} has no verifier key: `turnlog keys export --name NAME` prints one")
    return found
