"""A program that has a server run in a copied process with its own streams, and ends as that does.

`handing_over.py NAME ARGUMENT…`, where NAME is that of the socket of `forked_servers.py`. It imports little.
"""

import json
import os
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(f"\0{sys.argv[1]}")
    socket.send_fds(connection, [b"!"], [0, 1, 2])
    asked = [sys.argv[2:], dict(os.environ), os.getcwd(), os.getpid()]  # noqa: PTH109 - pathlib takes time to import
    connection.sendall(json.dumps(asked).encode() + b"\n")
    status = int(connection.makefile().readline() or 1)
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
