"""Renewals of logins at MCP servers: one at a time among all processes of a user, and to its end once it is sent.

An authorization server may take a refresh token once only, and take the login away when it is sent again (RFC 9700,
4.14.2). So whoever renews a login has its lock, looks first whether another process was there before, and keeps what it
gets even where nobody waits for it any more. This module imports the SDK, which is an extra.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, wait

from mcp.client.auth import OAuthFlowError
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import OAuthToken

from turnlog.agent.mcp.grants import Grant, keep_renewed, kept_grant, login_lock
from turnlog.agent.mcp.signals import KeyringUnusableError, LoginError, MisbehaviourError
from turnlog.agent.mcp.tokens import AnswerError, Models, models, refresh_request, renewed, tokens_of
from turnlog.audit.posting import post
from turnlog.errors import ToolServerError
from turnlog.executors import of_process
from turnlog.providers.wire import RETRYABLE_STATUS

SENT_WAIT_S = 3.0
"""How long a renewal that was sent is waited for when its connection is closed. An interrupted command has 5 s."""

ANSWER_S = 30.0
"""How long an authorization server may take to answer, and how long another process may take to renew the login."""

_ANSWER_BYTES_MAX = 1_000_000


class Renewal:
    """One renewal of a login, in a thread of its own. It goes on when those who wait for it do not."""

    def __init__(self, name: str, used: Grant, context: OAuthContext) -> None:
        """Begin to renew.

        Args:
            name: the name of the server.
            used: the grant that is of no use any more.
            context: the SDK's, which is used here alone.
        """
        self._name = name
        self._used = used
        self._context = context
        self._over = Future[Grant]()
        self._over.set_running_or_notify_cancel()
        self._mutex = threading.Lock()
        self._sent = self._given_up = False
        threading.Thread(target=self._run, name=f"turnlog login {name}", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self._over.done()

    async def result(self) -> Grant:
        """Wait for the grant that is to be used from now on. On return it is in the keyring.

        Raises:
            LoginError: there is none, and why.
        """
        return await asyncio.wrap_future(self._over)

    async def end(self) -> None:
        """Send nothing from now on, and wait for what was sent, for `SENT_WAIT_S` at most."""
        with self._mutex:
            self._given_up = True
        if self._sent:
            await of_process().run_wait(wait, [self._over], SENT_WAIT_S)

    def _run(self) -> None:
        try:
            self._over.set_result(self._renewed())
        except (LoginError, MisbehaviourError) as error:
            self._over.set_exception(LoginError(str(error)))
        except (ToolServerError, KeyringUnusableError, OAuthFlowError) as error:
            self._over.set_exception(LoginError(f"has a login that cannot be renewed: {_said(error)}"))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._over.set_exception(error)

    def _renewed(self) -> Grant:
        with login_lock(
            f"renewal of {self._name}", server=self._name, wait_s=ANSWER_S, while_waiting=self._check_wanted
        ):
            kept = self._kept()
            if kept.tokens != self._used.tokens and not kept.has_expired:
                return kept
            try:
                grant = renewed(kept, self._tokens(models(self._name, kept)))
            except AnswerError as error:
                if error.code != "invalid_grant":
                    raise LoginError(self._refused(error)) from None
                again = self._kept()
                if again.tokens == kept.tokens:
                    raise self._expired() from None
                return again
            return grant if keep_renewed(self._name, kept, grant) else self._kept()

    def _kept(self) -> Grant:
        kept = kept_grant(self._name, self._used.url)
        if kept is None:
            raise LoginError(f"wants a login (there is none any more): `turnlog mcp login {self._name}`")
        return kept

    def _tokens(self, grant: Models) -> OAuthToken:
        """Ask for other tokens, and return them.

        Raises:
            AnswerError: there are none.
            LoginError: nobody could be asked.
        """
        request = refresh_request(grant, self._context)
        if request is None:
            raise self._expired()
        self._send()
        answer = post(
            str(request.url),
            request.content,
            headers=request.headers,
            failed=_unreachable,
            answer_bytes=_ANSWER_BYTES_MAX + 1,
            timeout_s=ANSWER_S,
        )
        if len(answer.body) > _ANSWER_BYTES_MAX:
            raise AnswerError("did not come to the end of its answer", status=answer.status)
        return tokens_of(answer.status, answer.body)

    def _send(self) -> None:
        """Note that the request is sent now, if it still is to be."""
        with self._mutex:
            self._check_wanted()
            self._sent = True

    def _check_wanted(self) -> None:
        if self._given_up:
            raise LoginError("has a login that was not renewed, for nobody waited for it")

    def _refused(self, error: AnswerError) -> str:
        again = error.status in RETRYABLE_STATUS or error.status >= 500
        return f"has a login that could not be renewed: the authorization server {error}: " + (
            "try again later" if again else f"`turnlog mcp login {self._name}`"
        )

    def _expired(self) -> LoginError:
        return LoginError(f"wants a login (the login has expired): `turnlog mcp login {self._name}`")


def _unreachable(why: str) -> LoginError:
    return LoginError(
        f"has a login that could not be renewed: the authorization server cannot be reached ({why}): try again"
    )


def _said(error: Exception) -> str:
    return f"the keyring cannot be used: {error}" if isinstance(error, KeyringUnusableError) else str(error)
