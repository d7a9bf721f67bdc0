"""`turnlog keys`: make, list and export signing keys, and never print one."""

import os
import stat
from pathlib import Path

import pytest
from tests.cli.command import Command

from turnlog.audit.keys import FolderKeys
from turnlog.audit.notes import COSIGNATURE, SIGNATURE, Verifier

NAME = "example.com/log"


class KeylessCommand(Command):
    """The command where there is no keyring: no test comes near that of whoever runs it."""

    def environment(self, **changes: str) -> dict[str, str]:
        return super().environment(**{"PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring", **changes})


@pytest.fixture
def turnlog(tmp_path: Path) -> Command:
    """Give the command, with a store that does not exist yet."""
    return KeylessCommand(store=tmp_path / "log.db")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """Give the folder where the command keeps keys by itself, without a keyring."""
    return tmp_path / "data" / "turnlog" / "keys"


def secret(keys: Path, name: str = NAME) -> str:
    """Return the secret part of a key."""
    return FolderKeys(keys).load_key(name).skey.split("+", 4)[4]


def test_new_key_is_made_and_told(turnlog: Command, keys: Path) -> None:
    """Name, key id and place; the file is its owner's alone. The store is not touched."""
    outcome = turnlog.ok("keys", "new", "--name", NAME)
    signer = FolderKeys(keys).load_key(NAME)
    assert outcome.text == f"{NAME}  {signer.verifier.key_id.hex()}  {keys / 'example.com%2Flog.key'}\n"
    assert stat.S_IMODE((keys / "example.com%2Flog.key").stat().st_mode) == 0o600
    assert not turnlog.store.exists()


def test_name_without_its_option_is_understood_and_refused(turnlog: Command) -> None:
    """The line says which option is meant."""
    for command in ("new", "export"):
        line = turnlog.refused("keys", command, NAME)
        assert line.startswith(f"option --name is missing for 'keys {command}', did you mean --name {NAME}: see ")
    assert turnlog.refused("keys", "export").startswith("option --name is missing for 'keys export': give --name NAME")
    assert turnlog.refused("prove", "main").startswith("option --output is missing for 'prove': give --output OUTPUT")


def test_new_key_as_json(turnlog: Command, keys: Path) -> None:
    """With the verifier key, and without the other."""
    outcome = turnlog.ok("keys", "new", "--name", NAME, "--json")
    verifier = FolderKeys(keys).load_key(NAME).verifier
    assert outcome.json == {
        "name": NAME,
        "key_id": verifier.key_id.hex(),
        "place": str(keys / "example.com%2Flog.key"),
        "vkey": verifier.vkey,
    }


def test_folder_of_the_environment(turnlog: Command, tmp_path: Path) -> None:
    """It goes before all others, for every command."""
    folder = tmp_path / "mine"
    turnlog.ok("keys", "new", "--name", NAME, TURNLOG_KEYS_DIR=str(folder))
    assert [path.name for path in folder.iterdir()] == ["example.com%2Flog.key"]
    assert turnlog.ok("keys", "list", "--json", TURNLOG_KEYS_DIR=str(folder)).json_lines[0]["name"] == NAME
    assert "no signing keys yet" in turnlog("keys", "list").stderr


def test_keys_are_listed_by_name(turnlog: Command, keys: Path) -> None:
    """With their ids and places; one that cannot be read, with the reason."""
    for name in ("b", "a", "c"):
        turnlog.ok("keys", "new", "--name", name)
    (keys / "c.key").chmod(0o644)
    listed = turnlog.ok("keys", "list", "--json").json_lines
    ids = {name: FolderKeys(keys).load_key(name).verifier.key_id.hex() for name in "ab"}
    assert listed[:2] == [
        {"name": name, "key_id": ids[name], "place": str(keys / f"{name}.key"), "problem": None} for name in "ab"
    ]
    assert (listed[2]["name"], listed[2]["key_id"]) == ("c", None)
    assert "is not its owner's alone (mode 644)" in listed[2]["problem"]
    lines = turnlog.ok("keys").text.splitlines()
    assert lines[:2] == [f"{name}  {ids[name]}  {keys / f'{name}.key'}" for name in "ab"]
    assert lines[2].startswith("c  ?         the key file")


