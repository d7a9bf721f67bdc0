"""Run the command line with `python -m turnlog`."""

import sys

from turnlog_command import main

if __name__ == "__main__":
    sys.exit(main())
