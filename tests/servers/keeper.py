"""Runs beside a process that has servers: ends what it left behind. `keeper.py FOLDER`

It waits until its standard input ends or its parent has gone. Then it ends every process that was started on FOLDER and
removes FOLDER.
"""

import os
import select
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.2
"""How often it looks whether its parent is there: another child of it may hold the pipe open."""

PATIENCE_S = 10
"""How long a server may take to end before it is killed."""


def wait() -> None:
    """Wait until the parent is done or dead."""
    parent = os.getppid()
    while os.getppid() == parent:
        if select.select([0], [], [], LOOK_S)[0] and not os.read(0, 1):
            return


def end(folder: Path) -> None:
    """End what was started on a folder: programs, servers, and processes of servers whose first one has gone."""
    import psutil  # noqa: PLC0415 - it is needed only here, and it is slow to load

    until = time.monotonic() + PATIENCE_S
    while True:
        first: list[psutil.Process] = []
        others: list[psutil.Process] = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if any(part.startswith(f"{folder}/") for part in process.cmdline()):
                    first.append(process)
                elif process.cwd().startswith(f"{folder}/"):
                    others.append(process)
        if not first and not others:
            return
        is_late = time.monotonic() > until
        for process in first:
            with suppress(psutil.Error):
                process.send_signal(signal.SIGQUIT if process.name() == "postgres" and not is_late else signal.SIGKILL)
        for process in others if is_late or not first else ():
            with suppress(psutil.Error):
                process.kill()
        time.sleep(LOOK_S)


def main() -> None:
    """Wait, end what is left, and remove the folder."""
    folder = Path(sys.argv[1])
    wait()
    if folder.exists():
        end(folder)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
