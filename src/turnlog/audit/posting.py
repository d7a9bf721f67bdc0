"""Posting to somebody's server, with a bound on how long the whole of it takes and on what comes back."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from threading import Thread
from typing import TYPE_CHECKING

from msgspec import Struct

from turnlog.web_address import parsed

if TYPE_CHECKING:
    import httpx2

TIMEOUT_S = 30.0
"""How long an exchange may take: from looking up the name of a server to the last byte of its answer."""

_CLOSING_S = 1.0
"""How long a connection is given to close, and what cannot be broken off, such as looking up a name, to end."""

Failed = Callable[[str], Exception]
"""Returns the error to raise, from why there is no answer."""


class Answer(Struct, frozen=True, kw_only=True):
    """What a server answers.

    Attributes:
        status: the HTTP status.
        media_type: its media type, "" where it names none.
        body: as much of it as was asked for.
    """

    status: int
    media_type: str
    body: bytes


def post(
    url: str,
    content: bytes,
    *,
    headers: Mapping[str, str],
    failed: Failed,
    answer_bytes: int = 0,
    timeout_s: float = TIMEOUT_S,
) -> Answer:
    """Send a POST request and return the answer. Redirections are not followed.

    It is done on a thread of its own, so that it can be broken off wherever it is called, and by an interrupt.

    Args:
        url: where to.
        content: the body to send.
        headers: what to say with it.
        failed: makes the error.
        answer_bytes: how many bytes of the answer to read; with 0, the answer is there with its status.
        timeout_s: how long all of it may take, in seconds, above 0.

    Raises:
        Exception: there is no answer, or not all of it in time: what `failed` returns.
    """
    if parsed(url) is None:
        raise failed("its address is no URL with http:// or https://")
    answered: Future[Answer] = Future()

    def work() -> None:
        import asyncio  # noqa: PLC0415 - most commands post nothing

        try:
            answered.set_result(asyncio.run(_answer(url, content, headers, answer_bytes, timeout_s)))
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            answered.set_exception(error)

    Thread(target=work, name="turnlog-post", daemon=True).start()
    try:
        return answered.result(timeout_s + _CLOSING_S)
    except TimeoutError as error:
        raise failed(f"no answer within {timeout_s:.3g} s") from error
    except OSError as error:
        raise failed(str(error) or type(error).__name__) from error


async def _answer(url: str, content: bytes, headers: Mapping[str, str], answer_bytes: int, timeout_s: float) -> Answer:
    """Do it.

    Raises:
        OSError: there is no answer.
        TimeoutError: not all of it was there in time.
    """
    import httpx2  # noqa: PLC0415 - as above

    try:
        async with httpx2.AsyncClient(timeout=None) as client:
            response, body = await exchange(
                client, url, content, headers=headers, answer_bytes=answer_bytes, timeout_s=timeout_s
            )
    except httpx2.TimeoutException as error:
        raise TimeoutError from error
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise OSError("its address is no URL") from error
    except (httpx2.HTTPError, httpx2.StreamError) as error:
        raise OSError(str(error) or type(error).__name__) from error
    return Answer(status=response.status_code, media_type=response.headers.get("Content-Type", ""), body=body)


async def exchange(
    client: httpx2.AsyncClient,
    url: str,
    content: bytes | Iterable[bytes] | AsyncIterable[bytes],
    *,
    headers: Mapping[str, str],
    answer_bytes: int,
    timeout_s: float,
) -> tuple[httpx2.Response, bytes]:
    """Send a POST request, and return the response, which is closed, and the beginning of its body.

    A connection over which more would come is not used again.

    Args:
        client: what sends it. Clients have no limit for all of an exchange: this one is to have none.
        url: where to.
        content: the body to send, whole or in pieces.
        headers: what to say with it.
        answer_bytes: how many bytes of the answer to read; with 0, the answer is there with its status.
        timeout_s: how long all of it may take, in seconds, above 0.

    Raises:
        TimeoutError: not all of it was there in time.
        httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, UnicodeError: there is no answer.
    """
    import asyncio  # noqa: PLC0415 - most commands post nothing

    # An answer that is packed could be any size when it is unpacked.
    headers = {**headers, "accept-encoding": "identity"}
    body = b""
    async with asyncio.timeout(timeout_s), client.stream("POST", url, content=content, headers=headers) as response:
        if answer_bytes:
            async with aclosing(response.aiter_raw()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) >= answer_bytes:
                        break
    return response, body[:answer_bytes]
