"""Let something happen before a chosen line of code."""

import gc
import linecache
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType, ModuleType
from typing import Any

from turnlog.store import group_commit


def at_line(
    line: int,
    work: Callable[[], object],
    happen: Callable[[], None],
    modules: Sequence[ModuleType] = (group_commit,),
) -> str | None:
    """Let something happen before the n-th line of some modules that some work runs; return where, or None."""
    files = {module.__file__ for module in modules}
    passed = 0
    place: str | None = None

    def trace_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal passed, place
        # Tracing sees the line of a `with` again between its body and its exit, and a `try` before it is in force:
        # there no signal is ever handled.
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not source.strip().startswith(("with ", "try:")):
            passed += 1
            if passed == line:
                place = f"{frame.f_code.co_name}, line {frame.f_lineno}"
                happen()
        return trace_line

    def trace(frame: FrameType, _event: str, _argument: object) -> Any:
        return trace_line if frame.f_code.co_filename in files else None

    before = sys.gettrace()
    gc.disable()  # what other tests have left would be taken apart in here
    sys.settrace(trace)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.settrace(before)
        gc.enable()
    return place


def interrupt() -> None:
    """Do as the handler of SIGINT does."""
    raise KeyboardInterrupt
