"""The server of `mcp_server.py` in processes that have imported the SDK before they begin.

To import it takes a second, and the tests start hundreds of servers. So one process of each test run imports it, when
the first server is started, and is copied (`fork`) for each. What is started in a server's place is
`handing_over.py`: a small program whose streams, folder and environment a copy has, which ends as that ends, and with
which that ends. So a server can be killed, and a Ctrl-C reaches it, as if it were all one process.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

_HERE = Path(__file__).parent
_ROOT = _HERE.parents[1]
_STREAMS = 3
_PROGRAM = "tests.agent.mcp_server"


def command() -> tuple[str, ...]:
    """Return the command of the server. After `serve` it is a copy's; only Linux tells of the end of a process so."""
    if hasattr(os, "pidfd_open"):
        return sys.executable, "-ISE", str(_HERE / "handing_over.py"), f"turnlog-tests-{os.getpid()}"
    return sys.executable, str(_HERE / "mcp_server.py")


@cache
def serve() -> None:
    """Start the process that is copied for whoever runs `command()`. It ends with this process."""
    if not hasattr(os, "pidfd_open"):
        return
    *_, name = command()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(listening.fileno())],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            env={
                **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
                "PYTHONPATH": str(_ROOT),
            },
        )
    assert process.stdin is not None
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # the last that was registered is called first


# The process that is copied


def _serve(listening: socket.socket) -> None:
    """Make copies until the tests end, and with them the standard input."""
    running: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    return
                if key.fd in running:
                    process, connection = running.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _, status = os.waitpid(process, 0)
                    with connection, suppress(OSError):  # who has handed over is gone
                        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
                    continue
                if _PROGRAM not in sys.modules:
                    import_module(_PROGRAM)
                    gc.collect()
                    gc.freeze()
                connection, _ = listening.accept()
                process = os.fork()
                if not process:
                    selector.close()
                    listening.close()
                    _become(connection)
                descriptor = os.pidfd_open(process)
                running[descriptor] = process, connection
                selector.register(descriptor, selectors.EVENT_READ)


def _become(connection: socket.socket) -> NoReturn:
    """Be the server that is asked for."""
    _, streams, _, _ = socket.recv_fds(connection, 1, _STREAMS)
    asked = connection.makefile("rb").readline()
    if len(streams) < _STREAMS or not asked:
        os._exit(1)
    arguments, environment, folder, process = json.loads(asked)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    threading.Thread(target=_end_with, args=(connection,), daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    program = sys.modules[_PROGRAM]
    program.process_id = process
    status = 1
    try:
        program.main(arguments)
        sys.stdout.flush()
        status = 0
    finally:  # and on no account on to what the copied process does
        if error := sys.exception():
            traceback.print_exception(error)
        os._exit(status)


def _end_with(connection: socket.socket) -> None:
    """End when the process that has handed over ends: it sends nothing more."""
    connection.recv(1)
    os._exit(1)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        _serve(given)
