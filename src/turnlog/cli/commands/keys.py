"""`turnlog keys`: make, list and export the keys that checkpoints are signed with. No private key is ever printed."""

from __future__ import annotations

import os
from typing import Annotated

from cyclopts import App, Parameter

from turnlog.audit.keys import FOLDER_VARIABLE, default_key_store
from turnlog.cli.options import COMMON, Common
from turnlog.cli.output import Screen, note, telling, write_json, write_json_lines
from turnlog.cli.text import one_line

app = App(
    name="keys", group_commands="Commands", help="Make, list and export the keys that checkpoints are signed with."
)

_Name = Annotated[str, Parameter(help="Name of the key: no blanks, no +; best a URL like example.com/log.")]


@app.default
def list_keys(*, common: Common = COMMON) -> None:
    """List the keys: name, key id, and where each is kept. No private key is printed."""
    entries = default_key_store(os.environ).list_keys()
    if common.json:
        write_json_lines(entries)
        return
    if not entries:
        folder = os.environ.get(FOLDER_VARIABLE)
        where = f" in {one_line(folder)}" if folder else ""
        note(f"no signing keys yet{where}: `turnlog keys new --name NAME` makes one")
        return
    Screen.of_stdout().table(
        [
            [
                (one_line(entry.name), "bold green"),
                (entry.key_id or "?", "yellow"),
                (one_line(entry.place), "dim") if entry.problem is None else (one_line(entry.problem), "red"),
            ]
            for entry in entries
        ]
    )


@app.command(name="list")
def list_(*, common: Common = COMMON) -> None:
    """List the keys by name."""
    list_keys(common=common)


@app.command
def new(*, name: _Name, common: Common = COMMON) -> None:
    """Make a key, and keep it in the keyring or in a file that only you may read. No key is ever overwritten.

    TURNLOG_KEYS_DIR names the folder of the files; without it, and without a keyring, it is in your data folder.
    Keep a copy where you keep other secrets: whoever has the key signs as you, and who loses it signs no more.
    """
    keys = default_key_store(os.environ)
    verifier = keys.new_key(name).verifier
    with telling(f"the key {name!r} is made and kept, but that could not be printed: see turnlog keys list"):
        key_id, place = verifier.key_id.hex(), keys.place_of(name)
        if common.json:
            write_json({"name": name, "key_id": key_id, "place": place, "vkey": verifier.vkey})
        else:
            Screen.of_stdout().line((one_line(name), "bold green"), "  ", (key_id, "yellow"), "  ", (place, "dim"))


@app.command
def export(
    *,
    name: _Name,
    witness: Annotated[
        bool, Parameter(negative=(), help="The verifier key for what it signs as a witness, not as a log.")
    ] = False,
    common: Common = COMMON,
) -> None:
    """Print the verifier key of a key, a line that others check its signatures with. It is no secret."""
    signer = default_key_store(os.environ).load_key(name)
    verifier = signer.cosigner_verifier if witness else signer.verifier
    if common.json:
        write_json({"name": name, "key_id": verifier.key_id.hex(), "vkey": verifier.vkey})
    else:
        Screen.of_stdout().text(verifier.vkey)
