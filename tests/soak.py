"""How long the tests run that have a size: short in `make test`, long in `make soak`."""

import os

SOAK = os.environ.get("TURNLOG_SOAK") == "1"
"""Whether they run long. `make soak` runs every file of tests that names this, and sets `TURNLOG_SOAK=1`."""
