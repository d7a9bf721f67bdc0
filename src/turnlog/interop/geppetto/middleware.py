"""Middleware around a model call: each sees the turn that goes in, and the one that comes out.

A handler takes a turn and returns it with what the model answered. A middleware takes a handler and returns another
one. `chain` puts them around a handler, the first one outermost.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from copy import copy
from functools import reduce
from typing import cast

from turnlog.errors import RunError
from turnlog.interop.geppetto.builders import new_system_text_block
from turnlog.interop.geppetto_model.checking import check_turn
from turnlog.interop.geppetto_model.keys import KEY_BLOCK_MIDDLEWARE
from turnlog.interop.geppetto_model.types import PAYLOAD_KEY_ID, PAYLOAD_KEY_TEXT, Block, BlockKind, Turn
from turnlog.store.telling import logger

Handler = Callable[[Turn], Awaitable[Turn]]
"""Takes a turn, and returns it, or another one, with what a model answered."""

Middleware = Callable[[Handler], Handler]
"""Puts something around a handler."""

_SYSTEM_PROMPT = "system_prompt"

_RETURN = "return the turn that its handler returned"

_log = logger("turnlog.geppetto")


def chain(handler: Handler, *middlewares: Middleware) -> Handler:
    """Return a handler with middlewares around it. The first one is outermost: it sees a turn first, and last.

    Raises:
        RunError: one of them is no function that takes a handler and returns one.
    """
    return reduce(_around, reversed(middlewares), handler)


def system_prompt(text: str) -> Middleware:
    """Return middleware that puts a system prompt in front of a turn, in place of one that it put there before.

    System blocks of others stay. The turn that was given stays as it is.
    """

    def middleware(handler: Handler) -> Handler:
        async def handle(turn: Turn) -> Turn:
            check_turn(turn, "what a handler is given")
            block = new_system_text_block(text, id="")
            KEY_BLOCK_MIDDLEWARE.set(block.metadata, _SYSTEM_PROMPT)
            others = [other for other in turn.blocks if not _is_ours(other)]
            return await handler(_with_blocks(turn, [block, *others]))

        return handle

    return middleware


def tool_result_reorder() -> Middleware:
    """Return middleware that puts the results of tool calls right behind these: behind all calls of one reply.

    Results without a call stay where they are. The turn that was given stays as it is.
    """

    def middleware(handler: Handler) -> Handler:
        async def handle(turn: Turn) -> Turn:
            check_turn(turn, "what a handler is given")
            return await handler(_with_blocks(turn, _reordered(turn.blocks)))

        return handle

    return middleware


def call_logging(logger: logging.Logger = _log, *, level: int = logging.INFO, content: bool = False) -> Middleware:
    """Return middleware that logs each call: how many blocks went in and came out, and how long it took.

    Args:
        logger: where to.
        level: the level. An error is logged as one.
        content: log the text of new blocks too, which may be personal data.
    """

    def middleware(handler: Handler) -> Handler:
        async def handle(turn: Turn) -> Turn:
            check_turn(turn, "what a handler is given")
            began = time.monotonic()
            logger.log(level, "turn %r of run %r: asking with %d blocks", turn.id, turn.run_id, len(turn.blocks))
            try:
                answered = await handler(turn)
            except Exception:
                logger.exception("turn %r of run %r: failed", turn.id, turn.run_id)
                raise
            check_turn(answered, "what a middleware returned", _RETURN)
            new = answered.blocks[len(turn.blocks) :]
            kinds = ", ".join(block.kind for block in new) or "nothing"
            logger.log(level, "turn %r of run %r: %s in %.3f s", turn.id, turn.run_id, kinds, time.monotonic() - began)
            for block in new if content else ():
                logger.log(level, "%s: %s", block.kind, block.payload.get(PAYLOAD_KEY_TEXT, block.payload))
            return answered

        return handle

    return middleware


def _around(inner: Handler, middleware: object) -> Handler:
    wrapped = middleware(inner) if callable(middleware) else middleware
    if callable(wrapped):
        return cast("Handler", wrapped)
    if inspect.iscoroutine(wrapped):
        wrapped.close()  # nobody awaits it
    what = "returned" if callable(middleware) else "is"
    raise RunError(
        f"a middleware {what} {type(wrapped).__name__}: it is a plain function that takes a handler, and returns"
        " another one (`async def handle(turn)`)"
    )


def _is_ours(block: Block) -> bool:
    return block.kind == BlockKind.SYSTEM and block.metadata.raw(KEY_BLOCK_MIDDLEWARE.identity) == _SYSTEM_PROMPT


def _with_blocks(turn: Turn, blocks: list[Block]) -> Turn:
    other = copy(turn)
    other.blocks = blocks
    return other


def _reordered(blocks: list[Block]) -> list[Block]:
    called = {block.payload.get(PAYLOAD_KEY_ID) for block in blocks if block.kind == BlockKind.TOOL_CALL}
    results: defaultdict[object, list[Block]] = defaultdict(list)
    rest: list[Block] = []
    for block in blocks:
        call_id = block.payload.get(PAYLOAD_KEY_ID)
        if block.kind == BlockKind.TOOL_USE and isinstance(call_id, str) and call_id in called:
            results[call_id].append(block)
        else:
            rest.append(block)
    ordered: list[Block] = []
    waiting: list[object] = []
    for index, block in enumerate(rest):
        ordered.append(block)
        if block.kind == BlockKind.TOOL_CALL:
            waiting.append(block.payload.get(PAYLOAD_KEY_ID))
        following = rest[index + 1].kind if index + 1 < len(rest) else None
        if following not in (BlockKind.LLM_TEXT, BlockKind.TOOL_CALL, BlockKind.REASONING):
            ordered += [result for call in dict.fromkeys(waiting) for result in results.pop(call, ())]
            waiting = []
    return ordered
