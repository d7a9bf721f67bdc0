"""Master keys, in a file, in a keyring or behind a command: what they wrap, and how their failures are told."""

import json
import os
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from tests.keyrings import ForgetfulKeyring, LockedKeyring, MemoryKeyring
from tests.sealed_log import seals_in

from turnlog.audit.masters import ChosenMaster, CommandMaster, FileMaster, KeyringMaster, MasterKey
from turnlog.audit.seals import SealFolder, default_seals
from turnlog.errors import SealError
from turnlog.events import Seals


class CountingMaster:
    """A key service of somebody, which counts what it is asked."""

    name = "a service"

    def __init__(self) -> None:
        self.kept: dict[bytes, tuple[bytes, bytes]] = {}
        self.asked: list[tuple[str, bytes]] = []

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        self.asked.append(("wrap", context))
        handle = os.urandom(8)
        self.kept[handle] = (context, secret)
        return handle

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        self.asked.append(("unwrap", context))
        bound, secret = self.kept[wrapped]
        assert bound == context
        return secret


# ---------------------------------------------------------------------------------------------------------- master key


def test_master_key_is_asked_only_when_a_key_is_needed(folder: Path) -> None:
    """Not for a log without keys, not for a key that is not there, and once for each key."""
    master = CountingMaster()
    seals = SealFolder(folder, master)
    seals.of_subject("patient 17")
    seals.get("AAAAAAAAAAAAAAAAAAAAAA")
    assert master.asked == []
    general = seals.make(None)
    master.asked.clear()
    other = SealFolder(folder, master)
    other.get("AAAAAAAAAAAAAAAAAAAAAA")
    other.of_subject("patient 17")
    other.destroy("patient 17")
    other.list_keys()
    assert master.asked == []
    for _ in range(3):
        assert other.of_subject(None) == other.get(general.id) == other.make(None) == general
    assert master.asked == [("unwrap", f"turnlog seal-key-1 general {general.id}".encode())]


def test_master_key_is_told_what_it_wraps(folder: Path) -> None:
    """So that it can bind it: which kind of key, whose as a tag, and its id."""
    master = CountingMaster()
    seals = SealFolder(folder, master)
    key = seals.make("patient 17")
    names_id = json.loads((folder / "names.key").read_bytes())["id"]
    names = f"turnlog seal-key-1 names {names_id}".encode()
    data = f"turnlog seal-key-1 subject.{seals.tag('subject', 'patient 17')} {key.id}".encode()
    # What is wrapped is unwrapped at once: nothing is sealed that nobody can open.
    assert master.asked == [("wrap", names), ("unwrap", names), ("wrap", data), ("unwrap", data)]


class _Breaking(CountingMaster):
    def __init__(self, verb: str, result: Callable[[bytes], object]) -> None:
        super().__init__()
        self._verb, self._result = verb, result

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        wrapped = super().wrap(secret, context)
        return self._result(wrapped) if self._verb == "wrap" else wrapped  # type: ignore[return-value]

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        secret = super().unwrap(wrapped, context)
        return self._result(secret) if self._verb == "unwrap" else secret  # type: ignore[return-value]


def _raise(_: bytes) -> bytes:
    raise ConnectionError("the service\nis down")


@pytest.mark.parametrize(
    ("master", "said"),
    [
        (_Breaking("wrap", lambda _: b""), "makes 0 bytes of a key"),
        (_Breaking("wrap", lambda _: bytes(16_385)), "makes 16,385 bytes of a key"),
        (_Breaking("wrap", lambda _: None), "cannot be used: TypeError"),
        (_Breaking("wrap", _raise), "cannot be used: ConnectionError: the service is down"),
        (_Breaking("unwrap", _raise), "cannot be used: ConnectionError: the service is down"),
        (_Breaking("unwrap", lambda secret: secret[:31]), "31 bytes came out"),
        (_Breaking("unwrap", lambda _: bytes(32)), "does not unwrap what it has wrapped"),
        (_Breaking("unwrap", lambda _: "x" * 32), "cannot be used: TypeError"),
    ],
)
def test_key_service_that_fails_keeps_no_key(folder: Path, master: MasterKey, said: str) -> None:
    """Whatever it raises or returns is one line that names it, and no file is there afterwards."""
    with pytest.raises(SealError, match=said) as caught:
        SealFolder(folder, master).make(None)
    assert "'a service'" in str(caught.value)
    assert str(caught.value).isprintable()
    assert [path.name for path in folder.iterdir()] == ["lock"]


