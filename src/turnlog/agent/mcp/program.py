"""An MCP server that is a program: a line a message, each way.

Why not the SDK's own: it joins a message anew with each piece that comes, so that one of 20 MB keeps the event loop
waiting for seconds in all, and it takes a line of any length. This module imports the SDK, which is an extra.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TextIO

import anyio
from anyio import to_thread
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError, JSONRPCRequest, JSONRPCResponse

from turnlog.agent.mcp.descendants import Descendants
from turnlog.agent.mcp.launch import Launch
from turnlog.agent.mcp.messages import Incoming, arrived
from turnlog.agent.mcp.signals import MisbehaviourError
from turnlog.hurry import hurry

LINE_BYTES_MAX = 256 * 1024 * 1024
"""The largest message, so the largest result."""

_FLUSH_S = 0.5
"""How long what was sent already may take to be written."""

_GRACE_S = 1.5
"""How long a program has to end when its input has ended, and again when it was told to."""

_POLL_S = 0.01

ASKED_MAX = 1000
"""How many requests of a program may be without an answer before no more is read. Each is a task of the event loop."""

_GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError)


@asynccontextmanager
async def program(
    launch: Launch, errors: TextIO
) -> AsyncGenerator[tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]]:
    """Start a program in a session of its own, and give what comes from it and what goes to it.

    In the end its input is closed; it, and what it has started, is terminated where it goes on for 1.5 s, and killed
    1.5 s later: see `Descendants`. Both are shorter where somebody wants to stop, and a store took some of the time.

    Raises:
        OSError, ValueError: it cannot be started.
        ExceptionGroup: of a `MisbehaviourError`: a line has more than 256 MiB.
    """
    process = await anyio.open_process(
        launch.command,
        env={**get_default_environment(), **launch.variables},
        cwd=launch.cwd,
        stderr=errors,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    arriving, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, leaving = anyio.create_memory_object_stream[SessionMessage](0)
    written = anyio.Event()
    async with anyio.create_task_group() as group:
        asked = _Asked()
        group.start_soon(_read, process.stdout, arriving, asked)
        group.start_soon(_write, process.stdin, leaving, arriving, written, asked)
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                asked.close()
                incoming.close()  # what still comes is read and dropped: a program that writes does not read
                outgoing.close()
                with anyio.move_on_after(_FLUSH_S):
                    await written.wait()
                await _end(process, process.stdin, process.stdout)
            group.cancel_scope.cancel()


class _Asked:
    """The requests of a program that have no answer yet."""

    def __init__(self) -> None:
        self._count = 0
        self._fewer = anyio.Event()
        self._is_closed = False

    async def add(self, message: Incoming) -> None:
        """Count a message, if it is a request, and wait until there may be one more."""
        if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCRequest):
            self._count += 1
        while self._count > ASKED_MAX and not self._is_closed:
            self._fewer = anyio.Event()
            await self._fewer.wait()

    def answered(self, message: SessionMessage) -> None:
        """Count an answer, if a message is one."""
        if isinstance(message.message, JSONRPCResponse | JSONRPCError):
            self._count -= 1
            self._fewer.set()

    def close(self) -> None:
        """Let nobody wait any more."""
        self._is_closed = True
        self._fewer.set()


async def _read(stdout: ByteReceiveStream, arriving: MemoryObjectSendStream[Incoming], asked: _Asked) -> None:
    with suppress(*_GONE):
        async with arriving:
            with suppress(*_GONE):
                async for line in _lines(stdout):
                    message = await arrived(line)
                    await arriving.send(message)
                    await asked.add(message)
            with anyio.CancelScope(shield=True):
                while True:
                    await stdout.receive()


async def _lines(stdout: ByteReceiveStream) -> AsyncIterator[bytearray]:
    """Give the lines, without their ends. What follows the last one's is none."""
    line = bytearray()
    while True:
        *ends, rest = (await stdout.receive()).split(b"\n")
        for end in ends:
            line += end
            yield line
            line = bytearray()
        line += rest
        if len(line) > LINE_BYTES_MAX:
            raise MisbehaviourError(f"wrote a message of more than {LINE_BYTES_MAX:,} bytes")


async def _write(
    stdin: ByteSendStream,
    leaving: MemoryObjectReceiveStream[SessionMessage],
    arriving: MemoryObjectSendStream[Incoming],
    written: anyio.Event,
    asked: _Asked,
) -> None:
    try:
        async with leaving:
            async for sent in leaving:
                line = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await stdin.send(line.encode(errors="replace") + b"\n")
                asked.answered(sent)
    except _GONE:
        await arriving.aclose()  # it may still run: whoever waits for an answer is told that none comes
    finally:
        written.set()


async def _end(process: Process, stdin: ByteSendStream, stdout: ByteReceiveStream) -> None:
    started, own = Descendants(process.pid), anyio.CapacityLimiter(1)  # not a turn among all threads of the program
    await to_thread.run_sync(started.look, limiter=own)
    await _close(stdin)
    await to_thread.run_sync(started.end, hurry().grace_s(_GRACE_S, times=2), limiter=own)
    await _has_ended(process)  # it has, and this process notices it
    await _close(stdout)  # a daemon that it has started may hold the other end
    # asyncio holds its end until then too, and has no public name for it.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()


async def _has_ended(process: Process) -> bool:
    """Wait for a program to end. `Process.wait` waits for the ends of its pipes too, which others may hold."""
    with anyio.move_on_after(_GRACE_S):
        while process.returncode is None:  # noqa: ASYNC110 - there is no event for it alone
            await anyio.sleep(_POLL_S)
    return process.returncode is not None


async def _close(pipe: ByteSendStream | ByteReceiveStream) -> None:
    with suppress(*_GONE):
        await pipe.aclose()
