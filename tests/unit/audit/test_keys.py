"""Signing keys by name: files of their owner's alone, and the keyring."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from tests.keyrings import ForgetfulKeyring, LockedKeyring, MemoryKeyring

from turnlog.audit.keys import FolderKeys, KeyEntry, KeyringKeys, KeyStore, default_key_store
from turnlog.audit.masters import FileMaster
from turnlog.audit.notes import Signer
from turnlog.errors import SealError, SigningKeyError

NAMES = ["example.com/log", "..", ".", "/", "a%2Fb", "Ärger.example/日本", "a:b*c?", "-x", "a" * 80]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give a folder for keys that is not there yet, two levels deep."""
    return tmp_path / "some" / "keys"


@pytest.fixture(params=["folder", "keyring"])
def store(request: pytest.FixtureRequest, folder: Path) -> KeyStore:
    """Give an empty store of keys, of each kind."""
    return FolderKeys(folder) if request.param == "folder" else KeyringKeys(MemoryKeyring())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---------------------------------------------------------------------------------------------------------- both kinds


def test_keys_are_kept_by_name(store: KeyStore) -> None:
    """Each is another key; any number of them; whatever could be a part of a path."""
    made = {name: store.new_key(name) for name in NAMES}
    for name, signer in made.items():
        assert store.load_key(name).skey == signer.skey
    assert len({signer.skey for signer in made.values()}) == len(NAMES)
    assert store.list_keys() == [
        KeyEntry(name=name, key_id=made[name].verifier.key_id.hex(), place=store.place_of(name))
        for name in sorted(NAMES)
    ]


def test_store_without_keys_lists_none(store: KeyStore) -> None:
    """And makes nothing for that."""
    assert store.list_keys() == []


def test_key_is_never_replaced(store: KeyStore) -> None:
    """A second one of the name is refused with a line that says where the first is."""
    first = store.new_key("example.com/log")
    with pytest.raises(SigningKeyError, match=r"there is a key 'example\.com/log' already") as caught:
        store.new_key("example.com/log")
    assert store.place_of("example.com/log") in str(caught.value)
    assert store.load_key("example.com/log").skey == first.skey


def test_key_that_is_not_there_is_named(store: KeyStore) -> None:
    """With the command that lists those that are."""
    for name in ("example.com/log", "", "a b", "all names", "a\x00b", "\ud800"):
        with pytest.raises(SigningKeyError, match=r"there is no signing key .*turnlog keys list"):
            store.load_key(name)


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u200bb", "a\u202eb", "\ud800"])
def test_what_is_no_name_is_refused(store: KeyStore, name: str) -> None:
    """Also what a person would not see in it."""
    with pytest.raises(SigningKeyError, match="cannot be the name of a key"):
        store.new_key(name)
    assert store.list_keys() == []


# -------------------------------------------------------------------------------------------------------------- folder


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Give a way to change what new files lack."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_files_are_their_owners_alone(folder: Path, mask: int, umask: Callable[[int], int]) -> None:
    """Whatever the umask is; the folder, too; and nothing else is left in it."""
    umask(mask)
    signer = FolderKeys(folder).new_key("example.com/log")
    [file] = folder.iterdir()
    assert file.name == "example.com%2Flog.key"
    assert (mode_of(file), mode_of(folder)) == (0o600, 0o700)
    assert file.read_text() == f"{signer.skey}\n"


def test_name_that_is_too_long_for_a_file_is_refused(folder: Path) -> None:
    """With what the system says."""
    with pytest.raises(SigningKeyError, match=r"cannot be kept in .*name too long"):
        FolderKeys(folder).new_key("a" * 300)
    with pytest.raises(SigningKeyError, match="name too long"):
        FolderKeys(folder).load_key("a" * 300)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620, 0o601, 0o777])