def test_first_key_makes_the_master_key_once(seals: SealFolder, folder: Path) -> None:
    """Who made it is told, so that people are told to keep a copy."""
    seals.make(None)
    assert seals.made_master
    assert seals.master_name == str(folder / "master")
    assert len(b64decode((folder / "master").read_text())) == 32
    other = seals_in(folder)
    other.make("patient 17")
    assert not other.made_master


def test_other_master_key_is_told_of(seals: Seals, folder: Path) -> None:
    """With its name, that of the file, and that of the one that was used."""
    key = seals.make(None)
    other = SealFolder(folder, FileMaster(folder.parent / "other"))
    FileMaster(folder.parent / "other").wrap(bytes(32), b"")
    for ask in (lambda: other.get(key.id), lambda: other.of_subject(None), lambda: other.make("patient 17")):
        with pytest.raises(SealError, match=r"the master key '.*/other' is not the one that wrapped it") as caught:
            ask()
        assert f"(it was wrapped with '{folder}/master')" in str(caught.value)


def test_lost_master_key_is_told_of_and_not_made_again(seals: Seals, folder: Path) -> None:
    """A new one would open nothing."""
    key = seals.make(None)
    copy = (folder / "master").rename(folder.parent / "copy")
    other = seals_in(folder)
    for ask in (lambda: other.get(key.id), lambda: other.make("patient 17"), lambda: other.tag("bookmark", "a")):
        with pytest.raises(SealError, match=r"there is no master key .*: put it back"):
            ask()
    assert not (folder / "master").exists()
    copy.rename(folder / "master")
    assert other.get(key.id) == key


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o777])
def test_master_key_that_others_may_touch_is_refused(seals: Seals, folder: Path, mode: int) -> None:
    """It may be somebody else's by now: the line says so."""
    seals.make(None)
    (folder / "master").chmod(mode)
    with pytest.raises(SealError, match=f"is not its owner's alone .mode {mode:03o}."):
        seals_in(folder).of_subject(None)
    (folder / "master").chmod(0o400)
    assert seals_in(folder).of_subject(None) == seals.of_subject(None)


@pytest.mark.parametrize("content", [b"", b"\n", b"AAAA\n", b"%" * 44, b"\xff" * 44, b"A" * 20_000])
def test_master_key_with_something_else_is_refused(seals: Seals, folder: Path, content: bytes) -> None:
    """And a link is not followed."""
    seals.make(None)
    master = folder / "master"
    good = master.rename(folder.parent / "good")
    master.write_bytes(content)
    master.chmod(0o600)
    with pytest.raises(SealError, match="is not as it was written"):
        seals_in(folder).of_subject(None)
    master.unlink()
    master.symlink_to(good)
    with pytest.raises(SealError, match="not a regular file"):
        seals_in(folder).of_subject(None)


def test_keyring_has_the_master_key(folder: Path) -> None:
    """And it is asked once."""
    backend = MemoryKeyring()
    seals = SealFolder(folder, KeyringMaster(backend))
    key = seals.make("patient 17")
    assert seals.made_master
    assert list(backend.secrets) == [("turnlog sealing keys", "master key")]
    assert not (folder / "master").exists()
    other = SealFolder(folder, KeyringMaster(backend))
    backend.asked = 0
    assert other.of_subject("patient 17") == key
    other.make("another")
    assert backend.asked == 1
    assert not other.made_master
    backend.secrets.clear()
    with pytest.raises(SealError, match="there is no master key 'keyring'"):
        SealFolder(folder, KeyringMaster(backend)).of_subject("patient 17")


def test_keyring_that_cannot_be_used_is_told_of(folder: Path) -> None:
    """A locked one, one that forgets, one with something else in it."""
    with pytest.raises(SealError, match=r"collection is locked\): set TURNLOG_KEYS_DIR"):
        SealFolder(folder, KeyringMaster(LockedKeyring())).make(None)
    with pytest.raises(SealError, match="the master key was not kept in 'keyring': set TURNLOG_KEYS_DIR"):
        SealFolder(folder, KeyringMaster(ForgetfulKeyring())).make(None)
    backend = MemoryKeyring()
    backend.set_password("turnlog sealing keys", "master key", "something else")
    with pytest.raises(SealError, match="the master key 'keyring' is not as it was written"):
        SealFolder(folder, KeyringMaster(backend)).make(None)
    assert list(folder.glob("*.key")) == []


