"""`turnlog witness`: a real one in a process of its own, asked over HTTP."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.cli.command import TIMEOUT_S, Command
from tests.docs.pages import ROOT

from turnlog.audit.checkpoints import Checkpoint, open_checkpoint, sign, with_signatures
from turnlog.audit.keys import FolderKeys
from turnlog.audit.merkle import consistency_proof, leaf_hash, root
from turnlog.audit.notes import Signer
from turnlog.audit.witness import request_cosignature
from turnlog.errors import ProofError

LEAVES = [leaf_hash(bytes([number])) for number in range(9)]


class Setting:
    """A log, a witness, and the folder that they are in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.command = Command(store=folder / "log.db")
        keys = FolderKeys(folder / "keys")
        self.log: Signer = keys.new_key("example.com/log")
        self.witness: Signer = keys.new_key("witness.example/w")
        (folder / "log.vkey").write_text(f"{self.log.verifier.vkey}\n")

    def arguments(self, *more: str) -> list[str]:
        """The command line of the witness, on a port that is free."""
        given = ["--key", "witness.example/w", "--log", "log.vkey", "--state", "state", "--listen", "127.0.0.1:0"]
        return ["witness", *given, *more]

    @contextmanager
    def serving(self, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """Run the witness, and give its process and the line that it prints."""
        with subprocess.Popen(
            [sys.executable, "-m", "turnlog", *self.arguments(*more)],
            cwd=self.folder,
            env=self.command.environment(TURNLOG_KEYS_DIR=str(self.folder / "keys")),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            try:
                assert process.stdout is not None
                yield process, process.stdout.readline().decode()
            finally:
                process.kill()

    def ask(self, url: str, size: int, leaves: list[bytes] = LEAVES) -> str:
        """Ask the witness for its signature, and return the note with it."""
        note = sign(Checkpoint("example.com/log", size, root(leaves[:size])), self.log)
        line = request_cosignature(
            url,
            note,
            0,
            [],
            self.witness.cosigner_verifier,
            prove=lambda old: consistency_proof(old, leaves[:size]),
        )
        return with_signatures(note, [line])


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    """Give a log and a witness."""
    return Setting(tmp_path)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """Stop a witness as Ctrl-C does, and return its status and what it said on standard error."""
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, stderr.decode()


def test_witness_signs_what_has_grown_and_nothing_else(setting: Setting) -> None:
    """From its first head on, over a restart, until Ctrl-C, which ends it with the usual line."""
    verifiers = [setting.log.verifier, setting.witness.cosigner_verifier]
    with setting.serving() as (process, line):
        listening, url, _, name = line.split()
        assert (listening, name) == ("listening", "witness.example/w")
        [(witness, _)] = open_checkpoint(setting.ask(url, 5), verifiers).cosigned_by
        assert witness == "witness.example/w"
        assert ended(process) == (130, "turnlog: interrupted\n")
    with setting.serving("--json") as (process, line):
        told = msgspec.json.decode(line)
        assert told["vkey"] == setting.witness.cosigner_verifier.vkey
        assert (told["name"], told["origins"]) == ("witness.example/w", ["example.com/log"])
        forked = [*LEAVES[:4], LEAVES[0], *LEAVES[5:]]
        with pytest.raises(ProofError, match="status 422"):
            setting.ask(told["url"], 9, forked)
        with pytest.raises(ProofError, match="cut or rolled back"):
            setting.ask(told["url"], 4)
        assert setting.ask(told["url"], 9)
        process.kill()
    with setting.serving() as (process, line), pytest.raises(ProofError, match="9 leaves"):
        setting.ask(line.split()[1], 8)


def test_an_older_copy_is_noticed_beside_the_keys_and_then_by_the_witness(setting: Setting) -> None:
    """With the lines that the page shows."""
    page = (ROOT / "docs" / "how-to" / "run-a-witness.md").read_text(encoding="utf-8")
    keys = setting.folder / "keys"
    (setting.folder / "witness.vkey").write_text(f"{setting.witness.cosigner_verifier.vkey}\n")
    signs = ["checkpoint", "--key", "example.com/log", "--origin", "example.com/log"]
    with setting.serving() as (_, line):
        url = line.split()[1]
        signs += ["--witness", url, "--witness-key", setting.folder / "witness.vkey"]
        setting.command("add", "one", "--bookmark", "main")
        setting.command("add", "two")
        older = setting.command.store.read_bytes()
        setting.command("add", "three")
        assert setting.command(*signs, TURNLOG_KEYS_DIR=str(keys)).status == 0
        setting.command.store.write_bytes(older)
        beside = setting.command.refused(*signs, TURNLOG_KEYS_DIR=str(keys))
        [file] = [file for file in (keys / "signed").iterdir() if file.name != "signing.lock"]
        file.unlink()
        asked = setting.command.refused(*signs, TURNLOG_KEYS_DIR=str(keys))
    shown = beside.replace(str(keys), "keys").replace(str(setting.folder), "/home/you")
    assert f"turnlog: {shown}\n" in page
    assert f"turnlog: {asked.replace(url, 'http://127.0.0.1:7380')}\n" in page


def test_state_is_kept_where_a_witness_is_killed(setting: Setting) -> None:
    """What it has answered is on disk."""
    with setting.serving() as (process, line):
        setting.ask(line.split()[1], 7)
        process.kill()
    [file] = (setting.folder / "state").glob("*.checkpoint")
    assert open_checkpoint(file.read_text(), [setting.log.verifier]).checkpoint.size == 7


def test_failure_is_one_line_and_the_witness_goes_on(setting: Setting) -> None:
    """On standard error, for who runs it."""
    with setting.serving() as (process, line):
        setting.ask(line.split()[1], 5)
        [file] = (setting.folder / "state").glob("*.checkpoint")
        whole = file.read_bytes()
        file.write_bytes(b"")
        with pytest.raises(ProofError, match="status 500"):
            setting.ask(line.split()[1], 7)
        file.write_bytes(whole)
        setting.ask(line.split()[1], 7)
        status, stderr = ended(process)
    first, second = stderr.splitlines()
    assert first.startswith("turnlog: a checkpoint was not signed: ")
    assert (status, second) == (130, "turnlog: interrupted")


def test_port_that_is_taken_is_told(setting: Setting) -> None:
    """In one line."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        keys = str(setting.folder / "keys")
        arguments = [
            "--key",
            "witness.example/w",
            "--log",
            setting.folder / "log.vkey",
            "--state",
            setting.folder / "s",
        ]
        line = setting.command.refused("witness", *arguments, "--listen", listen, TURNLOG_KEYS_DIR=keys)
    assert line == f"cannot listen at {listen}: address already in use"


@pytest.mark.parametrize(
    "listen", ["", "7380", ":7380", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "a@b:1", "a:1/x", "\u00e4..b:80"]
)
def test_address_that_is_none_is_refused(setting: Setting, listen: str) -> None:
    """With the form that it should have."""
    line = setting.command.refused("witness", "--key", "k", "--log", "x", "--state", "s", "--listen", listen)
    assert line == f"--listen {listen!r} is not of the form HOST:PORT, such as 127.0.0.1:7380"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "has no verifier key"),
        (b"# nobody\n", "has no verifier key"),
        (b"PRIVATE+KEY+x\n", "is no file of verifier keys"),
        (b"\xff", "is no file of verifier keys"),
        (b"#" * 2_000_000, "is too large"),
    ],
)
def test_file_without_keys_is_refused(setting: Setting, content: bytes, why: str) -> None:
    """Before anything is served."""
    file = setting.folder / "other.vkey"
    file.write_bytes(content)
    assert why in setting.command.refused("witness", "--key", "k", "--log", file, "--state", setting.folder / "s")
    assert not (setting.folder / "s").exists()


def test_state_that_is_a_file_is_refused(setting: Setting) -> None:
    """It is a folder, with a file for each log."""
    file = setting.folder / "log.vkey"
    line = setting.command.refused("witness", "--key", "k", "--log", file, "--state", file)
    assert line == f"--state: {str(file)!r} is no folder"


def test_what_is_missing_is_named(setting: Setting) -> None:
    """A key, a file, an option."""
    keys = str(setting.folder / "keys")
    log, state = setting.folder / "log.vkey", setting.folder / "s"
    refused = setting.command.refused
    line = refused("witness", "--key", "nobody", "--log", log, "--state", state, TURNLOG_KEYS_DIR=keys)
    assert line.startswith("there is no signing key 'nobody'")
    line = refused("witness", "--key", "k", "--log", setting.folder / "none", "--state", state)
    assert line.endswith("no such file or directory")
    line = refused("witness", "--key", "example.com/log", "--log", log, "--state", state, TURNLOG_KEYS_DIR=keys)
    assert "is that of the witness" in line
    assert refused("witness", "--key", "k", "--log", log).startswith("option --state is missing for 'witness'")
