"""What the SDKs of Anthropic and OpenAI have in common: the names of their errors, and the HTTP library below them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Any

from turnlog.errors import ProviderError
from turnlog.providers.interface import Connection
from turnlog.providers.wire import connection_error, not_a_base_url, said_by, status_error, without_key


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
        raise connection_error(adapter, error, connection, timed_out=True) from error
    except sdk.APIConnectionError as error:
        cause = error.__cause__
        if isinstance(cause, httpx2.UnsupportedProtocol):
            raise not_a_base_url(adapter, connection) from error
        raise connection_error(adapter, cause or error, connection) from error
    except httpx2.InvalidURL as error:
        raise not_a_base_url(adapter, connection) from error
    except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
        raise connection_error(adapter, error, connection) from error
    except (root, ValueError) as error:
        raise ProviderError(f"{connection.who or adapter} cannot be called: {error}", provider=adapter) from error


def _status_error(adapter: str, error: Any, connection: Connection) -> ProviderError:
    said = without_key(said_by(error.body), connection)
    headers = error.response.headers
    retry_after: str | None = headers.get("retry-after")
    with suppress(KeyError, ValueError):
        retry_after = str(float(headers["retry-after-ms"]) / 1000)
    return status_error(adapter, error.status_code, said, retry_after, who=connection.who)
