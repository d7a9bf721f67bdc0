"""The command with a signing key, for the tests of checkpoints and proofs."""

from dataclasses import dataclass
from pathlib import Path

from tests.cli.command import Command, write_conversation

NAME = "example.com/log"


@dataclass(frozen=True, kw_only=True)
class SigningCommand(Command):
    """`turnlog` with a folder of keys."""

    def environment(self, **changes: str) -> dict[str, str]:
        """Return the environment, with the folder of the keys."""
        return super().environment(**{"TURNLOG_KEYS_DIR": str(self.store.parent / "keys"), **changes})

    def file(self, name: str) -> Path:
        """Return the path of a file beside the store."""
        return self.store.parent / name


def signing(folder: Path) -> SigningCommand:
    """Give the command with a key, its verifier key in `keys.txt`, and the log of `write_conversation`."""
    command = SigningCommand(store=folder / "log.db")
    write_conversation(command.url)
    command.ok("keys", "new", "--name", NAME)
    command.file("keys.txt").write_bytes(command.ok("keys", "export", "--name", NAME).stdout)
    return command
