"""What goes wrong with an MCP server, in words. This module imports the SDK, which is an extra."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.shared.exceptions import MCPError
from mcp.types.jsonrpc import CONNECTION_CLOSED
from pydantic import ValidationError

from turnlog.agent.mcp.launch import Launch
from turnlog.agent.mcp.signals import LoginError, MisbehaviourError
from turnlog.errors import ProviderError, os_reason
from turnlog.model import ServerMeta
from turnlog.providers.proxies import proxy_of
from turnlog.providers.wire import why

_STDERR_BYTES_MAX = 4096
_STDERR_LINES_MAX = 12
_STDERR_WAIT_S = 0.5
_FRAME = "".join(map(chr, range(0x2500, 0x2580)))
"""The characters that frames are drawn with (Unicode, Box Drawing)."""


class StderrTail(asyncio.Protocol):
    """The end of what a program writes to its standard error, read from a pipe."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._kept = b""
        self._is_cut = False
        self._ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Keep the last bytes."""
        self._is_cut |= len(self._kept) + len(data) > _STDERR_BYTES_MAX
        self._kept = (self._kept + data)[-_STDERR_BYTES_MAX:]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the signature is asyncio's
        """Note that nothing more comes."""
        self._ended.set()

    async def finish(self, transport: asyncio.ReadTransport) -> None:
        """Wait for the rest, though not for what the server may have left running, and close the pipe."""
        try:
            async with asyncio.timeout(_STDERR_WAIT_S):
                await self._ended.wait()
        except TimeoutError:
            pass
        finally:
            transport.close()
        await self._ended.wait()

    def last_words(self, launch: Launch) -> str:
        """Return the last lines, after the words that lead to them; an empty text where there are none.

        Of what is drawn in frames, as tracebacks are, there is only what it comes to. What is left of a value at the
        place where they were cut is left out: it would not be found as one.
        """
        kept = self._kept.decode(errors="replace")
        if self._is_cut:
            kept = launch.without_rest(kept.lstrip("\ufffd"))
        lines = _without_frames([line.rstrip() for line in kept.splitlines() if line.strip()])
        return "; the last it said: " + "\n".join(lines[-_STDERR_LINES_MAX:]) if lines else ""


def _without_frames(lines: list[str]) -> list[str]:
    """Return what stands below the last frame, or else the last text in frames; all lines where there are none."""
    framed = [number for number, line in enumerate(lines) if line.lstrip()[0] in _FRAME]
    if not framed:
        return lines
    texts = [text for line in lines if (text := line.strip(_FRAME + " "))]
    return lines[framed[-1] + 1 :] or texts[-1:]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Return the errors of a group, of its groups too; an error that is no group is the only one."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
            yield from causes(inner)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield error


def never_connected(error: BaseException) -> bool:
    """Return whether there was no connection over which anything could have been sent."""
    return any(isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout) for cause in causes(error))


def reason(
    error: BaseException,
    meta: ServerMeta,
    *,
    started: bool,
    status: int,
    timeout_s: float,
    keyring: str = "",
    logs_in: bool = False,
) -> str:
    """Return what is to be said of a server after an error, in words that follow its name.

    Args:
        error: what the SDK, HTTP or the system raised.
        meta: the server.
        started: whether it answered before.
        status: the last HTTP status; 0 where there was none.
        timeout_s: how long it was waited for.
        keyring: why the keyring cannot be used, where its login would be.
        logs_in: whether somebody is just logging in at it: it is of no use to tell them to.
    """
    cause = next(causes(error), error)
    match cause:
        case MisbehaviourError() | LoginError():
            return str(cause)
        case TimeoutError():
            return f"did not answer within {timeout_s:g} s"
        case httpx2.HTTPError() | ProviderError():
            return f"cannot be reached: {why(cause)}{_through(cause, meta)}"
        case OAuthFlowError():
            return (
                _CANNOT_LOG_IN + str(cause) if logs_in else f"wants a login ({cause}): `turnlog mcp login {meta.name}`"
            )
        case MCPError():
            return _refusal(cause, meta.name, started=started, status=status, keyring=keyring, logs_in=logs_in)
        case ValidationError():
            first = cause.errors(include_url=False, include_input=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            return f"does not answer as the protocol has it ({place}: {first['msg'].lower()})"
        case OSError() if meta.command:
            return f"cannot be started: {_not_started(cause, meta)}"
        case _:
            return f"cannot be understood: {str(cause) or type(cause).__name__}"


def _through(error: Exception, meta: ServerMeta) -> str:
    """Return through which proxy a server could not be reached, in words that follow why; empty for none."""
    if not isinstance(meta.url, str) or not isinstance(error, httpx2.ConnectError | httpx2.ProxyError):
        return ""
    proxy = proxy_of(meta.url)
    return f", through {proxy}" if proxy else ""


_CANNOT_LOG_IN = "cannot be logged in to: "
_UNREADABLE = "answered with what cannot be read"
_IS_IT_MCP = ": is it the address of a streamable HTTP endpoint?"
_SAID_BY_THE_SDK = (
    (
        re.compile("Failed to parse (?:JSON response|SSE message)|SSE stream failed"),
        _UNREADABLE,
    ),
    (re.compile("Unexpected content type: $"), "answered without a type of content, and with no result"),
    (
        re.compile(r"Unexpected content type: ([^\s;]*)"),
        rf"answered with \1, which is none of MCP{_IS_IT_MCP}",
    ),
    (re.compile(r"Redirect to (\S+) not followed"), r"redirects to \1, which is not followed: is that its address?"),
    (re.compile("server answered a request with 202 Accepted"), "answered with HTTP 202, and with no result"),
    (
        re.compile("SSE stream ended (?:without a response|and reconnection attempts were exhausted)"),
        "ended its answer before the result",
    ),
)
"""What the SDK says of an answer in the place of the server, and what is said here."""

_ELSEWHERE = frozenset({301, 307, 308})
"""Statuses that say that a request is to be made at another address, as it is (RFC 9110 §15.4)."""


def has_unknown_end(error: MCPError, status: int) -> bool:
    """Return whether nothing says what became of a call that ended with an error: the server may have made it.

    It has not where it answered with an error of the protocol, or with a status that refuses the request: one of 4xx
    (RFC 9110 §15.5), or one that leads to another address. A 5xx may be of a proxy that waited in vain, or of a server
    that failed when the tool had run, and a stream can end, or an answer be none, behind anything that was done.

    Args:
        error: what the SDK raised.
        status: the HTTP status of the answer; 0 where there was none.
    """
    if status >= 300:
        return not (status in _ELSEWHERE or 400 <= status < 500)
    return any(said.match(error.message) for said, _ in _SAID_BY_THE_SDK)


def _refusal(error: MCPError, server: str, *, started: bool, status: int, keyring: str, logs_in: bool) -> str:
    if status >= 400:
        hint = ""
        if not started and status in (401, 403) and logs_in:
            return (
                f"{_CANNOT_LOG_IN}it answered with HTTP {status} ({error.message}); "
                "register it with --header NAME=VARIABLE if it asks for something else"
            )
        if not started and status in (401, 403):
            hint = f": `turnlog mcp login {server}`, or register it with --header NAME=VARIABLE for what it asks for"
            hint += f"; the keyring, where its login would be, cannot be used: {keyring}" if keyring else ""
        elif not started and status in (404, 405):
            hint = _IS_IT_MCP
        return f"answered with HTTP {status} ({error.message}){hint}"
    for said, meant in _SAID_BY_THE_SDK:
        if found := said.match(error.message):
            return found.expand(meant) + (_IS_IT_MCP if meant == _UNREADABLE and not started else "")
    if error.code == CONNECTION_CLOSED and not started:
        return "ended before it answered"
    return f"answered with an error: {error.message} (code {error.code})"


def _not_started(error: OSError, meta: ServerMeta) -> str:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        if error.filename == meta.cwd:
            return f"there is no folder {error.filename!r} to run it in"
        return f"there is no program {meta.command[0]!r}"
    where = (
        f"in the folder {meta.cwd!r}"
        if error.filename is not None and error.filename == meta.cwd
        else f"{meta.command[0]!r}"
    )
    return f"{where}: {os_reason(error)}"
