"""The command line."""

from turnlog.cli.app import main

__all__ = ["main"]
