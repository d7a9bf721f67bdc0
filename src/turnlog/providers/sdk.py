"""What the SDKs of Anthropic and OpenAI have in common: the names of their errors, and the HTTP library below them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from turnlog.errors import ProviderError
from turnlog.providers.interface import Connection
from turnlog.providers.wire import connection_error, said_by, status_error


@contextmanager
def converted(sdk: Any, root: type[Exception], adapter: str, connection: Connection) -> Generator[None]:
    """Raise the errors of an SDK and of the HTTP library below it as `ProviderError`.

    Args:
        sdk: the SDK's module.
        root: the root of the SDK's own errors.
        adapter: the adapter's name.
        connection: how the provider is reached; its key is taken out of what the provider says.
    """
    import httpx2  # noqa: PLC0415 - it comes with the SDKs, and takes a while to import

    try:
        yield
    except sdk.APIStatusError as error:
        raise _status_error(adapter, error, connection) from error
    except (sdk.APITimeoutError, httpx2.TimeoutException) as error:
        raise connection_error(adapter, error, timed_out=True) from error
    except sdk.APIConnectionError as error:
        cause = error.__cause__
        if isinstance(cause, httpx2.UnsupportedProtocol):
            raise _bad_url(adapter, connection) from error
        raise connection_error(adapter, cause or error) from error
    except httpx2.InvalidURL as error:
        raise _bad_url(adapter, connection) from error
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise connection_error(adapter, error) from error
    except (root, ValueError) as error:
        raise ProviderError(f"{adapter} cannot be called: {error}", provider=adapter) from error


def sendable_key(adapter: str, connection: Connection) -> str:
    """Return the key to give to an SDK, or a placeholder: without any, it would look for one of its own.

    Raises:
        ProviderError: the key cannot be sent in a header.
    """
    key = connection.api_key
    if key is not None and not (key.isascii() and key.isprintable()):
        raise ProviderError(
            f"the API key for {adapter} has a line end or another character that cannot be sent: set it anew",
            provider=adapter,
        )
    return key or "none"


def _status_error(adapter: str, error: Any, connection: Connection) -> ProviderError:
    said = said_by(error.body)
    if connection.api_key:
        said = said.replace(connection.api_key, "…")  # some endpoints repeat a key that they refuse
    headers = error.response.headers
    retry_after: str | None = headers.get("retry-after")
    with suppress(KeyError, ValueError):
        retry_after = str(float(headers["retry-after-ms"]) / 1000)
    return status_error(adapter, error.status_code, said, retry_after)


def _bad_url(adapter: str, connection: Connection) -> ProviderError:
    return ProviderError(f"{adapter}: {connection.base_url!r} is not a base URL: give http(s)://…", provider=adapter)
