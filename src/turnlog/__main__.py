"""Run the command line with `python -m turnlog`."""

import sys

from turnlog.cli import main

if __name__ == "__main__":
    sys.exit(main())
