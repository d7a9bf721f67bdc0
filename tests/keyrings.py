"""Keyrings for the tests of what is kept in one."""

import json
import os
from pathlib import Path

from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked


class MemoryKeyring(KeyringBackend):
    """A keyring that lives as long as a test."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.secrets: dict[tuple[str, str], str] = {}
        self.asked = 0

    def get_password(self, service: str, username: str) -> str | None:
        self.asked += 1
        return self.secrets.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.secrets[service, username] = password


class FileKeyring(KeyringBackend):
    """A keyring in the file that the environment names, for commands in processes of their own."""

    priority = -1  # type: ignore[assignment] - for those alone who ask for it

    def _secrets(self) -> dict[str, str]:
        file = Path(os.environ["TEST_KEYRING"])
        return json.loads(file.read_text()) if file.exists() else {}

    def get_password(self, service: str, username: str) -> str | None:
        return self._secrets().get(f"{service} {username}")

    def set_password(self, service: str, username: str, password: str) -> None:
        self._write(self._secrets() | {f"{service} {username}": password})

    def delete_password(self, service: str, username: str) -> None:
        secrets = self._secrets()
        del secrets[f"{service} {username}"]
        self._write(secrets)

    def _write(self, secrets: dict[str, str]) -> None:
        file = Path(os.environ["TEST_KEYRING"])
        written = file.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(secrets))
        written.replace(file)  # whoever reads it meanwhile reads a whole one


class LockedKeyring(MemoryKeyring):
    """A keyring that its owner has not opened."""

    priority = -1  # type: ignore[assignment] - for those alone who ask for it

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("the collection is locked")


class ForgetfulKeyring(MemoryKeyring):
    """A keyring that keeps nothing, and does not say so."""

    priority = -1  # type: ignore[assignment] - for those alone who ask for it

    def set_password(self, service: str, username: str, password: str) -> None:
        pass