# ------------------------------------------------------------------------------------------------------------- command

SERVICE = """
import base64, os, sys
context = base64.b64decode(os.environ["TURNLOG_SEAL_CONTEXT"])
assert context.startswith(b"turnlog seal-key-1 ")
content = base64.b64decode(sys.stdin.read())
pad = (context * 99)[: 32]
if sys.argv[-1] == "wrap":
    content = bytes(a ^ b for a, b in zip(content, pad)) + context
else:
    assert sys.argv[-1] == "unwrap" and content[32:] == context
    content = bytes(a ^ b for a, b in zip(content, pad))
print(base64.encodebytes(content).decode())
"""


def command(source: str, *, timeout_s: float = 30.0) -> CommandMaster:
    """Return the master key of a Python program."""
    return CommandMaster([sys.executable, "-c", source], timeout_s=timeout_s)


def test_command_wraps_and_unwraps(folder: Path) -> None:
    """It is told what to do, and what it is about. Its answer may be on several lines."""
    key = SealFolder(folder, command(SERVICE)).make("patient 17")
    other = SealFolder(folder, command(SERVICE))
    assert other.of_subject("patient 17") == key
    assert not other.made_master
    assert other.master_name == f"command:{sys.executable}"
    assert not (folder / "master").exists()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys; sys.exit('access \\x1b[31mdenied\\nmore')", r"it ended with status 1: access  \[31mdenied$"),
        ("import sys; sys.exit(3)", "it ended with status 3$"),
        ("import sys; sys.exit(sys.stdin.read())", "status 1: it printed what it was given, which is not shown$"),
        ("import sys; sys.exit('x' * 300 + sys.stdin.read())", "it printed what it was given, which is not shown$"),
        ("import os; os.kill(os.getpid(), 9)", "it ended with status -9$"),
        ("pass", "it printed nothing"),
        ("print('not base64!')", "it printed something that is not base64"),
        ("import sys; sys.stdout.buffer.write(b'\\xff' * 40)", "it printed something that is not base64"),
        ("while True: print('A' * 1000)", "it printed more than 65,536 bytes"),
        ("print('A' * 70000)", "it printed more than 65,536 bytes"),
        ("print('A' * 60000)", r"makes 45,000 bytes of a key"),
        ("print('AAAA')", "is not the one that wrapped it: 3 bytes came out"),
    ],
)
def test_command_that_fails_is_told_of(folder: Path, source: str, said: str) -> None:
    """In one line with the first one that it said; no key is kept."""
    with pytest.raises(SealError, match=said) as caught:
        SealFolder(folder, command(source)).make(None)
    assert str(caught.value).isprintable()
    assert list(folder.glob("*.key")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time; time.sleep(60)",
        "import os, time; os.close(1); os.close(2); time.sleep(60)",
        "import sys, time; print('AAAA', flush=True); time.sleep(60)",
        "import sys\nwhile True: sys.stderr.write('x')",
    ],
)
def test_command_that_hangs_is_ended(source: str) -> None:
    """Silent, with closed outputs, after its answer, or talking for ever."""
    with pytest.raises(SealError, match=r"it took longer than 0\.5 s"):
        command(source, timeout_s=0.5).wrap(bytes(32), b"")


def test_command_may_say_much_and_need_not_listen() -> None:
    """What it says on standard error beside its answer is not kept, and input that it leaves is no failure."""
    source = "import sys; sys.stderr.write('x' * 3_000_000); print('QUJD')"
    assert command(source).wrap(bytes(32), b"") == b"ABC"
    assert command(source).unwrap(bytes(500_000), b"") == b"ABC"
    echo = "import sys; sys.stdout.write(sys.stdin.read())"
    assert command(echo).wrap(bytes(range(32)), b"") == bytes(range(32))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/nowhere/at/all"], "it cannot be run: no such file or directory"),
        (["/"], "it cannot be run: permission denied"),
        (["a\x00b"], "it cannot be run: embedded null byte"),
    ],
)
def test_command_that_is_none_is_told_of(argv: list[str], said: str) -> None:
    """With what the system says."""
    with pytest.raises(SealError, match=said):
        CommandMaster(argv).wrap(bytes(32), b"")


