"""Keyrings for the tests of what is kept in one."""

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


class LockedKeyring(MemoryKeyring):
    """A keyring that its owner has not opened."""

    def get_password(self, service: str, username: str) -> str | None:
        raise KeyringLocked("the collection is locked")


class ForgetfulKeyring(MemoryKeyring):
    """A keyring that keeps nothing, and does not say so."""

    def set_password(self, service: str, username: str, password: str) -> None:
        pass
