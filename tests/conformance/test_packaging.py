"""The suites are shipped with the package, and cost those nothing who do not test."""

import subprocess
import sys

_PROGRAM = """
import sys
import turnlog, turnlog.cli
print(sorted({"pytest", "_pytest", "hypothesis", "turnlog.testing"} & set(sys.modules)))
"""

_SINKS = """
import sys
import turnlog.cli.commands.feed, turnlog.cli.commands.feeds
print(sorted({"nats", "opentelemetry.sdk", "pyarrow"} & set(sys.modules)))
"""


def test_sinks_import_no_extras() -> None:
    """What a sink needs beyond turnlog is imported when that sink is used: the others work without it."""
    found = subprocess.run([sys.executable, "-c", _SINKS], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_import_of_turnlog_needs_no_test_packages() -> None:
    """`import turnlog`, and the command line, import neither pytest nor hypothesis nor `turnlog.testing`."""
    found = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