# ------------------------------------------------------------------------------------------------------ which of them


@pytest.fixture
def backend() -> Iterator[Callable[[KeyringBackend], None]]:
    """Give a way to say which keyring the system has."""
    before = keyring.get_keyring()
    yield keyring.set_keyring
    keyring.set_keyring(before)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the folder of keys in a data folder of the test's own."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "turnlog" / "keys" / "sealed"


def test_folder_of_the_environment_has_the_master_key(
    tmp_path: Path, backend: Callable[[KeyringBackend], None]
) -> None:
    """Also where there is a keyring: it is not asked."""
    memory = MemoryKeyring()
    backend(memory)
    seals = default_seals({"TURNLOG_KEYS_DIR": str(tmp_path / "keys")})
    assert seals.name == str(tmp_path / "keys" / "sealed")
    seals.make(None)
    assert (tmp_path / "keys" / "sealed" / "master").is_file()
    assert (memory.asked, memory.secrets) == (0, {})


def test_keyring_goes_before_the_data_folder(data: Path, backend: Callable[[KeyringBackend], None]) -> None:
    """Where there is one. It is not asked before a key is needed."""
    memory = MemoryKeyring()
    backend(memory)
    seals = default_seals({"TURNLOG_KEYS_DIR": "", "TURNLOG_SEAL_COMMAND": ""})
    assert seals.of_subject(None) is None
    assert memory.asked == 0
    assert not data.exists()
    key = seals.make(None)
    assert seals.made_master
    assert ("turnlog sealing keys", "master key") in memory.secrets
    assert default_seals({}).of_subject(None) == key


@pytest.mark.parametrize("name", ["null", "fail"])
def test_data_folder_is_used_without_a_keyring(
    name: str, data: Path, backend: Callable[[KeyringBackend], None]
) -> None:
    """And stays in use when there is a keyring later, which does not have the key."""
    module = __import__(f"keyring.backends.{name}", fromlist=["Keyring"])
    backend(module.Keyring())
    key = default_seals({}).make(None)
    assert (data / "master").is_file()
    backend(MemoryKeyring())
    assert default_seals({}).of_subject(None) == key


def test_keyring_that_is_gone_is_told_of(data: Path, backend: Callable[[KeyringBackend], None]) -> None:
    """As in a job without a desktop: the line says where the master key was."""
    backend(MemoryKeyring())
    default_seals({}).make(None)
    module = __import__("keyring.backends.null", fromlist=["Keyring"])
    backend(module.Keyring())
    with pytest.raises(SealError, match=r"there is no master key .*\(it was wrapped with 'keyring'\)"):
        default_seals({}).make("patient 17")
    assert not (data / "master").exists()


def test_command_of_the_environment_goes_first(tmp_path: Path) -> None:
    """With the folder of the environment; its words are parted as a shell does."""
    (tmp_path / "a service.py").write_text(SERVICE)
    environ = {
        "TURNLOG_KEYS_DIR": str(tmp_path / "keys"),
        "TURNLOG_SEAL_COMMAND": f"{sys.executable} '{tmp_path}/a service.py' --key 'my key'",
    }
    key = default_seals(environ).make("patient 17")
    assert sorted(path.name.partition(".")[0] for path in (tmp_path / "keys" / "sealed").iterdir()) == [
        "lock",
        "names",
        "subject",
    ]
    assert default_seals(environ).of_subject("patient 17") == key


@pytest.mark.parametrize("line", ["a 'b", " ", "''"])
def test_command_line_that_is_none_is_refused(line: str) -> None:
    """With the name of the variable."""
    with pytest.raises(SealError, match="TURNLOG_SEAL_COMMAND"):
        default_seals({"TURNLOG_SEAL_COMMAND": line})


def test_master_key_is_chosen_once(tmp_path: Path, backend: Callable[[KeyringBackend], None]) -> None:
    """A keyring that comes or goes while a process runs changes nothing for it."""
    memory = MemoryKeyring()
    backend(memory)
    master = ChosenMaster(tmp_path / "master")
    assert not master.made
    wrapped = master.wrap(bytes(32), b"a")
    backend(MemoryKeyring())
    assert master.made
    assert master.name == "keyring"
    assert master.unwrap(wrapped, b"a") == bytes(32)
    with pytest.raises(SealError, match="is not the one that wrapped it"):
        master.unwrap(wrapped, b"b")
