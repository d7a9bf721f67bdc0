"""The suites are shipped with the package, and cost those nothing who do not test."""

import subprocess
import sys

_PROGRAM = """
import sys
import turnlog, turnlog.cli
print(sorted({"pytest", "_pytest", "hypothesis", "turnlog.testing"} & set(sys.modules)))
"""


def test_import_of_turnlog_needs_no_test_packages() -> None:
    """`import turnlog`, and the command line, import neither pytest nor hypothesis nor `turnlog.testing`."""
    found = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
