"""How an MCP server is started or reached. This module imports the SDK, which is an extra."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from turnlog.agent.mcp.exchange import Arrived
from turnlog.agent.mcp.failures import StderrTail
from turnlog.agent.mcp.http import Client
from turnlog.agent.mcp.launch import Launch
from turnlog.agent.mcp.program import LINE_BYTES_MAX, program
from turnlog.executors import of_process
from turnlog.providers.certificates import tls_context
from turnlog.providers.proxies import check_proxies

_HTTP_WRITE_TIMEOUT_S = 60.0

Streams = tuple[Any, Any]
"""What the SDK reads from and writes to."""


async def run_program(stack: AsyncExitStack, launch: Launch, tail: StderrTail) -> Streams:
    """Start a program with its standard error in a pipe whose last bytes are kept."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as errors:
        pipe = os.fdopen(reading, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: tail, pipe)
        stack.push_async_callback(tail.finish, transport)
        return await stack.enter_async_context(program(launch, errors))


async def reach(
    stack: AsyncExitStack,
    launch: Launch,
    auth: httpx2.Auth | None,
    on_response: Callable[[httpx2.Response], Awaitable[None]],
    timeout_s: float,
    arrived: Arrived,
) -> Streams:
    """Connect over streamable HTTP. Reading has no time-out of its own: each request has one.

    Long results stay in `arrived`, and something short stands for them.

    Raises:
        ProviderError: a proxy that the environment names cannot be used.
    """
    check_proxies("mcp")
    client = Client(
        arrived,
        headers=launch.headers,
        auth=auth,
        timeout=httpx2.Timeout(timeout_s, read=None, write=_HTTP_WRITE_TIMEOUT_S),
        event_hooks={"response": [on_response]},
        verify=await of_process().run_read(tls_context),  # which reads certificates, the first time
    )
    await stack.enter_async_context(client)
    return await stack.enter_async_context(
        streamable_http_client(launch.url, http_client=client, max_sse_event_size=LINE_BYTES_MAX)
    )