def test_file_that_others_may_touch_is_refused(folder: Path, mode: int) -> None:
    """Its key may be somebody else's by now: the line says so. The list shows it with that line."""
    store = FolderKeys(folder)
    store.new_key("log")
    (folder / "log.key").chmod(mode)
    with pytest.raises(SigningKeyError, match=f"is not its owner's alone .mode {mode:03o}.") as caught:
        store.load_key("log")
    assert store.list_keys() == [
        KeyEntry(name="log", key_id=None, place=str(folder / "log.key"), problem=str(caught.value))
    ]
    (folder / "log.key").chmod(0o400)
    assert store.load_key("log").name == "log"


def test_no_key_is_made_where_all_could_read_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On FAT, NTFS and the like all files have the permissions of the mount: nobody could use the key, but steal it."""
    give = os.chmod
    monkeypatch.setattr(os, "chmod", lambda target, _: give(target, 0o777))
    told = r"cannot be kept in .*no permissions, .* \(mode 777\); set TURNLOG_KEYS_DIR to a folder on another one"
    with pytest.raises(SigningKeyError, match=f"the key 'log' {told}"):
        FolderKeys(folder).new_key("log")
    with pytest.raises(SealError, match=f"the master key {told}"):
        FileMaster(folder / "master").wrap(b"secret", b"")
    assert list(folder.iterdir()) == []
    monkeypatch.undo()
    assert FolderKeys(folder).new_key("log").skey == FolderKeys(folder).load_key("log").skey


def test_what_is_no_regular_file_is_refused(folder: Path) -> None:
    """A symbolic link, even to a good key, a folder, a FIFO: at once."""
    store = FolderKeys(folder)
    store.new_key("log")
    (folder / "link.key").symlink_to(folder / "log.key")
    (folder / "dangling.key").symlink_to(folder / "nowhere")
    (folder / "folder.key").mkdir()
    os.mkfifo(folder / "fifo.key", 0o600)
    for name in ("link", "dangling", "folder", "fifo"):
        with pytest.raises(SigningKeyError, match="not a regular file"):
            store.load_key(name)
        with pytest.raises(SigningKeyError, match="already"):
            store.new_key(name)
    assert not (folder / "nowhere").exists()


def test_file_with_something_else_is_refused(folder: Path) -> None:
    """Cut, changed, of another name, too long. No part of the secret is repeated."""
    store = FolderKeys(folder)
    skey = store.new_key("log").skey
    contents = [
        "",
        "\n",
        skey[:-1],
        f"{skey}\n\n",
        f"{skey}\n{skey}\n",
        f" {skey}\n",
        skey[:-3] + ("A" if skey[-3] != "A" else "B") + skey[-2:],
        skey + "x" * 20_000,
        "\udcff" + skey,
        Signer.generate("other").skey,
    ]
    for content in contents:
        (folder / "log.key").write_bytes(content.encode(errors="surrogateescape"))
        with pytest.raises(SigningKeyError) as caught:
            store.load_key("log")
        assert "log.key" in str(caught.value)
        assert skey[30:50] not in str(caught.value)
    (folder / "log.key").write_text(skey)
    assert store.load_key("log").skey == skey


def test_files_of_other_names_are_left_out(folder: Path) -> None:
    """What was not written here, what was left half written, and a name that is escaped in another way."""
    store = FolderKeys(folder)
    store.new_key("a/b")
    for name in ("a%2fb.key", "%61.key", "notes.txt", ".0123.tmp", "README"):
        (folder / name).write_text("x")
    assert [entry.name for entry in store.list_keys()] == ["a/b"]


def test_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    """A file of its name, for each of the commands."""
    (tmp_path / "keys").write_text("x")
    store = FolderKeys(tmp_path / "keys")
    with pytest.raises(SigningKeyError, match="there can be no folder"):
        store.new_key("log")
    with pytest.raises(SigningKeyError, match="cannot be read"):
        store.list_keys()
    with pytest.raises(SigningKeyError, match="cannot be read"):
        store.load_key("log")


def test_only_one_of_many_at_once_makes_the_key(folder: Path) -> None:
    """The others are refused, and what is kept is what the one was given."""

    refusals: list[str] = []

    def attempt(_: int) -> Signer | None:
        try:
            return FolderKeys(folder).new_key("log")
        except SigningKeyError as error:
            refusals.append(str(error))
            return None

    with ThreadPoolExecutor(8) as pool:
        [made] = [signer for signer in pool.map(attempt, range(40)) if signer is not None]
    assert FolderKeys(folder).load_key("log").skey == made.skey
    assert [path.name for path in folder.iterdir()] == ["log.key"]
    assert len(refusals) == 39
    assert all("already" in refusal for refusal in refusals)


def test_file_system_without_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is taken first there, so that no key is replaced either."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store = FolderKeys(folder)
    signer = store.new_key("log")
    with pytest.raises(SigningKeyError, match="already"):
        store.new_key("log")
    assert store.load_key("log").skey == signer.skey
    assert mode_of(folder / "log.key") == 0o600
    assert [path.name for path in folder.iterdir()] == ["log.key"]


# ------------------------------------------------------------------------------------------------------------- keyring


def test_keyring_has_the_keys_and_their_names() -> None:
    """One secret for each key, one for the list; under a service that API keys do not have."""
    backend = MemoryKeyring()
    signer = KeyringKeys(backend).new_key("b")
    KeyringKeys(backend).new_key("a")
    assert backend.secrets["turnlog signing keys", "b"] == signer.skey
    assert backend.secrets["turnlog signing keys", "all names"] == "b\na"
    assert len(backend.secrets) == 3
    del backend.secrets["turnlog signing keys", "b"]
    assert [entry.name for entry in KeyringKeys(backend).list_keys()] == ["a"]


def test_locked_keyring_is_told_of() -> None:
    """With what to do."""
    store = KeyringKeys(LockedKeyring())
    for attempt in (store.list_keys, lambda: store.new_key("a"), lambda: store.load_key("a")):
        with pytest.raises(SigningKeyError, match=r"collection is locked\): set TURNLOG_KEYS_DIR"):
            attempt()


def test_keyring_that_forgets_is_found_out() -> None:
    """Nobody is told that a key is kept which is not."""
    with pytest.raises(SigningKeyError, match="has not kept the key 'a'"):
        KeyringKeys(ForgetfulKeyring()).new_key("a")


# ------------------------------------------------------------------------------------------------------ which of them


@pytest.fixture
def backend() -> Iterator[Callable[[KeyringBackend], None]]:
    """Give a way to say which keyring the system has."""
    before = keyring.get_keyring()
    yield keyring.set_keyring
    keyring.set_keyring(before)


def test_folder_of_the_environment_goes_first(folder: Path, backend: Callable[[KeyringBackend], None]) -> None:
    """Also where there is a keyring."""
    backend(MemoryKeyring())
    store = default_key_store({"TURNLOG_KEYS_DIR": str(folder)})
    assert store.place_of("log") == str(folder / "log.key")
    assert default_key_store({"TURNLOG_KEYS_DIR": ""}).place_of("log") == "keyring"


def test_keyring_goes_before_the_data_folder(backend: Callable[[KeyringBackend], None]) -> None:
    """Where there is one."""
    memory = MemoryKeyring()
    backend(memory)
    default_key_store({}).new_key("log")
    assert ("turnlog signing keys", "log") in memory.secrets


@pytest.mark.parametrize("name", ["null", "fail"])
def test_data_folder_is_used_without_a_keyring(
    name: str, tmp_path: Path, backend: Callable[[KeyringBackend], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the backend that forgets everything, and the one that refuses everything."""
    module = __import__(f"keyring.backends.{name}", fromlist=["Keyring"])
    backend(module.Keyring())
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    store = default_key_store({})
    store.new_key("log")
    assert (tmp_path / "turnlog" / "keys" / "log.key").is_file()


def test_data_folder_is_used_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(sys.modules, "keyring", None)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_key_store({}).place_of("log").startswith(str(tmp_path))
