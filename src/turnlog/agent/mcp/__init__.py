"""MCP servers (Model Context Protocol): started or connected to, logged in to, listed, and their tools called.

`tools.py` is what a run holds. For each server it has a `server.py`, which keeps a `connection.py` alive over a
transport: a program (`launch.py`, `program.py`) or HTTP (`http.py`). `login.py`, `tokens.py`, `grants.py` and
`renewal.py` are about who may. `content.py` makes blocks of what servers answer, `failures.py` says what went wrong.
"""
