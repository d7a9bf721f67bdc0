"""An authorization server (OAuth 2.1) that stands in the same program as the MCP server that it protects.

Sources: RFC 8414, RFC 9728, RFC 7591, RFC 6749.
"""

import base64
import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlencode

App = Callable[..., Awaitable[None]]


class Protected:
    """An app behind a login: whoever asks is let in, or with `refuses` nobody.

    `changed` is what the authorization server says otherwise of itself. Access tokens are `access-1`, `access-2`, …,
    and are good for ever, though they are said to expire.
    """

    def __init__(self, app: App, base: str, *, refuses: bool = False, changed: dict[str, Any] | None = None) -> None:
        self._app = app
        self._base = base
        self._changed = changed or {}
        self._refuses = refuses
        self._issued = 0
        self._clients = 0
        self._challenges: dict[str, str] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer what belongs to the login, and let in who has logged in."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        path, query = (
            scope["path"],
            {name: values[0] for name, values in parse_qs(scope["query_string"].decode()).items()},
        )
        if path.startswith("/.well-known/oauth-protected-resource"):
            return await _answer(send, {"resource": f"{self._base}/mcp", "authorization_servers": [self._base]})
        if path.startswith("/.well-known/oauth-authorization-server"):
            return await _answer(
                send,
                {
                    "issuer": self._base,
                    "authorization_endpoint": f"{self._base}/authorize",
                    "token_endpoint": f"{self._base}/token",
                    "registration_endpoint": f"{self._base}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                    **self._changed,
                },
            )
        if path == "/register":
            self._clients += 1
            about = json.loads(await _body(receive))
            return await _answer(send, {**about, "client_id": f"client-{self._clients}"}, 201)
        if path == "/authorize":
            return await self._authorize(send, query)
        if path == "/token":
            form = {name: values[0] for name, values in parse_qs((await _body(receive)).decode()).items()}
            return await self._token(send, form)
        if dict(scope["headers"]).get(b"authorization") not in self._good("Bearer access-"):
            return await _answer(send, {"error": "invalid_token"}, 401)
        return await self._app(scope, receive, send)

    def _good(self, kind: str) -> list[bytes]:
        return [f"{kind}{number}".encode() for number in range(1, self._issued + 1)]

    async def _authorize(self, send: Any, query: dict[str, str]) -> None:
        """Send the browser back, with a code or without."""
        code = f"code-{len(self._challenges)}"
        self._challenges[code] = query["code_challenge"]
        said = {"error": "access_denied", "error_description": "not you"} if self._refuses else {"code": code}
        place = f"{query['redirect_uri']}?{urlencode({'state': query['state'], **said})}"
        await _answer(send, {}, 302, [(b"location", place.encode())])

    async def _token(self, send: Any, form: dict[str, str]) -> None:
        """Give tokens for a code, once, or for the last refresh token."""
        if form["grant_type"] == "authorization_code":
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            good = self._challenges.pop(form["code"], "") == base64.urlsafe_b64encode(digest).decode().rstrip("=")
        else:
            good = form["refresh_token"].encode() in self._good("refresh-")
        if not good:
            return await _answer(send, {"error": "invalid_grant"}, 400)
        self._issued += 1
        return await _answer(
            send,
            {
                "access_token": f"access-{self._issued}",
                "refresh_token": f"refresh-{self._issued}",
                "token_type": "Bearer",
                "expires_in": 3600,
            },
        )


async def _body(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _answer(
    send: Any, value: object, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(b"content-type", b"application/json"), *(headers or [])],
        }
    )
    await send({"type": "http.response.body", "body": json.dumps(value).encode()})