def test_no_keys_yet(turnlog: Command) -> None:
    """It says how to make one."""
    outcome = turnlog("keys", "list")
    assert (outcome.status, outcome.text) == (0, "")
    assert outcome.stderr == "turnlog: no signing keys yet: `turnlog keys new --name NAME` makes one\n"
    assert turnlog.ok("keys", "list", "--json").text == ""
    elsewhere = turnlog("keys", TURNLOG_KEYS_DIR="/none/k")
    assert elsewhere.stderr == "turnlog: no signing keys yet in /none/k: `turnlog keys new --name NAME` makes one\n"


def test_verifier_keys_are_exported(turnlog: Command, keys: Path) -> None:
    """One line, for logs or for witnesses; both of the one key."""
    turnlog.ok("keys", "new", "--name", NAME)
    signer = FolderKeys(keys).load_key(NAME)
    for arguments, verifier in (((), signer.verifier), (("--witness",), signer.cosigner_verifier)):
        line = turnlog.ok("keys", "export", "--name", NAME, *arguments).text
        assert Verifier.parse(line) == verifier
        assert turnlog.ok("keys", "export", "--name", NAME, *arguments, "--json").json == {
            "name": NAME,
            "key_id": verifier.key_id.hex(),
            "vkey": verifier.vkey,
        }
    assert (signer.verifier.kind, signer.cosigner_verifier.kind) == (SIGNATURE, COSIGNATURE)


def test_key_is_not_made_twice(turnlog: Command, keys: Path) -> None:
    """The first stays as it is."""
    turnlog.ok("keys", "new", "--name", NAME)
    before = secret(keys)
    assert turnlog.refused("keys", "new", "--name", NAME) == (
        f"there is a key '{NAME}' already ({keys / 'example.com%2Flog.key'}): give the new one another name"
    )
    assert secret(keys) == before


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("new", "--name", "a b"), "'a b' cannot be the name of a key"),
        (("new", "--name", ""), "'' cannot be the name of a key"),
        (("new",), "option --name is missing for 'keys new': give --name NAME"),
        (("new", "log", "--name", "log"), "unexpected argument 'log' for 'keys new'"),
        (("export", "--name", "log"), "there is no signing key 'log' in "),
        (("export",), "option --name is missing for 'keys export': give --name NAME"),
        (("remove",), "unexpected argument 'remove' for 'keys'"),
    ],
)
def test_bad_use_is_one_line(turnlog: Command, arguments: tuple[str, ...], line: str) -> None:
    """Which says what is wrong."""
    assert turnlog.refused("keys", *arguments).startswith(line)


def test_no_private_key_is_ever_printed(turnlog: Command, keys: Path) -> None:
    """By no command, in no form, not where it fails either."""
    outcomes = [turnlog("keys", "new", "--name", NAME), turnlog("keys", "new", "--name", "other", "--json")]
    secrets = [secret(keys), secret(keys, "other")]
    damaged = keys / "damaged.key"
    damaged.write_text(f"PRIVATE+KEY+damaged+00000000+{secrets[0]}\n")
    damaged.chmod(0o600)
    for arguments in (("list",), ("new", "--name", NAME), *(("export", "--name", name) for name in (NAME, "damaged"))):
        for more in ((), ("--json",)):
            outcomes.append(turnlog("keys", *arguments, *more, TURNLOG_TRACEBACK="1"))
    outcomes += [turnlog("keys", "export", "--name", NAME, "--witness")]
    for outcome in outcomes:
        assert "PRIVATE" not in outcome.text + outcome.stderr
        assert not any(each in outcome.text + outcome.stderr for each in secrets)


def test_key_that_is_made_is_kept_when_nobody_can_be_told(turnlog: Command, keys: Path) -> None:
    """The line says that it is there."""
    if not os.path.exists("/dev/full"):  # noqa: PTH110 - a device
        pytest.skip("there is no /dev/full here")
    outcome = turnlog.into("/dev/full", "keys", "new", "--name", NAME)
    assert outcome.status == 2
    assert outcome.stderr.startswith(f"turnlog: the key '{NAME}' is made and kept, but that could not be printed")
    assert secret(keys)
